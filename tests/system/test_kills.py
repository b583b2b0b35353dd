"""A bank through Kafka, a bridge that is killed again and again, and a reader that never sees a wrong sum."""

from __future__ import annotations

import random
import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.demo.watcher import Watcher
from bridge.local import Kafka
from bridge.mysql.connection.target import Target
from tests.support.bridges import PARTITIONS, applied_ts, assert_equal, assert_ran_once, running
from tests.support.command import Process
from tests.support.feeds import Feed

LIVE_SECONDS = 3.0
START_SECONDS = 6.0
"""A bridge has its first transaction after four on a quiet machine."""


class Victim:
    """A bridge that is killed at random moments: two of three while it applies, the third while it starts."""

    def __init__(self, folder: Path, arguments: list[str], target: str, seed: int) -> None:
        self._folder, self._arguments, self._target = folder, arguments, target
        self._random = random.Random(seed)

    def live_and_die(self, number: int) -> None:
        """One life."""
        with running(self._folder, *self._arguments) as process:
            if number % 3 == 1:
                self._sleep(process, self._random.uniform(0, START_SECONDS))
            else:
                before = applied_ts(self._target)
                process.wait_for(lambda: applied_ts(self._target) > before, "a first transaction")
                self._sleep(process, self._random.choice([0, self._random.uniform(0, 3)]))
            assert process.code is None, process.end_of_log

    def live_on(self, feed: Feed) -> None:
        """The last life: catches up, follows for a while, comes to the end; then SIGTERM."""
        with running(self._folder, *self._arguments) as process:
            moment = feed.bank.boundary()
            process.wait_for(lambda: applied_ts(self._target) >= moment, "new transactions")
            self._sleep(process, LIVE_SECONDS)
            boundary = feed.finish()
            process.wait_for(lambda: applied_ts(self._target) >= boundary, "the end")
            process.signal(signal.SIGTERM)
            assert process.wait() == 0, process.end_of_log

    def _sleep(self, process: Process, seconds: float) -> None:
        until = time.monotonic() + seconds
        process.wait_for(lambda: time.monotonic() >= until, "the kill")


def survive(
    kills: int, protocol: str, seed: int, kafka: Kafka, topic: str, target: str, folder: Path, *more: str
) -> None:
    """Feeds, kills, and compares."""
    arguments = [kafka.bootstrap_servers, topic, target, "--protocol", protocol, *more]
    victim = Victim(folder / "bridge", arguments, target, seed)
    with (
        Watcher(Target(target)) as watcher,
        Feed(kafka.bootstrap_servers, topic, protocol=protocol, seed=seed, expect=watcher.expect) as feed,
    ):
        feed.open_bank()
        feed.start()
        for number in range(kills):
            if number == kills // 3:
                feed.schedule(feed.bank.add_column)
            if number == kills * 2 // 3:
                feed.schedule(feed.bank.create_table)
            victim.live_and_die(number)
        victim.live_on(feed)
        watcher.check()
    assert watcher.first_violations == []
    assert watcher.violations == 0
    assert watcher.snapshots > 20
    assert_equal(target, feed.bank)
    assert_ran_once(target, feed.schema_changes)


@pytest.mark.soak
@pytest.mark.timeout(900)
@pytest.mark.parametrize("protocol", ["canal-json", "open-protocol"])
def test_a_killed_bridge_loses_and_repeats_nothing(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, protocol: str
) -> None:
    """The whole process group is killed, while it applies and while it starts; every message comes twice, boundaries
    lag: each snapshot is a state of the upstream, the end is the upstream's, schema changes run once.  Of one kill,
    tests/demo/test_demo.py shows the same each time, and tests/pipeline/test_crash_points.py at each step."""
    survive(2, protocol, 7, kafka, topic(PARTITIONS), target, tmp_path)


@pytest.mark.soak
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("more", [[], ["--set", "stream.driver_rows=0", "--set", "stream.messages_per_batch=3000"]])
def test_25_kills(target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path, more: list[str]) -> None:
    """The same with 25 kills, on the driver and on executors."""
    survive(25, "canal-json", random.randrange(1 << 30), kafka, topic(PARTITIONS), target, tmp_path, *more)
