"""Chunks: row changes in order, kept as a file or as bytes, of which any part is read without the rest.

A chunk has Arrow's file format.  It is cut into blocks of few rows, and says of each which commit_ts it holds, and how
much.  That answers most of what is asked of a window, and a read takes only the blocks that it needs.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import cached_property
from types import MappingProxyType
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_SCHEMA
from bridge.model import TableName
from bridge.rows.amount import Amount
from bridge.rows.gathering import row_bytes
from bridge.rows.grouping import Bools, Longs
from bridge.rows.order_and_slices import DriverRows, TableRows, in_order
from bridge.spark.event_transfer import exported, opened

TS_END: Final = (1 << 63) - 1
"""A TSO above every commit ts."""
CHUNK_BYTES: Final = 32 << 20
"""About the most bytes of a chunk: a task holds one at a time."""
_BLOCK: Final = Amount(1024, 1 << 20)
"""About how much a block holds.  A window that ends inside a block costs one read of it."""
_INDEX: Final = b"blocks"
_TABLES: Final = b"tables"


class Spans(NamedTuple):
    """Runs of row changes: their first and last commit_ts, the number of their rows, and their bytes."""

    first: Longs
    last: Longs
    rows: Longs
    bytes: Longs

    @classmethod
    def joined(cls, some: Iterable[Spans]) -> Spans:
        """Puts runs together, in the order of their first commit_ts."""
        found = cls(*map(np.concatenate, zip(_NO_SPANS, *some, strict=True)))
        return found.of(np.argsort(found.first, kind="stable"))

    @classmethod
    def of_rows(cls, rows: pa.Table, starts: Longs) -> Spans:
        """Makes runs of row changes in order: one begins at each of the starts, of which the first is 0."""
        ts = rows["commit_ts"].to_numpy()
        ends = np.append(starts[1:], len(ts))
        return cls(ts[starts], ts[ends - 1], ends - starts, np.add.reduceat(row_bytes(rows), starts))

    def of(self, which: Longs | Bools) -> Spans:
        """Gives some of the runs."""
        return Spans(*(column[which] for column in self))

    @property
    def amount(self) -> Amount:
        """How much they hold together."""
        return Amount(int(self.rows.sum()), int(self.bytes.sum()))


_NO_SPANS: Final = Spans(*(np.empty(0, np.int64) for _ in Spans._fields))


class Wanted(NamedTuple):
    """Which row changes of a chunk are meant: those with low <= commit_ts < high that are not below the beginning of
    their topic (TSO), nor of the tables in `without`."""

    low: int = 0
    high: int = TS_END
    begins: Mapping[str, int] = MappingProxyType({})
    without: frozenset[TableName] = frozenset()

    def between(self, low: int, high: int) -> Wanted:
        """Gives the part with low <= commit_ts < high."""
        return self._replace(low=max(low, self.low), high=min(high, self.high))

    def of(self, rows: pa.Table) -> pa.Table:
        """Gives those of the row changes, which are in order, that are meant."""
        start, end = np.searchsorted(rows["commit_ts"].to_numpy(), [self.low, self.high])
        rows = rows.slice(start, end - start)
        for topic, begin in self.begins.items():
            is_below = pc.and_(pc.equal(rows["topic"], topic), pc.less(rows["commit_ts"], begin))
            rows = rows.filter(pc.invert(is_below))
        for name in self.without:
            rows = rows.filter(pc.invert(_is_of(rows, name)))
        return rows


class ChunkIndex(NamedTuple):
    """What a chunk says of itself: its blocks, and its tables, pickled."""

    blocks: Spans
    tables: bytes

    @classmethod
    def of(cls, value: bytes) -> ChunkIndex:
        """Reads it.  value: what `export_chunk` returned."""
        metadata = pa.ipc.open_file(opened(value)).schema.metadata
        blocks = np.frombuffer(metadata[_INDEX], np.int64)
        return cls(Spans(*blocks.reshape(-1, len(Spans._fields)).T), metadata[_TABLES])


class Chunk:
    """A chunk to be read.

    value: what `export_chunk` returned.
    index: its index; whoever asks many chunks, and often, keeps it, since to open one takes longer than most answers.
    """

    def __init__(self, value: bytes, index: ChunkIndex, wanted: Wanted) -> None:
        self._value, self._wanted = value, wanted
        self._blocks, self._tables = index

    def rows(self) -> pa.Table:
        """Reads the row changes that are meant (EVENT_SCHEMA), in order."""
        return self._read(np.flatnonzero(self._is_touched))

    def of_table(self, name: TableName) -> pa.Table:
        """Reads those of one table."""
        rows = self.rows()
        return rows.filter(_is_of(rows, name))

    def tables(self) -> dict[TableName, TableRows]:
        """Gives the changed tables."""
        if self._is_whole.all():
            found: dict[TableName, TableRows] = pickle.loads(self._tables)
            return found
        return DriverRows(self.rows()).tables()

    def spans(self) -> Spans:
        """Gives the blocks, without what is not meant."""
        is_whole = self._is_whole
        parts = self._read_each(self._is_touched & ~is_whole)
        return Spans.joined(
            [self._blocks.of(is_whole), *(Spans.of_rows(rows, np.zeros(1, np.int64)) for rows in parts)]
        )

    def moments(self) -> Spans:
        """Gives the row changes that are meant, by their commit_ts."""
        return Spans.joined(
            Spans.of_rows(rows, np.unique(rows["commit_ts"].to_numpy(), return_index=True)[1])
            for rows in self._read_each(self._is_touched)
        )

    def marks(self, bounds: Sequence[int]) -> Longs:
        """Gives commit_ts of row changes that are meant, ascending: at least one for each interval between `bounds`
        that holds any."""
        limits, blocks = np.array(sorted(bounds), np.int64), self._blocks
        first, last = (np.searchsorted(limits, ts, "right") for ts in (blocks.first, blocks.last))
        is_known = self._is_whole & (last - first <= 1)  # the intervals of its ends are all that it reaches into
        read = [rows["commit_ts"].to_numpy() for rows in self._read_each(self._is_touched & ~is_known)]
        return np.unique(np.concatenate([blocks.first[is_known], blocks.last[is_known], *read]))

    @property
    def _is_touched(self) -> Bools:
        return (self._blocks.first < self._wanted.high) & (self._blocks.last >= self._wanted.low)

    @property
    def _is_whole(self) -> Bools:
        """Tells which blocks hold nothing but what is meant, as far as their commit_ts tell."""
        low, high, begins, without = self._wanted
        is_inside = (self._blocks.first >= low) & (self._blocks.last < high)
        return is_inside & (not begins and not without)

    def _read(self, blocks: Longs) -> pa.Table:
        if not len(blocks):
            return EVENT_SCHEMA.empty_table()
        batches = [self._file.get_batch(number) for number in blocks.tolist()]
        return self._wanted.of(pa.Table.from_batches(batches, self._file.schema).replace_schema_metadata())

    @cached_property
    def _file(self) -> pa.ipc.RecordBatchFileReader:
        return pa.ipc.open_file(opened(self._value))

    def _read_each(self, which: Bools) -> Iterator[pa.Table]:
        """Reads blocks one by one, but for those that hold nothing that is meant."""
        return (rows for number in np.flatnonzero(which) if (rows := self._read(np.array([number]))).num_rows)


def export_chunk(rows: pa.Table, folder: str | None) -> bytes:
    """Writes row changes (EVENT_SCHEMA, in any order) as one chunk, and returns it: the name of its file, or its bytes
    (`event_transfer.exported`)."""
    ordered = in_order(rows)
    starts = np.array(list(_starts(row_bytes(ordered))), np.int64)
    index = np.stack(Spans.of_rows(ordered, starts), axis=1)
    tables = pickle.dumps(DriverRows(ordered).tables())
    schema = EVENT_SCHEMA.with_metadata({_INDEX: np.ascontiguousarray(index).tobytes(), _TABLES: tables})

    def write(sink: pa.NativeFile) -> None:
        with pa.ipc.new_file(sink, schema) as file:
            for start, count in zip(starts.tolist(), index[:, 2].tolist(), strict=True):
                block = ordered.slice(start, count).combine_chunks()
                file.write_table(block.replace_schema_metadata(schema.metadata))

    return exported(write, ordered.nbytes, folder)


def _starts(sizes: Longs) -> Iterator[int]:
    """Tells where blocks begin among rows of these sizes."""
    upto, start = np.cumsum(sizes), 0
    while start < len(sizes):
        yield start
        reach = (upto[start - 1] if start else 0) + _BLOCK.bytes
        start = min(start + _BLOCK.rows, max(start + 1, int(np.searchsorted(upto, reach, "right"))))


def _is_of(rows: pa.Table, name: TableName) -> pa.ChunkedArray:
    return pc.and_(pc.equal(rows["schema"], name.schema), pc.equal(rows["table"], name.table))
