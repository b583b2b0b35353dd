"""A boundary from the future is not believed: the rows that come until then would be dropped as late."""

from __future__ import annotations

from pathlib import Path

import pytest

from bridge.errors import BadMessageError
from bridge.mysql.connection.session import Session
from bridge.tso import ms_tso
from tests.pipeline.test_bad_messages import capture, ids
from tests.pipeline.test_quarantined_messages import applied, held
from tests.support.captures import row, watermark
from tests.support.pipelines import run_all, session_after

NOW = 1_764_000_000_000
FAR = ms_tso(NOW * 2)


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY, at TIMESTAMP NULL)")


def test_it_stops_the_bridge(target: str, session: Session, tmp_path: Path) -> None:
    """What is complete before it is in the target, nothing is lost, and the error says what to do."""
    messages = [row(10, 1), watermark(11), watermark(FAR), row(12, 2), watermark(20), row(21, 3), watermark(30)]
    events = capture(tmp_path, messages, [*messages[:1], watermark(FAR)], latest_ms=NOW)
    with pytest.raises(BadMessageError) as raised:
        run_all(target, events)
    assert applied(session) == 0
    assert raised.value.where == "cdc/0/2"
    assert "is 2081-10-18T" in str(raised.value)
    assert "--set source.quarantine=cdc/0/2" in str(raised.value)


@pytest.mark.parametrize("way", [{"quarantine": True}, {"released": ("cdc/0/2", "cdc/1/1")}], ids=["all", "named"])
@pytest.mark.parametrize("batch", [1, 2, 100])
def test_in_the_quarantine_it_changes_nothing(
    target: str, session: Session, tmp_path: Path, way: dict[str, bool], batch: int
) -> None:
    """The next boundary counts, and no row is late."""
    events = capture(
        tmp_path,
        [row(10, 1), watermark(11), watermark(FAR), row(12, 2), watermark(20), row(21, 3), watermark(30)],
        [row(10, 4), watermark(FAR), row(25, 5), watermark(30)],
        latest_ms=NOW,
    )
    for _ in range(2):
        pipeline = run_all(target, events, batch=batch, **way)
        assert ids(session) == [1, 2, 3, 4, 5]
        assert (applied(session), pipeline.applier.counts.late) == (30, 0)
        assert [entry[:3] for entry in held(session)] == [(0, 2, "ahead-of-clock"), (1, 1, "ahead-of-clock")]


def test_a_row_from_the_future(target: str, session: Session, tmp_path: Path) -> None:
    """It would wait for ever, and be read again at every start."""
    events = capture(tmp_path, [row(10, 1), row(FAR, 2), watermark(20)], [watermark(20)], latest_ms=NOW)
    with pytest.raises(BadMessageError, match="its commit ts"):
        run_all(target, events)
    run_all(target, events, quarantine=True)
    assert (ids(session), [entry[2] for entry in held(session)]) == ([1], ["ahead-of-clock"])
