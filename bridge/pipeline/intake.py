"""Decodes micro-batches of Spark's stream in parts, and gives them to the applier."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from functools import partial
from typing import Any, Final, NamedTuple

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame

from bridge.errors import SourceError
from bridge.events import EVENT_SCHEMA
from bridge.model import PartitionId
from bridge.pipeline.applier_thread import ApplierThread
from bridge.pipeline.order import DecodedBatch, Order
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import decode_messages
from bridge.rows.amount import Amount
from bridge.rows.grouping import distinct
from bridge.sources.kafka.topic_guard import TopicGuard
from bridge.sources.part_size import DRIVER_DECODES, PartSize
from bridge.sources.prefetch import prefetched
from bridge.sources.source import READING, MicroBatch, Stream
from bridge.spark.event_transfer import TooLargeError, limited
from bridge.spark.kept_rows.large_steps import LARGE
from bridge.spark.process_memory import return_freed_memory
from bridge.spark.worker_decoder import event_decoder

_ON_EXECUTORS: Final = 2
"""Parts that stay on the executors may be so many times larger: each piece of a window scans whole parts, so they
should be few."""
_LEAST_STAYING: Final = 4 * LARGE.rows
"""Parts whose row changes executors write have so many messages, if there are so many, also when the target is slow:
each step costs some Spark jobs, and the driver writes those that are not large.  A TiDB on the same two cores took
45,000 rows a second so, and 37,000 in parts of two seconds; of the driver that took 0.1 and 0.5 seconds of processor
time for a million (measured)."""
_TIMES_STAYING: Final = 4
"""They have at most so many times what is applied in two seconds.  A stop breaks off what takes longer than ten
(`stop_signals`), and verify waits ten for the end of a step."""
_LIGHT_SHARE: Final = 16
"""When the driver has no room for more, it still decodes a micro-batch that takes at most 1/16 of what it may decode at
once."""
_TICK_SECONDS: Final = 0.2

log = structlog.get_logger()


class _Waiting(NamedTuple):
    """A micro-batch.  is_ahead: taken before Spark takes any; the driver decodes it as long as it has room."""

    batch: MicroBatch
    is_taken: threading.Event
    is_ahead: bool = False


class Intake:
    """Accepts micro-batches from foreachBatch.  A thread decodes them and gives them to the applier, while the
    next one is planned.

    order: makes batches for the applier, and tells how much waits and whether rows may stay on the executors.
    room: how much may wait in the driver before batches stay on the executors.
    topics: checks that the messages come from the same topics as at the start.
    writers: tells how many executors write large steps themselves; 0 while the driver does.
    bytes_at_once: about how many bytes of events are decoded at a time.
    limit: the most messages of a micro-batch.
    """

    def __init__(
        self,
        protocol: str,
        options: DecodeOptions,
        order: Order[Any],
        worker: ApplierThread,
        room: Amount,
        topics: TopicGuard,
        writers: Callable[[], int],
        *,
        bytes_at_once: int,
        limit: int,
    ) -> None:
        self._order, self._worker, self._room, self._topics = order, worker, room, topics
        self._writers, self._limit, self._most_bytes = writers, limit, bytes_at_once
        self._part_size = PartSize(limit, bytes_at_once)
        self._known = set(order.positions)
        self._decode = event_decoder(protocol, options)
        self._decoder = make_decoder(protocol, options)
        self._ends: dict[PartitionId, int] = {}
        self._waiting: queue.Queue[_Waiting | None] = queue.Queue(maxsize=1)  # None: nothing more comes
        self._closed, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="intake", daemon=True)
        self._ahead: threading.Thread | None = None
        self._ahead_is_over, self._may_decode = threading.Event(), threading.Event()

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def take_ahead(self, stream: Stream) -> None:
        """Starts a thread that takes micro-batches of a stream without Spark, small ones, which the driver decodes.

        It ends when the executors may decode and Spark calls `take`, when the stream has come to its end, or when the
        intake is closed; a failure becomes the applier's.
        """
        self._ahead = threading.Thread(target=self._take_ahead, args=(stream,), name="intake-ahead", daemon=True)
        self._ahead.start()

    def executors_may_decode(self) -> None:
        """Lets Spark take what the driver takes ahead until then."""
        self._may_decode.set()

    def take(self, stream: Stream, batch: DataFrame, _: int) -> None:
        """Takes the next micro-batch of a stream; foreachBatch calls it.

        Returns when at most one micro-batch waits.  One whose messages only Spark can read (capture files) must be
        processed before this returns.  When the stream has come to its end, or fails, this returns once the intake is
        closed, so that Spark begins nothing more; a failure becomes the applier's.
        """
        self._end_ahead()
        coming = self._next_of(partial(stream.next, batch, self._closed.wait))
        if coming is not None:
            self._hand_over(_Waiting(coming, threading.Event()))
        else:
            self._ended.set()
            self._closed.wait()

    def _take_ahead(self, stream: Stream) -> None:
        is_over, most = self._ahead_is_over.wait, DRIVER_DECODES
        while not is_over(0.0) and not self._ended.is_set():
            coming = self._next_of(partial(stream.ahead, most, is_over))
            if coming is not None:
                self._hand_over(_Waiting(coming, threading.Event(), is_ahead=True))
                most = self._part_size.ahead if coming.is_cut else DRIVER_DECODES
            elif not is_over(0.0):
                self._ended.set()

    def _end_ahead(self) -> None:
        if self._ahead is None:
            return
        while not self._may_decode.wait(_TICK_SECONDS) and self._is_taking():
            pass
        self._ahead_is_over.set()
        self._ahead.join()

    def _next_of(self, plan: Callable[[], MicroBatch | None]) -> MicroBatch | None:
        try:
            return plan()
        except BaseException as error:  # noqa: BLE001  # nothing after it may be read
            self._worker.fail(error)
            return None

    @property
    def has_ended(self) -> bool:
        """Whether the stream has come to its end."""
        return self._ended.is_set()

    def wait_for_end(self, seconds: float) -> bool:
        """Waits up to `seconds` until the stream has come to its end; returns whether it has."""
        return self._ended.wait(seconds)

    def _hand_over(self, coming: _Waiting) -> None:
        while self._is_taking():
            with suppress(queue.Full):
                self._waiting.put(coming, timeout=_TICK_SECONDS)
                break
        while coming.batch.messages is None and self._is_taking() and not coming.is_taken.wait(_TICK_SECONDS):
            pass

    def wait_until_done(self, seconds: float) -> bool:
        """Waits up to `seconds` until all accepted micro-batches were processed; returns whether they were.  Afterwards
        no more may be accepted."""
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=seconds)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self, seconds: float | None = None) -> None:
        """Accepts nothing more, and waits for the end of the thread, so long at most."""
        self._closed.set()
        self._ahead_is_over.set()
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _is_taking(self) -> bool:
        return self._thread.is_alive() and not self._closed.is_set()

    def _work(self) -> None:
        try:
            while waiting := self._next_batch():
                self._worker.phases.decoding(begins=True)
                self._process(waiting)
                self._worker.phases.decoding(begins=False)
                waiting.is_taken.set()
        except BaseException as error:  # noqa: BLE001  # nothing after it may be applied
            self._worker.fail(error)

    def _next_batch(self) -> _Waiting | None:
        while not self._closed.is_set() and self._worker.failure is None:
            with suppress(queue.Empty):
                return self._waiting.get(timeout=_TICK_SECONDS)
        return None

    def _process(self, waiting: _Waiting) -> None:
        """Decodes a micro-batch in parts, so that it takes less memory and the applier can begin sooner."""
        began = time.monotonic()
        for part, decoded in self._decoded_parts(waiting):
            there = self._topics.partitions(self._closed.is_set)
            if there is None:
                return
            self._follow_on(part)
            decoded = self._with_added_partitions(there, decoded)
            if not self._worker.offer(decoded, self._closed.is_set):
                return
            self._worker.fold_ahead(decoded)
            self._topics.end.answered(READING)
            self._part_size.note(part.messages or 0, time.monotonic() - began)
            began = time.monotonic()

    def _decoded_parts(self, waiting: _Waiting) -> Iterator[tuple[MicroBatch, DecodedBatch]]:
        """Yields each part, decoded; the next one is decoded while the caller works.  Ends when the intake is closed:
        after a restart, the bridge reads again what was not applied."""
        for part, decoded in prefetched(self._parts(waiting), "decoding"):
            yield part, decoded()
            if self._closed.is_set():
                return

    def _parts(self, waiting: _Waiting) -> Iterator[tuple[MicroBatch, _Decoded]]:
        """Decodes part after part.  One that is too large is divided again."""
        batch = waiting.batch
        rest: MicroBatch | None = batch if batch.messages != 0 else None
        while rest is not None and not self._closed.is_set():
            part, remaining = rest.split(self._size())
            try:
                is_cut = batch.is_cut or remaining is not None
                decoded = self._decoded(part, is_ahead=waiting.is_ahead, is_cut=is_cut)
            except TooLargeError as error:
                self._part_size.did_not_fit(part.messages or 0, error.found)
                continue
            yield part, decoded
            rest = remaining

    def _size(self) -> int:
        """Returns the number of messages of the next part."""
        writers = self._writers_apart
        if writers:
            least = min(_LEAST_STAYING, _TIMES_STAYING * self._part_size.by_rate)
            stays = self._part_size.wanted(self._limit, processes=writers, least=least)
            if stays >= LARGE.rows:
                return stays
        return self._part_size.wanted(processes=1 if self._has_room else _ON_EXECUTORS)

    @property
    def _has_room(self) -> bool:
        """Whether the next part is brought to the driver."""
        return self._order.on_executors is None or not self._order.held.exceeds(self._room)

    @property
    def _writers_apart(self) -> int:
        """How many executors write large steps themselves; 0 where row changes may not stay there."""
        return self._writers() if self._order.on_executors is not None else 0

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
        return decoded.with_partitions(sorted(added))

    def _decoded(self, batch: MicroBatch, *, is_ahead: bool, is_cut: bool) -> _Decoded:
        is_small = is_ahead or (batch.messages is not None and batch.messages <= DRIVER_DECODES)
        is_light = is_small and (batch.messages or 0) * _LIGHT_SHARE <= self._part_size.by_memory
        stays = (batch.messages or 0) >= LARGE.rows and self._writers_apart > 0
        has_room = self._has_room and not stays
        if is_light or (has_room and is_small):
            events = self._decoded_here(batch)
        elif has_room or self._order.on_executors is None:
            events = batch.collected(self._decode, self._most_bytes)
        else:
            staying = self._order.on_executors(batch, self._decode)
            return lambda: staying
        if batch.messages:
            self._part_size.fitted(batch.messages, events.nbytes)
            self._part_size.had_tables(len(distinct(events, ("schema", "table"))[0]))
        return lambda: self._order.batch(events, batch.ends, is_cut=is_cut)

    def _decoded_here(self, batch: MicroBatch) -> pa.Table:
        some = (decode_messages(self._decoder, messages, return_freed_memory) for messages in batch.read())
        most = self._most_bytes if batch.messages != 1 else math.inf
        return pa.concat_tables([EVENT_SCHEMA.empty_table(), *limited(some, most)])


_Decoded = Callable[[], DecodedBatch]
"""Sorts a decoded part.  It is called by the thread that gives the part to the applier, so that the next part is
decoded meanwhile."""
