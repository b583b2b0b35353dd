"""Makes the status of a running pipeline: plain values, of one moment; and how it ended."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final, Protocol

from bridge.ends.end import Ends
from bridge.mysql.apply.writer import Writer
from bridge.pipeline.applier import Applier
from bridge.pipeline.watching.status import Status
from bridge.tso import tso_ms

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
    """How a pipeline ended.

    applied_ts: None when the pipeline ended before its progress was known.
    seconds: from start to end.
    stream_seconds: from the start of Spark to the end; where the input ended before, from the first look at it.
    apply_seconds: from the first transaction with row changes to the end.
    rest: row changes that were read and not applied, since they are at or above the last boundary.
    quarantined: messages and rows that were quarantined.
    left_out: row changes of the server's or the bridge's own databases, which are never written, by table.
    unmatched: filter rules that matched none of the tables that occurred.
    until_reached: False when `--until` was given and not reached.
    interrupted: a stop came before the end of the input.
    phases: where the time from the first look at the input to the end went, in seconds (`bridge.ends.phases`).
    by_partition: applied in the order of the partitions, so that applied_ts is only the highest event time.
    """

    applied_ts: int | None
    messages: int = 0
    rows: int = 0
    seconds: float = 0.0
    stream_seconds: float = 0.0
    apply_seconds: float = 0.0
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
    """Makes the outcome of the last applier and the writer, as far as these know it.

    began, reading, ended: when the pipeline began, when it began to read, and when it ended, by the applier's clock.
    """
    order, counts = applier.order, applier.counts
    return Outcome(
        applied_ts=order.applied_ts,
        messages=counts.messages,
        rows=counts.rows,
        seconds=ended - began,
        stream_seconds=ended - reading,
        apply_seconds=ended - (counts.applying_since or ended),
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
