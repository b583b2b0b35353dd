"""What is said of executors whose statement the server works on for long."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

import pytest
import structlog
from pymysql.err import MySQLError

from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel.silent_executors import silence_told
from tests.support.waiting import wait_for

SECONDS = 60
"""How long a test waits for what has to be said."""


@contextmanager
def at_work(url: str) -> Iterator[int]:
    """A connection on whose statement the server works until the end of the block; gives its id."""
    with closing(Target(url).connect(autocommit=True)) as session, closing(Target(url).connect(autocommit=True)) as end:

        def work() -> None:
            with pytest.raises(MySQLError):
                session.rows("SELECT SLEEP(300)")

        thread = Thread(target=work, daemon=True)
        thread.start()
        try:
            yield session.connection_id
        finally:
            end.execute(f"KILL {session.connection_id}")
            thread.join(SECONDS)
            assert not thread.is_alive()


@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_what_a_server_works_on_is_said(server: str, request: pytest.FixtureRequest) -> None:
    """Of an executor's connection, again and again; never of others, nor of one that does nothing."""
    url = request.getfixturevalue(server)
    with ExitStack() as stack:
        busy, other = (stack.enter_context(at_work(url)) for _ in range(2))
        idle = stack.enter_context(closing(Target(url).connect(autocommit=True)))
        logs = stack.enter_context(structlog.testing.capture_logs())
        stack.enter_context(silence_told(Target(url, timeout_seconds=1), lambda _: {busy, idle.connection_id}))
        wait_for(lambda: len(logs) >= 2, "nothing was said twice")
        assert other != busy
    assert {(line["event"], line["connection"]) for line in logs} == {("server_still_working", busy)}
    assert logs[0]["command"] in {"Query", "Execute"}
    assert logs[-1]["seconds"] >= 1


def test_nothing_is_said_before_its_time(target: str) -> None:
    """A statement may take as long as the server's silence may; the block does not wait for it."""
    with at_work(target) as busy, structlog.testing.capture_logs() as logs:
        began = time.monotonic()
        with silence_told(Target(target, timeout_seconds=300), lambda _: {busy}):
            pass
        assert time.monotonic() - began < SECONDS
    assert logs == []


def test_a_target_that_is_away_is_asked_again(target: str) -> None:
    """What cannot be asked, for a connection that is lost or one that cannot be had, ends neither the watch nor the
    step."""
    failures: list[Exception] = [MySQLError("lost"), OSError("gone")]

    def others(_: Session) -> set[int]:
        if failures:
            raise failures.pop()
        return {busy}

    watched = Target(target, timeout_seconds=1)
    with at_work(target) as busy, structlog.testing.capture_logs() as logs, silence_told(watched, others):
        wait_for(lambda: logs, "nothing was said")
    assert failures == []
