"""Decodes micro-batches of Spark's stream in parts, and gives them to the applier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Final, TypeVar

import structlog
from pyspark.sql import DataFrame

from bridge.errors import SourceError
from bridge.model import PartitionId
from bridge.pipeline.applier_thread import ApplierThread
from bridge.pipeline.order import Order
from bridge.protocols import DecodeOptions
from bridge.rows.amount import Amount
from bridge.rows.grouping import distinct
from bridge.sources.kafka.topic_guard import TopicGuard
from bridge.sources.part_size import PartSize
from bridge.sources.source import READING, MicroBatch, Stream
from bridge.spark.decoded_batch import DecodedBatch
from bridge.spark.event_transfer import TooLargeError
from bridge.spark.worker_decoder import event_decoder

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

log = structlog.get_logger()
_T = TypeVar("_T")


class Intake:
    """Takes decoded micro-batches from foreachBatch, sorts them and gives them to the applier.

    order: makes batches for the applier, and tells how much waits and whether rows may stay on the executors.
    room: how much may wait in the driver before batches stay on the executors.
    topics: checks that the messages come from the same topics as at the start.
    writers: how many tasks write large steps; 0 where the driver does.
    most_bytes: about how many bytes of events are decoded at a time.
    limit: the most messages of a micro-batch.
    """

    def __init__(
        self,
        protocol: str,
        options: DecodeOptions,
        order: Order,
        worker: ApplierThread,
        room: Amount,
        topics: TopicGuard,
        writers: int,
        *,
        most_bytes: int,
        limit: int,
    ) -> None:
        self._order, self._worker, self._room, self._topics = order, worker, room, topics
        self._writers, self._limit, self.most_bytes = writers, limit, most_bytes
        self._part_size = PartSize(limit, most_bytes)
        self._known = set(order.positions)
        self.decode = event_decoder(protocol, options)
        self._ends: dict[PartitionId, int] = {}
        self._accepted_at = time.monotonic()
        self._closed, self._ended = threading.Event(), threading.Event()

    # --- what the stream asks

    def wait(self, seconds: float) -> bool:
        return self._closed.wait(seconds)

    def planned(self, plan: Callable[[], _T | None]) -> _T | None:
        """Calls what plans a micro-batch.  When it gives None, the stream has come to its end; a failure becomes the
        applier's.  In both cases this returns once the intake is closed, so that Spark begins nothing more."""
        try:
            if (found := plan()) is not None:
                return found
            self._ended.set()
        except BaseException as error:  # noqa: BLE001  # nothing after it may be read
            self._worker.fail(error)
        self._closed.wait()
        return None

    def size(self) -> int:
        writers = self._writers_apart
        if writers:
            least = min(_LEAST_STAYING, _TIMES_STAYING * self._part_size.by_rate)
            stays = self._part_size.wanted(self._limit, processes=writers, least=least)
            if stays >= LARGE:
                return stays
        return self._part_size.wanted()

    def stays(self, messages: int | None) -> bool:
        is_written_there = (messages or 0) >= LARGE and self._writers_apart > 0
        return is_written_there or not self._has_room

    # --- what foreachBatch gives

    def take(self, stream: Stream, chunks: DataFrame, _: int) -> None:
        """Has a micro-batch of a stream decoded, and gives it to the applier; foreachBatch calls it.  Returns when the
        applier has a place for it.  A failure becomes the applier's."""
        try:
            self._worker.phases.decoding(begins=True)
            if all(self._accepted(*one) for one in self._parts(stream, chunks)):
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
        there = self._topics.partitions(self._closed.is_set)
        if there is None:
            return False
        self._follow_on(part)
        decoded = self._with_added_partitions(there, decoded)
        if self._order.takes_rows:
            decoded = decoded.divided()
        if not self._worker.offer(decoded, self._closed.is_set):
            return False
        self._worker.fold_ahead(decoded)
        self._topics.end.answered(READING)
        before, self._accepted_at = self._accepted_at, time.monotonic()
        self._part_size.note(part.messages or 0, self._accepted_at - before)
        return True

    def _parts(self, stream: Stream, chunks: DataFrame) -> Iterator[tuple[MicroBatch, DecodedBatch]]:
        """Gives a micro-batch; one that is too large is read again in parts."""
        whole = stream.batch
        try:
            decoded = stream.taken(chunks)
        except TooLargeError as error:
            self._part_size.did_not_fit(whole.messages or 0, error.decoded)
        else:
            yield self._fitting(whole, decoded, is_cut=whole.is_cut)
            return
        rest: MicroBatch | None = whole
        while rest is not None and not self._closed.is_set():
            part, remaining = rest.split(self.size())
            try:
                decoded = stream.part(part)
            except TooLargeError as error:
                self._part_size.did_not_fit(part.messages or 0, error.decoded)
                continue
            yield self._fitting(part, decoded, is_cut=whole.is_cut or remaining is not None)
            rest = remaining

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

    def _with_added_partitions(self, there: set[PartitionId], decoded: DecodedBatch) -> DecodedBatch:
        """Adds the partitions of which nothing was read yet.  The planner finds added partitions later than Kafka
        has them, and they may hold changes below the boundaries that were read."""
        added = there - self._known - decoded.read.keys()
        self._known |= there | decoded.read.keys()
        if not added:
            return decoded
        log.info("partition_added", partitions=sorted(added))
        return replace(decoded, read={**decoded.read, **dict.fromkeys(added, 0)})
