"""The heartbeat of the owner, and the status: both have a clock, a thread and a session of their own."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import orjson
import structlog
from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection import Session, Target
from bridge.mysql.state.ownership import Ownership
from bridge.pipeline.watching.status import Status
from bridge.pipeline.watching.status_reporter import StatusReporter

HEARTBEAT_SECONDS: Final = 5.0

log = structlog.get_logger()


class Heartbeat:
    """Heartbeat and status, on a thread and a session of their own, for as long as the block lasts.

    It begins before there is an applier to look at: Spark takes long to start, and a pipeline without a heartbeat is
    there for the taking.

    seconds: how often `on_status` is told; the heartbeat has its own interval.
    """

    def __init__(
        self,
        target: Target,
        ownership: Ownership,
        writer: Writer,
        on_status: Callable[[Status], None],
        seconds: float,
    ) -> None:
        self._target, self._ownership, self._writer = target, ownership, writer
        self._on_status, self._seconds = on_status, seconds
        self._reporter: StatusReporter | None = None
        self._failure: BaseException | None = None
        self._end = threading.Event()
        self._session: Session | None = None
        self._has_failed = False
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._beat(self._look())
        if self._session is not None:
            self._session.close()

    def report_on(self, reporter: StatusReporter) -> None:
        """Tells from now on what this one sees."""
        self._reporter = reporter

    def raise_failure(self) -> None:
        """Raises what ended the thread, if anything did: who does not beat any more is taken over while it writes."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            self._beat_on()
        except BaseException as error:  # noqa: BLE001  # raised again by raise_failure, in the thread that watches
            self._failure = error

    def _beat_on(self) -> None:
        next_beat = next_status = time.monotonic()
        next_status += self._seconds
        while not self._end.wait(max(0.05, min(next_beat, next_status) - time.monotonic())):
            now = time.monotonic()
            status = self._look()
            if status is not None and now >= next_status:
                next_status = now + self._seconds
                self._tell(status)
            if now >= next_beat:
                next_beat = now + HEARTBEAT_SECONDS
                self._beat(status)

    def _look(self) -> Status | None:
        try:
            return None if self._reporter is None else self._reporter.look()
        except Exception as error:  # noqa: BLE001  # the heartbeat goes on without a status
            self._failed(error)
            return None

    def _tell(self, status: Status) -> None:
        try:
            self._on_status(status)
        except Exception as error:  # noqa: BLE001  # as above
            self._failed(error)

    def _failed(self, error: Exception) -> None:
        """Says so once; only the status is missing."""
        if not self._has_failed:
            self._has_failed = True
            log.error("the status cannot be told; please report this", error=repr(error))

    def _beat(self, status: Status | None) -> None:
        try:
            if self._session is None:
                self._session = self._target.connect(autocommit=True)
            state = orjson.dumps(status.document() if status else {}).decode()
            self._ownership.beat(self._session, self._writer.connections, state)
        except Exception as error:  # noqa: BLE001  # a connection that was cut may raise anything; another one is tried
            session, self._session = self._session, None
            if session is not None:
                with suppress(Exception):
                    session.close()
            if not isinstance(error, MySQLError | OSError | TargetError):
                self._failed(error)
            log.warning("no heartbeat: the target does not answer", error=str(error))
