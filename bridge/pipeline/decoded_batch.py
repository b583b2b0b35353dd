"""A decoded micro-batch, in the form that each order needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final, Self

import pyarrow as pa

from bridge.model import NO_ENDS, PartitionId
from bridge.pipeline.control_events import ControlEvents, control_events
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowChanges, ends_of
from bridge.spark.kept_rows.keeping import DividedEvents

MOST_IN_MEMORY: Final = Amount(500_000, 512 << 20)
"""About how many row changes, and bytes, wait in the driver's memory."""


@dataclass(frozen=True)
class DecodedBatch:
    """A micro-batch.  read: per partition, the offset after the last message read."""

    read: Mapping[PartitionId, int]

    def with_partitions(self, partitions: Iterable[PartitionId]) -> Self:
        """Returns the batch with more partitions, of which nothing was read."""
        return replace(self, read={**self.read, **dict.fromkeys(partitions, 0)})


@dataclass(frozen=True)
class SortedBatch(DecodedBatch):
    """A micro-batch for the order of commit ts.

    rows: its row changes, sorted by commit_ts.
    control: its other events.
    """

    rows: RowChanges
    control: ControlEvents


@dataclass(frozen=True)
class UnsortedBatch(DecodedBatch):
    """A micro-batch for the order of the partitions.

    events: all its events (EVENT_SCHEMA), in any order.
    is_cut: the source may have held more messages when it was read.
    """

    events: pa.Table
    is_cut: bool = False


def sorted_batch(events: DividedEvents, ends: Mapping[PartitionId, int] = NO_ENDS) -> SortedBatch:
    """Makes a batch of divided events.

    ends: per partition, the offset after the last message read, as far as known: the last messages may have no events.
    """
    control = control_events(events.others, by_time=events.by_time)
    return SortedBatch(events.read | dict(ends), events.rows, control)


def unsorted_batch(
    events: pa.Table, ends: Mapping[PartitionId, int] = NO_ENDS, *, is_cut: bool = False
) -> UnsortedBatch:
    """Makes a batch of the events (EVENT_SCHEMA) in the order in which they were read.  ends: as for `sorted_batch`."""
    return UnsortedBatch(ends_of(events) | dict(ends), events, is_cut)
