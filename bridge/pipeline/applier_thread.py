"""The applier's own thread, and the pulse beside it: heartbeat and status have a clock of their own."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

import orjson
import structlog
from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.model import SchemaChange
from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection import Session, Target
from bridge.mysql.state.ownership import Ownership
from bridge.pipeline.applier import Applier, Interrupted
from bridge.pipeline.backlog import Arrival
from bridge.pipeline.status import Status
from bridge.tso import tso_ms

HEARTBEAT_SECONDS: Final = 5.0
_TICK_SECONDS: Final = 0.2

log = structlog.get_logger()


class ApplierThread:
    """Runs the applier: at most one micro-batch waits while one is being applied.

    pending: schema changes that an earlier run left in progress; they come first.
    """

    def __init__(self, applier: Applier, pending: tuple[SchemaChange, ...]) -> None:
        self._applier, self._pending = applier, pending
        self._waiting: queue.Queue[Arrival | None] = queue.Queue(maxsize=1)  # None: nothing more comes
        self._no_more = threading.Event()
        self.failure: BaseException | None = None
        """What ended the thread, or reading."""
        self._thread = threading.Thread(target=self._work, name="applier", daemon=True)

    def start(self) -> None:
        """Begins to work."""
        self._thread.start()

    def offer(self, arrival: Arrival, given_up: Callable[[], bool]) -> bool:
        """Hands a micro-batch over; waits while another one is waiting, and gives up when the thread has ended or
        `given_up` says so.  Whether it was handed over."""
        while self._thread.is_alive() and not self._no_more.is_set() and not given_up():
            try:
                self._waiting.put(arrival, timeout=_TICK_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def raise_failure(self) -> None:
        """Raises what ended the thread, or reading, if anything did."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """Has `error`, met by who reads, raised by raise_failure, if nothing has ended the thread before."""
        self.failure = self.failure or error

    def drain(self, given_up: Callable[[], bool]) -> bool:
        """Lets the thread work off what is waiting, then end; raises what ended it.  False when `given_up` says so
        first."""
        while self._thread.is_alive() and not given_up():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=_TICK_SECONDS)
                break
        while self._thread.is_alive() and not given_up():
            self._thread.join(_TICK_SECONDS)
        self.raise_failure()
        return not given_up() and not self._thread.is_alive()

    def stop(self, seconds: float) -> bool:
        """Ends the thread after the target transaction in hand; False when that takes longer than `seconds`."""
        self._applier.interrupt()
        self._no_more.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._applier.finish_pending(self._pending)
            while True:
                try:
                    arrival = self._waiting.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    if self._no_more.is_set():
                        return
                    self._applier.tick()
                else:
                    if arrival is None:
                        return
                    self._applier.take(arrival)
        except Interrupted:
            return
        except BaseException as error:  # noqa: BLE001  # raised again by raise_failure, in the thread that watches
            self.failure = error


class StatusReporter:
    """Looks at the applier and says how it stands."""

    def __init__(self, applier: Applier, writer: Writer, messages_total: int) -> None:
        self._applier, self._writer, self._messages_total = applier, writer, messages_total
        self._last_rows, self._last_look = 0, time.monotonic()

    def look(self) -> Status:
        """The status now; rows/s since the last look."""
        applier, counts, writer = self._applier, self._applier.counts, self._writer.counts
        now, rows, resolved = time.monotonic(), counts.rows, applier.resolved_ts
        rate = (rows - self._last_rows) / max(now - self._last_look, 1e-3)
        self._last_rows, self._last_look = rows, now
        return Status(
            applied_ts=applier.applied_ts,
            resolved_ts=resolved,
            source_lag=time.time() - tso_ms(resolved) / 1000 if resolved else None,
            apply_lag=max(0.0, (tso_ms(resolved) - tso_ms(applier.applied_ts)) / 1000)
            if resolved and applier.applied_ts
            else None,
            rows=rows,
            rows_per_second=round(rate, 1),
            messages=counts.messages,
            messages_total=self._messages_total,
            backlog_rows=applier.backlog.rows,
            late=counts.late.total(),
            repeated=counts.repeated.total(),
            left_out=counts.left_out.total(),
            quarantined=counts.quarantined,
            safe_mode=writer.safe_mode,
            retries=writer.retries,
            waiting_for=applier.waiting_for(),
        )


class Pulse:
    """Heartbeat and status, on a thread and a session of their own, for as long as the block lasts.

    seconds: how often `on_status` is told; the heartbeat has its own interval.
    reporter: set when there is an applier to look at; the heartbeat does not wait for it, since Spark takes long to
        start and a pipeline without a heartbeat is there for the taking.
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
        self.reporter: StatusReporter | None = None
        self._end = threading.Event()
        self._session: Session | None = None
        self._has_failed = False
        self._thread = threading.Thread(target=self._work, name="pulse", daemon=True)

    def __enter__(self) -> Pulse:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()
        self._beat(self._look())
        if self._session is not None:
            self._session.close()

    def _work(self) -> None:
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
            return None if self.reporter is None else self.reporter.look()
        except Exception as error:  # noqa: BLE001  # whoever does not beat any more is taken over, while it writes on
            self._failed(error)
            return None

    def _tell(self, status: Status) -> None:
        try:
            self._on_status(status)
        except Exception as error:  # noqa: BLE001  # the same
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
