"""What an applier and its order have to know besides where they begin."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.filters.routes import Routes
from bridge.filters.table_filter import TableFilter
from bridge.model import PartitionId
from bridge.pipeline.bad_input import OnBadMessage
from bridge.pipeline.by_transactions.next_server import Lacks
from bridge.pipeline.steering.steering import Gate
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.decoded_batch import MOST_IN_MEMORY

TRANSACTION: Final = Amount(50_000, 128 << 20)
RowsOf = Callable[[Iterable[RowChanges], int, int], RowChanges]
"""Makes the row changes of a window from what waits, its low commit_ts and its high commit_ts."""


@dataclass(frozen=True)
class IdlePolicy:
    """How long what waits is waited for, and where partitions end.

    seconds: how long a schema change waits for a partition that is idle.
    ends: looks up where partitions end now (offsets); None when Kafka does not answer.
    row_seconds: how long rows wait for a schema change that makes a table or a column which the target lacks; up to the
        end of the input, if that comes before.
    """

    seconds: float
    ends: Callable[[Collection[PartitionId]], Mapping[PartitionId, int] | None]
    row_seconds: float = math.inf


@dataclass(frozen=True, kw_only=True)
class ApplierConfig:
    """The settings that all appliers of a pipeline share, and the orders that tell them what is due.

    transaction: about how many row changes, and bytes of them, one target transaction holds.
    until: nothing at or above this commit_ts is applied (TSO); None for no limit.
    boundary_seconds: how long to wait for a first boundary before the order of the partitions takes over; None when a
        boundary is sure to come.
    idle: with whole transactions, how long a schema change waits for what comes behind it.
    settles: whether the order of the partitions changes to that of commit ts when boundaries come again.
    most: about how many row changes, and bytes, wait in memory (not in the order of commit ts).
    begins: where the topics begin that do not begin with the pipeline (TSO).
    routes: what tables are called on the target.
    waits_for_operator: waits until a held schema change is released, instead of raising HeldError.
    gate: is passed before each transaction and each schema change.
    grace_seconds: how long a transaction may lack rows while later ones come, before the bridge stops.
    incomplete: ids of transactions that are applied without the rows that they lack.
    lacks: asks the upstream, after a failover, what it lacks; None where none is named.
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
    lacks: Lacks | None = None
    clock: Callable[[], float] = time.monotonic
