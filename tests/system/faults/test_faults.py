"""A bank's money moves on while everything around the bridge fails; no reader ever sees a wrong sum."""

from __future__ import annotations

import os
import random
import threading
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support.bridges import assert_equal
from tests.support.faults import FAULTS, WIRE, Ground, PatientWatcher, Report, grounds, processes_of

MINUTES = float(os.environ.get("BRIDGE_FAULTS_MINUTES", "30"))
EVERY_SECONDS = 10.0
IN_SUITE = [*WIRE, "table locked", "deadlocks", "MariaDB stopped", "MariaDB killed", "failover", "JVM stopped"]
"""Those that the bridge gets over within seconds."""


def happens(ground: Ground, report: Report, name: str) -> None:
    """One fault, from its beginning until the bridge has got over it."""
    began = time.monotonic()
    boundary = ground.feed.bank.boundary()
    FAULTS[name](ground)
    assert ground.recovered(boundary), f"nothing new in the target after {name!r}: {ground.process.end_of_log}"  # type: ignore[union-attr]
    report.note(name, time.monotonic() - began)


def finish(ground: Ground, watcher: PatientWatcher, *, atomic: bool) -> None:
    """The end is the upstream's, and no snapshot was anything else."""
    assert ground.recovered(ground.feed.finish())
    watcher.check()
    assert watcher.snapshots > 20
    if atomic:
        assert watcher.first_violations == []
    assert_equal(ground.url, ground.feed.bank)


def assert_nothing_is_left(ground: Ground, folder: Path) -> None:
    """No process of the bridge, and none of its files."""
    assert ground.process is not None
    assert processes_of(ground.process.pid) == []
    assert [path.name for path in folder.iterdir() if path.name.startswith("bridge-stream-")] == []
    assert not any("Traceback" in log for log in ground.logs), ground.logs


@pytest.mark.system
@pytest.mark.timeout(600)
def test_each_fault_by_itself(tmp_path: Path) -> None:
    """One bridge gets over all of them, one after the other, without ending once."""
    report, folder = Report(), tmp_path / "bridge"
    with grounds(folder, consistency="atomic", seed=3, per_beat=6) as (ground, watcher):
        assert ground.recovered(ground.feed.bank.boundary())
        names = random.Random(3).sample(IN_SUITE, len(IN_SUITE))
        for name in names:
            happens(ground, report, name)
        finish(ground, watcher, atomic=True)
    print(*report.lines(ground), sep="\n")
    assert (ground.starts, dict(ground.ends)) == (1, {0: 1})
    assert_nothing_is_left(ground, folder)


@pytest.mark.soak
@pytest.mark.timeout(MINUTES * 60 + 1200)
@pytest.mark.parametrize("consistency", ["atomic", "parallel"])
def test_night_of_faults(tmp_path: Path, consistency: str) -> None:
    """A fault every 10 s, of any kind, whether or not the last one is over: zero differences."""
    seed = int(os.environ.get("BRIDGE_FAULTS_SEED", str(random.randrange(1 << 30))))
    report, folder = Report(), tmp_path / "bridge"
    print(f"seed {seed}, {MINUTES:g} minutes, {consistency}")
    with grounds(folder, consistency=consistency, seed=seed, per_beat=20) as (ground, watcher):
        assert ground.recovered(ground.feed.bank.boundary())
        until, threads = time.monotonic() + MINUTES * 60, []
        while time.monotonic() < until:
            name = ground.dice.choice(list(FAULTS))
            thread = threading.Thread(target=_happen, args=(ground, report, name), daemon=True)
            thread.start()
            threads.append(thread)
            time.sleep(EVERY_SECONDS)
            ground.feed.check()
        for thread in threads:
            thread.join(300)
        finish(ground, watcher, atomic=consistency == "atomic")
    totals = f"transactions {ground.feed.sent:,}, snapshots {watcher.snapshots:,}, violations {watcher.violations}"
    print(*report.lines(ground, totals), sep="\n")
    assert set(ground.ends) <= {0, 3, -9}, ground.ends
    assert_nothing_is_left(ground, folder)


_alone = threading.Lock()


def _happen(ground: Ground, report: Report, name: str) -> None:
    """Faults wait for one another, since each puts back what it changes; their recoveries overlap."""
    with _alone:
        began = time.monotonic()
        boundary = ground.feed.bank.boundary()
        with suppress(ProcessLookupError):
            FAULTS[name](ground)
    if ground.recovered(boundary):
        report.note(name, time.monotonic() - began)
    else:
        report.note(f"{name}: no recovery", time.monotonic() - began)
