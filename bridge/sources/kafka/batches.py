"""The stream of Kafka messages and its micro-batches, which are read where they are decoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, TypeVar

import pyarrow as pa
from pyspark import RDD
from pyspark.sql import DataFrame, SparkSession

from bridge.model import PartitionId
from bridge.protocols.batch_decode import EventDecoder, Messages
from bridge.sources.kafka.offset_planner import OffsetPlanner, Plan
from bridge.sources.kafka.offset_ranges import OffsetRange, shares, split_ranges
from bridge.sources.kafka.range_reader import process_reader
from bridge.sources.source import Export, Session, Wait
from bridge.spark.event_transfer import export_tables, import_events, transfer_folder

_T = TypeVar("_T")
_LEEWAY = 2
"""A task may return this many times its share of the bytes, since the messages of one topic differ in size."""


class KafkaStream:
    """The messages of Kafka topics.  Spark's stream is only a clock: it calls foreachBatch again as soon as the call
    before has returned, and the planner then waits for messages.

    nothing: a micro-batch without messages, of which all others are made.
    """

    trigger: ClassVar[Mapping[str, Any]] = {"processingTime": "0 seconds"}

    def __init__(self, planner: OffsetPlanner, nothing: KafkaBatch) -> None:
        self._planner, self._nothing = planner, nothing

    def ahead(self, most: int, wait: Wait) -> KafkaBatch | None:
        """Waits for messages, and returns the ranges of about so many at most."""
        return self._batch(self._planner.next(wait, most))

    def frame(self, spark: SparkSession, folder: str) -> DataFrame:
        """Returns the clock.  From now on executors on this machine transfer events to the driver as files in
        `folder`."""
        self._nothing = replace(self._nothing, folder=transfer_folder(spark, folder))
        return spark.readStream.format("rate-micro-batch").option("rowsPerBatch", 1).load()

    def next(self, batch: DataFrame, wait: Wait) -> KafkaBatch | None:  # noqa: ARG002
        """Waits for messages, and returns their ranges."""
        return self._batch(self._planner.next(wait))

    def _batch(self, plan: Plan | None) -> KafkaBatch | None:
        return None if plan is None else replace(self._nothing, ranges=plan.ranges, is_cut=plan.is_cut)


@dataclass(frozen=True)
class KafkaBatch:
    """The messages of some offset ranges.

    spark: see Session.  Few messages are read without it.
    properties: properties of the Kafka client that reads them, sorted.
    folder: the folder in which executors on this machine leave events for the driver; None sends them through Spark.
    is_cut: see MicroBatch.
    """

    spark: Session
    ranges: list[OffsetRange]
    properties: tuple[tuple[str, str], ...]
    folder: str | None = None
    is_cut: bool = False

    @property
    def messages(self) -> int:
        """The most messages that the ranges can hold."""
        return sum(wanted.size for wanted in self.ranges)

    @property
    def starts(self) -> dict[PartitionId, int]:
        """The first offset of each range."""
        return {(wanted.topic, wanted.partition): wanted.start for wanted in self.ranges}

    @property
    def ends(self) -> dict[PartitionId, int]:
        """The end (exclusive) of each range."""
        return {(wanted.topic, wanted.partition): wanted.end for wanted in self.ranges}

    def split(self, size: int) -> tuple[KafkaBatch, KafkaBatch | None]:
        """Cuts the range of each partition in the same proportion, so that boundaries of all partitions arrive
        together.  When `size` is less than the number of partitions, the first part reads only some of them."""
        wanted, others = self.ranges[:size], self.ranges[size:]
        first, rest = split_ranges(wanted, max(1, -(-sum(one.size for one in wanted) // size)))
        rest = [*others, *rest]
        return replace(self, ranges=first), replace(self, ranges=rest) if rest else None

    def read(self) -> Iterator[Messages]:
        """Reads the messages in this process.  Only the thread of the micro-batch may call this."""
        return process_reader(self.properties).read(self.ranges)

    def collected(self, decode: EventDecoder, most_bytes: float) -> pa.Table:
        """Reads and decodes in one task for each core, whatever the number of partitions, and collects the events.

        An RDD passes the bytes on unchanged; as rows of a DataFrame they cost the JVM three times as much.
        """
        plan = self._plan()
        most = math.inf if self.messages <= 1 else _LEEWAY * most_bytes / max(1, len(plan))
        export = partial(export_tables, folder=self.folder, most_bytes=most)
        return import_events(self._exported(plan, decode, export).collect())

    def decoded(self, decode: EventDecoder, export: Export[_T]) -> RDD[_T]:
        """Reads and decodes in one task for each core, whatever the number of partitions."""
        return self._exported(self._plan(), decode, export)

    def _exported(self, plan: list[list[OffsetRange]], decode: EventDecoder, export: Export[_T]) -> RDD[_T]:
        read = self._reader(decode)
        tasks = self.spark().sparkContext.parallelize(range(len(plan)), max(1, len(plan)))
        return tasks.mapPartitions(lambda numbers: export(read(plan, numbers)))

    def _plan(self) -> list[list[OffsetRange]]:
        return shares(self.ranges, self.spark().sparkContext.defaultParallelism)

    def _reader(self, decode: EventDecoder) -> Callable[[list[list[OffsetRange]], Iterable[int]], Iterator[pa.Table]]:
        properties = self.properties

        def read(plan: list[list[OffsetRange]], numbers: Iterable[int]) -> Iterator[pa.Table]:
            for number in numbers:
                yield from decode(process_reader(properties).read(plan[number]))

        return read
