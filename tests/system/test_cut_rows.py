"""Captures whose large rows are cut to their key: refused without a source, whole with one.

The stand-in for the upstream is a second server that really has the upstream's history: before it is read, it is
brought to the moment asked for by applying the capture that holds whole rows.  Only TiDB's `SET tidb_snapshot` is
replaced by that.
"""

from __future__ import annotations

import re
from pathlib import Path

import pyarrow.compute as pc
import pytest

from bridge.mysql.connection.session import Session
from bridge.verify.source import historical_rows
from tests.support.command import bridge
from tests.support.golden import CUT_ROWS, ZONES, capture, differences, replay_arguments
from tests.support.pipelines import decoded, run_all, sql
from tests.support.selection import some_of

pytestmark = pytest.mark.usefixtures("spark")


class StandIn:
    """An upstream's history on a server of its own."""

    def __init__(self, golden: Path, script: str, url: str) -> None:
        events = decoded(capture(golden, "canal-ext", script), "canal-json", ZONES.get(script, "UTC"))
        self._events = events.filter(pc.not_equal(events["table"], "vecs"))
        self._url, self.asked = url, list[int]()

    def enter(self, _: Session, commit_ts: int) -> None:
        """Brings the server to a moment, never back."""
        if commit_ts not in self.asked:
            run_all(self._url, self._events, until=commit_ts + 1)
        self.asked.append(commit_ts)


@pytest.mark.parametrize("script", some_of(["all_types", "all_types_tz8"], "all_types_tz8"))
@pytest.mark.parametrize("variant", some_of([*CUT_ROWS], "open-handle-key-only"))
def test_rows_are_read_back(
    target: str, old_target: str, golden: Path, variant: str, script: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a source the bridge stops at the first such row and says how to go on; with one the same pipeline ends
    at the upstream's state."""
    stand_in = StandIn(golden, script, old_target)
    monkeypatch.setattr(historical_rows, "enter_moment", stand_in.enter)
    arguments = replay_arguments(golden, variant, script, target)
    refused = bridge(*arguments)
    assert refused.code == 3
    assert "does not hold the whole row" in refused.last_line
    assert "give the upstream with --upstream" in refused.last_line
    ended = bridge(*arguments, "--source", old_target)
    assert ended.code == 0, ended.err
    assert differences(target, golden, script) == []
    assert len(set(stand_in.asked)) >= 7


@pytest.mark.parametrize("variant", some_of([*CUT_ROWS], "open-handle-key-only"))
def test_put_aside_and_tried_again(
    target: str, old_target: str, golden: Path, variant: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Put aside, they are counted, and the rest is applied; a retry with the source takes inserts whose rows are
    absent, and leaves updates, which do not tell the row before."""
    monkeypatch.setattr(historical_rows, "enter_moment", StandIn(golden, "all_types", old_target).enter)
    ended = bridge(*replay_arguments(golden, variant, "all_types", target), "--on-bad-message", "quarantine")
    assert ended.code == 4, ended.err
    codes = sql(target, "SELECT code, COUNT(*) FROM _bridge.quarantine GROUP BY code")
    assert codes == [("handle-key-only", 7 if variant.startswith("canal") else 8)]
    retried = bridge("quarantine", "retry", "--all", "--target", target, "--source", old_target, "--timezone", "UTC")
    assert retried.code == 0, retried.err
    summary = re.search(r"^(\d+) done, (\d+) left", retried.out, re.MULTILINE)
    assert summary is not None
    assert int(summary[1]) >= 3
    assert "the message does not hold the old row" in retried.out
    assert sql(target, "SELECT COUNT(*) FROM types.bins WHERE id IN (1, 5)") == [(2,)]
