"""Keeps the row changes of a micro-batch on Spark's executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from pyspark import StorageLevel
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812
from pyspark.sql.pandas.types import from_arrow_schema

from bridge.events import EVENT_SCHEMA, Kind
from bridge.model import PartitionId
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import (
    BeginOf,
    Dropped,
)

_IS_ROW: Final = f"kind <= {int(Kind.DELETE)}"
ROW_BYTES: Final = "64 + " + " + ".join(f"ifnull(octet_length({text}), 0)" for text in ("columns", "before", "after"))
"""About how many bytes a row change takes, as a Spark SQL expression."""
_ROW_TOTALS: Final = (
    f"count_if({_IS_ROW})",
    f"ifnull(sum({ROW_BYTES}) FILTER (WHERE {_IS_ROW}), 0)",
    f"min(commit_ts) FILTER (WHERE {_IS_ROW})",
    f"max(commit_ts) FILTER (WHERE {_IS_ROW})",
)
TS_END: Final = (1 << 63) - 1
"""A TSO above every commit ts."""
Batches = Iterable[pa.RecordBatch]
_SENT_BYTES: Final = 8 << 20
"""The most bytes of row changes in one DataFrame that the driver makes."""


@dataclass(frozen=True)
class FrameStore:
    """Row changes of one micro-batch as a checkpointed DataFrame (EVENT_SCHEMA).

    first_ts, last_ts: no commit ts is below first_ts or above last_ts (TSO).
    """

    frame: DataFrame
    amount: Amount
    first_ts: int
    last_ts: int

    def from_ts(self, ts: int) -> FrameStore:  # noqa: ARG002
        """Returns the store itself: changes below ts are filtered out when the rows are read."""
        return self

    @classmethod
    def all_of(cls, spark: SparkSession, rows: pa.Table) -> list[FrameStore]:
        """Makes stores of row changes that are in the driver's memory; at least one, which may be empty.

        A DataFrame made of local rows keeps them in the JVM's memory, and sends them with each task.  When there are
        many bytes, the rows are therefore divided, and each part is written to the executors' disks.
        """
        if rows.nbytes <= _SENT_BYTES:
            return [cls._from_driver(spark, rows)]
        size = max(1, rows.num_rows * _SENT_BYTES // rows.nbytes)
        parts = (cls._from_driver(spark, rows.slice(start, size)) for start in range(0, rows.num_rows, size))
        return [replace(part, frame=checkpointed(part.frame)) for part in parts]

    @classmethod
    def of(cls, spark: SparkSession, rows: pa.Table) -> FrameStore:
        """Makes one store of row changes that are in the driver's memory."""
        return reduce(cls._union, cls.all_of(spark, rows))

    @classmethod
    def _from_driver(cls, spark: SparkSession, rows: pa.Table) -> FrameStore:
        frame = spark.createDataFrame(rows, from_arrow_schema(EVENT_SCHEMA))
        low, high = (pc.min_max(rows["commit_ts"]).as_py()[end] for end in ("min", "max"))
        return cls(frame, Amount.of(rows), *((low, high) if rows.num_rows else (TS_END, -1)))

    def with_rows(self, rows: pa.Table) -> FrameStore:
        """Returns the store with more row changes, which are in the driver's memory."""
        return self._union(FrameStore.of(self.frame.sparkSession, rows))

    def _union(self, more: FrameStore) -> FrameStore:
        first = min(self.first_ts, more.first_ts) if self.amount.rows else more.first_ts
        amount, last = Amount.total([self.amount, more.amount]), max(self.last_ts, more.last_ts)
        return FrameStore(self.frame.unionByName(more.frame), amount, first, last)

    def overlaps(self, low: int, high: int) -> bool:
        """Tells whether the store may hold row changes with low <= commit_ts < high."""
        return self.first_ts < high and self.last_ts >= low

    def where(self, condition: Column) -> FrameStore:
        """Returns a store of the row changes that meet a condition; its first and last ts stay as they are."""
        return replace(self, frame=self.frame.where(condition))

    def from_begins(self, begins: Mapping[str, int]) -> FrameStore:
        """Returns the store without the changes below the beginning (TSO) of their topic."""
        is_below = ((F.col("topic") == topic) & (F.col("commit_ts") < begin) for topic, begin in begins.items())
        kept = self.frame.where(~reduce(Column.__or__, is_below, F.lit(False)))
        return replace(self, frame=kept, amount=Amount(kept.count(), self.amount.bytes))

    def count_below(self, ts: int, begin_of: BeginOf, read_before: Mapping[PartitionId, int]) -> Dropped:
        """Counts the changes below ts: late ones, and those that were read before."""
        dropped = Dropped(Counter(), Counter())
        if self.first_ts >= ts:
            return dropped
        below = self.frame.where(F.col("commit_ts") < ts)
        for topic, partition in below.select("topic", "partition").distinct().collect():
            is_late = (F.col("offset") >= read_before.get((topic, partition), 0)) & (
                F.col("commit_ts") >= begin_of(topic)
            )
            mine = below.where((F.col("topic") == topic) & (F.col("partition") == partition))
            late = mine.where(is_late).count()
            dropped.late.update({(topic, partition): late} if late else {})
            dropped.repeated.update({(topic, partition): mine.count() - late})
        return dropped


def checkpointed(frame: DataFrame) -> DataFrame:
    """Computes the frame once and keeps it on the executors' disks: their memory is small, and Spark checks only now
    and then whether another row fits."""
    return frame.localCheckpoint(True, StorageLevel.DISK_ONLY)


class OnExecutors(NamedTuple):
    """The events of a micro-batch whose row changes stay on the executors.

    others: events that are not row changes (EVENT_SCHEMA), in the order of their positions.
    read: the offset after the last one of each partition.
    by_time: whether any event lacks a TSO.
    """

    store: FrameStore
    others: pa.Table
    read: dict[PartitionId, int]
    by_time: bool


def on_executors(events: DataFrame) -> OnExecutors:
    """Divides events (EVENT_SCHEMA) into row changes, which stay on the executors, and others, which are collected.

    Raises what Spark raises when a task fails.
    """
    kept = checkpointed(events)
    read: dict[PartitionId, int] = {}
    amount, first_ts, last_ts, by_time = Amount(0, 0), 0, -1, False
    for topic, partition, last_offset, lacks_tso, count, size, low, high in (
        kept.groupBy("topic", "partition")
        .agg(F.max("offset"), F.bool_or("by_time"), *map(F.expr, _ROW_TOTALS))
        .collect()
    ):
        read[topic, partition] = last_offset + 1
        by_time = by_time or lacks_tso
        if count:
            first_ts = min(low, first_ts) if amount.rows else low
            amount, last_ts = Amount.total([amount, Amount(count, size)]), max(last_ts, high)
    others = kept.where(f"NOT {_IS_ROW}").orderBy("topic", "partition", "offset", "index").toArrow()
    return OnExecutors(FrameStore(kept.where(_IS_ROW), amount, first_ts, last_ts), others, read, by_time)


def measure_intervals(bounds: Sequence[int]) -> Callable[[Batches], Iterator[pa.RecordBatch]]:
    """Makes a function for mapInArrow, whose input is commit_ts and bytes of row changes.

    For each batch and each interval between `bounds` it yields: number of the interval, lowest commit_ts, rows, bytes.
    """
    limits = np.array(sorted(bounds), np.int64)

    def parted(batches: Batches) -> Iterator[pa.RecordBatch]:
        for batch in filter(len, batches):
            ts, sizes = (column.to_numpy() for column in batch.columns)
            order = np.argsort(ts)
            place = np.searchsorted(limits, ts[order], "right")
            interval, first, rows = np.unique(place, return_index=True, return_counts=True)
            found = (interval.astype(np.int32), ts[order[first]], rows, np.add.reduceat(sizes[order], first))
            yield pa.RecordBatch.from_arrays(list(map(pa.array, found)), names=["interval", "first", "rows", "bytes"])

    return parted
