"""A bank's money moves on while everything around the bridge fails; no reader ever sees a wrong sum."""

from __future__ import annotations

import os
import random
import time
from pathlib import Path

import pytest

from tests.support import tidb
from tests.support.bridges import assert_equal
from tests.support.fault_lists import WIRE, faults_of
from tests.support.faults import Fault
from tests.support.grounds import RECOVERY_SECONDS, SERVERS, Ground, PatientWatcher, grounds, processes_of
from tests.support.nights import PATIENCE_SECONDS, Night, Report

MINUTES = float(os.environ.get("FAULTS_MINUTES", "30"))
WITHIN_SECONDS = {
    *WIRE,
    *("Kafka cut", "Kafka away", "Kafka stalls"),
    *("table locked", "MariaDB stopped", "MariaDB killed", "failover", "worker killed", "JVM stopped"),
    *("clock an hour ahead", "clock an hour behind"),
}
"""Those that the bridge gets over so soon."""
SHOWN_ELSEWHERE = {
    *("COMMIT cut before the server", "COMMIT cut before its answer", "COMMIT comes late", "COMMIT kept back"),
    *("statement cut", "target cut", "target away", "MariaDB killed", "Kafka away"),
}
"""By tests/pipeline/test_cut_wire.py at each place of a transaction, and in tests/system/test_running.py."""
MAY_END_WITH = "exit 5: bridge: the pipeline 'bridge' belongs to another bridge"
"""Another end than 3: behind a wire that stalls the target takes a killed owner for alive, until its heartbeat is 30 s
old."""


def happens(ground: Ground, report: Report, fault: Fault) -> None:
    """One fault, from its beginning until the bridge has got over it."""
    began = time.monotonic()
    boundary = ground.feed.bank.boundary()
    fault.act(ground)
    assert ground.recovered(boundary), f"nothing new in the target after {fault.name!r}: {ground.process.end_of_log}"  # type: ignore[union-attr]
    report.note(fault.name, time.monotonic() - began)


def finish(ground: Ground, watcher: PatientWatcher, *, atomic: bool, patience: float = RECOVERY_SECONDS) -> None:
    """The end is the upstream's, and no snapshot was anything else.  The last start has come so far that it has removed
    what a killed one had left."""
    assert ground.recovered(ground.feed.finish(), patience)
    assert ground.process is not None
    ground.process.says("spark_started", RECOVERY_SECONDS)
    watcher.check()
    assert watcher.snapshots > 20
    if atomic:
        assert watcher.first_violations == []
    assert_equal(ground.url, ground.feed.bank)


def assert_nothing_is_left(ground: Ground) -> None:
    """No process of the bridge, and none of its files."""
    assert ground.process is not None
    assert processes_of(ground.process.pid) == []
    assert ground.left == []
    assert not any("Traceback" in log for log in ground.logs), ground.logs


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    "names",
    [
        pytest.param(WITHIN_SECONDS - SHOWN_ELSEWHERE, marks=pytest.mark.system, id="shown only here"),
        pytest.param(WITHIN_SECONDS, marks=pytest.mark.soak, id="all"),
    ],
)
def test_each_fault_by_itself(tmp_path: Path, names: set[str]) -> None:
    """One bridge gets over all of them, one after the other, without ending once."""
    report = Report()
    with grounds(tmp_path / "bridge", consistency="atomic", seed=3, per_beat=3) as (ground, watcher):
        assert ground.recovered(ground.feed.bank.boundary())
        assert ground.recovered(ground.feed.bank.boundary())  # behind rows: no table is still to be made
        faults = [fault for fault in faults_of(ground) if fault.name in names]
        for fault in random.Random(3).sample(faults, len(faults)):
            happens(ground, report, fault)
        finish(ground, watcher, atomic=True)
    print(report.table(ground))
    assert (ground.starts, dict(ground.ends)) == (1, {0: 1})
    assert_nothing_is_left(ground)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 2400)
@pytest.mark.parametrize("consistency", ["atomic", "parallel"])
@pytest.mark.parametrize("server", SERVERS)
def test_night_of_faults(tmp_path: Path, server: str, consistency: str) -> None:
    """A fault every 10 s, of any kind, whether or not the last one is over: zero differences."""
    if server == "TiDB" and not tidb.is_built():
        pytest.skip(f"TiDB is not built: `{tidb.BUILD_COMMAND}` does it, once")
    seed = int(os.environ.get("FAULTS_SEED", str(random.randrange(1 << 30))))
    report = Report()
    print(f"{server}, {consistency}, {MINUTES:g} minutes, seed {seed}")
    with grounds(tmp_path / "bridge", server=server, consistency=consistency, seed=seed, per_beat=20) as (
        ground,
        watcher,
    ):
        assert ground.recovered(ground.feed.bank.boundary())
        Night(ground, report, MINUTES * 60).pass_by()
        finish(ground, watcher, atomic=consistency == "atomic", patience=PATIENCE_SECONDS)
    counts = {"transactions": ground.feed.sent, "snapshots": watcher.snapshots, "violations": watcher.violations}
    print(report.table(ground, seed=seed, **counts))
    assert report.lost == []
    assert set(ground.ends) <= {0, 3, 5, -9}, ground.ends
    explained = [reason for reason in ground.reasons if MAY_END_WITH in reason]
    assert ground.ends[5] == sum(ground.reasons[reason] for reason in explained), ground.reasons
    assert_nothing_is_left(ground)
