"""Schema changes that are in another partition than the rows before and behind them, on a real target."""

from __future__ import annotations

from itertools import chain
from typing import Any

import pytest

from bridge.errors import ApplyError, HeldError
from bridge.events import RowChange
from bridge.mysql.state.ddl_journal import JournalState
from bridge.protocols.values.event_time import place_in_binlog
from bridge.tso import ms_tso
from tests.support.pipelines import admin, journal, run_all, sql
from tests.support.schema_change_runs import decide
from tests.support.upstreams import Change, events_table, row_change, schema_change

START = 1_790_000_000_000


def placed(event: Change, position: int) -> Any:
    return event._replace(by_time=True, place=place_in_binlog("up", "binlog.000003", position, 1))


def row(position: int, id_: int, columns: tuple[str, ...] = ("id",)) -> RowChange:
    values = [id_, *range(7, 6 + len(columns))]
    return placed(row_change(ms_tso(START), "t", columns, ["id"], after=values), position)


def change(position: int, text: str) -> Any:
    return placed(schema_change(ms_tso(START), text), position)


@pytest.mark.parametrize(
    ("decision", "left"), [(JournalState.APPROVED, [(3,)]), (JournalState.SKIPPED, [(1,), (2,), (3,)])]
)
def test_one_that_came_late_waits_for_the_operator(target: str, decision: JournalState, left: list[tuple[int]]) -> None:
    """Its TRUNCATE would take the row with it that was written behind it; it is held before anything is run, also
    after a restart, and goes on as the operator says."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)", "DO 0")
    rows = [(1, 0, row(100, 1)), (1, 1, row(300, 2))]
    run_all(target, events_table(rows))
    late = [*rows, (0, 0, change(200, "TRUNCATE TABLE t")), (1, 2, row(400, 3))]
    for _ in range(2):
        with pytest.raises(HeldError, match="it came too late: rows of cdc/1"):
            run_all(target, events_table(late))
        assert sql(target, "SELECT id FROM m.t") == [(1,), (2,)]
    with admin(target) as session:
        decide(target, session, decision)
        run_all(target, events_table(late))
        assert journal(session)[0][2] == ("done" if decision is JournalState.APPROVED else "skipped")
    assert sql(target, "SELECT id FROM m.t") == left


def seconds(event: Change, second: int) -> Any:
    """An event as official Canal without GTIDs dates it."""
    return event._replace(commit_ts=ms_tso(START + 1000 * second), by_time=True)


def wide(second: int, table: str = "t", **values: object) -> RowChange:
    return seconds(row_change(0, table, list(values), ["id"], after=list(values.values())), second)


def ddl(second: int, text: str) -> Any:
    return seconds(schema_change(0, text), second)


BESIDE: list[tuple[str, str, list[Change], list[Change], list[tuple[object, ...]]]] = [
    (
        "a column that comes in the row's second",
        "id INT PRIMARY KEY",
        [ddl(9, "ALTER TABLE t ADD COLUMN n INT")],
        [wide(5, id=1), wide(9, id=2, n=7), wide(20, id=3, n=8)],
        [(1, None), (2, 7), (3, 8)],
    ),
    (
        "one whose schema change is dated later than the row",
        "id INT PRIMARY KEY",
        [ddl(10, "ALTER TABLE t ADD COLUMN n INT")],
        [wide(9, id=2, n=7)],
        [(2, 7)],
    ),
    (
        "one without a default, while rows without it came",
        "id INT PRIMARY KEY",
        [ddl(9, "ALTER TABLE t ADD COLUMN n INT NOT NULL")],
        [wide(11, id=1), wide(12, id=2, n=7)],
        [(1, 0), (2, 7)],
    ),
    (
        "a renamed one",
        "id INT PRIMARY KEY, n INT",
        [ddl(9, "ALTER TABLE t RENAME COLUMN n TO v")],
        [wide(60, id=1, n=7), wide(61, id=2, v=8)],
        [(1, 7), (2, 8)],
    ),
    (
        "two schema changes in one second",
        "id INT PRIMARY KEY",
        [ddl(9, "ALTER TABLE t ADD COLUMN n INT"), ddl(9, "ALTER TABLE t ADD COLUMN m INT")],
        [wide(9, id=1, n=7), wide(9, id=2, n=8, m=9)],
        [(1, 7, None), (2, 8, 9)],
    ),
    (
        "a table that is made in the row's second",
        "",
        [ddl(9, "CREATE TABLE t (id INT PRIMARY KEY)")],
        [wide(9, id=1), wide(30, id=2)],
        [(1,), (2,)],
    ),
]


@pytest.mark.parametrize(("what", "columns", "changes", "rows", "right"), BESIDE, ids=[case[0] for case in BESIDE])
@pytest.mark.parametrize(("rows_first", "batch"), [(False, None), (True, None), (True, 1)])
def test_the_columns_of_rows_tell_what_the_clock_does_not(
    target: str,
    what: str,
    columns: str,
    changes: list[Change],
    rows: list[Change],
    right: list[tuple[object, ...]],
    *,
    rows_first: bool,
    batch: int | None,
) -> None:
    """Read together, or one message after the other, rows first, as they came while the statement ran."""
    sql(target, "CREATE DATABASE m", *([f"CREATE TABLE m.t ({columns})"] if columns else []), "DO 0")
    placed = [[(0, n, event) for n, event in enumerate(changes)], [(1, n, event) for n, event in enumerate(rows)]]
    events = events_table(chain(*(placed[::-1] if rows_first else placed)))
    run_all(target, events, batch=batch)
    assert sql(target, "SELECT * FROM m.t ORDER BY id") == right, what


def test_a_column_without_a_default_that_goes(target: str) -> None:
    """A row without it, in the second of the schema change, is behind it."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, n INT NOT NULL)", "DO 0")
    rows = [(1, 0, wide(8, id=1, n=7)), (1, 1, wide(9, id=2))]
    run_all(target, events_table([*rows, (0, 0, ddl(9, "ALTER TABLE t DROP COLUMN n"))]))
    assert sql(target, "SELECT * FROM m.t ORDER BY id") == [(1,), (2,)]


def test_a_table_that_is_missing_before_a_schema_change_stops_the_bridge(target: str) -> None:
    """At the end of the input; the schema change behind the rows does not run, and they are not tried without end."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)", "DO 0")
    events = [(0, 0, wide(5, "gone", id=1)), (0, 1, ddl(9, "ALTER TABLE t ADD COLUMN n INT"))]
    with pytest.raises(ApplyError, match=r"the target has no table m\.gone"):
        run_all(target, events_table(events))
    assert sql(target, "SHOW COLUMNS FROM m.t")[1:] == []


@pytest.mark.timeout(60)
def test_rows_of_several_tables_that_are_made_in_one_second(target: str) -> None:
    """Each table's rows wait for its own CREATE TABLE, while the other one is tried with rows that wait, too."""
    sql(target, "CREATE DATABASE m", "DO 0")
    made = [(0, n, ddl(9, f"CREATE TABLE {table} (id INT PRIMARY KEY)")) for n, table in enumerate("abc")]
    rows = [(n, at, wide(9 + at, table, id=at)) for n, table in enumerate("abc", 1) for at in (0, 1)]
    run_all(target, events_table([*made, *rows]))
    assert [sql(target, f"SELECT id FROM m.{table}") for table in "abc"] == [[(0,), (1,)]] * 3


def test_a_column_that_never_comes_stops_the_bridge(target: str) -> None:
    """At the end of the input, with nothing of that row or what is behind it in the target; it goes on when it has
    come."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)", "DO 0")
    rows = [(1, 0, wide(5, id=1)), (1, 1, wide(9, id=2, n=7)), (1, 2, wide(10, id=3)), (2, 0, wide(20, id=4))]
    with pytest.raises(ApplyError, match=r"the target's table m\.t lacks the column n"):
        run_all(target, events_table(rows))
    assert sql(target, "SELECT id FROM m.t ORDER BY id") == [(1,), (4,)]
    run_all(target, events_table([(0, 0, ddl(9, "ALTER TABLE t ADD COLUMN n INT")), *rows]))
    assert sql(target, "SELECT * FROM m.t ORDER BY id") == [(1, None), (2, 7), (3, None), (4, None)]


def dated(event: Change, ms: int) -> Any:
    return event._replace(by_time=True, commit_ts=ms_tso(START + ms))


@pytest.mark.parametrize("is_restarted", [False, True])
def test_one_between_copies_is_held(target: str, *, is_restarted: bool) -> None:
    """The producer was killed while it sent rows again: one took a row back, and the one that puts it right would come
    behind the statement, and be left out."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v INT)", "DO 0")
    rows = [dated(row_change(0, "t", ["id", "v"], ["id"], after=[1, n]), 10 * n + 1) for n in (1, 2)]
    other = dated(row_change(0, "u", ["id", "v"], ["id"], after=[1, 1]), 15)
    sql(target, "CREATE TABLE m.u LIKE m.t", "DO 0")
    told = [(1, 0, rows[0]), (1, 1, rows[1]), (1, 2, other), (1, 3, rows[0])]
    statement = (0, 0, dated(schema_change(0, "ALTER TABLE t MODIFY v BIGINT"), 31))
    if is_restarted:
        run_all(target, events_table(told), partitions=[("cdc", 0), ("cdc", 1)])
    for _ in range(2):
        with pytest.raises(HeldError, match="cdc/1 ends in the midst of what the producer sends again"):
            run_all(target, events_table([*told, statement]))
    with admin(target) as session:
        decide(target, session, JournalState.APPROVED)
        run_all(target, events_table([*told, statement]))
        assert journal(session)[0][2] == "done"


@pytest.mark.parametrize("ms", [[11, 21], [11, 21, 11, 21]])
def test_one_beside_no_copies_runs(target: str, ms: list[int]) -> None:
    """Rows of two tables come in any order, or all rows came again."""
    sql(
        target, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, v INT)", "CREATE TABLE m.u LIKE m.t", "DO 0"
    )
    rows = [dated(row_change(0, "t", ["id", "v"], ["id"], after=[1, at]), at) for at in ms]
    other = dated(row_change(0, "u", ["id", "v"], ["id"], after=[1, 1]), 15)
    told = [(1, n, one) for n, one in enumerate([*rows, other])]
    run_all(target, events_table([*told, (0, 0, dated(schema_change(0, "ALTER TABLE t MODIFY v BIGINT"), 31))]))
    with admin(target) as session:
        assert journal(session)[0][2] == "done"
