"""A stop comes to its end within 30 s while the bridge waits, and leaves nothing behind.

What else it may wait for is in tests/cli/test_stop_signals.py (the signals), tests/mysql/state/test_ownership.py and
tests/mysql/connection/test_tls.py (the target), and tests/pipeline/test_intake.py and test_reading.py (the source).
"""

from __future__ import annotations

import signal
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.local import Kafka
from tests.support.bridges import PARTITIONS, applied_ts, running
from tests.support.command import Process
from tests.support.feeds import Feed
from tests.support.grounds import processes_of
from tests.support.pipelines import admin, sql
from tests.support.waiting import wait_for

SECONDS = 30.0


def assert_nothing_is_left(process: Process, folder: Path) -> None:
    """No process of its session, no checkpoint, nothing of Spark's."""
    wait_for(lambda: not processes_of(process.pid), "processes of its session are left", 10)
    assert [path.name for path in folder.iterdir() if not path.name.endswith(".log")] == []


@pytest.mark.timeout(240)
def test_a_stop_comes_to_its_end(target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """Somebody holds a table: exit code 0, without a traceback and without orphans; what was in hand is rolled back."""
    name, folder = topic(PARTITIONS), tmp_path / "bridge"
    with (
        Feed(kafka.bootstrap_servers, name, copies=False) as feed,
        running(folder, kafka.bootstrap_servers, name, target, "--set", "stream.trigger_ms=100") as process,
    ):
        feed.open_bank()
        feed.start()
        process.wait_for(lambda: _has_rows(target), "a first transaction")
        with admin(target) as rival:
            rival.execute("LOCK TABLES bank.ledger WRITE")
            process.wait_for(lambda: _stands_still(target), "the wait")
            began = time.monotonic()
            process.signal(signal.SIGTERM)
            assert process.wait(60) == 0, process.end_of_log
            assert time.monotonic() - began < SECONDS
        assert "Traceback" not in process.log, process.log
        assert_nothing_is_left(process, folder)
    open_ones = "SELECT COUNT(*) FROM information_schema.innodb_trx"
    wait_for(lambda: sql(target, open_ones) == [(0,)], "a transaction is left open", 10)


def _has_rows(target: str) -> bool:
    there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'bank' AND table_name = 'ledger'"
    return sql(target, there) == [(1,)] and sql(target, "SELECT COUNT(*) > 0 FROM bank.ledger") == [(1,)]


def _stands_still(target: str) -> bool:
    before = applied_ts(target)
    time.sleep(1.5)
    return applied_ts(target) == before
