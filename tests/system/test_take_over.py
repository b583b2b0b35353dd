"""Two bridges of one name: an owner that was taken over while it slept can neither commit nor run anything."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from pymysql.err import MySQLError

from bridge.demo.watcher import Watcher
from bridge.ends import End
from bridge.errors import OwnedError
from bridge.local import Kafka
from bridge.model import Advance, SchemaChange
from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline import heartbeat
from bridge.spark import session
from bridge.spark.session import start_session
from tests.support.bridges import PARTITIONS, applied_ts, assert_equal, assert_ran_once, owner, running
from tests.support.command import bridge
from tests.support.feeds import Feed
from tests.support.golden import replay_arguments
from tests.support.pipelines import sql

SOON_SECONDS = 20.0


@contextmanager
def owned(url: str, *, take_over: bool = False) -> Iterator[tuple[Ownership, Writer]]:
    """An owner without Spark."""
    target, table = Target(url), ProgressTable("bridge")
    ownership = Ownership(target, table)
    writer = Writer(ownership, end=End("target", target.place, retry_seconds=5))
    try:
        ownership.acquire(0, take_over=take_over)
        yield ownership, writer
    finally:
        writer.close()
        ownership.release()


def test_an_open_transaction_does_not_hold_up_a_take_over(target: str) -> None:
    """Its connection is ended even when it was opened after the owner's last heartbeat."""
    with owned(target) as (first, writer):
        session = writer.session()
        session.begin()
        assert ProgressTable("bridge").advance(session, first.epoch, Advance(0, 5, {}))
        began = time.monotonic()
        with owned(target, take_over=True) as (second, _):
            assert time.monotonic() - began < SOON_SECONDS
            assert second.epoch == first.epoch + 1
        assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(0,)]


def test_who_was_taken_over_commits_and_runs_nothing(target: str) -> None:
    """Neither a transaction nor a schema change, whatever of its connections is left."""
    change = SchemaChange(7, "", "", "CREATE DATABASE late", "t/0/0")
    with owned(target) as (_, writer):
        writer.apply(Advance(0, 5, {}))
        with owned(target, take_over=True):
            with pytest.raises(OwnedError):
                writer.apply(Advance(5, 6, {}))
            with pytest.raises(OwnedError):
                writer.run_next((change,))
        with pytest.raises(OwnedError):
            writer.apply(Advance(5, 6, {}))
        with pytest.raises(OwnedError):
            writer.run_next((change,))
    assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(5,)]
    assert sql(target, "SHOW DATABASES LIKE 'late'") == []


@pytest.mark.usefixtures("spark")
def test_the_heartbeat_begins_before_spark_has_started(
    target: str, golden: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark may take longer than a heartbeat counts as fresh; nobody takes the pipeline meanwhile."""
    beats: set[Any] = set()

    def start_slowly(*arguments: Any, **more: Any) -> Any:
        deadline = time.monotonic() + 30
        while len(beats) < 2 and time.monotonic() < deadline:
            with suppress(MySQLError):  # the bridge makes the table meanwhile
                beats.update(sql(target, "SELECT heartbeat_at FROM _bridge.owner"))
            time.sleep(0.05)
        return start_session(*arguments, **more)

    monkeypatch.setattr(session, "start_session", start_slowly)
    monkeypatch.setattr(heartbeat, "HEARTBEAT_SECONDS", 0.1)
    assert bridge(*replay_arguments(golden, "canal-ext", "keys", target)).code == 0
    assert len(beats) == 2


@pytest.mark.soak
@pytest.mark.timeout(900)
def test_an_owner_that_slept_through_a_take_over_ends_with_5(
    target: str, kafka: Kafka, topic: Callable[..., str], tmp_path: Path
) -> None:
    """Stopped in mid-stream, taken over, woken: exit 5 and one line; every snapshot and the end are the upstream's."""
    name = topic(PARTITIONS)
    with (
        Watcher(Target(target)) as watcher,
        Feed(kafka.bootstrap_servers, name, per_beat=15, expect=watcher.expect) as feed,
        running(tmp_path / "first", kafka.bootstrap_servers, name, target) as first,
    ):
        feed.open_bank()
        feed.start()
        first.wait_for(lambda: applied_ts(target) > 0, "a first transaction")
        feed.schedule(feed.bank.add_column)
        first.signal_group(signal.SIGSTOP)
        slept_at = applied_ts(target)
        with running(tmp_path / "second", kafka.bootstrap_servers, name, target, "--take-over") as second:
            second.wait_for(lambda: applied_ts(target) > slept_at, "a transaction after the take-over")
            feed.schedule(feed.bank.create_table)
            first.signal_group(signal.SIGCONT)
            assert first.wait() == 5, first.end_of_log
            assert "another bridge has taken over the pipeline 'bridge'" in first.last_line
            assert "Traceback" not in first.log
            boundary = feed.finish()
            second.wait_for(lambda: applied_ts(target) >= boundary, "the end")
            assert owner(target)["pid"] == second.pid
            second.signal(signal.SIGTERM)
            assert second.wait() == 0, second.end_of_log
        watcher.check()
    assert watcher.first_violations == []
    assert_equal(target, feed.bank)
    assert_ran_once(target, feed.schema_changes)
