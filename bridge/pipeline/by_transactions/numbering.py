"""What is due, with its numbers: each row has a commit_ts of its own, and transactions ascend with their order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bridge.events import Kind
from bridge.model import PartitionId, SchemaChange
from bridge.pipeline.by_transactions.reached import Place, Reached, is_of_snapshot
from bridge.pipeline.by_transactions.transaction_rows import PlacedRows
from bridge.protocols.debezium.transactions import TransactionMark
from bridge.protocols.values.event_time import NUMBER_DIGITS
from bridge.rows.gathering import Longs, masked, partitions_of, take_rows, with_column

_NONE = np.empty(0, np.int64)


@dataclass(slots=True)
class End:
    """The ENDs of a transaction.

    id: the transaction.
    marks: one that counts all of its rows; or those of its rests, where the connector began it twice before its END.
    ts: the time that the first tells (TSO).
    batch: in which micro-batch it came.  not_before: when it may be due at the earliest (the clock's seconds), if the
        connector began it twice before.
    first_offset: that of its BEGIN.  is_begun: whether there was one.
    """

    id: str
    marks: list[TransactionMark]
    ts: int
    batch: int
    not_before: float | None
    first_offset: int
    is_begun: bool

    @property
    def counts_all(self) -> bool:
        """Whether it counts all rows."""
        return self.not_before is None

    @property
    def count(self) -> int:
        """The most rows that it counts."""
        return max([mark.count for mark in self.marks])


class Statement:
    """A schema change that waits.

    number: its file and position.  id: its GTID, NO_TRANSACTION where it tells none.  server: who has committed it.
    is_of_snapshot: whether it is of the connector's snapshot.
    """

    def __init__(self, change: SchemaChange) -> None:
        self.change, self.read_at = change, change.read_at
        _, self.server, number, *_, self.id = change.place.split("\n")
        self.number, self.is_of_snapshot = int(number), is_of_snapshot(self.server)


class Reaching(NamedTuple):
    """The places that are reached one after the other.

    behind: for each, the number (TSO) below which everything is in the target then, ascending.  place: gives it, by
    its index.
    """

    behind: Longs
    place: Callable[[int], Place]


class Mark(NamedTuple):
    """Rows of no transaction, or a schema change, of one partition.

    numbers: the commit_ts that each got, ascending.  ends: the offset behind each.
    """

    where: PartitionId
    numbers: Longs
    ends: Longs


class DueRows:
    """What has become due, in order, with its numbers.

    waiting: the rows among which it is.  reached: moves with it.
    start_ts: what tells an earlier time is left out, since it is in the target (TSO).
    end: the number behind all of it; at first, the first number (TSO).
    """

    def __init__(self, waiting: PlacedRows, reached: Reached, start_ts: int, end: int, topic: str) -> None:
        self._waiting, self._reached, self._start_ts, self.end, self._topic = waiting, reached, start_ts, end, topic
        self._at, self._numbers, self._starts = [_NONE], [_NONE], [_NONE]
        self.changes: list[SchemaChange] = []
        self.places: list[Reaching] = []
        self.marks: list[Mark] = []

    def add(self, item: Statement | Longs, number: int) -> None:
        """Numbers a schema change, or the rows of no transaction at one place; of a snapshot one less."""
        if isinstance(item, Statement):
            self._add_change(item, number)
        else:
            self._add_loose(item, number)
        place = self._reached.place
        self.places.append(Reaching(np.array([self.end]), lambda _: place))

    def _add_change(self, item: Statement, number: int) -> None:
        ts = max(self.end, item.change.commit_ts)
        if item.change.commit_ts >= self._start_ts:
            self.changes.append(replace(item.change, commit_ts=ts))
        self.marks.append(Mark(item.read_at[:2], np.array([ts]), np.array([item.read_at.offset + 1])))
        if not item.is_of_snapshot:
            self._reached.run(number, item.id, self._topic)
        self.end = ts + 1

    def add_transactions(self, ends: Sequence[End], numbers: Sequence[int]) -> None:
        """Numbers transactions, in order, by the file and position of the last row of each.  Those whose ids differ in
        their numbers alone are numbered together: one by one they took twenty times as long (measured)."""
        heads, start = [end.id[:-NUMBER_DIGITS] for end in ends], 0
        while start < len(ends):
            behind = start + 1
            while behind < len(ends) and heads[behind] == heads[start] and not self._reached.place.before:
                behind += 1
            self._add_transactions(ends[start:behind], numbers[start:behind])
            start = behind

    def _add_transactions(self, ends: Sequence[End], numbers: Sequence[int]) -> None:
        transactions, times = self._waiting.transactions, np.array([end.ts for end in ends])
        ids, is_due = [end.id for end in ends], times >= self._start_ts
        counts = np.zeros(len(ends), np.int64)
        at, counts[is_due] = transactions.distinct(np.array([transactions.ids[id_] for id_ in ids])[is_due])
        sizes = np.maximum(counts, 1)
        before = np.cumsum(sizes) - sizes
        starts = before + np.maximum.accumulate(np.maximum(times - before, self.end))
        self._at.append(at)
        self._numbers.append(np.repeat(starts - (np.cumsum(counts) - counts), counts) + np.arange(len(at)))
        self._starts.append(starts)
        server = self._waiting.table["server"][at[0]].as_py() if self._reached.place.before and len(at) else ""
        self.places.append(Reaching(starts + sizes, self._reached.move(numbers, ids, self._topic, server)))
        self.end = int(starts[-1] + sizes[-1])

    def _add_loose(self, at: Longs, number: int) -> None:
        if self._waiting.is_of_first_snapshot[at[0]]:
            self._reached.place = self._reached.place._replace(last=number)
        rows = self._waiting.table.select(["topic", "partition", "offset", "commit_ts"]).take(pa.array(at))
        order = np.lexsort([rows[name].to_numpy() for name in ("offset", "partition")])
        rows, at = rows.take(pa.array(order)), at[order]
        times = rows["commit_ts"].to_numpy()
        ts = max(self.end, int(times.min()))
        own = np.arange(ts, ts + len(at))
        self._at.append(at[times >= self._start_ts])
        self._numbers.append(own[times >= self._start_ts])
        self._starts.append(own)
        partitions, codes = partitions_of(rows)
        ends = rows["offset"].to_numpy() + 1
        self.marks += [Mark(where, own[codes == code], ends[codes == code]) for code, where in enumerate(partitions)]
        self.end = ts + len(at)

    @property
    def starts(self) -> Longs:
        """The commit_ts at which one may cut."""
        return np.concatenate(self._starts)

    @property
    def rows(self) -> pa.Table:
        """The row changes in order (EVENT_SCHEMA), each with its number as commit_ts."""
        due = self._waiting.events(take_rows(self._waiting.table, np.concatenate(self._at)))
        is_row = due["kind"].to_numpy() <= int(Kind.DELETE)
        due = with_column(due, "commit_ts", pa.array(np.concatenate(self._numbers)))
        due = with_column(due, "by_time", pa.repeat(False, due.num_rows))
        return masked(due, is_row)
