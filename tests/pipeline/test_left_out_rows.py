"""Row changes that are never written: what becomes of them in a pipeline."""

from __future__ import annotations

import pytest

from bridge.events import Event, Kind
from bridge.model import TableName
from bridge.tso import ms_tso
from tests.support.pipelines import admin, run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change

ACCOUNT = Event(Kind.LEFT_OUT, 0, 0, "mysql", "global_priv", text="it is in one of the server's own databases")
PROGRESS = ACCOUNT._replace(schema="_bridge", table="progress", text="it is in the bridge's own database")
UNWANTED = ACCOUNT._replace(schema="app", table="log", text=None)


@pytest.mark.parametrize("by_time", [False, True])
def test_they_are_counted_and_said_once(target: str, capsys: pytest.CaptureFixture[str], by_time: bool) -> None:
    """In either order: the rows beside them are written, and a line names table and position once; where the filter
    leaves something out, nothing is said."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.k (id INT PRIMARY KEY)")

    def row(ts: int) -> Event:
        return row_change(ms_tso(ts), "k", ["id"], ["id"], after=[ts])._replace(by_time=by_time)

    edges = [] if by_time else [boundary(ms_tso(4))]
    events = [ACCOUNT, row(1), UNWANTED, ACCOUNT, PROGRESS, row(3), ACCOUNT, *edges, UNWANTED, PROGRESS]
    pipeline = run_all(target, in_one_partition(events), batch=4)
    counts = pipeline.applier.counts
    assert sql(target, "SELECT id FROM m.k ORDER BY id") == [(1,), (3,)]
    assert counts.left_out == {TableName("mysql", "global_priv"): 3, TableName("_bridge", "progress"): 2}
    assert TableName("app", "log") in counts.tables
    said = [line for line in capsys.readouterr().out.splitlines() if "rows_left_out" in line]
    assert len(said) == 2
    assert "mysql.global_priv" in said[0]
    assert "cdc/0/0" in said[0]
