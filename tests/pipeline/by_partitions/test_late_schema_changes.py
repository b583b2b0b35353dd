"""Schema changes that come behind rows which they should have come before, on a real target."""

from __future__ import annotations

import pytest

from bridge.errors import HeldError
from bridge.events import Event
from bridge.mysql.state.ddl_journal import JournalState
from bridge.protocols.values.event_time import place_in_binlog
from bridge.tso import ms_tso
from tests.support.pipelines import admin, journal, run_all, sql
from tests.support.schema_change_runs import decide
from tests.support.upstreams import events_table, row_change, schema_change

START = 1_790_000_000_000


def placed(event: Event, position: int) -> Event:
    return event._replace(by_time=True, place=place_in_binlog("up", "binlog.000003", position, 1))


def row(position: int, id_: int, columns: tuple[str, ...] = ("id",)) -> Event:
    values = [id_, *range(7, 6 + len(columns))]
    return placed(row_change(ms_tso(START), "t", columns, ["id"], after=values), position)


def change(position: int, text: str) -> Event:
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
        with pytest.raises(HeldError, match=r"it came too late: rows of cdc/1 .*the last one at binlog\.000003/300"):
            run_all(target, events_table(late))
        assert sql(target, "SELECT id FROM m.t") == [(1,), (2,)]
    with admin(target) as session:
        decide(target, session, decision)
        run_all(target, events_table(late))
        assert journal(session)[0][2] == ("done" if decision is JournalState.APPROVED else "skipped")
    assert sql(target, "SELECT id FROM m.t") == left
