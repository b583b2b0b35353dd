"""The hashes of row images against those that a real server computes of its rows."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pytest

from bridge.events import SEP
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import Definition, load_definitions
from bridge.protocols.values import literals
from bridge.verify.compare.checksums import Fingerprint, fingerprint_of, fingerprint_query
from bridge.verify.log.log_tables import ranges_of
from bridge.verify.log.logged_rows import STEP_SCHEMA
from bridge.verify.log.recompute import SEPARATOR, fingerprints, literal
from bridge.verify.log.recompute import hashed as with_hashes
from tests.support.verify_servers import execute

T = TableName("app", "t")
NUMBER = 7
pytestmark = pytest.mark.server

TEXTS = [
    literals.text(some) for some in ("", "a", "A", "a ", "ä", "😀", "it's", "\\", "\\'", "'", "\0", "\x1a\n", "NULL")
]
WHOLE_NUMBERS = ["0", "-0", "7", "07", "-7", "7.0", "'7'", "7e0", "x'37'"]
TYPES = {
    "INT": [*WHOLE_NUMBERS, "2147483647"],
    "BIGINT UNSIGNED": ["0", "07", "18446744073709551615"],
    "INT(6) ZEROFILL": ["0", "7", "000007"],
    "DECIMAL(20,2)": ["0.00", "-0.00", "0", "7.00", "7.0", "07.00", "7", "-7.25", "123456789012345678.25", "'7.00'"],
    "DOUBLE": [*map(literals.double_number, (0, -0.0, 7, -7.5, 0.1, 1e-5, 1e15, 1e16, 1e300, 123456.789)), "7", "7.0"],
    "FLOAT": [*map(literals.float32_number, (0, 7, -7.5, 0.1, 1e-5, 16777216, 3.4e38)), "0.1", "7"],
    "DATE": ["'2024-02-29'", "'0000-00-00'", "'2024-00-10'", "20240229"],
    "DATETIME(3)": ["'2024-02-29 01:02:03.120'", "'2024-02-29 01:02:03.12'", "'2024-02-29 01:02:03'"],
    "TIMESTAMP": ["'2024-02-29 01:02:03'", "'1970-01-01 00:00:01'", "20240229010203"],
    "TIME(1)": ["'-838:59:59.0'", "'01:02:03.5'", "'1:02:03.5'", "'00:00:00.0'"],
    "YEAR": ["0", "1901", "2024", "24", "'0'"],
    "BIT(9)": ["0", "1", "256", "b'1'"],
    "VARCHAR(9)": [*TEXTS, "7", "'7'"],
    "VARCHAR(9) COLLATE utf8mb4_bin": [*TEXTS, "7", "'7'"],
    "CHAR(9)": TEXTS,
    "LONGTEXT": [*TEXTS, literals.text("x'" * 50_000)],
    "VARCHAR(9) CHARACTER SET latin1": [some for some in TEXTS if "😀" not in some],
    "VARCHAR(9) CHARACTER SET utf16": TEXTS,
    "VARBINARY(9)": [*map(literals.binary, (b"", b"\0", b"'\\", b"\xff", b"a")), "'a'", "X'61'", "''"],
    "BINARY(3)": [*map(literals.binary, (b"", b"a", b"a\0\0")), "'a'"],
    "BLOB": list(map(literals.binary, (b"", b"\xff\0"))),
}
ONE_OF_EACH = {
    "INT", "BIGINT UNSIGNED", "DECIMAL(20,2)", "DOUBLE", "FLOAT", "DATE", "DATETIME(3)", "TIMESTAMP", "TIME(1)", "YEAR",
    "BIT(9)", "VARCHAR(9)", "LONGTEXT", "VARCHAR(9) CHARACTER SET latin1", "VARBINARY(9)", "BLOB",
}  # fmt: skip
"""Types of which the first literal is the one that the server writes."""


@pytest.fixture(params=["target", "mysql_target"])
def session(request: pytest.FixtureRequest) -> Iterator[Session]:
    url = request.getfixturevalue(request.param)
    execute(url, "CREATE DATABASE app")
    opened = Target(url).connect(autocommit=True)
    yield opened
    opened.close()


def definition(session: Session) -> Definition:
    return load_definitions(session, [T])[T]


@pytest.mark.parametrize("kind", TYPES)
def test_one_literal_means_one_value(session: Session, kind: str) -> None:
    """Where the server writes its value as a literal, what that literal stores is the value, byte for byte."""
    session.execute(f"CREATE TABLE app.t (id INT PRIMARY KEY, v {kind} NULL)")
    given = ["NULL", *TYPES[kind]]
    for number, value in enumerate(given):
        session.execute(f"INSERT INTO app.t VALUES ({number},{value})")
    written = literal(definition(session).columns["v"], "t")
    assert written is not None
    found = session.rows(f"SELECT {written},HEX(v),v FROM app.t t ORDER BY id")
    texts = [text.decode() if isinstance(text, bytes) else str(text) for text, *_ in found]
    stored = dict(zip(given, (rest for _, *rest in found), strict=True))
    assert [stored[text] for text in texts if text in stored] == [
        rest for text, (_, *rest) in zip(texts, found, strict=True) if text in stored
    ]
    assert texts[0] == "NULL"
    assert kind not in ONE_OF_EACH or texts[1] == given[1]


@pytest.mark.parametrize("kind", ["ENUM('1','2')", "SET('a')", "JSON", "VARCHAR(9) CHARACTER SET gbk", "POINT"])
def test_types_whose_values_have_no_literal_of_their_own(session: Session, kind: str) -> None:
    """A number may stand for a name or another; bytes may stand for no character."""
    session.execute(f"CREATE TABLE app.t (id INT PRIMARY KEY, v {kind})")
    assert literal(definition(session).columns["v"], "t") is None


def folded(*rows: tuple[str, str | None]) -> pa.Table:
    """The folded steps of keys and images; values are separated by commas."""
    nothing = dict.fromkeys(STEP_SCHEMA.names) | {"table_number": NUMBER}
    images = [{"key": key, "image": image and image.replace(",", SEP)} for key, image in rows]
    return pa.Table.from_pylist([nothing | row for row in images], STEP_SCHEMA)


def hashed(rows: pa.Table, cuts: tuple[int, ...]) -> list[Fingerprint]:
    """The fingerprints of each part."""
    nothing = [Fingerprint(0, 0, 0)] * (len(cuts) + 1)
    return dict(fingerprints(with_hashes(rows), {NUMBER: cuts, 2: ()})).get(NUMBER, nothing)


def asked(session: Session, cuts: tuple[int, ...]) -> list[Fingerprint]:
    """What the server says of each part."""
    written = [one for column in definition(session).columns.values() if (one := literal(column, "t"))]
    found = []
    for low, high in ranges_of(cuts):
        within = f"({low is None} OR id>{low or 0}) AND ({high is None} OR id<={high or 0})"
        found.append(
            fingerprint_of(
                session.rows(fingerprint_query(written, f"FROM app.t t WHERE {within}", separator=SEPARATOR))[0]
            )
        )
    return found


@pytest.mark.parametrize("cuts", [(), (2,), (-5, 1, 3, 9)])
def test_images_and_rows_have_the_same_fingerprint(session: Session, cuts: tuple[int, ...]) -> None:
    """In each part, whatever the order of rows; deleted rows count nowhere, and NULL is no text."""
    session.execute("CREATE TABLE app.t (id INT PRIMARY KEY, a VARCHAR(20) COLLATE utf8mb4_bin, b VARCHAR(20))")
    session.execute(r"INSERT INTO app.t VALUES (-7,'a',NULL),(1,'it\'s','\\\0'),(2,NULL,'NULL'),(3,'é','')")
    rows = [("3", "3,'é',''"), ("8", None), ("-7", "-7,'a',NULL"), ("2", "2,NULL,'NULL'"), ("1", r"1,'it\'s','\\\0'")]
    assert hashed(folded(*rows), cuts) == asked(session, cuts)
    for wrong in ("2,'NULL',NULL", "2,NULL,NULL", "2,'','NULL'", "3,NULL,'NULL'"):
        changed = [(key, wrong if key == "2" else image) for key, image in rows]
        differ = [one != other for one, other in zip(hashed(folded(*changed), cuts), asked(session, cuts), strict=True)]
        assert sum(differ) == 1


@pytest.mark.parametrize("cuts", [(), (5,)])
@pytest.mark.parametrize("spelling", ["9e0", "09", "-0", "'9'", "9.0", "x'39'"])
def test_keys_in_another_spelling_are_equal_nowhere(cuts: tuple[int, ...], spelling: str) -> None:
    """A row that was inserted as 9 may have been deleted as 09."""
    rows = [("1", "1"), ("9", "9")]
    assert all(one.is_surely(one) for one in hashed(folded(*rows, ("8", None)), cuts))
    assert not any(one.is_surely(one) for one in hashed(folded(*rows, (spelling, None)), cuts))


@pytest.mark.parametrize("cuts", [(), (5, 9)])
def test_no_rows_and_rows_that_are_gone(cuts: tuple[int, ...]) -> None:
    """They add nothing; a part of a log may hold no other of a table."""
    nothing = [Fingerprint(0, 0, 0)] * (len(cuts) + 1)
    assert hashed(folded(), cuts) == nothing
    assert hashed(folded(("7", None), ("8", None)), cuts) == nothing


def test_keys_beyond_all_cuts_are_equal_nowhere() -> None:
    """No part of a table is said to hold them, unless the whole table is one part."""
    row = ("12345678901234567890", "12345678901234567890")
    assert [one.is_surely(one) for one in hashed(folded(row), ())] == [True]
    assert [one.is_surely(one) for one in hashed(folded(row), (5,))] == [False, False]


def test_steps_of_many_tables() -> None:
    """Each table has its own fingerprint, however their steps are mixed; tables without steps have none, and a key in
    another spelling is that of one table."""
    steps = [("1", "1,x"), ("2", "2,y"), ("3", None), ("4", "4,z"), ("05", "5,u")]
    rows = folded(*steps)
    numbers = [3, 1, 1, 3, 5]
    mixed = rows.set_column(0, STEP_SCHEMA.field("table_number"), pa.array(numbers, pa.int32()))
    found = dict(fingerprints(with_hashes(mixed), {1: (), 3: (2,), 5: (), 8: ()}))
    assert found.keys() == {1, 3, 5}
    assert found[1] == hashed(folded(("2", "2,y")), ())
    assert found[3] == hashed(folded(("1", "1,x"), ("4", "4,z")), (2,))
    assert not found[5][0].is_surely(found[5][0])
