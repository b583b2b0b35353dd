"""What the page draws: an hour of lag, and rates of the last seconds."""

from __future__ import annotations

from dataclasses import replace

from bridge.model import TableName
from bridge.pipeline.watching.counts import RowCounts
from bridge.pipeline.watching.status_reporter import Sample
from bridge.watch.document import History, Recent
from tests.support.watched import MadeSampler


def sample(*, lag: float | None = 1.0, rows: int = 0) -> Sample:
    """A sample with this source lag and these rows of one table."""
    made = MadeSampler().sample()
    return replace(
        made,
        status=replace(made.status, source_lag=lag, apply_lag=lag, rows=rows),
        tables={TableName("m", "t"): RowCounts(rows, 0, 0)},
        phases={"server": rows / 100},
    )


def test_ten_seconds_are_one_point_with_the_highest_lag() -> None:
    """So that a peak between two points is not lost; an unknown lag leaves a gap."""
    history = History()
    for at, lag in ((100.0, 1.0), (103.0, 7.0), (109.9, 2.0), (110.0, None), (120.0, 3.0)):
        history.add(at, sample(lag=lag))
    assert [(point.at, point.source_lag) for point in history.points()] == [(100, 7.0), (110, None), (120, 3.0)]


def test_a_clock_that_is_set_back_adds_to_the_last_point() -> None:
    """The chart never runs backwards."""
    history = History()
    for at, lag in ((100.0, 1.0), (50.0, 4.0), (111.0, 1.0)):
        history.add(at, sample(lag=lag))
    assert [(point.at, point.source_lag) for point in history.points()] == [(100, 4.0), (110, 1.0)]


def test_an_hour_is_kept() -> None:
    """And no more, however long the bridge runs."""
    history = History()
    made = sample()
    for second in range(0, 7200, 10):
        history.add(float(second), made)
    assert [history.points()[0].at, history.points()[-1].at] == [3600, 7190]


def test_rates_are_those_of_the_last_seconds() -> None:
    """What came long before does not count."""
    recent = Recent()
    assert (recent.rate(), recent.table_rates(), recent.phases()) == (0.0, {}, {})
    for second in range(100):
        recent.add(float(second), sample(rows=1000 * second if second < 50 else 50_000 + 10 * (second - 50)))
    assert recent.rate() == 10
    assert recent.table_rates() == {TableName("m", "t"): 10}
    assert round(recent.phases()["server"], 6) == 1.5
