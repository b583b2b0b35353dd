"""Merges the next row changes of several partitions into one order, and numbers them.  Pure.

Formats without boundaries (internals, decision 13) know only the order of each partition.  Every message gets a ts of
its own, ascending from the applied ts on and otherwise its event time, so that everything which moves the target by
commit_ts works on them too; rows with a TSO share the ts of their commit_ts.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.events import EVENT_SCHEMA
from bridge.model import PartitionId
from bridge.rows.amount import Amount, weights
from bridge.rows.gathering import taken

Longs = npt.NDArray[np.int64]
_HIGHEST: Final = 1 << 62
"""Event times beyond it count as it, so that numbers above them still fit."""


@dataclass(frozen=True)
class Rows:
    """Row changes of one partition in its order, with the columns that are computed with."""

    table: pa.Table
    times: Longs
    """commit_ts as the messages have it."""
    offsets: Longs
    by_time: npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Merged:
    """table: row changes in one order; their commit_ts are the new numbers, ascending.
    taken: how many rows of each partition are in it.  numbers: of each partition's rows, with their offsets."""

    table: pa.Table
    taken: Mapping[PartitionId, int]
    numbers: Mapping[PartitionId, tuple[Longs, Longs]]


def merge(waiting: Sequence[tuple[PartitionId, Rows]], first: int, most: Amount) -> Merged:
    """Row changes by event time, each partition's in its own order; numbers begin at `first` or above.

    waiting: at least one row in all.
    most: about how much to take; a message is never cut, and neither are the rows of one TSO.
    """
    times = np.concatenate([_merge_times(rows) for _, rows in waiting])
    told = np.concatenate([rows.times for _, rows in waiting])
    offsets = np.concatenate([rows.offsets for _, rows in waiting])
    by_time = np.concatenate([rows.by_time for _, rows in waiting])
    partitions = np.repeat(np.arange(len(waiting)), [len(rows.times) for _, rows in waiting])
    order = np.argsort(times, kind="stable")
    units = _units(times[order], told[order], partitions[order], offsets[order], by_time[order])
    table = pa.concat_tables([rows.table for _, rows in waiting])
    end = int(np.searchsorted(units, units[_wanted(table, order, most) - 1], "right"))
    order, units = order[:end], units[:end]
    numbers = _numbers(times[order], units, first)
    if end < table.num_rows or not np.array_equal(order, np.arange(end)):
        table = taken(table, order)
    position = EVENT_SCHEMA.get_field_index("commit_ts")
    table = table.set_column(position, EVENT_SCHEMA.field(position), pa.array(numbers))
    mine = {where: partitions[order] == i for i, (where, _) in enumerate(waiting)}
    return Merged(
        table.combine_chunks(),
        {where: int(np.count_nonzero(rows)) for where, rows in mine.items()},
        {where: (numbers[rows], offsets[order][rows]) for where, rows in mine.items()},
    )


def _wanted(table: pa.Table, order: Longs, most: Amount) -> int:
    """How many of the rows in this order are as much as is to be taken, at least one."""
    weight = weights(table, most)
    if weight is None:
        return min(most.rows, len(order))
    return max(1, int(np.searchsorted(np.cumsum(weight[order]), most.rows, "right")))


def _merge_times(rows: Rows) -> Longs:
    """Times that never go back within the partition and are one for all rows of a message."""
    rising = np.maximum.accumulate(np.minimum(rows.times, _HIGHEST))
    last_of_message = np.searchsorted(rows.offsets, rows.offsets, "right") - 1
    latest: Longs = rising[last_of_message]
    return latest


def _units(times: Longs, told: Longs, partitions: Longs, offsets: Longs, by_time: npt.NDArray[np.bool_]) -> Longs:
    """Numbers, from 0, of what must not be cut: messages, or all rows of a TSO.

    told: commit_ts as the messages have it.  What a producer sends again comes with an earlier one than its place: each
    of those is a unit of its own, since within a TSO an image would win over the delete that came after it.
    """
    starts = np.ones(len(times), dtype=bool)
    other_message = (partitions[1:] != partitions[:-1]) | (offsets[1:] != offsets[:-1])
    parted = by_time[1:] | by_time[:-1] | (told[1:] != told[:-1])
    starts[1:] = (times[1:] != times[:-1]) | (other_message & parted)
    return np.cumsum(starts) - 1


def _numbers(times: Longs, units: Longs, first: int) -> Longs:
    """Ascending from unit to unit, at least the time of each."""
    highest = np.maximum.accumulate(np.maximum(times - units, first))
    return highest[np.searchsorted(units, units, "left")] + units
