"""Merges the next row changes of several partitions into one order, and numbers them.  Pure.

Every message gets a number in the place of its commit_ts: its event time, or more, so that the numbers ascend from the
applied ts.  Rows with a TSO share one.  So all code that moves the target by commit_ts works for them, too.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.model import PartitionId
from bridge.rows.gathering import Amount, Bools, Longs, take_rows, weights, with_column
from bridge.rows.moments import Places

_HIGHEST: Final = 1 << 62
"""Higher event times are treated as this one, so that numbers above them fit into 64 bits."""


@dataclass(frozen=True)
class Rows:
    """Row changes of one partition (EVENT_SCHEMA) in its order, with the columns that the merge needs."""

    table: pa.Table

    @cached_property
    def times(self) -> Longs:
        """The commit_ts of the messages."""
        times: Longs = self.table["commit_ts"].to_numpy()
        return times

    @cached_property
    def offsets(self) -> Longs:
        """The offsets of the messages."""
        offsets: Longs = self.table["offset"].to_numpy()
        return offsets


@dataclass(frozen=True)
class Merged:
    """Row changes of several partitions in one order.

    table: the row changes; their commit_ts are the new numbers, ascending.
    message_ts: the commit_ts that the messages of the row changes have.
    places: those of the row changes; None where they are of one partition, and were not read.
    rows: those of each partition as they were given, of which there are any.
    partitions: for each row change the number of its partition among these.
    """

    table: pa.Table
    message_ts: Longs
    places: Places | None
    rows: list[tuple[PartitionId, Rows]]
    partitions: Longs

    def in_order(self, of_partitions: Sequence[npt.NDArray[Any]]) -> npt.NDArray[Any]:
        """Puts a value for each of the partitions' rows in the order of the row changes."""
        values = np.concatenate(of_partitions)
        ordered = np.empty_like(values)
        ordered[np.argsort(self.partitions, kind="stable")] = values
        return ordered


def merge(
    waiting: Sequence[tuple[PartitionId, Rows]], first: int, most: Amount, began_anew: Sequence[tuple[int, int]] = ()
) -> Merged:
    """Merges row changes by their places in one binlog, else by event time; each partition keeps its order.

    waiting: the rows of each partition, at least one in all.
    first: the lowest number.
    most: about how much to take; neither a message nor the rows of one TSO are divided.
    began_anew: as of `Moment`.
    """
    times = np.concatenate([_merge_times(rows) for _, rows in waiting])
    message_ts = np.concatenate([rows.times for _, rows in waiting])
    offsets = np.concatenate([rows.offsets for _, rows in waiting])
    by_time = np.concatenate([rows.table["by_time"].to_numpy() for _, rows in waiting])
    partitions = np.repeat(np.arange(len(waiting)), [len(rows.times) for _, rows in waiting])
    order, places = np.arange(len(times)), None
    if len(waiting) > 1:
        places = Places.of(pa.chunked_array([piece for _, rows in waiting for piece in rows.table["place"].chunks]))
        order, times = _ordered(places, partitions, times, began_anew)
    units = _units(times, message_ts[order], partitions[order], offsets[order], by_time[order])
    table = pa.concat_tables([rows.table for _, rows in waiting])
    end = int(np.searchsorted(units, units[_count_to_take(table, order, most) - 1], "right"))
    order, units = order[:end], units[:end]
    numbers = _numbers(times[:end], units, first)
    if end < table.num_rows or not np.array_equal(order, np.arange(end)):
        table = take_rows(table, order)
    table = with_column(table, "commit_ts", pa.array(numbers))
    numbers_of, of_rows, counts = np.unique(partitions[order], return_inverse=True, return_counts=True)
    sources = (waiting[number] for number in numbers_of.tolist())
    rows = [(where, Rows(own.table.slice(0, count))) for (where, own), count in zip(sources, counts, strict=True)]
    return Merged(table.combine_chunks(), message_ts[order], places and places.subset(order), rows, of_rows)


def _count_to_take(table: pa.Table, order: Longs, most: Amount) -> int:
    """Returns how many rows, in this order, amount to `most`; at least one."""
    weight = weights(table, most)
    if weight is None:
        return min(most.rows, len(order))
    return max(1, int(np.searchsorted(np.cumsum(weight[order]), most.rows, "right")))


def _merge_times(rows: Rows) -> Longs:
    """Makes times that never go back within the partition and are the same for all rows of a message."""
    rising = np.maximum.accumulate(np.minimum(rows.times, _HIGHEST))
    last_of_message = np.searchsorted(rows.offsets, rows.offsets, "right") - 1
    latest: Longs = rising[last_of_message]
    return latest


def _ordered(
    places: Places, partitions: Longs, times: Longs, began_anew: Sequence[tuple[int, int]]
) -> tuple[Longs, Longs]:
    """Gives the order of rows, and their times in it, which never go back.

    Rows of one upstream go by their places, if these order all of them, else by time.  Rows of several upstreams go by
    time.  Where a partition has rows of several, all count as one upstream.
    """
    upstreams = places.apart()
    if (np.diff(upstreams) != 0)[np.diff(partitions) == 0].any():
        upstreams[:] = 0
    order, risen = list[Longs](), list[Longs]()
    for first in np.sort(np.unique(upstreams, return_index=True)[1]):
        which = np.flatnonzero(upstreams == upstreams[first])
        ranks = _ranks(places.subset(which), partitions[which], times[which], began_anew)
        order.append(which[np.argsort(times[which] if ranks is None else ranks, kind="stable")])
        risen.append(np.maximum.accumulate(times[order[-1]]))
    all_risen = np.concatenate(risen)
    by_time = np.argsort(all_risen, kind="stable")
    return np.concatenate(order)[by_time], all_risen[by_time]


def _ranks(places: Places, partitions: Longs, times: Longs, began_anew: Sequence[tuple[int, int]]) -> Longs | None:
    """Numbers rows by their places, never going back within a partition; None where places do not order all."""
    if (ranks := places.ranks()) is None:
        return None
    if began_anew:
        ranks = np.unique(ranks, return_inverse=True)[1]
        ranks += len(ranks) * np.sum([times >= first for _, first in began_anew], axis=0)
    bounds = np.flatnonzero(np.diff(partitions)) + 1
    return np.concatenate([np.maximum.accumulate(part) for part in np.split(ranks, bounds)])


def _units(times: Longs, message_ts: Longs, partitions: Longs, offsets: Longs, by_time: Bools) -> Longs:
    """Numbers, from 0, the units that must not be divided: messages, or all rows of a TSO.

    A message that was sent again has a lower commit_ts than its neighbours (message_ts), and is a unit of its own:
    within one TSO, an image would win over the delete that came after it.
    """
    starts = np.ones(len(times), dtype=bool)
    other_message = (partitions[1:] != partitions[:-1]) | (offsets[1:] != offsets[:-1])
    is_other_unit = by_time[1:] | by_time[:-1] | (message_ts[1:] != message_ts[:-1])
    starts[1:] = (times[1:] != times[:-1]) | (other_message & is_other_unit)
    return np.cumsum(starts) - 1


def _numbers(times: Longs, units: Longs, first: int) -> Longs:
    """Numbers the units in ascending order, each with at least its time."""
    highest = np.maximum.accumulate(np.maximum(times - units, first))
    return highest[np.searchsorted(units, units, "left")] + units
