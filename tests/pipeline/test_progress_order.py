"""Where progress may go: old <= new <= the segment's end <= the resolved ts, asserted where it is written."""

from __future__ import annotations

import pytest

from bridge.model import Advance, ProgressOrderError
from bridge.pipeline.by_boundaries.order import BoundaryOrder
from bridge.pipeline.order import Due, Segment
from bridge.rows.order_and_slices import RowChanges
from tests.support.pipelines import admin, contents, journal, opened
from tests.support.upstreams import boundary, in_one_partition, row_change

EVENTS = in_one_partition(
    [*(row_change(ts, "t", ["id"], ["id"], after=[ts]) for ts in (10, 11, 12, 13)), boundary(12), boundary(14)]
)


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize("cut", [9, 15])
def test_a_cut_outside_of_the_segment_stops_the_bridge(
    target: str, monkeypatch: pytest.MonkeyPatch, cut: int, writers: int
) -> None:
    """Wherever a piece of a window is said to end: nothing of it is written, by one connection or by several."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        with opened(target, [("cdc", 0)], start_ts=10, writers=writers) as pipeline:
            before = contents(session), journal(session)
            monkeypatch.setattr(RowChanges, "pieces", lambda rows, _: iter([(cut, rows), (None, rows)]))
            with pytest.raises(ProgressOrderError, match=f"from commit ts 10 to {cut}"):
                pipeline.take(EVENTS)
            assert (contents(session), journal(session)) == before


def test_a_segment_beyond_the_resolved_ts_stops_the_bridge(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A window may not be larger than what is complete."""
    monkeypatch.setattr(BoundaryOrder, "due", lambda _: iter([Due(Segment(10, 13), None)]))
    with opened(target, [("cdc", 0)], start_ts=10) as pipeline, pytest.raises(ProgressOrderError):
        pipeline.take(EVENTS.slice(4, 1))


@pytest.mark.parametrize(
    ("step", "is_right"),
    [
        *((Advance(10, 10, {}), True), (Advance(10, 12, {}, bounds=(12, 12)), True)),
        *((Advance(10, 11, {}, bounds=(12, 13)), True), (Advance(10, 9, {}), False)),
        *((Advance(10, 13, {}, bounds=(12, 14)), False), (Advance(10, 11, {}, bounds=(13, 12)), False)),
    ],
)
def test_the_order(step: Advance, is_right: bool) -> None:
    """Each not beyond the next."""
    if is_right:
        step.check()
        return
    with pytest.raises(ProgressOrderError):
        step.check()
