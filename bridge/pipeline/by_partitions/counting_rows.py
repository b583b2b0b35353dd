"""Tells which of the rows that are taken out count: those that were not sent again, nor overtaken by others."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.events import EVENT_SCHEMA, NO_PRIMARY_KEY
from bridge.model import PartitionId
from bridge.pipeline.by_partitions.merge import Merged, Rows
from bridge.pipeline.by_partitions.overtaken_rows import OvertakenRows
from bridge.pipeline.by_partitions.partition_queue import AppliedRow, PartitionQueue
from bridge.pipeline.by_partitions.repeated_rows import (
    RepeatedRows,
    come_after_restart,
    copies_by_place,
    seen_before,
    told_by_place,
)
from bridge.rows.grouping import Bools, Longs
from bridge.rows.moments import is_of_sending, is_of_snapshot, names_of

_TWICE_FIX: Final = (
    "nothing tells whether the sender was restarted and sends the last rows again, or the last transaction comes in"
    " parts: compare the table with the upstream (bridge verify --against upstream), or give it a key; for Canal, set"
    " canal.instance.gtidon=true"
)

log = structlog.get_logger()

RowsOf = Sequence[tuple[PartitionId, Rows]]


class Counted(NamedTuple):
    """Rows that count, in order, and their event times (TSO).  repeated: how many others there are, by partition."""

    table: pa.Table
    times: Longs
    repeated: Mapping[PartitionId, int]

    @classmethod
    def none(cls) -> Counted:
        """No rows."""
        return cls(EVENT_SCHEMA.empty_table(), np.empty(0, np.int64), {})


class CountingRows:
    """Decides about the rows of all partitions.

    queues: of all partitions, which say what was taken out before.
    repeated_rows: finds rows from before a schema change.
    """

    def __init__(self, queues: Mapping[PartitionId, PartitionQueue], repeated_rows: RepeatedRows) -> None:
        self._queues, self._repeated_rows = queues, repeated_rows
        self._overtaken_rows = OvertakenRows()
        self._may_be_doubled: set[tuple[str, str]] = set()
        self._shown_at_change: dict[PartitionId, int] = {}
        """The highest time (TSO) of each partition when the last schema change was about to run.  What comes first
        behind it, though its time is earlier, was not shown then."""
        self.note_change()
        self._applied_at_change: dict[PartitionId, AppliedRow] = {}
        """The last rows then; of none that ran before the start."""

    def note_change(self) -> None:
        """Notes that a schema change is about to run, and that all rows before it are in the target."""
        self._shown_at_change = {where: queue.shown for where, queue in self._queues.items()}
        self._applied_at_change = {where: queue.applied for where, queue in self._queues.items()}

    def copies(self, rows: RowsOf) -> dict[PartitionId, Bools]:
        """Tells which rows are sent again, by their places; only of partitions that have such rows."""
        found = {}
        for where, mine in rows:
            queue = self._queues[where]
            self._warn_of_doubles(where, mine, queue)
            copies = copies_by_place(mine, queue.applied, partial(seen_before, mine, queue.shown))
            if copies is not None:
                found[where] = copies
        return found

    def _warn_of_doubles(self, where: PartitionId, rows: Rows, queue: PartitionQueue) -> None:
        """Names the tables whose rows have no key and may be there twice: of a Canal without GTIDs, or of the last
        transaction in the target."""
        keyless = pc.equal(rows.table["key"], NO_PRIMARY_KEY).combine_chunks()
        if rows.table["place"].null_count or not pc.any(keyless).as_py():
            return
        again, last = come_after_restart(rows, queue.applied, seen_before(rows, queue.shown)), queue.applied.place
        if last and not is_of_sending(last) and not is_of_snapshot(names_of(last)):
            of_last = pc.and_(pc.equal(rows.table["place"], last), pc.equal(rows.table["index"], 0))
            again = again | of_last.combine_chunks().to_numpy(zero_copy_only=False)
        doubled = rows.table.filter(pc.and_(keyless, pa.array(again))).select(["schema", "table"])
        for schema, table in {(one["schema"], one["table"]) for one in doubled.to_pylist()} - self._may_be_doubled:
            self._may_be_doubled.add((schema, table))
            offset = rows.table["offset"][0].as_py()
            log.warning(
                "rows_may_be_twice", table=f"{schema}.{table}", behind=f"{where[0]}/{where[1]}/{offset}", fix=_TWICE_FIX
            )

    def among(
        self, merged: Merged, rows: RowsOf, copies: Mapping[PartitionId, Bools], began_anew: Sequence[tuple[int, int]]
    ) -> Counted:
        """Leaves out the rows that are sent again: those whose places show it, and those from before a schema change;
        and what came too late, behind rows of other partitions.

        rows: those that were merged.  copies: what `copies` gives for them.  began_anew: as of `Moment`.
        """
        table, found = self._without_overtaken(merged, rows, began_anew)

        def seen() -> Longs:
            before = [np.full(len(mine.times), self._shown_at_change.get(where, 0)) for where, mine in rows]
            return np.concatenate(before)[merged.order]

        def told() -> Longs:
            parts = []
            for where, mine in rows:
                queue, at_change = self._queues[where], self._applied_at_change.get(where)
                since = 0 if queue.applied == at_change and not queue.began_anew else queue.applied.ts
                parts.append(told_by_place(mine, queue.applied, queue.shown, since, copies.get(where)))
            return np.concatenate(parts)[merged.order]

        repeated_rows = self._repeated_rows.among(merged.table, merged.message_ts, seen, told)
        found = found if repeated_rows is None else repeated_rows | (False if found is None else found)
        if copies:
            by_place = [copies.get(where, np.zeros(len(mine.times), np.bool_)) for where, mine in rows]
            found = np.concatenate(by_place)[merged.order] | (False if found is None else found)
        if found is None:
            return Counted(table, merged.message_ts, {})
        counts = np.bincount(_numbers(merged, rows, range(len(rows)))[found], minlength=len(rows)).tolist()
        repeated = {where: count for (where, _), count in zip(rows, counts, strict=True) if count}
        return Counted(table.filter(pa.array(~found)), merged.message_ts[~found], repeated)

    def _without_overtaken(
        self, merged: Merged, rows: RowsOf, began_anew: Sequence[tuple[int, int]]
    ) -> tuple[pa.Table, Bools | None]:
        if len(self._queues) == 1 or not pc.all(merged.table["by_time"]).as_py():
            return merged.table, None
        numbers = {where: number for number, where in enumerate(self._queues)}
        partitions = _numbers(merged, rows, [numbers[where] for where, _ in rows])
        applied = [queue.applied for queue in self._queues.values()]
        since = max((first for _, first in began_anew), default=0)
        return self._overtaken_rows.without(merged.table, merged.message_ts, partitions, applied, since)


def _numbers(merged: Merged, rows: RowsOf, of_partitions: Sequence[int]) -> Longs:
    """Gives for each row the number of its partition."""
    return np.repeat(np.array(of_partitions), [len(mine.times) for _, mine in rows])[merged.order]
