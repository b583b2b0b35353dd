"""The status of a running pipeline, also while it waits for an end that is away as it starts."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, Final, TypeVar

from bridge.ends import End, Ends
from bridge.errors import TargetError
from bridge.model import Positions, RowCounts, TableName
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import TRANSIENT, server_words, trouble
from bridge.tso import tso_time

_FOR_WATCHERS: Final = frozenset(
    {
        *("by_partition", "positions", "committed", "tables", "phases_in_all", "backlog_bytes", "transactions"),
        *("schema_changes", "away", "retries_for", "held"),
    }
)


@dataclass(frozen=True)
class Status:
    """The status of a running pipeline at one moment.

    source_lag, apply_lag: seconds from the resolved ts to now, and from the applied ts to the resolved ts; None while
        there is no boundary.  Without boundaries, a source that was read to its end and is quiet has no lag.
    rows_per_second: since the last status.
    messages, messages_total: messages read so far, and the number that was to be read at the start.
    left_out: row changes of databases to which nothing is ever written.
    target_away, source_away: the seconds for which this end has not worked; 0 while it does.
    phases: where the time went since the last status, in seconds (`bridge.phases`).
    waiting_for: what the target waits for, and why: an end that is away before anything else.
    paused: whether the operator has paused the pipeline.
    by_transaction: the tables that were written one upstream transaction after the other, which is slow, and why.

    What follows is only for those who watch the port:

    by_partition: applied in the order of the partitions.
    positions: how far each partition was read, and its last boundary.
    committed: where a restart would begin in each partition.
    tables: row changes applied since the start, by table.
    phases_in_all: where the time went since the start, in seconds.
    backlog_bytes: what the row changes take that wait in memory.
    away: which end is away, and since when; "" while both work.
    retries_for: what was tried again since the start, by end and by what kept it from being done.
    held: why nothing may be applied until the operator says so; "" otherwise.
    """

    applied_ts: int
    resolved_ts: int = 0
    source_lag: float | None = None
    apply_lag: float | None = None
    rows: int = 0
    rows_per_second: float = 0.0
    messages: int = 0
    messages_total: int = 0
    backlog_rows: int = 0
    late: int = 0
    repeated: int = 0
    left_out: int = 0
    quarantined: int = 0
    safe_mode: int = 0
    retries: int = 0
    target_away: float = 0.0
    source_away: float = 0.0
    phases: Mapping[str, float] = field(default_factory=dict)
    waiting_for: str = ""
    paused: bool = False
    by_transaction: Mapping[str, str] = field(default_factory=dict)
    by_partition: bool = False
    positions: Positions = field(default_factory=dict)
    committed: Positions = field(default_factory=dict)
    tables: Mapping[TableName, RowCounts] = field(default_factory=dict)
    phases_in_all: Mapping[str, float] = field(default_factory=dict)
    backlog_bytes: int = 0
    transactions: int = 0
    schema_changes: int = 0
    away: str = ""
    retries_for: Mapping[tuple[str, str], int] = field(default_factory=dict)
    held: str = ""

    @property
    def applied_time(self) -> str:
        """The applied ts as wall-clock time in UTC, "never" before the first."""
        return tso_time(self.applied_ts)

    def document(self) -> dict[str, object]:
        """Returns the status as a JSON document, without what is only for those who watch the port."""
        values = {item.name: getattr(self, item.name) for item in fields(self) if item.name not in _FOR_WATCHERS}
        return {**values, "applied_time": self.applied_time}


def reported_lags(last_status: Mapping[str, Any]) -> tuple[float, float] | None:
    """Gives the lags of source and applying, in seconds, of a status that a bridge wrote (`Status.document`).

    None where it knew none.
    """
    source, apply = last_status.get("source_lag"), last_status.get("apply_lag")
    return None if source is None or apply is None else (float(source), float(apply))


_WORK = "starting"
_Answer = TypeVar("_Answer")


def retried_at_start(end: End, target: Target, do: Callable[[], _Answer]) -> _Answer:
    """Does what the start wants of the target, again until it answers and takes writes; raises TargetError when it was
    away for too long, and Abandoned when nobody waits any more."""

    def timeout_error(error: BaseException) -> TargetError:
        return TargetError(
            f"the target {trouble(error)}, and {end.retry_seconds:g} s are over: {server_words(error)}",
            where=str(target),
            fix="check --target, that the server runs, is reachable and takes writes, then start the bridge again",
        )

    return end.retried(do, _WORK, TRANSIENT, trouble, timeout_error)


def status_at_start(applied_ts: int, ends: Ends) -> Status | None:
    """Says, while nothing can be read and applied yet, which end is away; None while both answer."""
    if not (waiting_for := ends.waiting_for):
        return None
    return Status(
        applied_ts,
        retries=ends.target.retries,
        target_away=round(ends.target.away_seconds, 1),
        source_away=round(ends.source.away_seconds, 1),
        waiting_for=waiting_for,
    )
