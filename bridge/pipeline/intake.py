"""Answers what Spark asks of its stream, and gives the applier the micro-batches, decoded, in parts where they are
large."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

import structlog
from pyspark.sql import DataFrame, SparkSession

from bridge.config import StreamSection
from bridge.errors import SourceError
from bridge.model import PartitionId
from bridge.pipeline.applier import ApplierThread
from bridge.pipeline.order import Order
from bridge.protocols.batch_decode import EventDecoder
from bridge.rows.gathering import Amount, distinct
from bridge.sources.decoding_tasks import decoding_tasks
from bridge.sources.kafka.topic_guard import TopicGuard
from bridge.sources.part_size import FEW, PartSize
from bridge.sources.source import READING, MicroBatch, Planner
from bridge.spark.chunk_source import FOLDER, NAME, ChunkSource, Offsets, answering, nested, pickled
from bridge.spark.decoded_batch import DecodedBatch, collected, staying_chunks
from bridge.spark.event_transfer import TooLargeError, coming_chunks
from bridge.spark.shards import Home

LARGE: Final = 50_000
"""A micro-batch with fewer messages comes to the driver, which writes most of its steps: a Spark job costs more than it
saves."""
_LEAST_STAYING: Final = 4 * LARGE
"""Parts whose row changes executors write have so many messages, if there are so many, also when the target is slow:
each step costs a Spark job, and the driver writes those that are not large.  A TiDB on the same two cores took
45,000 rows a second so, and 37,000 in parts of two seconds; of the driver that took 0.1 and 0.5 seconds of processor
time for a million (measured)."""
_TIMES_STAYING: Final = 4
"""They have at most so many times what is applied in two seconds.  A stop breaks off what takes longer than ten
(`cli.pipeline_run`), and verify waits ten for the end of a step."""
_LEEWAY: Final = 2
"""A task may return this many times its share of the bytes, since the messages of one topic differ in size."""

log = structlog.get_logger()


class Intake:
    """Has micro-batches planned when Spark asks for them (`chunk_source.Plans`), takes them from foreachBatch, decoded,
    sorts them and gives them to the applier.

    planner: of the stream, which begins at the positions of the order.
    topics: checks that the messages come from the same topics as at the start.
    writers: how many tasks write large steps; 0 where the driver does.
    largest: how much a part of a micro-batch holds at most.
    home: where tasks leave files.
    """

    def __init__(
        self,
        planner: Planner,
        decode: EventDecoder,
        settings: StreamSection,
        order: Order,
        worker: ApplierThread,
        topics: TopicGuard,
        writers: int,
        largest: Amount,
        home: Home,
    ) -> None:
        self._planner, self._decode, self._order, self._worker = planner, decode, order, worker
        self._topics, self._writers, self._home = topics, writers, home
        self._limit, self._most_bytes = settings.messages_per_batch, settings.bytes_at_once
        self._room = Amount(settings.driver_rows - largest.rows, settings.driver_bytes - largest.bytes)
        self._part_size = PartSize(self._limit, self._most_bytes)
        self._partitions = set(order.positions)
        self._next = {where: start.offset for where, start in order.positions.items()}
        self._batch: MicroBatch | None = None
        self._stays = False
        self._ends: dict[PartitionId, int] = {}
        self._accepted_at = time.monotonic()
        self._closed, self._ended = threading.Event(), threading.Event()

    # --- what Spark asks

    @contextmanager
    def frame(self, spark: SparkSession, folder: str) -> Iterator[DataFrame]:
        """Gives what Spark streams, for as long as the block lasts.  folder: the query's."""
        spark.dataSource.register(ChunkSource)
        with answering(self, folder):
            self._again = spark.read.format(NAME).option(FOLDER, folder)
            yield spark.readStream.format(NAME).option(FOLDER, folder).load()

    def initial(self) -> Offsets:
        return nested(self._next)

    def latest(self) -> Offsets:
        """Waits for messages, and plans a micro-batch of them.  At the end of the stream, and where planning fails, it
        returns once the intake is closed, so that Spark begins nothing more.  The failure becomes the applier's."""
        try:
            batch = self._planner.next(self._closed.wait, self._size)
            if batch is not None:
                self._batch, self._stays = batch, self._may_stay(batch.messages)
                self._next.update(batch.ends)
                return nested(self._next)
            self._ended.set()
        except BaseException as error:  # noqa: BLE001  # nothing after it may be read
            self._worker.fail(error)
        self._closed.wait()
        return nested(self._next)

    def newest(self) -> Offsets:
        return nested({**self._next, **self._planner.ends})

    @property
    def _planned(self) -> MicroBatch:
        if self._batch is None:  # Spark begins the first micro-batch although the stream was over
            raise EOFError("nothing was planned")  # as where the driver has ended: who has asked ends
        return self._batch

    def tasks(self) -> list[bytes]:
        batch, folder = self._planned, self._home.folder
        is_small = batch.messages is not None and batch.messages <= FEW  # few messages go to one task
        count = 1 if is_small else self._home.context.defaultParallelism
        most = _LEEWAY * self._most_bytes / count if batch.is_divisible else math.inf
        coming = partial(coming_chunks, folder=folder, most_bytes=most)
        export = partial(staying_chunks, folder=folder) if self._stays else coming
        return list(map(pickled, decoding_tasks(batch, count, self._decode, export)))

    def _size(self) -> int:
        """Tells how many messages the next micro-batch should have."""
        writers = self._writers_apart
        if writers:
            least = min(_LEAST_STAYING, _TIMES_STAYING * self._part_size.by_rate)
            stays = self._part_size.next_size(self._limit, processes=writers, least=least)
            if stays >= LARGE:
                return stays
        return self._part_size.next_size()

    def _may_stay(self, messages: int | None) -> bool:
        """Tells whether the row changes of a micro-batch stay where they are decoded."""
        is_written_there = (messages or 0) >= LARGE and self._writers_apart > 0
        return is_written_there or not self._has_room

    # --- what foreachBatch gives

    def take(self, chunks: DataFrame, _: int) -> None:
        """Gives the micro-batch that was planned last to the applier, decoded; foreachBatch calls it.  Returns when the
        applier has a place for it.  A failure becomes the applier's."""
        try:
            self._worker.phases.decoding(begins=True)
            if all(self._accepted(*part) for part in self._parts(chunks)):
                return
        except BaseException as error:  # noqa: BLE001  # nothing after it may be applied
            self._worker.fail(error)
        finally:
            self._worker.phases.decoding(begins=False)
        self._closed.wait()

    def wait_for_end(self, seconds: float) -> bool:
        """Waits up to `seconds` until the stream has come to its end; returns whether it has."""
        return self._ended.wait(seconds)

    def close(self) -> None:
        """Gives the applier nothing more."""
        self._closed.set()

    def _accepted(self, part: MicroBatch, decoded: DecodedBatch) -> bool:
        """Gives a part to the applier; False when nobody takes it any more."""
        partitions = self._topics.partitions(self._closed.is_set)
        if partitions is None:
            return False
        self._follow_on(part)
        decoded = self._with_added_partitions(partitions, decoded)
        if self._order.takes_rows:
            decoded = decoded.divided()
        if not self._worker.offer(decoded, self._closed.is_set):
            return False
        self._worker.fold_ahead(decoded)
        self._topics.end.answered(READING)
        before, self._accepted_at = self._accepted_at, time.monotonic()
        self._part_size.note(part.messages or 0, self._accepted_at - before)
        return True

    def _parts(self, chunks: DataFrame) -> Iterator[tuple[MicroBatch, DecodedBatch]]:
        """Gives a micro-batch; one that is too large is read again in parts."""
        whole = self._planned
        try:
            decoded = collected(chunks, stay=self._stays)
        except TooLargeError as error:
            self._part_size.did_not_fit(whole.messages or 0, error.decoded)
        else:
            yield self._fitting(whole, decoded, is_cut=whole.is_cut)
            return
        rest: MicroBatch | None = whole
        while rest is not None and not self._closed.is_set():
            part, remaining = rest.split(self._size())
            try:
                decoded = self._read_again(part)
            except TooLargeError as error:
                self._part_size.did_not_fit(part.messages or 0, error.decoded)
                continue
            yield self._fitting(part, decoded, is_cut=whole.is_cut or remaining is not None)
            rest = remaining

    def _read_again(self, part: MicroBatch) -> DecodedBatch:
        self._batch, self._stays = part, False
        return collected(self._again.load(), stay=False)

    def _fitting(self, part: MicroBatch, decoded: DecodedBatch, *, is_cut: bool) -> tuple[MicroBatch, DecodedBatch]:
        if part.messages and not decoded.parts:
            self._part_size.fitted(part.messages, decoded.events.nbytes)
            self._part_size.had_tables(len(distinct(decoded.events, ("schema", "table"))[0]))
        return part, decoded.ending_at(part.ends, is_cut=is_cut)

    @property
    def _has_room(self) -> bool:
        """Whether the next part is brought to the driver."""
        return not self._order.takes_rows or not self._order.waiting.exceeds(self._room)

    @property
    def _writers_apart(self) -> int:
        """How many tasks write large steps; 0 where row changes may not stay with the executors."""
        return self._writers if self._order.takes_rows else 0

    def _follow_on(self, part: MicroBatch) -> None:
        """Raises SourceError unless a part begins where the last one ended: progress would pass the messages between
        them."""
        for where, start in part.starts.items():
            if self._ends.get(where, start) != start:
                raise SourceError(
                    f"messages were skipped: after offset {self._ends[where]} the next one read was {start}",
                    where=f"{where[0]}/{where[1]}",
                    fix="nothing after the gap is in the target; start the bridge again, and report this",
                )
        self._ends.update(part.ends)

    def _with_added_partitions(self, partitions: set[PartitionId], decoded: DecodedBatch) -> DecodedBatch:
        """Adds the partitions of which nothing was read yet.  The planner finds added partitions later than Kafka
        has them, and they may hold changes below the boundaries that were read."""
        added = partitions - self._partitions - decoded.read.keys()
        self._partitions |= partitions | decoded.read.keys()
        if not added:
            return decoded
        log.info("partition_added", partitions=sorted(added))
        return replace(decoded, read={**decoded.read, **dict.fromkeys(added, 0)})
