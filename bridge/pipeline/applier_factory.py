"""Makes the applier that a pipeline needs: by boundaries, or by the order of its partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field

from bridge.model import PartitionId
from bridge.mysql.apply.writer import Writer
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import Applier, Limits, RowsOf, driver_rows
from bridge.pipeline.backlog import Backlog
from bridge.pipeline.bad_message_policy import OnBadMessage
from bridge.pipeline.frontier import Frontier
from bridge.pipeline.ordered.applier import Patience, SequencedApplier
from bridge.pipeline.ordered.order import starts_of
from bridge.pipeline.ordered.partition_backlog import MOST_IN_MEMORY, Prefixes
from bridge.rows.amount import Amount
from bridge.table_filter import TableFilter


@dataclass(frozen=True)
class Manner:
    """What all appliers of a pipeline have in common.

    most: about how much of row changes is held in memory (the order of the partitions).
    settles: goes over to boundaries where they come again.
    begins: where topics begin that do not with the pipeline (TSO).
    """

    tables: TableFilter
    limits: Limits
    patience: Patience
    rows_of: RowsOf = driver_rows
    on_bad_message: OnBadMessage = field(default_factory=OnBadMessage)
    most: Amount = MOST_IN_MEMORY
    settles: bool = True
    begins: Mapping[str, int] = field(default_factory=dict)
    clock: Callable[[], float] = time.monotonic


def make_applier(
    writer: Writer, progress: Progress, lows: Mapping[PartitionId, int], manner: Manner, *, by_partition: bool
) -> Applier:
    """An applier that goes on from progress.  lows: the first offset of every partition of the source."""
    starts = starts_of(progress, lows, by_partition=by_partition, begins=manner.begins)
    if not by_partition:
        return Applier(
            writer,
            progress,
            Frontier(((partition, start.boundary) for partition, start in starts.items()), manner.clock),
            Backlog(starts),
            tables=manner.tables,
            limits=manner.limits,
            rows_of=manner.rows_of,
            on_bad_message=manner.on_bad_message,
            clock=manner.clock,
        )
    prefixes = Prefixes(
        starts,
        progress.applied_ts,
        start_ts=progress.start_ts,
        until=manner.limits.until,
        most=Amount(max(1, manner.most.rows), manner.most.bytes),
        on_bad_message=manner.on_bad_message,
        now=manner.clock(),
    )
    return SequencedApplier(
        writer,
        progress,
        prefixes,
        manner.patience,
        tables=manner.tables,
        limits=manner.limits,
        on_bad_message=manner.on_bad_message,
        settles=manner.settles,
        clock=manner.clock,
    )
