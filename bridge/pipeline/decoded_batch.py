"""A decoded micro-batch, in the form that each order needs."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import Kind
from bridge.model import NO_ENDS, PartitionId
from bridge.pipeline.control_events import ControlEvents, control_events
from bridge.rows.amount import Amount
from bridge.rows.gathering import masked, taken
from bridge.rows.order_and_slices import RowChanges, ends_of, in_order
from bridge.spark.kept_rows.keeping import OnExecutors

MOST_IN_MEMORY: Final = Amount(500_000, 512 << 20)
"""About how many row changes, and bytes, wait in the driver's memory."""


@dataclass(frozen=True)
class SortedBatch:
    """A micro-batch for the order of commit ts.

    rows: its row changes, sorted by commit_ts.
    control: its other events.
    read: per partition, the offset after the last message read.
    """

    rows: RowChanges
    control: ControlEvents
    read: Mapping[PartitionId, int]

    def with_partitions(self, partitions: Iterable[PartitionId]) -> SortedBatch:
        """Returns the batch with more partitions, of which nothing was read."""
        return replace(self, read={**self.read, **dict.fromkeys(partitions, 0)})


@dataclass(frozen=True)
class UnsortedBatch:
    """A micro-batch for the order of the partitions.

    events: all its events (EVENT_SCHEMA), in any order.
    read: per partition, the offset after the last message read.
    is_cut: the source may have held more messages when it was read.
    """

    events: pa.Table
    read: Mapping[PartitionId, int]
    is_cut: bool = False

    def with_partitions(self, partitions: Iterable[PartitionId]) -> UnsortedBatch:
        """Returns the batch with more partitions, of which nothing was read."""
        return replace(self, read={**self.read, **dict.fromkeys(partitions, 0)})


def sorted_batch(events: pa.Table, ends: Mapping[PartitionId, int] = NO_ENDS) -> SortedBatch:
    """Sorts the events of a micro-batch (EVENT_SCHEMA, any order), in the driver.

    ends: per partition, the offset after the last message read, as far as known: the last messages may have no events.
    """
    is_row = events["kind"].to_numpy() <= int(Kind.DELETE)
    others = _in_offset_order(masked(events, ~is_row))
    by_time = bool(pc.any(events["by_time"]).as_py())
    rows = RowChanges.here(in_order(events, np.flatnonzero(is_row)))
    return SortedBatch(rows, control_events(others, by_time=by_time), ends_of(events) | dict(ends))


def kept_batch(found: OnExecutors, ends: Mapping[PartitionId, int] = NO_ENDS) -> SortedBatch:
    """Does the same as `sorted_batch` for events whose row changes the driver does not hold."""
    return SortedBatch(found.rows, control_events(found.others, by_time=found.by_time), found.read | dict(ends))


def unsorted_batch(
    events: pa.Table, ends: Mapping[PartitionId, int] = NO_ENDS, *, is_cut: bool = False
) -> UnsortedBatch:
    """Makes a batch of the events (EVENT_SCHEMA) in the order in which they were read.  ends: as for `sorted_batch`."""
    return UnsortedBatch(events, ends_of(events) | dict(ends), is_cut)


def _in_offset_order(events: pa.Table) -> pa.Table:
    return taken(events, np.lexsort((events["offset"].to_numpy(), events["partition"].to_numpy())))
