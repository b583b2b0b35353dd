"""What a running pipeline says of itself."""

from __future__ import annotations

from dataclasses import asdict, dataclass

from bridge.tso import tso_time


@dataclass(frozen=True)
class Status:
    """One look at a running pipeline.

    source_lag, apply_lag: seconds from the resolved ts to now, and from the applied ts to the resolved ts; None while
        there is no boundary.
    rows_per_second: since the last look.
    messages, messages_total: read so far, and to read as seen at the start.
    left_out: row changes of databases that nothing is ever written to.
    waiting_for: what holds the target back, and why.
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
    waiting_for: str

    @property
    def applied_time(self) -> str:
        """The applied ts as wall-clock time in UTC, "never" before the first."""
        return tso_time(self.applied_ts)

    def document(self) -> dict[str, object]:
        """As a JSON document."""
        return {**asdict(self), "applied_time": self.applied_time}
