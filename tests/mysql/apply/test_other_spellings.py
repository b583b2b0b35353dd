"""Rows whose keys are one to the target and two to an upstream that compares bytes: none overwrites another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from itertools import product
from typing import Any

import pytest

from bridge.ddl.policy import ddl_rules
from bridge.errors import ApplyError, HeldError
from bridge.events import Event, RowChange
from tests.support.pipelines import opened, run_all, sql
from tests.support.upstreams import TOPIC, boundary, in_one_partition, row_change, schema_change

OTHERS = ["mysql_target", "tidb_target"]
SERVERS = ["target", *OTHERS]
COLUMNS = ["k", "v"]
CI, BIN = "COLLATE utf8mb4_general_ci", "COLLATE utf8mb4_bin"
PLAIN, UNIQUE, TWO = (
    "k VARCHAR(20) PRIMARY KEY, v INT",
    "k VARCHAR(20) PRIMARY KEY, v INT, UNIQUE KEY (v)",
    "k VARCHAR(20), v INT, PRIMARY KEY (v, k)",
)
TABLES = [PLAIN, UNIQUE, TWO, PLAIN + ", extra INT"]
PAIRS = [(CI, "a", "A"), (CI, "e", "é"), (BIN, "a", "a "), (CI, "a", "a ")]
"""A collation, and two texts that are one to it."""
SIGN = "are one to the target"


def put(ts: int, *row: Any) -> RowChange:
    return row_change(ts, "t", COLUMNS, ["k"], after=row)


def gone(ts: int, *row: Any) -> RowChange:
    return row_change(ts, "t", COLUMNS, ["k"], before=row)


def changed(ts: int, before: list[Any], after: list[Any]) -> RowChange:
    return row_change(ts, "t", COLUMNS, ["k"], before=before, after=after)


def made(url: str, columns: str, collation: str, *rows: str) -> str:
    sql(url, "CREATE DATABASE m")
    make(url, columns, collation, *rows)
    return url


def make(url: str, columns: str, collation: str, *rows: str, table: str = "t") -> None:
    inserts = [f"INSERT INTO m.{table} (k, v) VALUES ({row})" for row in rows]
    sql(url, f"CREATE TABLE m.{table} ({columns}) {collation}", *inserts)


def rows_of(url: str, table: str = "t") -> list[tuple[Any, ...]]:
    return sorted((bytes(k), v) for k, v in sql(url, f"SELECT CAST(k AS BINARY), v FROM m.{table}"))


@contextmanager
def stopped() -> Iterator[None]:
    with pytest.raises(ApplyError, match=SIGN) as stop:
        yield
    assert "tidb-old-collations" in stop.value.fix


@pytest.mark.parametrize(
    ("server", "writers", "columns", "collation", "first", "second"),
    [
        *(("target", 0, columns, *pair) for columns in TABLES for pair in PAIRS),
        *(("target", 2, columns, *PAIRS[0]) for columns in TABLES),
        *((server, 0, PLAIN, *pair) for server in OTHERS for pair in PAIRS),
        *((server, 2, columns, *PAIRS[0]) for server in OTHERS for columns in (UNIQUE, TWO)),
    ],
)
def test_a_row_that_is_there_is_not_overwritten(
    request: Any, server: str, columns: str, collation: str, first: str, second: str, writers: int
) -> None:
    """By a row that comes under another spelling of its key, in a later transaction: the bridge stops."""
    url = made(request.getfixturevalue(server), columns, collation, f"'{first}', 1")
    value = 1 if columns == TWO else 2
    with stopped():
        run_all(url, in_one_partition([put(10, second, value), boundary(20)]), writers=writers)
    assert rows_of(url) == [(first.encode(), 1)]


WINDOWS = [
    *((one, [put(10, "a", 1), put(11, "A", 1)]) for one in TABLES if one != UNIQUE),
    (UNIQUE, [put(10, "a", 1), put(11, "A", 2)]),
    (PLAIN, [put(10, "a", 1), put(11, "A", 1), gone(12, "A", 1), put(13, "A", 1)]),
    (PLAIN, [put(10, "x", 8), gone(11, "x", 8), put(12, "a", 1), put(13, "A", 1)]),
    (PLAIN, [changed(10, ["z", 7], ["a", 7]), changed(11, ["y", 7], ["A", 7])]),
]


@pytest.mark.parametrize(
    ("server", "writers", "columns", "changes"),
    [
        *(("target", 0, *window) for window in WINDOWS),
        *((server, 2, *WINDOWS[0]) for server in SERVERS),
        *((server, 0, *WINDOWS[-1]) for server in OTHERS),
    ],
)
def test_two_rows_of_one_window_stay_two(
    request: Any, server: str, columns: str, writers: int, changes: list[Event]
) -> None:
    """When both come in one window, nothing of it is written."""
    url = made(request.getfixturevalue(server), columns, CI)
    with pytest.raises(ApplyError):
        run_all(url, in_one_partition([*changes, boundary(20)]), writers=writers)
    assert rows_of(url) == []


MOVES: list[tuple[list[str], list[Event], list[tuple[Any, ...]]]] = [
    (["'a', 1"], [changed(10, ["a", 1], ["A", 1])], [(b"A", 1)]),
    (["'a', 1"], [changed(10, ["a", 1], ["a ", 5])], [(b"a ", 5)]),
    (["'a', 1"], [gone(10, "a", 1), put(10, "A", 1)], [(b"A", 1)]),
    (["'a', 1"], [gone(10, "a", 1), put(11, "A", 2)], [(b"A", 2)]),
    (["'a', 1"], [put(10, "a", 1)], [(b"a", 1)]),
    (["'a', 1"], [changed(10, ["a", 1], ["a", 2])], [(b"a", 2)]),
    ([], [put(10, "a", 1), changed(11, ["a", 1], ["A", 2]), changed(12, ["A", 2], ["a", 3])], [(b"a", 3)]),
    ([], [put(10, "a", 1), put(10, "a", 1), changed(11, ["a", 1], ["A", 1])] * 2, [(b"A", 1)]),
]
"""Rows that are there, changes, and the rows at the end."""


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("writers", [0, 2])
def test_a_row_that_was_deleted_or_moved_makes_way(request: Any, server: str, writers: int) -> None:
    """Another spelling is written behind a delete, or by an update of the key; so are copies.  Each in a table of its
    own."""
    url, events, right = request.getfixturevalue(server), [], {}
    sql(url, "CREATE DATABASE m")
    for number, (columns, (there, changes, rows)) in enumerate(product(TABLES, MOVES)):
        table = f"t{number}"
        make(url, columns, CI, *there, table=table)
        events += [change._replace(table=table) for change in changes]
        right[table, columns] = rows
    run_all(url, in_one_partition([*events, boundary(20)]), writers=writers)
    assert {(table, columns): rows_of(url, table) for table, columns in right} == right


@pytest.mark.parametrize(("server", "writers"), [("target", 0), ("target", 2), ("mysql_target", 0), ("tidb_target", 2)])
def test_a_unique_value_spelled_otherwise_deletes_nobody(request: Any, server: str, writers: int) -> None:
    """To the target two rows have one unique value, to the upstream they have two."""
    url = made(request.getfixturevalue(server), "k VARCHAR(20), v INT PRIMARY KEY, UNIQUE KEY (k)", CI, "'a', 1")
    insert = row_change(10, "t", COLUMNS, ["v"], after=["A", 2])
    with stopped():
        run_all(url, in_one_partition([insert, boundary(20)]), writers=writers)
    assert rows_of(url) == [(b"a", 1)]


def test_a_target_that_is_ahead_of_the_log(target: str) -> None:
    """Has a unique value, spelled the same, in another row than the log has it yet; that row makes way."""
    made(target, "k VARCHAR(20), v INT PRIMARY KEY, UNIQUE KEY (k)", CI, "'a', 1")
    changes = [
        row_change(10, "t", COLUMNS, ["v"], after=["a", 2]),
        row_change(11, "t", COLUMNS, ["v"], before=["a", 2]),
        row_change(12, "t", COLUMNS, ["v"], after=["a", 1]),
    ]
    with opened(target, [(TOPIC, 0)]) as pipeline:
        for number, change in enumerate(changes):
            pipeline.take(in_one_partition([change, boundary(11 + number)], 2 * number))
    assert rows_of(target) == [(b"a", 1)]


@pytest.mark.parametrize("source", ["mysql-8", "mysql-5.7", "mariadb"])
def test_other_upstreams_compare_as_their_collations_say(target: str, source: str) -> None:
    """Rows of MySQL and MariaDB are written as before."""
    made(target, PLAIN, CI, "'a', 1")
    run_all(target, in_one_partition([put(10, "A", 2), boundary(20)]), ddl=ddl_rules(source=source))
    assert rows_of(target) == [(b"A", 2)]


OLD = ddl_rules(source="tidb-old-collations")
STATEMENTS = [
    "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT)",
    "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci",
    "CREATE TABLE t (k VARCHAR(20) CHARACTER SET utf8 COLLATE utf8_unicode_ci PRIMARY KEY, v INT)",
    "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT) CHARSET latin1",
    "CREATE TABLE t (k VARCHAR(20) CHARACTER SET ascii BINARY, v INT, PRIMARY KEY (k))",
    "CREATE TABLE t (k VARCHAR(20) CHARACTER SET gbk PRIMARY KEY, v INT)",
    "CREATE TABLE t (k VARBINARY(20) PRIMARY KEY, v INT)",
]


@pytest.mark.parametrize("server", [*SERVERS, "old_target"])
def test_tables_of_a_source_that_compares_bytes(request: Any, server: str) -> None:
    """With the setting, their keys are as many on the target as upstream; whatever the default of the database is."""
    url, events = request.getfixturevalue(server), []
    sql(url, "CREATE DATABASE m COLLATE utf8mb4_general_ci")
    for number, statement in enumerate(STATEMENTS):
        ts, table = 100 * number, f"t{number}"
        events.append(schema_change(ts + 5, statement.replace("TABLE t ", f"TABLE {table} ")))
        events += [put(ts + at, key, at)._replace(table=table) for at, key in ((10, "a"), (11, "A"), (12, "a "))]
    run_all(url, in_one_partition([*events, boundary(1000)]), ddl=OLD)
    for number, statement in enumerate(STATEMENTS):
        assert rows_of(url, f"t{number}") == [(b"A", 11), (b"a", 10), (b"a ", 12)], statement


def test_a_target_without_such_collations_holds_the_statement(old_mysql_target: str) -> None:
    """MySQL 5.7 compares blanks at the end by no collation; the operator may say that no key needs it."""
    sql(old_mysql_target, "CREATE DATABASE m")
    changes = [schema_change(5, STATEMENTS[0]), put(10, "a", 1), put(11, "A", 2), boundary(20)]
    with pytest.raises(HeldError, match="compares the bytes of utf8mb4_bin"):
        run_all(old_mysql_target, in_one_partition(changes), ddl=OLD)
    mapped = ddl_rules(source="tidb-old-collations", collations={"utf8mb4_bin": "utf8mb4_bin"})
    run_all(old_mysql_target, in_one_partition(changes), ddl=mapped)
    assert rows_of(old_mysql_target) == [(b"A", 2), (b"a", 1)]


def test_a_tidb_latin1_column_takes_any_text(mysql_target: str) -> None:
    """TiDB's latin1 holds whatever utf8mb4 does."""
    sql(mysql_target, "CREATE DATABASE m")
    changes = [schema_change(5, "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT) CHARSET latin1"), put(10, "你好", 1)]
    run_all(mysql_target, in_one_partition([*changes, boundary(20)]))
    assert rows_of(mysql_target) == [("你好".encode(), 1)]


@pytest.mark.parametrize("extra", ["", ", extra INT"])
@pytest.mark.parametrize("is_traded", [False, True])
def test_a_unique_value_spelled_anew_beside_one_that_is_taken(target: str, extra: str, is_traded: bool) -> None:
    """A row that is written again, or another row of its transaction, may spell its unique value otherwise."""
    columns = f"k VARCHAR(20), v INT PRIMARY KEY, UNIQUE KEY (k){extra}"
    made(target, columns, CI, "'bob', 1", "'al', 4", "'ahead', 3")
    taken = row_change(10, "t", COLUMNS, ["v"], after=["ahead", 2])
    pairs = [(["bob", 1], ["z", 1]), (["al", 4], ["BOB", 4])] if is_traded else [(["bob", 1], ["BOB", 1])]
    changes = [row_change(11, "t", COLUMNS, ["v"], before=was, after=now) for was, now in pairs]
    run_all(target, in_one_partition([taken, *changes, boundary(20)]))
    right = [(b"BOB", 4), (b"ahead", 2), (b"z", 1)] if is_traded else [(b"BOB", 1), (b"ahead", 2), (b"al", 4)]
    assert rows_of(target) == right
