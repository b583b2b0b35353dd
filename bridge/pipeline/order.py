"""In which order changes are applied: the interface of both orders, and which of them a pipeline goes by.

The order of commit ts is vouched for by boundaries (`by_boundaries`); where there are none, that of each partition has
to do (`by_partitions`).  Progress remembers it: positions with a floor belong to the order of the partitions
(internals, decision 13).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import NamedTuple, Protocol, Self, TypeVar

import pyarrow as pa
from pyspark.sql import DataFrame

from bridge.model import Advance, PartitionId, PartitionStart, Positions, SchemaChange
from bridge.mysql.state.progress import Progress
from bridge.pipeline.bad_input.bad_messages import BadMessage
from bridge.pipeline.segments import Segment
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import WindowRows

Starts = dict[PartitionId, PartitionStart]


class OrderChanged(Exception):  # noqa: N818  # not an error: reading begins anew where progress says
    """The pipeline has gone over to the other order, and progress on the target says so; the text says why."""


class Due(NamedTuple):
    """What is to be applied next: the segment's row changes, then its schema changes.  rows: None where there are none,
    and only progress moves."""

    segment: Segment
    rows: WindowRows | None


class Handover(NamedTuple):
    """The other order takes over.  advance: what progress says from then on; reason: why, for the log."""

    advance: Advance
    reason: str


class DecodedBatch(Protocol):
    """What one micro-batch brings in.  read: per partition, the offset after the last message read."""

    @property
    def read(self) -> Mapping[PartitionId, int]: ...

    def with_partitions(self, partitions: Sequence[PartitionId]) -> Self:
        """The same with partitions of which nothing was read."""
        ...


BatchT = TypeVar("BatchT", bound=DecodedBatch)


class Order(Protocol[BatchT]):
    """Holds what was read, and says what of it is due, and where a restart begins.

    The applier's thread calls it.  Two things may be asked from any thread: `batch` and `on_executors`, which touch
    nothing of the order, and the properties, each of which is read at once.
    """

    applied_ts: int
    """Everything below it that is due is in the target (TSO)."""

    # --- what a micro-batch brings in

    def batch(self, events: pa.Table, ends: Mapping[PartitionId, int], *, is_cut: bool) -> BatchT:
        """A micro-batch's events (EVENT_SCHEMA, any order) as `take` wants them.

        ends: the offsets up to which it read.  is_cut: the source may have held more when it was read.
        """
        ...

    @property
    def on_executors(self) -> Callable[[DataFrame, Mapping[PartitionId, int]], BatchT] | None:
        """Makes a batch whose row changes stay on Spark's executors; None where all of them come to the driver."""
        ...

    def take(self, batch: BatchT) -> None:
        """Takes one micro-batch in."""
        ...

    def tick(self) -> None:
        """To be called now and then while no micro-batch comes."""
        ...

    def end(self) -> None:
        """Nothing more will be read."""
        ...

    # --- what is due

    def due(self) -> Iterator[Due]:
        """What may be applied now, in order.  `moved` is called for each transaction before the next is asked for."""
        ...

    @property
    def is_stuck(self) -> bool:
        """Everything that is complete before a bad message is in the target, and nothing behind it can be."""
        ...

    def next_bad(self) -> Sequence[BadMessage]:
        """The bad messages that stop the bridge, if one of them comes next."""
        ...

    @property
    def bad_since(self) -> float:
        """Since when one of them has been known, by the clock."""
        ...

    def handover(self) -> Handover | None:
        """To be asked when nothing is due: whether the other order has to take over."""
        ...

    def final_ts(self) -> int | None:
        """What progress says at the end of the input, when nothing is due any more; None where it says so already."""
        ...

    # --- what a restart needs

    def advance_to(self, high: int, end: int, changes: tuple[SchemaChange, ...] = ()) -> Advance:
        """How a transaction moves progress that brings the target to `high`, in a segment that ends at `end` (TSO).

        changes: the schema changes that are to run after it.
        """
        ...

    def moved(self, step: Advance) -> None:
        """A transaction was committed: what is in the target is forgotten."""
        ...

    @property
    def positions(self) -> Positions:
        """Up to where each partition is read."""
        ...

    # --- how it stands

    @property
    def by_partition(self) -> bool:
        """It is the order of the partitions."""
        ...

    @property
    def resolved_ts(self) -> int:
        """The moment to which the target is to move (TSO)."""
        ...

    @property
    def until_reached(self) -> bool:
        """Everything below `until` is in the target, or there is no such end."""
        ...

    @property
    def rows(self) -> int:
        """How many row changes wait."""
        ...

    @property
    def held(self) -> Amount:
        """Those that count against what the driver may hold."""
        ...

    def waiting_for(self) -> str:
        """What holds the target back, and why; may be asked from any thread."""
        ...


def first_offsets(progress: Progress, lows: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    """Where the partitions of a Kafka begin that progress does not know: at the first offset there is, but in a topic
    that it knows at 0: such a partition was added since, and whatever is gone from its beginning was never read."""
    known = {topic for topic, _ in progress.positions}
    return {where: 0 if where[0] in known else low for where, low in lows.items()}


def starts_of(
    progress: Progress, lows: Mapping[PartitionId, int], *, by_partition: bool, begins: Mapping[str, int] | None = None
) -> Starts:
    """Where to read from, for every partition of the source; one that progress does not know begins at its low
    offset, and nothing of it is in the target but what lies below the beginning of its topic (TSO)."""
    floor = 0 if by_partition else None
    known = {where: progress.positions.get(where, PartitionStart(low, 0, low, floor)) for where, low in lows.items()}
    return {where: start._replace(begin=(begins or {}).get(where[0], start.begin)) for where, start in known.items()}
