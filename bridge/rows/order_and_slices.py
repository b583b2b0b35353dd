"""Row changes in chunks: how they wait, in order, wherever they are, and windows as slices of them.

A chunk is a table in the driver's memory; `spark.kept_rows` has those in files of this machine, and those that Spark's
executors hold.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import chain
from typing import Any, Final, NamedTuple, Protocol, TypeVar

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_SCHEMA, Kind
from bridge.model import PartitionId, RowCounts, Table, TableName
from bridge.rows.gathering import Amount, Longs, distinct, masked, partitions_of, row_bytes, take_rows, whole_texts
from bridge.rows.net_changes import NetChanges, fold
from bridge.rows.resolve_types import typed
from bridge.rows.sql.render import render
from bridge.rows.sql.statement import Rendering, Statement

T = TypeVar("T")
ROW_ORDER: Final = ("commit_ts", "topic", "partition", "offset", "index")
"""The order of row changes, in whatever order they came."""
_TABLE: Final = ("schema", "table")
_FEW: Final = 4
"""Rows are copied when they take less than 1 / this of the bytes that they keep in memory."""
TS_END: Final = (1 << 63) - 1
"""A TSO above every commit ts."""
_MOST_RUNS: Final = 1 << 18
"""Into about so many runs a window is divided, at most, before it is cut into pieces: the driver holds three numbers of
each."""


class Dropped(NamedTuple):
    """How many row changes are below the applied ts.  late: at offsets that were never read before, by partition;
    repeated: at offsets that were read before."""

    late: Counter[PartitionId]
    repeated: int


OPERATIONS: Final = (Kind.INSERT, Kind.UPDATE, Kind.DELETE)
"""The kinds of row changes, in the order of RowCounts and without a gap."""

BeginOf = Callable[[str], int]
"""Gives for a topic the TSO below which its changes count as in the target from the beginning.  Picklable."""


class Selection(NamedTuple):
    """Which row changes of a chunk are meant: those with low <= commit_ts < high that are not below the beginning of
    their topic (TSO), and only those of some tables, unless that is None."""

    low: int = 0
    high: int = TS_END
    begins: tuple[tuple[str, int], ...] = ()
    only: frozenset[TableName] | None = None

    def of(self, rows: pa.Table, ts: Longs) -> pa.Table:
        """Gives those of the row changes that are meant.  rows: in order.  ts: their commit_ts."""
        start, end = np.searchsorted(ts, [self.low, self.high])
        rows = rows.slice(start, end - start)
        for topic, begin in self.begins:
            is_below = pc.and_(pc.equal(rows["topic"], topic), pc.less(rows["commit_ts"], begin))
            rows = rows.filter(pc.invert(is_below))
        if self.only is not None:
            names, codes = distinct(rows, _TABLE)
            rows = masked(rows, np.array([TableName(*name) in self.only for name in names], np.bool_)[codes])
        return rows


class Chunk(Protocol):
    """Row changes in order, all in one place.  Immutable.

    first_ts, last_ts: no commit_ts is below or above; of an empty chunk TS_END and -1.
    is_here: whether the driver's memory holds them.
    """

    first_ts: int
    last_ts: int
    is_here: bool

    @property
    def amount(self) -> Amount:
        """How much it holds."""

    def ask(self, selection: Selection, question: Callable[[pa.Table], T]) -> list[T]:
        """Calls the function where the row changes are, with those that are meant (EVENT_SCHEMA, in order)."""

    def tables(self, selection: Selection, *, at_once: bool) -> Iterable[pa.Table]:
        """Brings those that are meant to the driver, in tables that are in order: all at once, or one after the other
        as they are asked for."""


class OneTable:
    """A chunk that the driver reads as one table."""

    def rows(self, selection: Selection) -> pa.Table:
        """Gives those that are meant."""
        raise NotImplementedError

    def ask(self, selection: Selection, question: Callable[[pa.Table], T]) -> list[T]:
        return [question(self.rows(selection))]

    def tables(self, selection: Selection, *, at_once: bool) -> Iterable[pa.Table]:
        del at_once
        return [self.rows(selection)]


class TableChunk(OneTable):
    """A chunk that the driver has as a table (EVENT_SCHEMA, in ROW_ORDER).

    is_here: whether it is in memory, and not mapped from a file.
    """

    def __init__(self, table: pa.Table, *, is_here: bool = True) -> None:
        self.table, self.is_here = table, is_here
        self._ts: Longs = table["commit_ts"].to_numpy()
        self.first_ts, self.last_ts = (int(self._ts[0]), int(self._ts[-1])) if len(self._ts) else (TS_END, -1)

    @property
    def amount(self) -> Amount:
        return Amount.of(self.table)

    def rows(self, selection: Selection) -> pa.Table:
        return selection.of(self.table, self._ts)


class Part(NamedTuple):
    """A chunk, and what of it is meant."""

    chunk: Chunk
    selection: Selection = Selection()

    @property
    def amount(self) -> Amount:
        """How much is meant."""
        low, high, begins, only = self.selection
        is_all = low <= self.chunk.first_ts and self.chunk.last_ts < high and not begins and only is None
        return self.chunk.amount if is_all else Amount.total(self.chunk.ask(self.selection, Amount.of))

    def between(self, low: int, high: int) -> Part:
        """Gives the part with low <= commit_ts < high."""
        selection = self.selection
        return Part(self.chunk, selection._replace(low=max(low, selection.low), high=min(high, selection.high)))

    def from_ts(self, ts: int) -> Part:
        """Leaves out what lies below ts; what is not in memory stays as it is, and windows leave it out."""
        chunk = self.chunk
        if not isinstance(chunk, TableChunk) or chunk.first_ts >= ts:
            return self
        rows = chunk.rows(self.between(ts, TS_END).selection)
        if rows.nbytes * _FEW < rows.get_total_buffer_size():  # these bytes stay in memory as long as the rows do
            rows = take_rows(rows, np.arange(rows.num_rows))
        return Part(TableChunk(rows))

    def narrowed(self, **selection: Any) -> Part:
        """Means less of the chunk: in memory at once, elsewhere when it is read."""
        part = Part(self.chunk, self.selection._replace(**selection))
        return Part(TableChunk(*part.chunk.tables(part.selection, at_once=True))) if part.chunk.is_here else part


class Large(Protocol):
    """Those who give what is too large for the driver part by part.  room: what is not."""

    room: Amount

    def statements(
        self, rows: RowChanges, catalog: Mapping[TableName, Table], rendering: Rendering
    ) -> Iterable[Statement]:
        """Gives the statements of the net changes, as `RowChanges.statements`."""


@dataclass(frozen=True, eq=False)
class RowChanges:
    """Row changes that wait, or a window of them, wherever they are.  Immutable.

    starts: the commit_ts at which transactions begin, ascending, where every row has one of its own.
    large: those who fold what is too large for the driver.
    estimate: about how much there is, where that is known.
    folded: the net changes, when they are known already.
    """

    parts: tuple[Part, ...] = ()
    starts: Longs | None = None
    large: Large | None = None
    estimate: Amount | None = None
    folded: list[NetChanges] | None = None

    @classmethod
    def here(cls, ordered: pa.Table) -> RowChanges:
        """Takes row changes (EVENT_SCHEMA) that are in order."""
        return cls((Part(TableChunk(ordered)),))

    @classmethod
    def of(cls, tables: Sequence[pa.Table]) -> RowChanges:
        """Puts row changes of several tables in order."""
        return cls.here(in_order(pa.concat_tables([_NO_ROWS, *tables])))

    @classmethod
    def joined(cls, several: Iterable[RowChanges], low: int = 0, high: int = TS_END) -> RowChanges:
        """Gives those of several with low <= commit_ts < high."""
        return cls(tuple(part for changes in several for part in changes.parts)).between(low, high)

    def _ask(self, question: Callable[[pa.Table], T]) -> Iterator[T]:
        return (answer for part in self.parts for answer in part.chunk.ask(part.selection, question))

    @cached_property
    def amount(self) -> Amount:
        """How much there is; an estimate for a part of what the driver's memory does not hold."""
        return self.estimate or Amount.total(part.amount for part in self.parts)

    @property
    def count(self) -> int:
        """The number of row changes, as of `amount`; in less time where they are here."""
        return sum(table.num_rows for table in self._here()) if self.is_here else self.amount.rows

    @property
    def is_here(self) -> bool:
        """Whether the driver's memory holds all of it."""
        return all(part.chunk.is_here for part in self.parts)

    # --- what waits

    @property
    def last_ts(self) -> int:
        """No commit_ts is above; -1 without rows."""
        return max((part.chunk.last_ts for part in self.parts), default=-1)

    def from_ts(self, ts: int) -> RowChanges:
        """Leaves out what lies below ts."""
        parts = tuple(part.from_ts(ts) for part in self.parts if part.chunk.last_ts >= ts)
        return self if parts == self.parts else RowChanges(parts)

    def from_begins(self, begins: Mapping[str, int]) -> RowChanges:
        """Leaves out row changes below the beginning (TSO) of their topic; topics that are not named keep all."""
        return RowChanges(tuple(part.narrowed(begins=tuple(begins.items())) for part in self.parts))

    def count_below(self, ts: int, begin_of: BeginOf, read_before: Mapping[PartitionId, int]) -> Dropped:
        """Counts row changes below ts; late are those from their topic's beginning on that were not read before."""
        of_chunk = partial(_count_dropped, begin_of=begin_of, read_before=dict(read_before))
        counts = list(self.between(0, ts)._ask(of_chunk))
        return Dropped(sum((count.late for count in counts), Counter()), sum(count.repeated for count in counts))

    # --- windows

    def between(self, low: int, high: int) -> RowChanges:
        """Gives the row changes with low <= commit_ts < high."""
        parts = [part.between(low, high) for part in self.parts]
        touched = (p for p in parts if p.chunk.first_ts < p.selection.high and p.chunk.last_ts >= p.selection.low)
        return RowChanges(tuple(touched), self.starts, self.large)

    def marks(self, bounds: Sequence[int]) -> Sequence[int]:
        """Gives commit_ts of row changes, ascending: one at least of each interval of `bounds` that has any."""
        marks_of_parts = self._ask(partial(_marks, bounds=np.array(sorted(bounds), np.int64)))
        marks: list[int] = np.unique(np.concatenate([np.empty(0, np.int64), *marks_of_parts])).tolist()
        return marks

    def pieces(self, limit: Amount) -> Iterator[tuple[int | None, RowChanges]]:
        """Divides the rows into pieces of whole upstream transactions, each of about `limit`.  Gives with each piece
        the lowest commit_ts of the next one, None for the last.  What is not too large is brought to the driver."""
        for piece, following in self.cut(limit):
            yield following, piece if piece.is_large else RowChanges.here(piece.table)

    def cut(self, limit: Amount, least: int = 0) -> Iterator[tuple[RowChanges, int | None]]:
        """Divides the rows as `pieces` does, and leaves them where they are.  least: smaller transactions may stay with
        their neighbours; 0 for what the driver has room for."""
        by_bytes, average = self.amount.bytes > limit.bytes, self.amount.bytes // max(1, self.amount.rows)
        least = least or 1 + self.amount.rows // _MOST_RUNS
        runs_of_parts = self._ask(partial(_runs, least=least, row_size=None if by_bytes else average))
        runs = np.concatenate([_NO_RUNS, *runs_of_parts], axis=1)
        first, rows, sizes = runs[:, np.argsort(runs[0], kind="stable")]
        if self.starts is not None:
            first = self.starts[np.searchsorted(self.starts, first, "right") - 1]
        weights = np.maximum(rows, sizes * (limit.rows / limit.bytes)) if by_bytes else rows
        ts, low = first.tolist(), 0
        for start, end in cut_transactions(ts, limit.rows, weights):
            high = ts[end] if end < len(ts) else TS_END
            piece = self.between(low, high)
            estimate = None if piece.is_here else Amount(int(rows[start:end].sum()), int(sizes[start:end].sum()))
            yield replace(piece, estimate=estimate), None if high == TS_END else high
            low = high

    # --- what one transaction holds

    @property
    def is_large(self) -> bool:
        """Whether it is too large for the driver, whose memory does not hold it."""
        return self.large is not None and not self.is_here and self.amount.exceeds(self.large.room)

    @cached_property
    def table(self) -> pa.Table:
        """The row changes (EVENT_SCHEMA) in order, in the driver's memory."""
        return merged(self._here())

    def _here(self) -> Iterator[pa.Table]:
        return (table for part in self.parts for table in part.chunk.tables(part.selection, at_once=True))

    def tables(self) -> Mapping[TableName, RowCounts]:
        """Gives the changed tables."""
        return self._tables

    @cached_property
    def _tables(self) -> dict[TableName, RowCounts]:
        tables: dict[TableName, RowCounts] = {}
        for name, counts in (item for tables_of_part in self._ask(_tables_of) for item in tables_of_part.items()):
            earlier = tables.get(name)
            tables[name] = counts if earlier is None else earlier.plus(counts)
        return tables

    def lists(self) -> set[tuple[TableName, str, str]]:
        """Gives the column lists of images, with their tables and the keys that messages name."""
        return {names for lists_of_part in self._ask(_lists_of) for names in lists_of_part}

    def of_tables(self, names: Collection[TableName]) -> RowChanges:
        """Gives the row changes of some tables."""
        tables = self.tables()
        only = tables.keys() & set(names)
        if len(only) == len(tables):
            return self
        if not only:
            return RowChanges()
        parts = tuple(part.narrowed(only=frozenset(only)) for part in self.parts)
        share = sum(sum(tables[name]) for name in only) / sum(map(sum, tables.values()))
        estimate = None if self.is_here else Amount(*(round(share * part) for part in self.amount))
        return RowChanges(parts, self.starts, self.large, estimate)

    def changes(self, name: TableName) -> pa.Table:
        """Gives the row changes of one table (EVENT_SCHEMA), in order."""
        return self.of_tables([name]).table

    def with_changes(self, name: TableName, changes: pa.Table) -> RowChanges:
        """Replaces the row changes of one table."""
        others = self.of_tables(self.tables().keys() - {name})
        return RowChanges((*others.parts, *RowChanges.of([changes]).parts), self.starts, self.large)

    def statements(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> Iterable[Statement]:
        """Gives the statements of the net changes; those of each row come in the order of stages.

        On the driver one table comes after the other.  A server that keeps fewer tables open than a transaction has
        opens each only once then: MariaDB took 32 seconds of processor time instead of 121 for a DELETE and an INSERT
        into each of 10,000 tables (measured).
        """
        if self.large is not None and self.is_large:
            return self.large.statements(self, catalog, rendering)
        folded = None if rendering.safe_mode or rendering.in_order else self.folded
        folded = folded or self.nets(catalog, rendering)
        return chain.from_iterable(render(net, rendering) for net in folded)

    def nets(self, catalog: Mapping[TableName, Table], rendering: Rendering) -> list[NetChanges]:
        """Gives the net changes; raises as `fold` does."""
        return fold(catalog, typed(catalog, self.table, rendering.checked_types), rendering)

    def is_same(self, changes: RowChanges) -> bool:
        """Tells whether these are the very same row changes."""
        return self.count == changes.count and self.table.select(ROW_ORDER).equals(changes.table.select(ROW_ORDER))


_NO_ROWS: Final = EVENT_SCHEMA.empty_table()
_NO_RUNS: Final = np.empty((3, 0), np.int64)


def cut_transactions(
    row_ts: Sequence[int], rows_per_transaction: int, weights: npt.NDArray[Any] | None = None
) -> Iterator[tuple[int, int]]:
    """Gives index ranges of whole upstream transactions, with about equally many rows each: at most 1.5 times
    `rows_per_transaction`, unless one upstream transaction is larger.  One upstream transaction is never divided.

    row_ts: commit_ts of the rows, ascending.
    weights: as how many rows each row counts; None: each counts as one.
    """
    upto: Sequence[float] = range(1, len(row_ts) + 1) if weights is None else np.cumsum(weights).tolist()
    total = upto[-1] if upto else 0
    size = -(-total // max(1, round(total / rows_per_transaction)))
    start = 0
    while start < len(row_ts):
        end = bisect_right(upto, (upto[start - 1] if start else 0) + size)
        if end < len(row_ts):
            end = bisect_left(row_ts, row_ts[end], lo=start)
        if end == start:  # one upstream transaction is larger than that
            end = bisect_left(row_ts, row_ts[start] + 1, lo=start)
        yield start, end
        start = end


def _runs(rows: pa.Table, least: int, row_size: int | None) -> npt.NDArray[np.int64]:
    """Divides row changes in order into runs of at least so many rows that begin with a commit_ts of their own: gives
    their first commit_ts, their rows, and their bytes.  row_size: of each row; None: as each has."""
    ts = rows["commit_ts"].to_numpy()
    starts = np.flatnonzero(np.diff(ts, prepend=-1))
    if least > 1:
        starts = starts[np.unique(starts // least, return_index=True)[1]]
    counts = np.diff(starts, append=len(ts))
    is_measured = row_size is None and len(starts)
    sizes = np.add.reduceat(row_bytes(rows), starts) if is_measured else counts * (row_size or 0)
    return np.stack([ts[starts], counts, sizes])


def _marks(rows: pa.Table, bounds: Longs) -> Longs:
    """Gives the first commit_ts at or above each bound."""
    ts = rows["commit_ts"].to_numpy()
    places = np.searchsorted(ts, bounds)
    marks: Longs = ts[places[places < len(ts)]]
    return marks


def _tables_of(rows: pa.Table) -> dict[TableName, RowCounts]:
    names, codes = distinct(rows, _TABLE)
    kinds = rows["kind"].to_numpy() - int(Kind.INSERT)
    counts = np.bincount(codes * len(OPERATIONS) + kinds, minlength=len(names) * len(OPERATIONS))
    counts_of_tables = zip(names, counts.reshape(len(names), len(OPERATIONS)).tolist(), strict=True)
    return {TableName(*name): RowCounts(*of_kinds) for name, of_kinds in counts_of_tables}


def _lists_of(rows: pa.Table) -> list[tuple[TableName, str, str]]:
    lists, _ = distinct(rows, (*_TABLE, "columns", "key"))
    return [(TableName(schema, table), columns, key) for schema, table, columns, key in lists]


def _count_dropped(rows: pa.Table, begin_of: BeginOf, read_before: Mapping[PartitionId, int]) -> Dropped:
    late = Counter[PartitionId]()
    names = ("topic", "partition", "offset", "commit_ts")
    for topic, partition, offset, commit_ts in zip(*(rows[name].to_pylist() for name in names), strict=True):
        where = (topic, partition)
        late[where] += offset >= read_before.get(where, 0) and commit_ts >= begin_of(topic)
    return Dropped(+late, rows.num_rows - late.total())


def merged(tables: Iterable[pa.Table]) -> pa.Table:
    """Merges row changes of several tables, each of which is in order.  Rows behind the end of all other tables are not
    moved; mostly these are all but a few rows."""
    *others, last = sorted((table for table in tables if table.num_rows), key=_last_ts) or [_NO_ROWS]
    if not others:
        return last
    start = int(np.searchsorted(last["commit_ts"].to_numpy(), _last_ts(others[-1]), "right"))
    return pa.concat_tables([in_order(pa.concat_tables([*others, last.slice(0, start)])), last.slice(start)])


def in_order(events: pa.Table, numbers: npt.NDArray[np.int64] | None = None) -> pa.Table:
    """Sorts events by ROW_ORDER: those with the given numbers, or all."""
    numbers = np.arange(events.num_rows) if numbers is None else numbers
    keys = [_sortable(events[name])[numbers] for name in reversed(ROW_ORDER)]
    return take_rows(events, numbers[np.lexsort(keys)])  # quick where most rows are in order already


def next_offsets(events: pa.Table) -> dict[PartitionId, int]:
    """Gives the offset after the last event of each partition."""
    where, codes = partitions_of(events)
    ends = np.zeros(len(where), np.int64)
    np.maximum.at(ends, codes, events["offset"].to_numpy() + 1)
    return dict(zip(where, ends.tolist(), strict=True))


@dataclass(frozen=True)
class RowStatements:
    """Gives the statements of row changes, as often as it is asked.  in_order: as of `Rendering`."""

    rows: RowChanges
    catalog: Mapping[TableName, Table]
    in_order: frozenset[TableName] = frozenset()

    def __call__(self, rendering: Rendering) -> Iterable[Statement]:
        """Gives the statements of the net changes."""
        return self.rows.statements(self.catalog, replace(rendering, in_order=self.in_order))


def _last_ts(table: pa.Table) -> int:
    """Gives the last commit_ts of a table that is in order and not empty."""
    return int(table["commit_ts"][-1].as_py())


def _sortable(column: pa.ChunkedArray) -> npt.NDArray[np.int64]:
    """Gives numbers in the order of the column's values."""
    numbers: npt.NDArray[np.int64]
    if pa.types.is_string(column.type):
        encoded = whole_texts(column).dictionary_encode()
        numbers = pc.rank(encoded.dictionary).to_numpy()[encoded.indices.to_numpy()].astype(np.int64)
    else:
        numbers = column.to_numpy()
    return numbers
