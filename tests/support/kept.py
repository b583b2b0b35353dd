"""Row changes that the driver does not hold, made of events that are here."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, TypeVar, cast

import pyarrow as pa

from bridge.model import PartitionId
from bridge.pipeline.decoded_batch import SortedBatch, batch_on_executors
from bridge.protocols.batch_decode import EventDecoder, packed, unpacked
from bridge.sources.source import Export, MicroBatch
from bridge.spark.kept_rows.places import Home
from bridge.spark.kept_rows.store import ChunkStore

if TYPE_CHECKING:
    from pyspark import RDD
    from pyspark.sql import SparkSession

_T = TypeVar("_T")


@dataclass(frozen=True)
class _TwoTasks:
    """A micro-batch whose events two tasks have decoded, every second one each."""

    spark: SparkSession
    events: pa.Table
    folder: str | None
    ends: dict[PartitionId, int] = field(default_factory=dict)

    def decoded(self, decode: EventDecoder, export: Export[_T]) -> RDD[_T]:
        """What tasks leave."""
        del decode
        numbers = pa.array(range(self.events.num_rows), pa.int64())
        halves = [packed(self.events.take(numbers[half::2])) for half in (0, 1)]
        tasks = self.spark.sparkContext.parallelize(halves, 2)
        return tasks.mapPartitions(lambda values: export(unpacked([value]) for value in values))


def kept_batch(spark: SparkSession, events: pa.Table, folder: str | None = None) -> SortedBatch:
    """The events as a micro-batch whose row changes the driver does not hold.  folder: for their files."""

    def decode(messages: object) -> Iterator[pa.Table]:
        raise AssertionError(messages)

    return batch_on_executors(cast(MicroBatch, _TwoTasks(spark, events, folder)), decode)


def kept_store(spark: SparkSession, rows: pa.Table, folder: str | None = None) -> ChunkStore:
    """Row changes that the driver does not hold."""
    return ChunkStore.of(Home(spark.sparkContext, folder), rows)
