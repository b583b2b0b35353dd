"""Streams the micro-batches of a source as chunks of decoded events, through the data source `bridge-chunks`."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Final, Protocol, TypeVar

from pyspark import RDD, cloudpickle
from pyspark.sql import DataFrame, SparkSession

from bridge.model import PartitionId
from bridge.protocols.batch_decode import EventDecoder
from bridge.sources.part_size import FEW
from bridge.sources.source import Export, MicroBatch, Pace, Read, Wait
from bridge.spark.decoded_batch import DecodedBatch, collected, staying_chunks
from bridge.spark.event_transfer import Chunk, coming_chunks, transfer_folder
from bridge.spark.source.chunk_source import FOLDER, NAME, ChunkSource, Offsets, answering, nested

_T = TypeVar("_T")
_LEEWAY: Final = 2
"""A task may return this many times its share of the bytes, since the messages of one topic differ in size."""


class Planner(Protocol):
    """Plans the micro-batches of a stream, one after the other."""

    @property
    def ends(self) -> Mapping[PartitionId, int]:
        """Where the partitions ended when they were last looked at."""

    def next(self, wait: Wait, most: Callable[[], int]) -> MicroBatch | None:
        """Waits for messages, and plans a micro-batch of them; None at the end of the stream.

        most: tells about the most messages of it.
        """


class ChunkStream:
    """The micro-batches of a planner, as chunks.  It answers Spark's questions about them (`plans.Plans`).

    starts: where the stream begins.
    """

    def __init__(self, planner: Planner, starts: Mapping[PartitionId, int]) -> None:
        self._planner, self._next = planner, dict(starts)
        self._batch: MicroBatch | None = None
        self._pace: Pace | None = None
        self._spark: SparkSession | None = None
        self._folder: str | None = None
        self._options: dict[str, str] = {}
        self._stays = False

    @contextmanager
    def frame(self, spark: SparkSession, folder: str, pace: Pace) -> Iterator[DataFrame]:
        self._spark, self._pace, self._options = spark, pace, {FOLDER: folder}
        self._folder = transfer_folder(spark, folder)
        spark.dataSource.register(ChunkSource)
        with answering(self, folder):
            yield spark.readStream.format(NAME).options(**self._options).load()

    @property
    def batch(self) -> MicroBatch:
        if self._batch is None:  # Spark begins the first micro-batch although the stream was over
            raise EOFError("nothing was planned")  # as where the driver has ended: who has asked ends
        return self._batch

    def taken(self, chunks: DataFrame) -> DecodedBatch:
        return collected(chunks, stay=self._stays)

    def part(self, part: MicroBatch) -> DecodedBatch:
        assert self._spark is not None
        self._batch, self._stays = part, False
        return self.taken(self._spark.read.format(NAME).options(**self._options).load())

    def initial(self) -> Offsets:
        return nested(self._next)

    def latest(self) -> Offsets:
        """Waits for messages, and plans a micro-batch of them."""
        pace = self._required_pace
        batch = pace.planned(partial(self._planner.next, pace.wait, pace.size))
        if batch is not None:
            self._batch, self._stays = batch, pace.stays(batch.messages)
            self._next.update(batch.ends)
        return nested(self._next)

    def known(self) -> Offsets:
        return nested({**self._next, **self._planner.ends})

    def tasks(self) -> list[bytes]:
        """Divides the micro-batch among the cores; few messages go to one task."""
        pace, batch = self._required_pace, self.batch
        assert self._spark is not None
        is_small = batch.messages is not None and batch.messages <= FEW
        plan = batch.reads(1 if is_small else self._spark.sparkContext.defaultParallelism)
        if self._stays:
            export: Export[Chunk] = partial(staying_chunks, folder=self._folder)
        else:
            most = _LEEWAY * pace.most_bytes / max(1, len(plan)) if batch.is_divisible else math.inf
            export = partial(coming_chunks, folder=self._folder, most_bytes=most)
        return [bytes(cloudpickle.dumps(partial(_decoded, pace.decode, export, read))) for read in plan]  # type: ignore[no-untyped-call]

    @property
    def _required_pace(self) -> Pace:
        assert self._pace is not None
        return self._pace


def decoded(spark: SparkSession, batch: MicroBatch, decode: EventDecoder, export: Export[_T]) -> RDD[_T]:
    """Reads and decodes a micro-batch in tasks, and leaves there what `export` makes of the events of each."""
    plan = batch.reads(spark.sparkContext.defaultParallelism)

    def work(numbers: Iterable[int]) -> Iterator[_T]:
        for number in numbers:
            yield from _decoded(decode, export, plan[number])

    return spark.sparkContext.parallelize(range(len(plan)), max(1, len(plan))).mapPartitions(work)


def _decoded(decode: EventDecoder, export: Export[_T], read: Read) -> Iterator[_T]:
    return export(decode(read()))
