"""Rows of which the log holds only a part: the fix file never writes them as if it were the whole."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest

from bridge.events import SEP, Event, RowChange
from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute

COLUMNS = ("id", "n", "v")


def inserts(key: Sequence[str], *ids: int, first: int = 10) -> list[RowChange]:
    """Rows whose n is 5."""
    return [row_change(first + i, "t", COLUMNS, key, after=[one, 5, 1]) for i, one in enumerate(ids)]


def untold(ts: int, before: Sequence[object] | None, after: Sequence[object] | None) -> RowChange:
    """A row change by event time, of a table whose column v no message has."""
    return row_change(ts, "t", ["id", "n"], ["id"], before=before, after=after)._replace(by_time=True)


def test_a_column_that_no_message_has(target: str, tmp_path: Path) -> None:
    """Updates may have left it out: the file writes no row without it."""
    log = [untold(10, [1, 5], [1, 6]), untold(12, None, [2, 6]), untold(14, [5, 5], [6, 5]), untold(15, None, [7, 7])]
    events = in_one_partition(log)
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, n INT, v INT DEFAULT 9)")
    execute(target, "INSERT INTO m.t VALUES (1, 5, 1), (5, 5, 1), (8, 5, 1)")
    run_all(target, events, boundary_seconds=None)
    assert verify_events(target, events).is_equal
    execute(target, "DELETE FROM m.t WHERE id <> 2; UPDATE m.t SET n = 0 WHERE id = 2")
    [table] = verify_events(target, events, fixes=tmp_path / "fix.sql").tables
    assert (table.missing, table.different) == (3, 1)
    assert run_file(target, tmp_path / "fix.sql").returncode == 0
    assert execute(target, "SELECT id, n, v FROM m.t ORDER BY id") == [(2, 0, 9)]


@pytest.mark.parametrize("key", [["id"], []])
@pytest.mark.parametrize("column", ["c INT NOT NULL DEFAULT 4", "c DATETIME(6) DEFAULT CURRENT_TIMESTAMP(6)"])
def test_a_column_that_was_added_since(target: str, tmp_path: Path, column: str, key: list[str]) -> None:
    """Older rows are not covered, and no fix file writes or deletes them."""
    made = schema_change(5, f"CREATE TABLE t (id INT {'PRIMARY KEY' if key else ''}, n INT, v INT)")
    log = [made, *inserts(key, 1, 2), schema_change(20, f"ALTER TABLE t ADD COLUMN {column}"), boundary(91)]
    events = in_one_partition(log)
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    rows = execute(target, "SELECT * FROM m.t ORDER BY id")
    execute(target, "DELETE FROM m.t WHERE id = 2")
    [table] = verify_events(target, events, fixes=tmp_path / "fix.sql").tables
    assert (table.is_equal, table.missing, table.not_covered) == (True, 0, 1)
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == rows[:1]


def untold_log(made: str, key: Sequence[str]) -> list[Event]:
    """Three rows by event time, of which no message has v: each came by an update of its key."""
    log = [schema_change(5, f"CREATE TABLE t ({made})")._replace(by_time=True)]
    return log + [untold(10 + one, [one + 10, 5], [one, 5])._replace(key=SEP.join(key)) for one in (1, 2, 3)]


def test_a_damaged_row_is_not_deleted_where_its_right_form_is_not_written(target: str, tmp_path: Path) -> None:
    """It may be the last copy of the values that the log does not hold."""
    events = in_one_partition(untold_log("id INT PRIMARY KEY, n INT, v INT", ["id"]))
    execute(target, "CREATE DATABASE m")
    run_all(target, events.slice(0, 1), boundary_seconds=None)
    execute(target, "INSERT INTO m.t VALUES (11, 5, 7), (12, 5, 7), (13, 5, 7)")
    run_all(target, events, boundary_seconds=None)
    assert verify_events(target, events).is_equal
    execute(target, "UPDATE m.t SET id = 77 WHERE id = 2")
    damaged = execute(target, "SELECT * FROM m.t ORDER BY id")
    table = verify_events(target, events, fixes=tmp_path / "fix.sql").tables[0]
    assert (table.missing, table.extra) == (1, 1)
    assert "m.t: its rows stay as they are" in (tmp_path / "fix.sql").read_text()
    run_file(target, tmp_path / "fix.sql")
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == damaged


def test_a_table_of_which_messages_hold_parts_of_rows_is_not_covered(target: str, tmp_path: Path) -> None:
    """All of its rows are counted, whatever became of them, and the fix file leaves them as they are."""
    create = schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, n INT, v INT)")
    log = [row_change(10 + one, "t", COLUMNS, ["id"], after=[one, 5, one]) for one in (1, 2, 5, 6)]
    log += [row_change(30 + i, "t", ["id", "v"], ["id"], before=[i, i], after=[i, i]) for i in (1, 2)]
    events = in_one_partition([one._replace(by_time=True) for one in (create, *log)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events, boundary_seconds=None)
    [table] = verify_events(target, events).tables
    assert (table.result, table.rows, table.not_covered) == ("not covered", 0, 4)
    assert "some of its messages hold other columns than others" in table.notes[0]
    execute(
        target, "UPDATE m.t SET id = 77 WHERE id = 2; UPDATE m.t SET n = 0 WHERE id = 6; DELETE FROM m.t WHERE id = 5"
    )
    rows = execute(target, "SELECT * FROM m.t ORDER BY id")
    [table] = verify_events(target, events, fixes=tmp_path / "fix.sql").tables
    assert (table.result, table.not_covered) == ("not covered", 3)
    assert run_file(target, tmp_path / "fix.sql").returncode == 0
    assert execute(target, "SELECT * FROM m.t ORDER BY id") == rows
