"""What a running pipeline publishes of itself, for those who watch it: plain values, of one moment."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Protocol

from bridge.ends.end import Ends
from bridge.model import Positions, TableName
from bridge.mysql.apply.writer import Writer
from bridge.pipeline.applier import Applier
from bridge.pipeline.watching.counts import RowCounts
from bridge.pipeline.watching.status import Status, StatusReporter


@dataclass(frozen=True)
class Sample:
    """A running pipeline at one moment.

    by_partition: applied in the order of the partitions.
    positions: how far each partition was read, and its last boundary.
    committed: where a restart would begin in each partition.
    tables: row changes applied since the start, by table.
    phases: where the time went since the start, in seconds (`bridge.ends.phases`).
    backlog_bytes: what the row changes take that wait in memory.
    away: which end is away, and since when; "" while both work.
    retries: what was tried again since the start, by end and by what kept it from being done.
    held: why nothing may be applied until the operator says so; "" otherwise.
    """

    status: Status
    by_partition: bool
    positions: Positions
    committed: Positions
    tables: Mapping[TableName, RowCounts]
    phases: Mapping[str, float]
    backlog_bytes: int
    transactions: int
    schema_changes: int
    away: str
    retries: Mapping[tuple[str, str], int]
    held: str


class Sampler:
    """Takes samples of an applier at work.  For one watcher: the rates are those since its last sample."""

    def __init__(self, applier: Applier, writer: Writer, ends: Ends, messages_total: int) -> None:
        self._applier, self._writer, self._ends = applier, writer, ends
        self._reporter = StatusReporter(applier, writer, ends, messages_total)

    @property
    def committed(self) -> Positions:
        """Where a restart would begin in each partition."""
        return self._applier.committed

    def sample(self) -> Sample:
        """Takes a sample; may be called from any thread."""
        applier, order, counts = self._applier, self._applier.order, self._writer.counts
        applied = applier.counts.applied
        return Sample(
            status=self._reporter.status(applied),
            by_partition=order.by_partition,
            positions=dict(order.positions),
            committed=applier.committed,
            tables=applied.by_table,
            phases=applier.phases.seconds(),
            backlog_bytes=order.bytes_in_memory,
            transactions=counts.transactions,
            schema_changes=counts.schema_changes,
            away=self._ends.waiting_for,
            retries={(end.name, what): n for end in self._ends for what, n in dict(end.retries_for).items()},
            held=applier.held,
        )


class Watcher(Protocol):
    """Watches a pipeline from outside of it."""

    def starting(self, ends: Ends) -> None:
        """Sets the ends that are waited for while nothing can be applied yet."""

    def report_on(self, sampler: Sampler) -> None:
        """Sets where samples come from, from now on: after reading again, a pipeline has another applier."""

    def close(self) -> None:
        """Ends watching."""
