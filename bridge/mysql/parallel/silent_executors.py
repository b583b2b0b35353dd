"""Says what the server does for Spark's executors that write for long: their own logs are nowhere to be seen."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import closing, contextmanager, suppress
from threading import Event, Thread

import structlog
from pymysql.err import MySQLError

from bridge.errors import BridgeError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target

log = structlog.get_logger()


@contextmanager
def silence_told(target: Target, connections_of: Callable[[Session], Collection[int]]) -> Iterator[None]:
    """Logs, while the block runs, which connections the server has worked for since `target.timeout_seconds` on one
    statement; again after as long.  connections_of: finds those that may be meant."""
    ended = Event()

    def watch() -> None:
        while not ended.wait(target.timeout_seconds):
            with suppress(MySQLError, OSError, BridgeError), closing(target.connect(autocommit=True)) as session:
                _tell(session, connections_of(session), target.timeout_seconds)

    thread = Thread(target=watch, name="executor-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()


def _tell(session: Session, connections: Collection[int], seconds: float) -> None:
    rows = session.rows(
        "SELECT id, command, state, time FROM information_schema.processlist WHERE command <> 'Sleep' AND time >= %s",
        (seconds,),
    )
    for connection, command, state, since in rows:
        if connection in connections:
            log.info("server_still_working", connection=connection, command=command, state=state, seconds=since)
