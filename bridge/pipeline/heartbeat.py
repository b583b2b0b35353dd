"""Writes the owner's heartbeat and reports the status, and how a pipeline ended; commits to a consumer group what is in
the target, so that the usual tools for the lag of Kafka see it."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Final, Protocol

import orjson
import structlog
from pymysql.err import MySQLError

from bridge.ends import Ends
from bridge.errors import OwnedError, SourceError, TargetError
from bridge.model import PartitionId
from bridge.mysql.apply.writer import Writer
from bridge.mysql.server_errors import trouble
from bridge.mysql.state.ownership import Ownership
from bridge.pipeline.applier import Applier
from bridge.pipeline.status import Status
from bridge.pipeline.steering import Lookout, ReopeningSession
from bridge.sources.source import Source
from bridge.tso import tso_ms

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
        self._is_announced = True
        self._session = ReopeningSession(ownership.target)
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
            self._beat(self._read_status(reports=False))
        self._session.close()

    def report_on(self, status: Callable[[], Status | None]) -> None:
        """Sets where the status comes from, from now on."""
        self._status = status

    def tell(self, steered: Mapping[str, Any]) -> None:
        """Says at once, beside the status, which of the operator's settings are followed from now on."""
        self._steered, self._is_announced = steered, False
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
            if is_due := now >= next_status:
                next_status = now + self._seconds
            status = self._read_status(reports=is_due)
            if now >= next_beat or not self._is_announced:
                next_beat = now + HEARTBEAT_SECONDS
                self._beat(status)

    def _is_over_by(self, moment: float) -> bool:
        """Waits for a moment, the end, or something to tell; gives True at the end."""
        self._wake.wait(max(0.05, moment - time.monotonic()))
        self._wake.clear()
        return self._end.is_set()

    def _read_status(self, *, reports: bool) -> Status | None:
        status = None
        try:
            status = self._status()
            if reports and status is not None:
                self._on_status(status)
        except Exception as error:  # noqa: BLE001  # the heartbeat continues without a status
            self._log_once(error)
        return status

    def _log_once(self, error: Exception) -> None:
        """Logs the first error.  Only the status is missing then."""
        if not self._is_logged:
            self._is_logged = True
            log.error("status_failed", error=repr(error), fix="this is a bug in the bridge; report it")

    def _beat(self, status: Status | None) -> None:
        try:
            with self._session.use() as session:
                self._is_announced = True
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


QUIET_SECONDS: Final = 10.0
"""A source without boundaries that was read to its end and brings nothing for so long has no lag.  Until then the lag
is the age of the newest change, which also shows a sender that is late."""


class StatusReporter:
    """Makes the status from the applier and the writer.  For one reader: the rates are those since its last status."""

    def __init__(self, applier: Applier, writer: Writer, ends: Ends, messages_total: int) -> None:
        self._applier, self._writer, self._ends, self._messages_total = applier, writer, ends, messages_total
        self._last_rows, self._last_time = applier.counts.rows, time.monotonic()
        self._last_phases: Mapping[str, float] = applier.phases.seconds()

    def status(self) -> Status:
        """Returns the present status; its rows/s are those since the last call.  May be called from any thread."""
        applier, order, counts, writer = self._applier, self._applier.order, self._applier.counts, self._writer.counts
        applied, now, resolved = counts.applied, time.monotonic(), order.resolved_ts
        rows = sum(map(sum, applied.values()))
        rate = (rows - self._last_rows) / max(now - self._last_time, 1e-3)
        self._last_rows, self._last_time = rows, now
        phases, before = applier.phases.seconds(), self._last_phases
        self._last_phases = phases
        source_lag, apply_lag = self._lags(order.applied_ts, resolved)
        waiting = order.waiting
        return Status(
            applied_ts=order.applied_ts,
            resolved_ts=resolved,
            source_lag=source_lag,
            apply_lag=apply_lag,
            rows=rows,
            rows_per_second=round(rate, 1),
            messages=counts.messages,
            messages_total=self._messages_total,
            backlog_rows=waiting.rows,
            late=counts.late,
            repeated=counts.repeated,
            left_out=counts.left_out.total(),
            quarantined=counts.quarantined,
            safe_mode=writer.safe_mode,
            retries=self._ends.target.retries,
            target_away=round(self._ends.target.away_seconds, 1),
            source_away=round(self._ends.source.away_seconds, 1),
            phases={phase: round(spent - before.get(phase, 0.0), 3) for phase, spent in phases.items()},
            waiting_for=self._ends.waiting_for or applier.waiting_for(),
            paused=applier.is_paused,
            by_transaction=dict(writer.by_transaction),
            by_partition=order.by_partition,
            positions=dict(order.positions),
            committed=applier.committed,
            tables=applied,
            phases_in_all=phases,
            backlog_bytes=waiting.bytes,
            transactions=writer.transactions,
            schema_changes=writer.schema_changes,
            away=self._ends.waiting_for,
            retries_for={(end.name, what): n for end in self._ends for what, n in dict(end.retries_for).items()},
            held=applier.held,
        )

    def _lags(self, applied: int, resolved: int) -> tuple[float | None, float | None]:
        """Gives the lag of the source and that of applying, in seconds.

        A source that was read to its end and is quiet has no lag, however old its newest change is; what still waits
        then has waited since that was read, at least.
        """
        order = self._applier.order
        quiet = 0.0 if self._ends.source.away_seconds else order.quiet_seconds
        behind = max(0.0, (tso_ms(resolved) - tso_ms(applied)) / 1000) if resolved and applied else None
        if order.by_partition and quiet < QUIET_SECONDS and self._applier.held:
            return None, behind  # nothing is read meanwhile, so that nobody knows whether there is something to read
        if quiet < QUIET_SECONDS:
            return time.time() - tso_ms(resolved) / 1000 if resolved else None, behind
        return 0.0, max(quiet, behind or 0.0) if order.waiting.rows or behind else 0.0


class Watcher(Protocol):
    """Watches a pipeline from outside of it."""

    def starting(self, ends: Ends) -> None:
        """Sets the ends that are waited for while nothing can be applied yet."""

    def report_on(self, reporter: StatusReporter) -> None:
        """Sets where samples come from, from now on: after reading again, a pipeline has another applier."""

    def close(self) -> None:
        """Ends watching."""


@dataclass(frozen=True)
class Outcome:
    """How a pipeline ended; what is called as in `Status` is the same.

    applied_ts: None when the pipeline ended before its progress was known.
    stream_seconds: from the start of Spark to the end; where the input ended before, from the first look at it.
    rest: row changes that were read and not applied, since they are at or above the last boundary.
    left_out: by table.
    unmatched: filter rules that matched none of the tables that occurred.
    until_reached: False when `--until` was given and not reached.
    interrupted: a stop came before the end of the input.
    phases: where the time from the first look at the input to the end went, in seconds.
    """

    applied_ts: int | None
    messages: int = 0
    rows: int = 0
    seconds: float = 0.0
    stream_seconds: float = 0.0
    transactions: int = 0
    schema_changes: int = 0
    rest: int = 0
    late: int = 0
    quarantined: int = 0
    left_out: Mapping[str, int] = field(default_factory=dict)
    unmatched: tuple[str, ...] = ()
    until_reached: bool = False
    interrupted: bool = False
    by_partition: bool = False
    phases: Mapping[str, float] = field(default_factory=dict)


BEFORE_PROGRESS: Final = Outcome(applied_ts=None, interrupted=True)
"""A stop came while the target, or the source, was waited for."""


def outcome_of(applier: Applier, writer: Writer, began: float, reading: float, ended: float) -> Outcome:
    """Makes the outcome, as far as the last applier and the writer know it.  began, reading, ended: when the pipeline
    did so."""
    order, counts = applier.order, applier.counts
    return Outcome(
        applied_ts=order.applied_ts,
        messages=counts.messages,
        rows=counts.rows,
        seconds=ended - began,
        stream_seconds=ended - reading,
        transactions=writer.counts.transactions,
        schema_changes=writer.counts.schema_changes,
        rest=order.waiting.rows,
        late=counts.late,
        quarantined=counts.quarantined,
        left_out={str(name): count for name, count in counts.left_out.items()},
        until_reached=order.until_reached,
        by_partition=order.by_partition,
        phases=writer.phases.seconds(),
    )
