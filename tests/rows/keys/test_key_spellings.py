"""Keys that the server holds for one under several spellings."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import product
from string import ascii_lowercase, printable

import pyarrow as pa
import pytest

from bridge.config import Settings
from bridge.events import Kind, RowChange
from bridge.model import TableName
from bridge.mysql.catalog import load_tables
from bridge.mysql.connection.session import Session
from bridge.protocols.batch_decode import ruled
from bridge.protocols.values import literals
from bridge.rows.key_spellings import _PLAIN, are_plain
from bridge.rows.literal_offsets import TEXT
from tests.support.fixtures import SERVERS
from tests.support.pipelines import admin, run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change

CHARACTERS = [c for c in printable if c.isprintable()]
HAN = map(chr, range(0x4E00, 0x9FA6))
WORDS = [*map("".join, product(CHARACTERS, repeat=2)), *map("".join, product(ascii_lowercase, repeat=3)), *HAN]
NAME = TableName("m", "t")
ALIKE = {
    "case": ("VARCHAR(9) COLLATE utf8mb4_general_ci", "Alice", "ALICE"),
    "accent": ("VARCHAR(9) COLLATE utf8mb4_unicode_ci", "e", "é"),
    "two letters for one": ("VARCHAR(9) COLLATE utf8mb4_unicode_ci", "ß", "ss"),
    "an ignored character": ("VARCHAR(9) COLLATE utf8mb4_unicode_ci", "a", "a\0"),
    "letters of no plane": ("VARCHAR(9) COLLATE utf8mb4_general_ci", "😀", "😁"),
    "latin1": ("VARCHAR(9) CHARACTER SET latin1 COLLATE latin1_swedish_ci", "ü", "y"),
    "gbk": ("VARCHAR(9) CHARACTER SET gbk COLLATE gbk_chinese_ci", "中a", "中A"),
    "a blank": ("VARCHAR(9) COLLATE utf8mb4_bin", "b", "b "),
    "a blank behind a character": ("VARCHAR(9) COLLATE utf8mb4_bin", "é  ", "é"),
    "a rule of a language": ("VARCHAR(9) COLLATE utf8mb4_danish_ci", "aa", "å"),
    "letters of ASCII that a language holds for one": ("VARCHAR(9) COLLATE utf8mb4_lithuanian_ci", "y", "i"),
}
MARIADB_ALIKE = {
    "uca1400": ("VARCHAR(9) COLLATE utf8mb4_uca1400_ai_ci", "Ａ", "a"),
    "uca1400 as": ("VARCHAR(9) COLLATE utf8mb4_uca1400_nopad_as_ci", "é", "É"),
    "two keys": ("VARCHAR(9) COLLATE utf8mb4_nopad_bin", "b", "b "),
}
MYSQL_ALIKE = {"0900": ("VARCHAR(9) COLLATE utf8mb4_0900_ai_ci", "ﬁ", "FI")}


@pytest.fixture(params=["target", "mysql_target", *(pytest.param(n, marks=pytest.mark.soak) for n in SERVERS)])
def url(request: pytest.FixtureRequest) -> str:
    """MariaDB 11.4 and MySQL 8.0; in long runs each server."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with admin(url) as session:
        session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        session.execute("CREATE DATABASE IF NOT EXISTS _bridge")
        yield session


def collations(session: Session) -> list[str]:
    """Of the server, by their whole names."""
    if "MariaDB" in str(session.value("SELECT VERSION()")) and session.rows("SHOW COLLATION LIKE 'uca1400_ai_ci'"):
        names = session.rows("SELECT full_collation_name FROM information_schema.collation_character_set_applicability")
    else:
        names = session.rows("SELECT collation_name FROM information_schema.collations")
    return [str(name) for (name,) in names if name != "binary"]


def test_plain_texts_differ_to_each_server(session: Session) -> None:
    """Under every collation that counts as one without rules of a language, texts of ASCII or Han without a blank at
    the end are one only if they differ in case; under every _bin collation none are."""
    words = [word for word in WORDS if not word.endswith(" ")]
    session.execute("CREATE TABLE m.w (w VARCHAR(9) COLLATE utf8mb4_bin, bin VARBINARY(99), plain VARBINARY(99))")
    rows = ",".join(f"({','.join(map(literals.text, (word, word, word.lower())))})" for word in words)
    session.execute(f"INSERT INTO m.w VALUES {rows}")
    looked_at = 0
    for name in collations(session):
        equal = "bin" if name.endswith("_bin") else "plain" if _PLAIN.fullmatch(name) else ""
        if not equal:
            continue
        looked_at += 1
        word = f"CONVERT(w USING {name.partition('_')[0]})"
        wrong = session.rows(
            f"SELECT MIN(w), MAX(w) FROM m.w WHERE CAST(CONVERT({word} USING utf8mb4) AS BINARY) = CAST(w AS BINARY)"
            f" GROUP BY {word} COLLATE {name} HAVING COUNT(DISTINCT {equal}) > 1 LIMIT 3"
        )
        assert not wrong, name
    assert looked_at > 30


def alike(url: str, session: Session, column: str, old: str, new: str, *, writers: int) -> None:
    """A row's key is respelled while others come and go; the target then holds the rows as they were written last."""
    session.execute(f"CREATE OR REPLACE TABLE m.t (k {column} NOT NULL, n INT, PRIMARY KEY (k))"
                    if "MariaDB" in str(session.value("SELECT VERSION()")) else
                    f"CREATE TABLE m.t (k {column} NOT NULL, n INT, PRIMARY KEY (k))")  # fmt: skip
    session.execute("INSERT INTO m.t VALUES (%s, 1), ('other', 2)", (old,))
    first, last, other = (Literal(literals.text(text)) for text in (old, new, "other"))
    names = ["k", "n"]
    changes = [
        row_change(10, "t", names, ["k"], before=[first, 1], after=[last, 5]),
        row_change(11, "t", names, ["k"], before=[other, 2]),
        boundary(20),
    ]
    run_all(url, in_one_partition(changes), writers=writers)
    assert session.rows("SELECT k, n FROM m.t") == [(new, 5)]


@pytest.mark.parametrize("name", [*ALIKE, *MARIADB_ALIKE])
def test_a_respelled_key_is_one_unit_in_parallel(target: str, name: str) -> None:
    """With one connection, which takes the longest statement first: the delete of the old spelling would come last."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        alike(target, session, *(ALIKE | MARIADB_ALIKE)[name], writers=1)


def test_a_respelled_key_on_mysql(mysql_target: str) -> None:
    """The same of a collation that only MySQL has."""
    with admin(mysql_target) as session:
        session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
        alike(mysql_target, session, *MYSQL_ALIKE["0900"], writers=1)


def test_a_tail_behind_a_prefix_key(target: str) -> None:
    """Texts that differ behind what the key holds are one key."""
    names = ["k", "n"]
    changes = [
        row_change(10, "t", names, ["k"], before=["abcd", 1], after=["abce", 5]),
        row_change(11, "t", names, ["k"], before=["abf", 2]),
        boundary(20),
    ]
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (k VARCHAR(9) COLLATE utf8mb4_bin NOT NULL, n INT, PRIMARY KEY (k(3)))")
        session.execute("INSERT INTO m.t VALUES ('abcd', 1), ('abf', 2)")
        run_all(target, in_one_partition(changes), writers=1)
        assert session.rows("SELECT k, n FROM m.t") == [("abce", 5)]


@pytest.mark.parametrize("writers", [0, 1], ids=["atomic", "parallel"])
def test_the_last_spelling_wins_where_old_rows_are_unknown(target: str, writers: int) -> None:
    """Updates without the row as it was, and a delete in another spelling than the row's: in the order of commits."""
    names = ["k", "n"]

    def update(ts: int, key: str, n: int) -> RowChange:
        return row_change(ts, "t", names, ["k"], after=[key, n])._replace(kind=Kind.UPDATE)

    changes = [
        *(update(10, "alice", 1), update(11, "ALICE", 2), update(12, "Alice", 3)),
        *(row_change(10, "t", names, ["k"], after=["B", 1]), row_change(11, "t", names, ["k"], before=["b ", 1])),
        *(row_change(10, "t", names, ["k"], before=["C", 1]), row_change(11, "t", names, ["k"], after=["c", 2])),
        boundary(20),
    ]
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)")
        run_all(target, in_one_partition(changes), writers=writers)
        assert session.rows("SELECT k, n FROM m.t ORDER BY k") == [("Alice", 3), ("c", 2)]


PLAIN = {
    "at": [["'2024-01-01 00:00:00.000'", "'2024-01-01 00:00:00.001'"]],
    "day": [["'2024-01-01'", "'2024-01-02'"]],
    "ci": [["'a'", "'b'"], ["'A'", "'b'"], ["'a b'", "'a-b'"], ["'北京A'", "'北京b'", "'龥'"]],
    "bin": [["'a'", "'A'"], ["'é'", "'e'"]],
}
ODD = {
    "d": [["1.5", "1.50"], ["01.50", "1.50"], ["-0.00", "0.00"], ["1.50", "2.50"]],
    "f": [["0.0e0", "-0.0e0"]],
    "at": [["'2024-01-01 00:00:00.000'", "'2024-01-01 00:00:00'"]],
    "day": [["'2024-01-01'", "'2024-01-01 00:00:00'"]],
    "ci": [["'a'", "'A'"], ["'b'", "'b '"], ["'e'", "'é'"], ["'a'", "x'41'"], ["'北A'", "'北a'"], ["'金'", "'\uf90a'"]],
    "bin": [["'b'", "'b '"], ["'a'", "x'61'"]],
}


def test_keys_that_may_be_one_are_not_plain(session: Session) -> None:
    """Whatever has two spellings goes by transaction; what a server tells apart by its literals goes by window."""
    session.execute(
        "CREATE TABLE m.t (d DECIMAL(10,2) NOT NULL, f DOUBLE NOT NULL, at DATETIME(3) NOT NULL, day DATE NOT NULL,"
        " ci VARCHAR(9) COLLATE utf8mb4_general_ci NOT NULL, bin VARCHAR(9) COLLATE utf8mb4_bin NOT NULL,"
        " UNIQUE (d), UNIQUE (f), UNIQUE (at), UNIQUE (day), UNIQUE (ci), UNIQUE (bin))"
    )
    table = load_tables(session, [NAME])[NAME]

    def is_plain(column: str, keys: list[str]) -> bool:
        return are_plain(table, (column,), pa.array(keys, TEXT))

    assert [keys for column, lists in PLAIN.items() for keys in lists if not is_plain(column, keys)] == []
    assert [keys for column, lists in ODD.items() for keys in lists if is_plain(column, keys)] == []


@pytest.mark.parametrize("writers", [0, 1], ids=["atomic", "parallel"])
def test_the_last_spelling_wins_where_deletes_are_left_out(target: str, writers: int) -> None:
    """A row that is gone upstream stays, until one comes that the server takes for the same."""
    settings = Settings.model_validate({"event_filters": [{"matcher": ["m.t"], "ignore-event": ["delete"]}]})
    names = ["k", "n"]
    changes = [
        *(row_change(10, "t", names, ["k"], after=["b", 1]), row_change(11, "t", names, ["k"], before=["b", 1])),
        *(row_change(12, "t", names, ["k"], after=["B", 2]), row_change(13, "t", names, ["k"], after=["a", 3])),
        boundary(20),
    ]
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (k VARCHAR(9) COLLATE utf8mb4_general_ci PRIMARY KEY, n INT)")
        events = ruled(in_one_partition(changes), settings.row_rules)
        run_all(target, events, writers=writers, ddl=settings.ddl_rules())
        assert session.rows("SELECT k, n FROM m.t ORDER BY k") == [("a", 3), ("B", 2)]
