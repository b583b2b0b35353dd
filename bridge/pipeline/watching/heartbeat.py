"""Writes the owner's heartbeat and reports the status, in a thread and with a session of its own; and commits to a
consumer group what is in the target, in another, so that the usual tools for the lag of Kafka see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any, Final

import orjson
import structlog
from pymysql.err import MySQLError

from bridge.errors import OwnedError, SourceError, TargetError
from bridge.model import PartitionId
from bridge.mysql.apply.writer import Writer
from bridge.mysql.server_errors import trouble
from bridge.mysql.state.ownership import Ownership
from bridge.pipeline.applier import Applier
from bridge.pipeline.steering.load_watch import KeptSession, Lookout
from bridge.pipeline.watching.status import Status
from bridge.sources.source import Source

HEARTBEAT_SECONDS: Final = 5.0
COMMIT_SECONDS: Final = 5.0
"""How often offsets are committed, if they have moved."""
_END_SECONDS: Final = 3.0
_WORK: Final = "heartbeat"

log = structlog.get_logger()


class Heartbeat:
    """Writes the heartbeat and reports the status while the `with` block lasts.

    It starts before there is an applier: Spark takes long to start, and another bridge may take over a pipeline that
    has no heartbeat.

    seconds: how often `on_status` is called; the heartbeat is written every HEARTBEAT_SECONDS.
    """

    def __init__(
        self, ownership: Ownership, writer: Writer, on_status: Callable[[Status], None], seconds: float
    ) -> None:
        self._ownership, self._writer = ownership, writer
        self._on_status, self._seconds = on_status, seconds
        self._status: Callable[[], Status | None] = lambda: None
        self._failure: BaseException | None = None
        self._end, self._wake = threading.Event(), threading.Event()
        self._steered: Mapping[str, Any] | None = None
        self._is_told = True
        self._session = KeptSession(ownership.target)
        self._is_logged = False
        self._thread = threading.Thread(target=self._work, name="heartbeat", daemon=True)

    def __enter__(self) -> Heartbeat:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._wake.set()
        self._thread.join(_END_SECONDS)
        if self._thread.is_alive() or not self._session.is_open:
            return  # the target does not answer
        with suppress(OwnedError):  # somebody else goes on: there is nothing left to say
            self._beat(self._read_status())
        self._session.close()

    def report_on(self, status: Callable[[], Status | None]) -> None:
        """Sets where the status comes from, from now on."""
        self._status = status

    def tell(self, steered: Mapping[str, Any]) -> None:
        """Says at once, beside the status, which of the operator's settings are followed from now on."""
        self._steered, self._is_told = steered, False
        self._wake.set()

    def raise_failure(self) -> None:
        """Raises the error that ended the thread, if there is one: another bridge has taken over, or may, since there
        is no heartbeat any more."""
        if self._failure is not None:
            raise self._failure

    def _work(self) -> None:
        try:
            self._beat_until_end()
        except BaseException as error:  # noqa: BLE001  # raised again by raise_failure, in the thread that watches
            self._failure = error

    def _beat_until_end(self) -> None:
        next_beat = next_status = time.monotonic()
        next_status += self._seconds
        while not self._is_over_by(min(next_beat, next_status)):
            now = time.monotonic()
            status = self._read_status()
            if status is not None and now >= next_status:
                next_status = now + self._seconds
                self._report(status)
            if now >= next_beat or not self._is_told:
                next_beat = now + HEARTBEAT_SECONDS
                self._beat(status)

    def _is_over_by(self, moment: float) -> bool:
        """Waits for a moment, the end, or something to tell; gives True at the end."""
        self._wake.wait(max(0.05, moment - time.monotonic()))
        self._wake.clear()
        return self._end.is_set()

    def _read_status(self) -> Status | None:
        try:
            return self._status()
        except Exception as error:  # noqa: BLE001  # the heartbeat continues without a status
            self._log_once(error)
            return None

    def _report(self, status: Status) -> None:
        try:
            self._on_status(status)
        except Exception as error:  # noqa: BLE001  # as above
            self._log_once(error)

    def _log_once(self, error: Exception) -> None:
        """Logs the first error.  Only the status is missing then."""
        if not self._is_logged:
            self._is_logged = True
            log.error("status_failed", error=repr(error), fix="this is a bug in the bridge; report it")

    def _beat(self, status: Status | None) -> None:
        try:
            with self._session.use() as session:
                self._is_told = True
                steered = {} if self._steered is None else {"steered": self._steered}
                state = orjson.dumps({**(status.document() if status else {}), **steered}).decode()
                self._ownership.beat(session, self._writer.connections, state)
            self._writer.end.answered(_WORK)
        except OwnedError:
            raise
        except Exception as error:  # noqa: BLE001  # a broken connection may raise anything; the next beat opens another
            if not isinstance(error, MySQLError | OSError | TargetError):
                self._log_once(error)
            self._writer.end.failed(_WORK, "refuses the login" if isinstance(error, TargetError) else trouble(error))
            log.warning("heartbeat_failed", error=str(error))


class GroupOffsets(Lookout):
    """Commits the offsets at which a restart would begin, for as long as the block lasts; nothing without a group.

    They are never read: a restart begins where the progress in the target says.  What Kafka does not take is tried
    again, and warned about once.
    """

    end_seconds = 10.0  # more than Kafka's client waits for the coordinator of the group

    def __init__(self, source: Source, group: str) -> None:
        self._source, self._group = source, group
        self._applier: Applier | None = None
        self._committed: Mapping[PartitionId, int] = {}
        self._is_warned = False
        super().__init__("group-offsets", self._commit, self._commit, COMMIT_SECONDS)

    def report_on(self, applier: Applier) -> None:
        """Sets whose progress is committed, from now on."""
        self._applier = applier

    def _commit(self) -> None:
        if self._applier is None or not self._group:
            return
        offsets = {where: start.offset for where, start in self._applier.committed.items()}
        if offsets == self._committed:
            return
        try:
            self._source.commit(self._group, offsets)
        except SourceError as error:
            if not self._is_warned:
                self._is_warned = True
                log.warning("group_offsets_failed", error=str(error))
        else:
            self._committed = offsets
