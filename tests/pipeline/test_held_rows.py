"""Rows that somebody else holds for longer than the server waits, while several connections write (`parallel`)."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bridge.errors import TargetError
from bridge.mysql.connection.session import SESSION_SETTINGS
from tests.support.pipelines import admin, opened
from tests.support.scenarios import T, begin, t_row
from tests.support.upstreams import boundary, in_one_partition

WAIT = "innodb_lock_wait_timeout = 1"


@pytest.fixture(autouse=True)
def short_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sessions of the bridge wait for a second instead of fifty."""
    first, *rest = SESSION_SETTINGS
    short = first.replace(f"{WAIT[:-1]}50", WAIT)
    assert short != first
    monkeypatch.setattr("bridge.mysql.connection.session.SESSION_SETTINGS", (short, *rest))


@contextmanager
def held(target: str, until: Callable[[], bool]) -> Iterator[None]:
    """Somebody holds a row, until something is true."""
    with admin(target) as rival:
        rival.begin()
        rival.execute("UPDATE m.t SET v = v WHERE id = 5")
        over = threading.Event()

        def wait() -> None:
            while not over.is_set() and not until():
                time.sleep(0.05)
            rival.rollback()

        thread = threading.Thread(target=wait)
        thread.start()
        try:
            yield
        finally:
            over.set()
            thread.join()


def test_who_holds_rows_is_named_at_once(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """The first wait is told, with what to do; several connections go on when it is over.  Before, each tried five
    times, four minutes in all, without a word, and then one of them wrote the whole step."""
    with admin(target) as session:
        begin(session, [T, "INSERT INTO m.t VALUES (5, 0)"])
        with opened(target, [("cdc", 0)], writers=2) as pipeline:
            seen: list[str] = []

            def is_told() -> bool:
                if pipeline.writer.end.retries:
                    seen.append(pipeline.writer.end.waiting_for)
                return pipeline.writer.end.retries >= 2

            with held(target, is_told):
                pipeline.take(in_one_partition([*(t_row(10, n, n) for n in range(9)), boundary(11)]))
        session.rollback()
        assert session.rows("SELECT id, v FROM m.t ORDER BY id") == [(n, n) for n in range(9)]
    assert "has another transaction in the way, find the transaction that holds the rows" in seen[0]
    told = capsys.readouterr().out
    assert "retrying" in told
    assert "1205" in told
    assert "written_again" not in told


def test_rows_that_are_held_for_too_long_stop_the_bridge(target: str) -> None:
    """As with a single connection, after `target.retry_seconds`; a start goes on."""
    events = in_one_partition([*(t_row(10, n, n) for n in range(9)), boundary(11)])
    with admin(target) as session:
        begin(session, [T, "INSERT INTO m.t VALUES (5, 0)"])
        with (
            opened(target, [("cdc", 0)], writers=2, retry_seconds=2) as pipeline,
            held(target, lambda: False),
            pytest.raises(TargetError, match="within 2 s: 1205") as stopped,
        ):
            pipeline.take(events)
        assert "information_schema.innodb_trx" in stopped.value.fix
        with opened(target, [("cdc", 0)], writers=2) as again:
            again.take(events)
        session.rollback()
        assert session.rows("SELECT id, v FROM m.t ORDER BY id") == [(n, n) for n in range(9)]
