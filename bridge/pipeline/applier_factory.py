"""Makes the applier of a pipeline: in the order of commit ts, of the upstream's transactions, or of its partitions."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

from bridge.model import PartitionId
from bridge.mysql.apply.writer import Writer
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import Applier
from bridge.pipeline.applier_config import ApplierConfig
from bridge.pipeline.by_boundaries.order import BoundaryOrder
from bridge.pipeline.by_partitions.order import PartitionOrder
from bridge.pipeline.by_transactions.order import TransactionOrder
from bridge.pipeline.order import Order, starts_of
from bridge.pipeline.watching.counts import Counts


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
    by_boundaries = not by_partition and transactions is None
    starts = starts_of(
        progress,
        lows,
        by_partition=by_partition and transactions is None,
        begins=config.begins,
        unused=config.unused if by_boundaries else (),
    )
    order: Order
    if transactions is not None:
        order = TransactionOrder(progress, starts, transactions, writer.changes_between, config, counts)
    elif by_partition:
        order = PartitionOrder(progress, starts, writer.changes_between, config, counts)
    else:
        order = BoundaryOrder(progress, starts, config, counts)
    return Applier(writer, order, counts, config, cascades_are_lost=cascades_are_lost)
