"""Makes the applier of a pipeline: in the order of commit ts, of the upstream's transactions, or of its partitions."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from bridge.filters.routes import Routes
from bridge.filters.table_filter import TableFilter
from bridge.model import PartitionId
from bridge.mysql.apply.writer import Writer
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import TRANSACTION, Applier
from bridge.pipeline.bad_input.bad_message_policy import OnBadMessage
from bridge.pipeline.by_boundaries.backlog import Backlog
from bridge.pipeline.by_boundaries.frontier import Frontier
from bridge.pipeline.by_boundaries.order import BoundaryOrder, RowsOf
from bridge.pipeline.by_partitions.order import IdlePolicy, PartitionOrder
from bridge.pipeline.by_partitions.partition_backlog import PartitionBacklog
from bridge.pipeline.by_partitions.repeated_rows import RepeatedRows
from bridge.pipeline.by_transactions.order import TransactionOrder
from bridge.pipeline.order import Order, Starts, starts_of
from bridge.pipeline.steering.gate import Gate
from bridge.pipeline.watching.counts import Counts
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.decoded_batch import MOST_IN_MEMORY


@dataclass(frozen=True, kw_only=True)
class ApplierConfig:
    """The settings that all appliers of a pipeline share.

    transaction: about how many row changes, and bytes of them, one target transaction holds.
    until: nothing at or above this commit_ts is applied (TSO); None for no limit.
    boundary_seconds: see BoundaryOrder.
    idle, settles: see PartitionOrder.
    most: about how many row changes, and bytes, wait in memory (not in the order of commit ts).
    begins: where the topics begin that do not begin with the pipeline (TSO).
    routes: what tables are called on the target.
    waits_for_operator, gate: see Applier.
    grace_seconds, incomplete: see TransactionOrder.
    """

    tables: TableFilter = field(default_factory=TableFilter)
    transaction: Amount = TRANSACTION
    until: int | None = None
    boundary_seconds: float | None = None
    idle: IdlePolicy = field(default_factory=lambda: IdlePolicy(0, lambda _: {}))
    rows_of: RowsOf = RowChanges.joined
    on_bad_message: OnBadMessage = field(default_factory=OnBadMessage)
    most: Amount = MOST_IN_MEMORY
    settles: bool = True
    begins: Mapping[str, int] = field(default_factory=dict)
    routes: Routes = Routes()  # noqa: RUF009  # immutable
    waits_for_operator: bool = False
    gate: Gate | None = None
    unused: frozenset[PartitionId] = frozenset()
    grace_seconds: float = 60
    incomplete: frozenset[str] = frozenset()
    clock: Callable[[], float] = time.monotonic


def make_applier(
    writer: Writer,
    progress: Progress,
    lows: Mapping[PartitionId, int],
    config: ApplierConfig,
    counts: Counts,
    *,
    by_partition: bool,
    cascades_are_lost: bool = False,
    transactions: PartitionId | None = None,
) -> Applier:
    """Makes an applier that continues from progress.

    lows: the first offset of every partition of the source.
    counts: the counts of the applier before it, which this one continues.
    cascades_are_lost: the log lacks the rows that cascading foreign keys change upstream.
    transactions: the partition of the topic of transactions, if their order is applied.
    """
    settled = writer.unreadable().settled
    config = replace(config, on_bad_message=replace(config.on_bad_message, settled=settled))
    starts = starts_of(
        progress,
        lows,
        by_partition=by_partition and transactions is None,
        begins=config.begins,
        unused=() if by_partition or transactions is not None else config.unused,
    )
    shared: dict[str, Any] = {
        "tables": config.tables,
        "counts": counts,
        "until": config.until,
        "on_bad_message": config.on_bad_message,
        "clock": config.clock,
    }
    order: Order
    if transactions is not None:
        order = TransactionOrder(
            progress,
            starts,
            transactions,
            config.idle,
            writer.changes_between,
            grace_seconds=config.grace_seconds,
            incomplete=config.incomplete,
            most=config.most,
            **shared,
        )
    elif by_partition:
        backlog = _partition_backlog(writer, progress, starts, config)
        order = PartitionOrder(progress, backlog, config.idle, writer.changes_between, settles=config.settles, **shared)
    else:
        frontier = Frontier(((partition, start.boundary) for partition, start in starts.items()), config.clock)
        order = BoundaryOrder(
            progress,
            frontier,
            Backlog(starts),
            boundary_seconds=config.boundary_seconds,
            rows_of=config.rows_of,
            **shared,
        )
    return Applier(
        writer,
        order,
        counts,
        transaction=config.transaction,
        on_bad_message=config.on_bad_message,
        cascades_are_lost=cascades_are_lost,
        waits_for_operator=config.waits_for_operator,
        gate=config.gate,
        clock=config.clock,
    )


def _partition_backlog(writer: Writer, progress: Progress, starts: Starts, config: ApplierConfig) -> PartitionBacklog:
    return PartitionBacklog(
        starts,
        progress.applied_ts,
        start_ts=progress.start_ts,
        until=config.until,
        most=Amount(max(1, config.most.rows), config.most.bytes),
        on_bad_message=config.on_bad_message,
        repeated_rows=RepeatedRows(writer.changes_between, config.routes),
        now=config.clock(),
    )
