"""The interface of the two orders in which changes are applied.

With boundaries, changes are applied in the order of commit ts (`by_boundaries`); without, in the order of each
partition (`by_partitions`).  Progress records which: positions with a floor belong to the order of the partitions
(internals, decision 13).
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from typing import ClassVar, NamedTuple, Protocol

from bridge.errors import AheadOfTargetError
from bridge.model import UNUSED, Advance, PartitionId, PartitionStart, Positions, SchemaChange
from bridge.mysql.state.progress import Progress
from bridge.pipeline.bad_input.bad_messages import BadMessage
from bridge.pipeline.segments import Segment
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.decoded_batch import DecodedBatch

Starts = dict[PartitionId, PartitionStart]


class OrderChanged(Exception):  # noqa: N818  # not an error: the bridge reads again from its progress
    """The pipeline has changed to the other order, and has recorded it in its progress; the text says why."""


class Due(NamedTuple):
    """What has to be applied next: the row changes of a segment, then its schema changes.

    rows: None when there are no row changes.
    at_once: whether one transaction must hold all of it, since the target may have parts of it.
    """

    segment: Segment
    rows: RowChanges | None
    at_once: bool = False


class Handover(NamedTuple):
    """A change to the other order.

    advance: how progress records it.  reason: why, for the log.
    """

    advance: Advance
    reason: str


class Order(Protocol):
    """Holds what was read, and decides what of it is due, and where a restart begins.

    The applier's thread calls it.  Any thread may call `coming`, and read the properties.
    """

    applied_ts: int
    """Everything below it that is due is in the target (TSO)."""

    # --- taking micro-batches

    takes_rows: ClassVar[bool]
    """Whether it takes row changes in order, wherever they are (`DecodedBatch.divided`); otherwise it takes events as
    they were read, all of them here."""

    def take(self, batch: DecodedBatch) -> None:
        """Takes one micro-batch."""

    def tick(self) -> None:
        """Checks what has become due by time.  Called regularly while no micro-batch comes."""

    def end(self) -> None:
        """Notes that nothing more will be read."""

    # --- what is due

    def due(self) -> Iterator[Due]:
        """Yields what may be applied now, in order.  The caller commits each, and calls `moved`, before it takes the
        next."""

    def coming(self, batch: DecodedBatch) -> RowChanges | None:
        """Guesses which row changes will be due next, once all that is due has been applied and `batch` has been taken;
        None where that cannot be told.  Changes nothing; another thread than the applier's may call it."""

    def put_back(self, error: AheadOfTargetError) -> bool:
        """Takes back what was due last and is not in the target, since the target lacks a table or a column of it, so
        that it is due again later; gives False when nothing is to be expected of that."""

    @property
    def is_stuck(self) -> bool:
        """Whether everything complete before a bad message is in the target, and nothing after it can be applied."""

    def next_bad(self) -> Sequence[BadMessage]:
        """Returns the bad messages that stop the bridge; empty unless one of them comes next."""

    @property
    def bad_since(self) -> float:
        """The time of the clock at which the first of them was read."""

    def handover(self) -> Handover | None:
        """Tells whether the other order has to take over; None if not.  Called when nothing is due."""

    def final_ts(self) -> int | None:
        """Returns the applied ts to record at the end of the input, when nothing is due; None if it is recorded
        already."""

    # --- what a restart needs

    def advance_to(self, high: int, end: int, changes: tuple[SchemaChange, ...] = ()) -> Advance:
        """Returns the change of progress for a transaction that brings the target to `high` (TSO).

        end: the end of its segment (TSO).
        changes: the schema changes that have to run after it.
        """

    def moved(self, step: Advance) -> None:
        """Notes that a transaction was committed, and drops what is now in the target."""

    @property
    def positions(self) -> Positions:
        """How far each partition was read."""

    # --- status

    @property
    def by_partition(self) -> bool:
        """Whether this is the order of the partitions."""

    @property
    def resolved_ts(self) -> int:
        """Everything below it may be applied (TSO)."""

    @property
    def quiet_seconds(self) -> float:
        """For how long no change has come of a source that was read to its end (seconds); 0 with boundaries."""

    @property
    def until_reached(self) -> bool:
        """Whether everything below `until` is in the target; True without `until`."""

    @property
    def waiting(self) -> Amount:
        """The row changes that wait, and the bytes of those that are not on the disk."""

    def waiting_for(self) -> str:
        """Tells what the target waits for, and why; may be called from any thread."""


def first_offsets(progress: Progress, lows: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    """Returns where to begin in partitions that progress does not know.

    In a new topic that is the first offset that Kafka holds.  In a known topic it is 0: the partition was added
    meanwhile, and messages that are already gone from its beginning were never read.
    """
    known = {topic for topic, _ in progress.positions}
    return {where: 0 if where[0] in known else low for where, low in lows.items()}


def starts_of(
    progress: Progress,
    lows: Mapping[PartitionId, int],
    *,
    by_partition: bool,
    begins: Mapping[str, int] | None = None,
    unused: Collection[PartitionId] = (),
) -> Starts:
    """Returns where to read from, for every partition of the source.

    lows: where partitions begin that progress does not know.
    begins: where topics begin (TSO); changes below it count as in the target.
    unused: partitions that the sender does not write to.
    """
    floor = 0 if by_partition else None
    known = {where: progress.positions.get(where, PartitionStart(low, 0, low, floor)) for where, low in lows.items()}
    return {
        where: start._replace(
            boundary=UNUSED if where in unused else max(0, start.boundary),
            begin=(begins or {}).get(where[0], start.begin),
        )
        for where, start in known.items()
    }
