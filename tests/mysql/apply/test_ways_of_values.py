"""A value is the same whatever way it comes to the target: in a new row, over one that is there, in a part of a row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

import pytest

from bridge.events import Event, RowChange
from bridge.mysql.connection.session import Session
from bridge.rows.sql import render
from tests.support.fixtures import SERVERS
from tests.support.pipelines import admin, run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change
from tests.support.wire import as_ckafka, decoded_lot, official

MANY = ",".join(f"'m{number}'" for number in range(64))
VALUES: dict[str, tuple[str, ...]] = {
    "BIT(1)": ("1", "0"),
    "BIT(33)": ("39", "8589934591"),
    "BIT(57)": ("39", "144115188075855871"),
    "BIT(64)": ("39", "18446744073709551615", "9223372036854775808", "0"),
    "TINYINT": ("-128", "127"),
    "BIGINT UNSIGNED": ("18446744073709551615", "9223372036854775808"),
    "INT UNSIGNED ZEROFILL": ("7", "4294967295"),
    "DECIMAL(65,30)": (f"{'9' * 35}.{'9' * 30}", f"-{'9' * 35}.{'9' * 30}", f"0.{'0' * 29}1", f"-0.{'0' * 30}"),
    "DECIMAL(65,0)": ("9" * 65, "-1"),
    "FLOAT": ("3.4028234663852886e+38", "-0.0e0", "1.401298464324817e-45", "0.10000000149011612e0"),
    "FLOAT(7,3)": ("1234.5670166015625e0", "0.5e0"),
    "DOUBLE": ("1.7976931348623157e+308", "5e-324", "-0.0e0", "1.2345678901234568e+17"),
    "DATE": ("'0000-00-00'", "'2024-00-10'", "'2024-02-31'", "'9999-12-31'"),
    "DATETIME(6)": ("'0000-00-00 00:00:00'", "'9999-12-31 23:59:59.999999'", "'2024-02-31 12:00:00.5'"),
    "TIMESTAMP(6) NULL": ("'0000-00-00 00:00:00'", "'1970-01-01 00:00:01'", "'2038-01-19 03:14:07.999999'"),
    "TIME(6)": ("'-838:59:58.999999'", "'-00:00:00.000001'", "'00:00:00.5'"),
    "YEAR": ("0", "1901", "2155"),
    "CHAR(9)": ("'a'", "' a'", "'\\0'"),
    "VARCHAR(9)": ("'a '", "'\\0\\\\'", "'NULL'", "'\\\\N'", "'é😀'"),
    "VARCHAR(9) CHARACTER SET latin1": ("'é'", "'ÿ'"),
    "VARCHAR(9) CHARACTER SET gbk": ("'中'", "'a'"),
    "TEXT": ("'a\n\r\t\x1a'", "''"),
    "BINARY(4)": ("x'61000000'", "x'00000000'", "x'ff5c270a'"),
    "VARBINARY(9)": ("x'6100'", "''", "x'00'"),
    "BLOB": ("x'00ff'", "''"),
    "ENUM('a','b,c','it''s','','0','2','1')": ("4", "2", "6", "7"),
    "SET('x','y','z''s','1','8')": ("8", "31", "16", "0"),
    f"SET({MANY})": (str((1 << 53) + 1), str(1 << 53), str((1 << 64) - 1), str(1 << 63)),
    "JSON": ("""'{"a": 1.0, "b": 1}'""", "'18446744073709551615'", "'1e100'", """'"\\\\ud83d\\\\ude00"'"""),
}
"""Types, and values of theirs as decoders write them."""
NAMES = [f"v{number}" for number in range(len(VALUES))]
ROWS: list[list[Literal]] = [
    [Literal(values[number % len(values)]) for values in VALUES.values()]
    for number in range(max(map(len, VALUES.values())))
]
COLUMNS = ", ".join(f"{name} {column}" for name, column in zip(NAMES, VALUES, strict=True))


@pytest.fixture(
    params=[
        name if number % 2 == 0 else pytest.param(name, marks=pytest.mark.soak) for number, name in enumerate(SERVERS)
    ]
)
def url(request: pytest.FixtureRequest) -> str:
    """The later MariaDB and MySQL; in long runs each server."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    """With a table of what is right."""
    with admin(url) as session:
        make_right(session)
        yield session


def make_right(session: Session) -> None:
    session.execute("CREATE DATABASE m DEFAULT CHARSET utf8mb4")
    session.execute(f"CREATE TABLE m.right_ones (id INT PRIMARY KEY, {COLUMNS})")
    for number, row in enumerate(ROWS):
        session.write(f"INSERT INTO m.right_ones VALUES ({number},{','.join(row)})".encode())


def contents(session: Session, table: str) -> list[str]:
    """To the sign of 0."""
    shown = ",".join(f"{name},CONCAT({name}),HEX({name})" for name in NAMES)
    return list(map(repr, session.rows(f"SELECT id,{shown} FROM m.{table} ORDER BY id")))


def check(session: Session, url: str, more: str, *windows: Sequence[RowChange], writers: int = 0) -> None:
    """The windows leave in a table with these columns besides what is right."""
    session.execute(f"CREATE TABLE m.t ({COLUMNS}, {more})")
    events: list[Event] = []
    for number, window in enumerate(windows):
        events += [*window, *([] if window[0].by_time else [boundary(100 * number + 99)])]
        run_all(url, in_one_partition(events), writers=writers)
    assert contents(session, "t") == contents(session, "right_ones")


def ways_of_rows_with_a_key(session: Session, url: str, writers: int) -> None:
    """New rows; rows that are there; rows that are deleted first, since they change another unique value."""
    names = [*NAMES, "id", "u"]

    def rows(
        ts: int, uniques: Sequence[int], values: Sequence[Sequence[Any]], was: Sequence[int] = ()
    ) -> list[RowChange]:
        news = [[*values[number], number, unique] for number, unique in enumerate(uniques)]
        olds: list[list[Any] | None] = [[*values[number], number, unique] for number, unique in enumerate(was)]
        olds += [None] * (len(news) - len(olds))
        return [row_change(ts, "t", names, ["id"], before=old, after=new) for old, new in zip(olds, news, strict=True)]

    straight, turned = range(len(ROWS)), [*reversed(range(len(ROWS)))]
    new, again = rows(10, straight, ROWS), rows(10, straight, [ROWS[-1]] * len(ROWS))
    for windows in ([new], [again, rows(110, straight, ROWS)], [again, rows(110, turned, ROWS, straight)]):
        for more in ("id INT PRIMARY KEY, u INT", "id INT PRIMARY KEY, u INT UNIQUE, mine INT"):
            check(session, url, more, *windows, writers=writers)
            session.execute("DROP TABLE m.t")
            session.execute("DROP DATABASE _bridge")


def ways_of_rows_without_a_key(session: Session, url: str) -> None:
    """Rows that become others in their place, of which the target knows more, and rows that go."""
    names = ["id", *NAMES]
    first = [[number, *ROWS[-1 - number]] for number in range(len(ROWS))]
    last = [[number, *row] for number, row in enumerate(ROWS)]
    others = [[100 + number, *row] for number, row in enumerate(ROWS)]
    inserts = [row_change(10, "t", names, [], after=row) for row in (*first, *others)]
    updates = [row_change(110, "t", names, [], before=old, after=new) for old, new in zip(first, last, strict=True)]
    deletes = [row_change(210, "t", names, [], before=row) for row in others]
    check(session, url, "id INT, mine INT DEFAULT 5", inserts, updates, deletes)
    assert session.rows("SELECT DISTINCT mine FROM m.t") == [(5,)]


def ways_of_parts(session: Session, url: str) -> None:
    """Parts of rows, which stay where they are, or whose key changes."""
    names, rest = [*NAMES, "id"], "id INT PRIMARY KEY, doc TEXT NOT NULL"
    inserts = [
        row_change(0, "t", [*names, "doc"], ["id"], after=[*ROWS[-1], 10 + number, "x"])._replace(by_time=True)
        for number in range(len(ROWS))
    ]
    parts = [
        row_change(0, "t", names, ["id"], before=[*ROWS[-1], 10 + number], after=[*row, 10 + number])
        for number, row in enumerate(ROWS)
    ]
    moves = [row_change(0, "t", ["id"], ["id"], before=[10 + number], after=[number]) for number in range(len(ROWS))]
    check(session, url, rest, *([one._replace(by_time=True) for one in some] for some in (inserts, parts, moves)))
    assert session.rows("SELECT DISTINCT doc FROM m.t") == [("x",)]


def ways_of_keys_of_many_members(session: Session, url: str) -> None:
    """Rows go by their own SET, alone or together, and not by one that is nearly the same number."""
    values = [(1 << 53) + 1, 1 << 53, (1 << 64) - 1, 1 << 63, 1 << 62, (1 << 62) + 1]
    session.execute(f"CREATE TABLE m.t (k SET({MANY}), n INT, PRIMARY KEY (k))")
    session.execute(f"CREATE TABLE m.u (k SET({MANY}), n INT, PRIMARY KEY (n, k))")
    rows = [row_change(10, table, ["k", "n"], ["k"], after=[value, 1]) for value in values for table in "tu"]
    gone = [row_change(110, table, ["k", "n"], ["k"], before=[value, 1]) for value in values[::2] for table in "tu"]
    run_all(url, in_one_partition([*rows, boundary(99), *gone, boundary(199)]))
    for table in "tu":
        found = session.rows(f"SELECT CAST(k AS CHAR) FROM m.{table}")
        assert {sum(1 << int(name[1:]) for name in names.split(",")) for (names,) in found} == set(values[1::2])


@pytest.mark.parametrize("writers", [0, 2])
def test_rows_with_a_key(session: Session, url: str, writers: int) -> None:
    """They are written over, deleted and written anew, with what only the target knows of them."""
    ways_of_rows_with_a_key(session, url, writers)


def test_rows_without_a_key(session: Session, url: str) -> None:
    """They are found by what they were, and keep what only the target knows."""
    ways_of_rows_without_a_key(session, url)


def test_keys_of_many_members(session: Session, url: str) -> None:
    """A SET is compared as a number, which floating point does not tell from others."""
    ways_of_keys_of_many_members(session, url)


def test_parts_of_rows(session: Session, url: str) -> None:
    """They go through temporary tables."""
    ways_of_parts(session, url)


def test_loads(session: Session, url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What LOAD DATA takes is what INSERT takes."""
    monkeypatch.setattr(render, "MIN_BYTES", 0)
    before = session.value("SELECT @@GLOBAL.local_infile")
    session.execute("SET GLOBAL local_infile = ON")
    try:
        with_key = ([*row, number] for number, row in enumerate(ROWS))
        rows = [row_change(10, "t", [*NAMES, "id"], ["id"], after=row) for row in with_key]
        check(session, url, "id INT PRIMARY KEY", rows)
    finally:
        session.execute("SET GLOBAL local_infile = %s", (before,))


TABLES = {
    "a key": "k BINARY(4) PRIMARY KEY, v INT",
    "part of a key": "k BINARY(4), v INT, PRIMARY KEY (v, k)",
    "a unique value": "v INT PRIMARY KEY, k BINARY(4) NOT NULL, UNIQUE (k)",
    "no key": "k BINARY(4), v INT",
}
KEYS = {"a key": ["k"], "part of a key": ["v", "k"], "a unique value": ["v"], "no key": None}


def message(kind: str, table: str, row: tuple[str, int], old: Any = None) -> bytes:
    """Official Canal's, as it reads MySQL's log."""
    columns = {"k": ("binary(4)", row[0]), "v": ("int(11)", str(row[1]))}
    return official(kind, columns, old=old, pkNames=KEYS[table], sqlType={"k": -2, "v": 4})


@pytest.mark.parametrize("url", ["target", "old_target", "mysql_target", "old_mysql_target"], indirect=True)
@pytest.mark.parametrize("protocol", ["canal-json", "ckafka"])
@pytest.mark.parametrize("table", TABLES)
def test_rows_are_found(url: str, protocol: str, table: str) -> None:
    """Rows go and change by the values that the log has of them, also several at once, beside values that differ in
    zero bytes alone."""
    values = [
        *(message("DELETE", table, row) for row in (("x", 1), ("xy", 2), ("", 3))),
        message("UPDATE", table, ("x\0y", 4), old=[{"k": "x", "v": "4"}] if table == "no key" else [{"k": "y"}]),
        *(message("INSERT", table, row) for row in (("z", 5), ("\0z", 6))),
        message("DELETE", table, ("\0z", 6)),
    ]
    sent = [as_ckafka(value) if protocol == "ckafka" else value for value in values]
    with admin(url) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute(f"CREATE TABLE m.t ({TABLES[table]})")
        there = f"'{'x' if table == 'no key' else 'y'}', 4"
        session.execute(f"INSERT INTO m.t (k, v) VALUES ('x', 1), ('xy', 2), ('', 3), ({there}), ('xyzz', 9)")
        run_all(url, decoded_lot(protocol, sent, ckafka_binary="latin1"))
        found = session.rows("SELECT k, v FROM m.t ORDER BY v")
    assert found == [(b"x\0y\0", 4), (b"z\0\0\0", 5), (b"xyzz", 9)]
