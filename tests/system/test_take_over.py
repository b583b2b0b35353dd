"""Two bridges of one name: an owner that was taken over while it slept can neither commit nor run anything."""

from __future__ import annotations

import time
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from pymysql.err import MySQLError

from bridge.errors import OwnedError
from bridge.model import Advance, SchemaChange
from bridge.pipeline import heartbeat
from bridge.spark import session
from bridge.spark.session import start_session
from tests.support.command import bridge
from tests.support.golden import replay_arguments
from tests.support.pipelines import opened, sql

SOON_SECONDS = 20.0


def test_an_open_transaction_does_not_hold_up_a_take_over(target: str) -> None:
    """Its connection is ended even when it was opened after the owner's last heartbeat."""
    with opened(target, []) as first:
        session = first.writer.session()
        session.begin()
        assert first.table.advance(session, first.ownership.epoch, Advance(0, 5, {}))
        began = time.monotonic()
        with opened(target, [], take_over=True) as second:
            assert time.monotonic() - began < SOON_SECONDS
            assert second.ownership.epoch == first.ownership.epoch + 1
        assert sql(target, "SELECT applied_ts FROM _bridge.progress") == [(0,)]


def test_who_was_taken_over_commits_and_runs_nothing(target: str) -> None:
    """Neither a transaction nor a schema change, whatever of its connections is left."""
    change = SchemaChange(7, "", "", "CREATE DATABASE late", "t/0/0")
    with opened(target, []) as first:
        first.writer.apply(Advance(0, 5, {}))
        works = (lambda: first.writer.apply(Advance(5, 6, {})), lambda: first.writer.run_next((change,)))
        with opened(target, [], take_over=True):
            for work in works:
                with pytest.raises(OwnedError):
                    work()
        for work in works:
            with pytest.raises(OwnedError):
                work()
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
