"""The stream of Kafka messages and its micro-batches, which are read where they are decoded."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, ClassVar, Final, TypeVar

import pyarrow as pa
from pyspark import RDD, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from bridge.model import PartitionId
from bridge.protocols.batch_decode import EventDecoder, Messages
from bridge.sources.kafka.offset_planner import OffsetPlanner
from bridge.sources.kafka.offset_ranges import OffsetRange, shares, split_ranges
from bridge.sources.kafka.range_reader import process_reader
from bridge.sources.source import Export, Pace, Session, Taken
from bridge.spark.event_transfer import TooLargeError, export_tables, import_events, transfer_folder
from bridge.spark.kept_rows.keeping import export_kept, keep
from bridge.spark.source.chunk_source import FOLDER, NAME, ChunkSource
from bridge.spark.source.plans import Offsets, answering, nested

_T = TypeVar("_T")
FEW: Final = 2_000
"""So many messages are one task: a task costs more than it saves for fewer."""
_LEEWAY = 2
"""A task may return this many times its share of the bytes, since the messages of one topic differ in size."""


class KafkaStream:
    """The messages of Kafka topics, as a stream of the data source `bridge-chunks`, whose questions it answers.

    nothing: a micro-batch without messages, of which all others are made.
    starts: where the stream begins.
    """

    trigger: ClassVar[Mapping[str, Any]] = {"processingTime": "0 seconds"}

    def __init__(self, planner: OffsetPlanner, nothing: KafkaBatch, starts: Mapping[PartitionId, int]) -> None:
        self._planner, self._batch = planner, nothing
        self._next = dict(starts)
        self._pace: Pace | None = None
        self._slots, self._stays = 1, False

    @contextmanager
    def frame(self, spark: SparkSession, folder: str, pace: Pace) -> Iterator[DataFrame]:
        """Gives the stream of chunks, and answers its questions in the block."""
        self._pace, self._slots = pace, spark.sparkContext.defaultParallelism
        self._batch = replace(self._batch, folder=transfer_folder(spark, folder))
        spark.dataSource.register(ChunkSource)
        with answering(self, folder):
            yield spark.readStream.format(NAME).option(FOLDER, folder).load()

    def taken(self, chunks: DataFrame) -> Taken:
        """Collects the chunks of the micro-batch that was planned last, or what the driver has to know of them."""
        batch = self._batch
        if self._stays:
            return Taken(batch, kept=keep(chunks.rdd.map(_chunk), batch.folder))
        try:
            return Taken(batch, import_events(map(_chunk, chunks.collect())))
        except TooLargeError as error:
            return Taken(batch, too_large=error)

    def initial(self) -> Offsets:
        """Gives where the stream begins."""
        return nested(self._next)

    def latest(self) -> Offsets:
        """Waits for messages, and plans a micro-batch of them."""
        pace = self._required_pace
        plan = pace.planned(partial(self._planner.next, pace.wait, pace.size))
        if plan is not None:
            self._batch = replace(self._batch, ranges=plan.ranges, is_cut=plan.is_cut)
            self._stays = pace.stays(self._batch.messages)
            self._next.update(self._batch.ends)
        return nested(self._next)

    def known(self) -> Offsets:
        """Gives where the partitions ended when the planner last looked."""
        return nested({**self._next, **self._planner.ends})

    def tasks(self) -> list[bytes]:
        """Divides the micro-batch among the cores; few messages go to one task."""
        pace, batch = self._required_pace, self._batch
        plan = shares(batch.ranges, self._slots if batch.messages > FEW else 1)
        most = math.inf if batch.messages <= 1 else _LEEWAY * pace.most_bytes / max(1, len(plan))
        if self._stays:
            export: Export[bytes] = partial(export_kept, folder=batch.folder)
        else:
            export = partial(export_tables, folder=batch.folder, most_bytes=most)
        work = partial(_decoded, pace.decode, export, batch.properties)
        return [bytes(cloudpickle.dumps(partial(work, share))) for share in plan]  # type: ignore[no-untyped-call]

    @property
    def _required_pace(self) -> Pace:
        assert self._pace is not None
        return self._pace


def _decoded(
    decode: EventDecoder, export: Export[bytes], properties: tuple[tuple[str, str], ...], ranges: list[OffsetRange]
) -> Iterator[bytes]:
    return export(decode(process_reader(properties).read(ranges)))


def _chunk(row: tuple[Any, ...]) -> bytes:
    return bytes(row[0])


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
