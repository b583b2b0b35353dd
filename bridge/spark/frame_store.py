"""Row changes of a micro-batch that stay where they are, on Spark's executors."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import reduce
from typing import Final, NamedTuple

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
"""About how many bytes a row change takes (SQL)."""
_ROW_TOTALS: Final = (
    f"count_if({_IS_ROW})",
    f"ifnull(sum({ROW_BYTES}) FILTER (WHERE {_IS_ROW}), 0)",
    f"min(commit_ts) FILTER (WHERE {_IS_ROW})",
    f"max(commit_ts) FILTER (WHERE {_IS_ROW})",
)
TS_END: Final = (1 << 63) - 1
"""Above every commit_ts."""
_SENT_BYTES: Final = 8 << 20
"""The bytes of row changes that the driver sends to the executors at once."""


@dataclass(frozen=True)
class FrameStore:
    """Row changes of one micro-batch as a checkpointed DataFrame (EVENT_SCHEMA)."""

    frame: DataFrame
    amount: Amount
    first_ts: int
    last_ts: int

    def from_ts(self, ts: int) -> FrameStore:  # noqa: ARG002
        """The store itself: what is below is left out when the rows are asked for."""
        return self

    @classmethod
    def all_of(cls, spark: SparkSession, rows: pa.Table) -> list[FrameStore]:
        """Stores of row changes that come from the driver, at least one; a store without rows has no first and last ts.

        What is sent stays in the JVM's memory as long as the frame made of it, and each task takes it along.  When
        there is much, each part is therefore written to the disk.
        """
        if rows.nbytes <= _SENT_BYTES:
            return [cls._sent(spark, rows)]
        size = max(1, rows.num_rows * _SENT_BYTES // rows.nbytes)
        parts = (cls._sent(spark, rows.slice(start, size)) for start in range(0, rows.num_rows, size))
        return [replace(part, frame=checkpointed(part.frame)) for part in parts]

    @classmethod
    def of(cls, spark: SparkSession, rows: pa.Table) -> FrameStore:
        """One store of row changes that come from the driver."""
        return reduce(cls._joined, cls.all_of(spark, rows))

    @classmethod
    def _sent(cls, spark: SparkSession, rows: pa.Table) -> FrameStore:
        frame = spark.createDataFrame(rows, from_arrow_schema(EVENT_SCHEMA))
        low, high = (pc.min_max(rows["commit_ts"]).as_py()[end] for end in ("min", "max"))
        return cls(frame, Amount.of(rows), *((low, high) if rows.num_rows else (TS_END, -1)))

    def with_rows(self, rows: pa.Table) -> FrameStore:
        """The store with more row changes, which come from the driver."""
        return self._joined(FrameStore.of(self.frame.sparkSession, rows))

    def _joined(self, more: FrameStore) -> FrameStore:
        first = min(self.first_ts, more.first_ts) if self.amount.rows else more.first_ts
        amount, last = Amount.total([self.amount, more.amount]), max(self.last_ts, more.last_ts)
        return FrameStore(self.frame.unionByName(more.frame), amount, first, last)

    def overlaps(self, low: int, high: int) -> bool:
        """Whether it may hold row changes with low <= commit_ts < high."""
        return self.first_ts < high and self.last_ts >= low

    def where(self, condition: Column) -> FrameStore:
        """The row changes that meet a condition; the first and last ts stay."""
        return replace(self, frame=self.frame.where(condition))

    def from_begins(self, begins: Mapping[str, int]) -> FrameStore:
        """The store without the changes that lie below the beginning of their topic."""
        is_below = ((F.col("topic") == topic) & (F.col("commit_ts") < begin) for topic, begin in begins.items())
        kept = self.frame.where(~reduce(Column.__or__, is_below, F.lit(False)))
        return replace(self, frame=kept, amount=Amount(kept.count(), self.amount.bytes))

    def count_below(self, ts: int, begin_of: BeginOf, read_before: Mapping[PartitionId, int]) -> Dropped:
        """Counts the changes below ts, late ones and repeated ones apart."""
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
    """The frame, computed once and kept on the disk.  Spark's memory is small, and checks only now and then whether
    another row fits."""
    return frame.localCheckpoint(True, StorageLevel.DISK_ONLY)


class OnExecutors(NamedTuple):
    """The events of a micro-batch whose row changes stay on the executors.

    others: events that are no row changes (EVENT_SCHEMA), in the order of their positions.
    read: the offset behind the last one of each partition.
    by_time: whether any event lacks a TSO.
    """

    store: FrameStore
    others: pa.Table
    read: dict[PartitionId, int]
    by_time: bool


def on_executors(events: DataFrame) -> OnExecutors:
    """Divides events (EVENT_SCHEMA) into row changes, which stay where they are, and others.

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
