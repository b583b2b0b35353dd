"""Makes the status of a running pipeline."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

from bridge.ends.end import Ends
from bridge.mysql.apply.writer import Writer
from bridge.pipeline.applier import Applier
from bridge.pipeline.watching.status import Status
from bridge.tso import tso_ms


class StatusReporter:
    """Makes the status from the applier and the writer."""

    def __init__(self, applier: Applier[Any], writer: Writer, ends: Ends, messages_total: int) -> None:
        self._applier, self._writer, self._ends, self._messages_total = applier, writer, ends, messages_total
        self._last_rows, self._last_time = applier.counts.rows, time.monotonic()
        self._last_phases: Mapping[str, float] = applier.phases.seconds()

    def status(self) -> Status:
        """Returns the present status; its rows/s are those since the last call."""
        order, counts, writer = self._applier.order, self._applier.counts, self._writer.counts
        now, rows, resolved = time.monotonic(), counts.rows, order.resolved_ts
        rate = (rows - self._last_rows) / max(now - self._last_time, 1e-3)
        self._last_rows, self._last_time = rows, now
        phases, before = self._applier.phases.seconds(), self._last_phases
        self._last_phases = phases
        return Status(
            applied_ts=order.applied_ts,
            resolved_ts=resolved,
            source_lag=time.time() - tso_ms(resolved) / 1000 if resolved else None,
            apply_lag=max(0.0, (tso_ms(resolved) - tso_ms(order.applied_ts)) / 1000)
            if resolved and order.applied_ts
            else None,
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
        )
