"""The status of a running pipeline, also while it waits for an end that is away as it starts."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Final

from tenacity import AttemptManager

from bridge.ends.end import End, Ends
from bridge.errors import TargetError
from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import TRANSIENT, server_words, trouble
from bridge.pipeline.applier import Applier
from bridge.pipeline.watching.counts import Applied
from bridge.tso import tso_ms, tso_time


@dataclass(frozen=True)
class Status:
    """The status of a running pipeline at one moment.

    source_lag, apply_lag: seconds from the resolved ts to now, and from the applied ts to the resolved ts; None while
        there is no boundary.  Without boundaries, a source that was read to its end and is quiet has no lag.
    rows_per_second: since the last status.
    messages, messages_total: messages read so far, and the number that was to be read at the start.
    left_out: row changes of databases to which nothing is ever written.
    target_away, source_away: the seconds for which this end has not worked; 0 while it does.
    phases: where the time went since the last status, in seconds (`bridge.ends.phases`).
    waiting_for: what the target waits for, and why: an end that is away before anything else.
    paused: whether the operator has paused the pipeline.
    by_transaction: the tables that were written one upstream transaction after the other, which is slow, and why.
    """

    applied_ts: int
    resolved_ts: int
    source_lag: float | None
    apply_lag: float | None
    rows: int
    rows_per_second: float
    messages: int
    messages_total: int
    backlog_rows: int
    late: int
    repeated: int
    left_out: int
    quarantined: int
    safe_mode: int
    retries: int
    target_away: float
    source_away: float
    phases: Mapping[str, float]
    waiting_for: str
    paused: bool = False
    by_transaction: Mapping[str, str] = field(default_factory=dict)

    @property
    def applied_time(self) -> str:
        """The applied ts as wall-clock time in UTC, "never" before the first."""
        return tso_time(self.applied_ts)

    def document(self) -> dict[str, object]:
        """Returns the status as a JSON document."""
        return {**asdict(self), "applied_time": self.applied_time}


def said_lags(last_status: Mapping[str, Any]) -> tuple[float, float] | None:
    """Gives the lags of source and applying, in seconds, of a status that a bridge wrote (`Status.document`).

    None where it knew none.
    """
    source, apply = last_status.get("source_lag"), last_status.get("apply_lag")
    return None if source is None or apply is None else (float(source), float(apply))


_WORK = "starting"


def attempts_to_start(end: End, target: Target) -> Iterator[AttemptManager]:
    """Attempts at what the start wants of the target, until it answers and takes writes; raises TargetError when it was
    away for too long, and Abandoned when nobody waits any more."""

    def given_up(error: BaseException) -> TargetError:
        return TargetError(
            f"the target {trouble(error)}, and {end.retry_seconds:g} s are over: {server_words(error)}",
            where=str(target),
            fix="check --target, that the server runs, is reachable and takes writes, then start the bridge again",
        )

    return end.attempts(_WORK, TRANSIENT, trouble, given_up)


class StartReporter:
    """Makes the status while nothing can be read and applied yet."""

    def __init__(self, applied_ts: int, ends: Ends) -> None:
        self._applied_ts, self._ends = applied_ts, ends

    def status(self) -> Status | None:
        """Returns a status that says which end is away; None while both answer."""
        waiting_for = self._ends.waiting_for
        if not waiting_for:
            return None
        return Status(
            applied_ts=self._applied_ts,
            resolved_ts=0,
            source_lag=None,
            apply_lag=None,
            rows=0,
            rows_per_second=0.0,
            messages=0,
            messages_total=0,
            backlog_rows=0,
            late=0,
            repeated=0,
            left_out=0,
            quarantined=0,
            safe_mode=0,
            retries=self._ends.target.retries,
            target_away=round(self._ends.target.away_seconds, 1),
            source_away=round(self._ends.source.away_seconds, 1),
            phases={},
            waiting_for=waiting_for,
        )


QUIET_SECONDS: Final = 10.0
"""A source without boundaries that was read to its end and brings nothing for so long has no lag.  Until then the lag
is the age of the newest change, which also shows a sender that is late."""


class StatusReporter:
    """Makes the status from the applier and the writer."""

    def __init__(self, applier: Applier, writer: Writer, ends: Ends, messages_total: int) -> None:
        self._applier, self._writer, self._ends, self._messages_total = applier, writer, ends, messages_total
        self._last_rows, self._last_time = applier.counts.rows, time.monotonic()
        self._last_phases: Mapping[str, float] = applier.phases.seconds()

    def status(self, applied: Applied | None = None) -> Status:
        """Returns the present status; its rows/s are those since the last call.

        applied: the row changes that were applied, for a caller who tells more of them; None for those of now.
        """
        order, counts, writer = self._applier.order, self._applier.counts, self._writer.counts
        now, rows, resolved = time.monotonic(), (applied or counts.applied).rows, order.resolved_ts
        rate = (rows - self._last_rows) / max(now - self._last_time, 1e-3)
        self._last_rows, self._last_time = rows, now
        phases, before = self._applier.phases.seconds(), self._last_phases
        self._last_phases = phases
        source_lag, apply_lag = self._lags(order.applied_ts, resolved)
        return Status(
            applied_ts=order.applied_ts,
            resolved_ts=resolved,
            source_lag=source_lag,
            apply_lag=apply_lag,
            rows=rows,
            rows_per_second=round(rate, 1),
            messages=counts.messages,
            messages_total=self._messages_total,
            backlog_rows=order.rows,
            late=counts.late.total(),
            repeated=counts.repeated.total(),
            left_out=counts.left_out.total(),
            quarantined=counts.quarantined,
            safe_mode=writer.safe_mode,
            retries=self._ends.target.retries,
            target_away=round(self._ends.target.away_seconds, 1),
            source_away=round(self._ends.source.away_seconds, 1),
            phases={phase: round(spent - before.get(phase, 0.0), 3) for phase, spent in phases.items()},
            waiting_for=self._ends.waiting_for or self._applier.waiting_for(),
            paused=self._applier.is_paused,
            by_transaction=dict(writer.by_transaction),
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
        return 0.0, max(quiet, behind or 0.0) if order.rows or behind else 0.0
