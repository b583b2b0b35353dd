"""Leaves out of the rows that are due those that were sent again, and those that other rows have overtaken."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import pairwise
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.events import NO_PRIMARY_KEY
from bridge.model import PartitionId
from bridge.pipeline.by_partitions.merge import Merged, Rows
from bridge.pipeline.by_partitions.overtaken_rows import OvertakenRows
from bridge.pipeline.by_partitions.partition_queue import AppliedRow, PartitionQueue
from bridge.pipeline.by_partitions.repeated_rows import (
    RepeatedRows,
    are_of_other_server,
    follow_binlog,
    highs_before,
    place_verdicts,
)
from bridge.rows.gathering import Bools, Longs, distinct, take_rows
from bridge.rows.moments import Places, is_of_sending, is_of_snapshot, names_of

_TWICE_FIX: Final = (
    "nothing tells whether the sender sends rows again, or the last transaction comes in parts: compare the table with"
    " the upstream (bridge verify --against upstream), or give it a key; for Canal, set canal.instance.gtidon=true"
)

log = structlog.get_logger()


class Counted(NamedTuple):
    """Rows to apply, in order, and their event times (TSO).  repeated: how many were left out.  applied: the last row
    of each partition, behind all of these."""

    table: pa.Table
    times: Longs
    repeated: int
    applied: Mapping[PartitionId, AppliedRow]


class CountingRows:
    """Decides about the rows of all partitions.

    queues: of all partitions, which say what was taken out before.
    repeated_rows: finds rows from before a schema change.
    """

    def __init__(self, queues: Mapping[PartitionId, PartitionQueue], repeated_rows: RepeatedRows) -> None:
        self._queues, self._repeated_rows = queues, repeated_rows
        self._overtaken_rows: dict[tuple[str, ...], OvertakenRows] = defaultdict(OvertakenRows)
        """By the names of an upstream's coordinates."""
        self._may_be_doubled: set[tuple[str, str, bool]] = set()
        self._shown_at_change: dict[PartitionId, int] = {}
        """The highest time (TSO) of each partition just before the last schema change."""
        self._newest: dict[PartitionId, dict[tuple[str, ...], int]] = defaultdict(dict)
        """By table of the upstream the highest time (TSO) of its rows in a partition, where rows tell no places."""
        self._behind: dict[PartitionId, set[tuple[str, ...]]] = defaultdict(set)
        """The tables whose last row in a partition has an earlier one: it is sent again, and others will be."""
        self.note_change()

    def note_change(self) -> None:
        """Notes that a schema change is about to run, and that all rows before it are in the target."""
        self._shown_at_change = {where: queue.shown for where, queue in self._queues.items()}

    def _warn_of_doubles(self, where: PartitionId, rows: Rows, queue: PartitionQueue) -> None:
        """Warns of tables without a key whose rows may double.

        Nothing tells whether rows came before where Canal has no GTIDs (it sends a batch again that Kafka refused),
        behind a failover, in the last transaction in the target, and in one that begins again.
        """
        keyless = pc.equal(rows.table["key"], NO_PRIMARY_KEY).combine_chunks()
        if rows.table["place"].null_count or not pc.any(keyless).as_py():
            return
        highs, last = highs_before(rows, queue.shown), queue.applied.place
        is_canals = is_of_sending(rows.table["place"][0].as_py())
        may_repeat = are_of_other_server(rows, queue.applied, highs) | is_canals | _begin_again(rows.table)
        if last and not is_of_sending(last) and not is_of_snapshot(names_of(last)):
            is_of_last = pc.and_(pc.equal(rows.table["place"], last), pc.equal(rows.table["index"], 0))
            may_repeat = may_repeat | is_of_last.combine_chunks().to_numpy(zero_copy_only=False)
        doubled = rows.table.filter(pc.and_(keyless, pa.array(may_repeat))).select(["schema", "table"])
        tables = {(row["schema"], row["table"], is_canals) for row in doubled.to_pylist()} - self._may_be_doubled
        self._may_be_doubled |= tables
        for schema, table, _ in tables:
            position = f"{where[0]}/{where[1]}/{rows.table['offset'][0]}"
            log.warning("rows_may_be_twice", table=f"{schema}.{table}", behind=position, fix=_TWICE_FIX)

    def among(self, merged: Merged, began_anew: Sequence[tuple[int, int]]) -> Counted:
        """Leaves out three kinds of rows: copies by their places, copies from before a schema change, and rows that
        came behind later ones of other partitions.  began_anew: as of `Moment`."""
        rows, applied, copies, drops = merged.rows, dict[PartitionId, AppliedRow](), list[Bools](), list[Bools]()
        for where, own in rows:
            queue = self._queues[where]
            self._warn_of_doubles(where, own, queue)
            are_copies, are_dropped, applied[where] = follow_binlog(
                own, queue.applied, partial(highs_before, own, queue.shown)
            )
            if len(self._queues) > 1 and not applied[where].place:
                again = self._are_behind(where, own) or (queue.applied.again and own.times.max() < queue.shown)
                applied[where] = applied[where]._replace(again=int(again))
            copies.append(are_copies)
            drops.append(are_dropped)
        table, overtaken = self._without_overtaken(merged, began_anew)

        def highs() -> Longs:
            shown: Longs = np.array([self._shown_at_change.get(where, 0) for where, _ in rows])
            return shown[merged.partitions]

        def verdicts() -> Longs:
            pairs = zip(rows, zip(copies, drops, strict=True), strict=True)
            return merged.in_order([place_verdicts(own, self._queues[where], *flags) for (where, own), flags in pairs])

        is_out: Bools = merged.in_order(drops)
        for mask in (overtaken, self._repeated_rows.among(merged.table, merged.message_ts, highs, verdicts)):
            is_out |= False if mask is None else mask
        if not is_out.any():
            return Counted(table, merged.message_ts, 0, applied)
        return Counted(table.filter(pa.array(~is_out)), merged.message_ts[~is_out], int(is_out.sum()), applied)

    def _are_behind(self, where: PartitionId, rows: Rows) -> bool:
        """Tells whether the last row of some table in a partition is earlier than one before it."""
        names, of_name = distinct(rows.table, ("schema", "table", "text"))
        newest, last = np.zeros((2, len(names)), np.int64)
        np.maximum.at(newest, of_name, rows.times)
        last[of_name] = rows.times
        for name, high, ts in zip(names, newest.tolist(), last.tolist(), strict=True):
            self._newest[where][name] = max(high, self._newest[where].get(name, 0))
            (self._behind[where].add if ts < self._newest[where][name] else self._behind[where].discard)(name)
        return bool(self._behind[where])

    def _without_overtaken(
        self, merged: Merged, began_anew: Sequence[tuple[int, int]]
    ) -> tuple[pa.Table, Bools | None]:
        if len(self._queues) == 1 or not pc.all(merged.table["by_time"]).as_py():
            return merged.table, None
        numbers = {where: number for number, where in enumerate(self._queues)}
        partitions = np.array([numbers[where] for where, _ in merged.rows])[merged.partitions]
        applied = [queue.applied for queue in self._queues.values()]
        since, places = max((first for _, first in began_anew), default=0), merged.places
        places = places or Places.of(merged.table["place"])
        upstreams, tables, overtaken = places.apart(), list[pa.Table](), np.zeros(len(partitions), np.bool_)

        def without(rows: pa.Table, places: Places, which: Any) -> tuple[pa.Table, Bools | None]:
            recent_rows = self._overtaken_rows[tuple(sorted(places.numbers))]
            return recent_rows.without(rows, places, merged.message_ts[which], partitions[which], applied, since)

        if not upstreams.any():
            return without(merged.table, places, slice(None))
        for upstream in np.unique(upstreams):
            which = np.flatnonzero(upstreams == upstream)
            rows, is_overtaken = without(take_rows(merged.table, which), places.subset(which), which)
            tables.append(rows)
            overtaken[which] = False if is_overtaken is None else is_overtaken
        return take_rows(pa.concat_tables(tables), np.argsort(np.argsort(upstreams, kind="stable"))), overtaken


def _begin_again(rows: pa.Table) -> Bools:
    """Finds transactions whose first rows (up to eight) come once more in the same order.  The sender may have been
    restarted, or the upstream may have written them twice: nothing tells which."""
    (places, of_place), content = distinct(rows, ("place",)), distinct(rows, ("table", "before", "after"))[1]
    is_repeat = np.zeros(rows.num_rows, np.bool_)
    for start, end in pairwise([*np.flatnonzero(np.diff(of_place, prepend=-1)).tolist(), rows.num_rows]):
        is_numbered = rows["index"][start].as_py() > 0 or is_of_snapshot(names_of(*places[of_place[start]]))
        if end - start > 1 and not is_numbered:
            contents, half = content[start:end], (end - start) // 2
            counts = np.flatnonzero(contents[1 : half + 1] == contents[0]) + 1
            is_repeat[start:end] = any((contents[:8][:count] == contents[count:][:8][:count]).all() for count in counts)
    return is_repeat
