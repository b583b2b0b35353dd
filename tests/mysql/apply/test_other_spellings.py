"""Rows whose keys are one to the target and two to an upstream that compares bytes: none overwrites another."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from bridge.ddl.policy import ddl_rules
from bridge.errors import ApplyError, HeldError
from bridge.events import Event
from tests.support.pipelines import opened, run_all, sql
from tests.support.upstreams import TOPIC, boundary, in_one_partition, row_change, schema_change

SERVERS = ["target", "mysql_target", "tidb_target"]
COLUMNS = ["k", "v"]
CI, BIN = "COLLATE utf8mb4_general_ci", "COLLATE utf8mb4_bin"
PLAIN, UNIQUE, TWO = (
    "k VARCHAR(20) PRIMARY KEY, v INT",
    "k VARCHAR(20) PRIMARY KEY, v INT, UNIQUE KEY (v)",
    "k VARCHAR(20), v INT, PRIMARY KEY (v, k)",
)
TABLES = [PLAIN, UNIQUE, TWO, PLAIN + ", extra INT"]
SIGN = "are one to the target"


def put(ts: int, *row: Any) -> Event:
    return row_change(ts, "t", COLUMNS, ["k"], after=row)


def gone(ts: int, *row: Any) -> Event:
    return row_change(ts, "t", COLUMNS, ["k"], before=row)


def changed(ts: int, before: list[Any], after: list[Any]) -> Event:
    return row_change(ts, "t", COLUMNS, ["k"], before=before, after=after)


def made(url: str, columns: str, collation: str, *rows: str) -> str:
    sql(url, "CREATE DATABASE m", f"CREATE TABLE m.t ({columns}) {collation}")
    for row in rows:
        sql(url, f"INSERT INTO m.t (k, v) VALUES ({row})")
    return url


def rows_of(url: str) -> list[tuple[Any, ...]]:
    return sorted((bytes(k), v) for k, v in sql(url, "SELECT CAST(k AS BINARY), v FROM m.t"))


@contextmanager
def stopped() -> Iterator[None]:
    with pytest.raises(ApplyError, match=SIGN) as stop:
        yield
    assert "tidb-old-collations" in stop.value.fix


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("columns", TABLES)
@pytest.mark.parametrize(
    ("collation", "first", "second"), [(CI, "a", "A"), (CI, "e", "é"), (BIN, "a", "a "), (CI, "a", "a ")]
)
@pytest.mark.parametrize("writers", [0, 2])
def test_a_row_that_is_there_is_not_overwritten(
    request: Any, server: str, columns: str, collation: str, first: str, second: str, writers: int
) -> None:
    """By a row that comes under another spelling of its key, in a later transaction: the bridge stops."""
    url = made(request.getfixturevalue(server), columns, collation, f"'{first}', 1")
    value = 1 if columns == TWO else 2
    with stopped():
        run_all(url, in_one_partition([put(10, second, value), boundary(20)]), writers=writers)
    assert rows_of(url) == [(first.encode(), 1)]


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize(
    ("columns", "changes"),
    [
        *((one, [put(10, "a", 1), put(11, "A", 1)]) for one in TABLES if one != UNIQUE),
        (UNIQUE, [put(10, "a", 1), put(11, "A", 2)]),
        (PLAIN, [put(10, "a", 1), put(11, "A", 1), gone(12, "A", 1), put(13, "A", 1)]),
        (PLAIN, [put(10, "x", 8), gone(11, "x", 8), put(12, "a", 1), put(13, "A", 1)]),
        (PLAIN, [changed(10, ["z", 7], ["a", 7]), changed(11, ["y", 7], ["A", 7])]),
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


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("columns", TABLES)
@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize(
    ("there", "changes", "right"),
    [
        (["'a', 1"], [changed(10, ["a", 1], ["A", 1])], [(b"A", 1)]),
        (["'a', 1"], [changed(10, ["a", 1], ["a ", 5])], [(b"a ", 5)]),
        (["'a', 1"], [gone(10, "a", 1), put(10, "A", 1)], [(b"A", 1)]),
        (["'a', 1"], [gone(10, "a", 1), put(11, "A", 2)], [(b"A", 2)]),
        (["'a', 1"], [put(10, "a", 1)], [(b"a", 1)]),
        (["'a', 1"], [changed(10, ["a", 1], ["a", 2])], [(b"a", 2)]),
        ([], [put(10, "a", 1), changed(11, ["a", 1], ["A", 2]), changed(12, ["A", 2], ["a", 3])], [(b"a", 3)]),
        (["'A', 2"], [put(10, "a", 1), changed(11, ["a", 1], ["A", 2])], [(b"A", 2)]),
        ([], [put(10, "a", 1), put(10, "a", 1), changed(11, ["a", 1], ["A", 1])] * 2, [(b"A", 1)]),
    ],
)
def test_a_row_that_was_deleted_or_moved_makes_way(
    request: Any,
    server: str,
    columns: str,
    writers: int,
    there: list[str],
    changes: list[Event],
    right: list[tuple[Any, ...]],
) -> None:
    """Another spelling is written behind a delete, or by an update of the key; so are copies."""
    url = made(request.getfixturevalue(server), columns, CI, *there)
    run_all(url, in_one_partition([*changes, boundary(20)]), writers=writers)
    assert rows_of(url) == right


@pytest.mark.parametrize("server", SERVERS)
@pytest.mark.parametrize("writers", [0, 2])
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
@pytest.mark.parametrize("statement", STATEMENTS)
def test_tables_of_a_source_that_compares_bytes(request: Any, server: str, statement: str) -> None:
    """With the setting, their keys are as many on the target as upstream; whatever the default of the database is."""
    url = request.getfixturevalue(server)
    sql(url, "CREATE DATABASE m COLLATE utf8mb4_general_ci")
    changes = [schema_change(5, statement), put(10, "a", 1), put(11, "A", 2), put(12, "a ", 3)]
    run_all(url, in_one_partition([*changes, boundary(20)]), ddl=OLD)
    assert rows_of(url) == [(b"A", 2), (b"a", 1), (b"a ", 3)]


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
