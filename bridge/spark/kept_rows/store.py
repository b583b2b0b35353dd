"""The row changes of a micro-batch that the driver does not hold."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

import pyarrow as pa
from pyspark import StorageLevel

from bridge.model import PartitionId, TableName
from bridge.rows.amount import Amount
from bridge.rows.gathering import row_bytes
from bridge.rows.grouping import distinct
from bridge.rows.order_and_slices import BeginOf, Dropped, TableStore, in_order
from bridge.spark.event_transfer import is_file
from bridge.spark.kept_rows.chunks import CHUNK_BYTES, TS_END, Chunk, Spans, export_chunk
from bridge.spark.kept_rows.places import Home, Kept, KeptFile, Parts


@dataclass(frozen=True)
class ChunkStore:
    """Row changes in chunks.

    topics: those that they may be of.
    first_ts, last_ts: no commit ts is below first_ts or above last_ts (TSO).
    """

    home: Home
    kept: tuple[Kept, ...]
    topics: frozenset[str]
    amount: Amount
    first_ts: int
    last_ts: int

    @classmethod
    def of(cls, home: Home, rows: pa.Table, chunk_bytes: int = CHUNK_BYTES) -> ChunkStore:
        """Makes a store of row changes (EVENT_SCHEMA, in any order) that are in the driver's memory.
        chunk_bytes: about the most of a chunk; never more than CHUNK_BYTES."""
        topics = frozenset(topic for (topic,) in distinct(rows, ("topic",))[0])
        kept = tuple(_kept(home, in_order(rows), min(chunk_bytes, CHUNK_BYTES))) if rows.num_rows else ()
        ts = rows["commit_ts"].to_numpy()
        amount = Amount(len(ts), int(row_bytes(rows).sum()))
        return cls(home, kept, topics, amount, int(ts.min(initial=TS_END)), int(ts.max(initial=-1)))

    def from_ts(self, ts: int) -> ChunkStore:  # noqa: ARG002
        """Returns the store itself: changes below ts are left out when the rows are read."""
        return self

    def with_rows(self, rows: pa.Table) -> ChunkStore:
        """Returns the store with more row changes, which are in the driver's memory."""
        more = ChunkStore.of(self.home, rows)
        return ChunkStore(
            self.home,
            self.kept + more.kept,
            self.topics | more.topics,
            Amount.total([self.amount, more.amount]),
            min(self.first_ts, more.first_ts),
            max(self.last_ts, more.last_ts),
        )

    def overlaps(self, low: int, high: int) -> bool:
        """Tells whether the store may hold row changes with low <= commit_ts < high."""
        return self.first_ts < high and self.last_ts >= low

    def without(self, name: TableName) -> ChunkStore:
        """Returns the store without the row changes of one table; its amount stays as it is."""
        kept = (replace(one, wanted=one.wanted._replace(without=one.wanted.without | {name})) for one in self.kept)
        return replace(self, kept=tuple(kept))

    def from_begins(self, begins: Mapping[str, int]) -> ChunkStore:
        """Returns the store without the changes below the beginning (TSO) of their topic."""
        kept = (replace(one, wanted=one.wanted._replace(begins=dict(begins))) for one in self.kept)
        left = replace(self, kept=tuple(kept))
        return replace(left, amount=Spans.joined(left.parts(0, TS_END).each(Chunk.spans)).amount)

    def count_below(self, ts: int, begin_of: BeginOf, read_before: Mapping[PartitionId, int]) -> Dropped:
        """Counts the changes below ts: late ones, and those that were read before."""
        dropped = Dropped(Counter(), Counter())
        if self.first_ts < ts:
            count = partial(_dropped, ts=ts, begins={topic: begin_of(topic) for topic in self.topics}, read=read_before)
            for found in self.parts(0, ts).spread(partial(map, count)).collect():
                dropped.late.update(found.late)
                dropped.repeated.update(found.repeated)
        return dropped

    def parts(self, low: int, high: int) -> Parts:
        """Returns the chunks for the row changes with low <= commit_ts < high."""
        return Parts(self.home, self.kept, low, high)


def _dropped(chunk: Chunk, ts: int, begins: Mapping[str, int], read: Mapping[PartitionId, int]) -> Dropped:
    return TableStore(chunk.rows()).count_below(ts, begins.__getitem__, read)


def _kept(home: Home, rows: pa.Table, chunk_bytes: int) -> list[Kept]:
    """Writes row changes in order as chunks; those that are not files are given to Spark."""
    size = max(1, rows.num_rows * chunk_bytes // max(1, rows.nbytes))
    files, others = list[KeptFile](), list[bytes]()
    for start in range(0, rows.num_rows, size):
        some = rows.slice(start, size)
        value, ts = export_chunk(some, home.folder), some["commit_ts"].to_numpy()
        if is_file(value):
            files.append(KeptFile(value, int(ts[0]), int(ts[-1])))
        else:
            others.append(value)
    if not others:
        return [Kept(tuple(files))]
    given = home.context.parallelize(others, len(others)).persist(StorageLevel.DISK_ONLY)
    given.localCheckpoint()
    given.count()
    return [Kept(tuple(files), (given,))]
