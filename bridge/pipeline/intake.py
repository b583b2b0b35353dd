"""Between the stream and the applier: micro-batches are decoded and handed over."""

from __future__ import annotations

import math
import queue
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
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
from bridge.sources.range_reader import prefetched
from bridge.sources.source import MicroBatch, MicroBatches
from bridge.sources.topic_guard import TopicGuard
from bridge.spark.event_transfer import TooLargeError, limited
from bridge.spark.process_memory import return_freed_memory
from bridge.spark.worker_decoder import event_decoder

DRIVER_DECODES: Final = 2_000
"""A micro-batch of at most so many messages is decoded on the driver, without a Spark job: for few messages, Python
workers cost more than they bring (measured: 0.1 s)."""

SECONDS_AT_ONCE: Final = 2.0
"""As many messages are read at a time as have lately been decoded, and taken by the applier, in so many seconds."""
LEAST_AT_ONCE: Final = 10_000
MOST_AT_ONCE: Final = 100_000
FIRST_AT_ONCE: Final = 50_000
"""The first are wanted soon: until they are there, the target has nothing to do."""
_ANY: Final = 1 << 40
_FILLED: Final = 0.75
_GROWTH: Final = 4
_ON_EXECUTORS: Final = 2
"""Parts that stay on the executors may be so many times as large; every piece of a window looks through whole ones."""
_LIGHT: Final = 16
"""Messages that are decoded on the driver although it has no room for more take at most this part of what it may take
at once."""
_TICK_SECONDS: Final = 0.2

log = structlog.get_logger()


class PartSize:
    """Decides how many messages are read at a time, from the rate at which they are applied, and their size.

    most: the most messages.  most_bytes: about the most bytes that they take once they are decoded.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self.by_rate = most, min(most, FIRST_AT_ONCE)
        self._most_bytes, self.by_memory = most_bytes, _ANY

    def note(self, messages: int, seconds: float) -> None:
        """Learns that so many messages were decoded and taken by the applier in so many seconds.  Few of them say
        nothing of the rate."""
        if messages > DRIVER_DECODES:
            rate = messages / max(seconds, 1e-3)
            self.by_rate = min(self._most, max(LEAST_AT_ONCE, round(rate * SECONDS_AT_ONCE)))

    def fitted(self, messages: int, size: int) -> None:
        """Learns that so many messages took `size` bytes.  A quarter of the room stays free for larger ones, and a few
        small ones do not say that what follows is small."""
        messages_that_fit = _FILLED * self._most_bytes * messages // max(1, size)
        self.by_memory = max(1, min(int(messages_that_fit), _GROWTH * max(self.by_memory, messages)))

    def did_not_fit(self, messages: int, found: Amount) -> None:
        """Learns that so many messages took too many bytes.  found: what was decoded of them."""
        self.by_memory = max(1, min(messages // 2, int(_FILLED * self._most_bytes * found.rows // found.bytes)))


class _Waiting(NamedTuple):
    batch: MicroBatch
    is_taken: threading.Event


class Intake:
    """Takes in what foreachBatch is given: a thread of its own decodes it and hands it over to the applier, while Spark
    plans the next micro-batch.

    order: takes the batches; says whether they may stay on the executors, and how much waits.
    room: how much may wait in the driver before batches stay on the executors.
    topics: checks that the messages come from the topics that were there at the start.
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
        *,
        bytes_at_once: int,
        limit: int,
    ) -> None:
        self._order, self._worker, self._room, self._topics = order, worker, room, topics
        self._limit, self._most_bytes = limit, bytes_at_once
        self._part_size = PartSize(min(limit, MOST_AT_ONCE), bytes_at_once)
        self._known = set(order.positions)
        self._decode = event_decoder(protocol, options)
        self._decoder = make_decoder(protocol, options)
        self._ends: dict[PartitionId, int] = {}
        self._waiting: queue.Queue[_Waiting | None] = queue.Queue(maxsize=1)  # None: nothing more comes
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="intake", daemon=True)

    def start(self) -> None:
        """Begins to take micro-batches."""
        self._thread.start()

    def hand_over(self, micro_batches: MicroBatches, batch: DataFrame, batch_id: int) -> None:
        """Takes one micro-batch from Spark.  At most one waits here; Spark waits for its end only where nobody else can
        read it."""
        coming = _Waiting(micro_batches(batch, batch_id), threading.Event())
        while self._is_taking():
            with suppress(queue.Full):
                self._waiting.put(coming, timeout=_TICK_SECONDS)
                break
        while coming.batch.messages is None and self._is_taking() and not coming.is_taken.wait(_TICK_SECONDS):
            pass

    def finished(self, seconds: float) -> bool:
        """Waits so many seconds for everything that came to be taken, and says whether it was.  Nothing more may
        come."""
        if self._thread.is_alive():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=seconds)
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def close(self) -> None:
        """Takes nothing any more, and waits until what is being taken is taken, or given up."""
        self._closed.set()
        if self._thread.is_alive():
            self._thread.join()

    def _is_taking(self) -> bool:
        return self._thread.is_alive() and not self._closed.is_set()

    def _work(self) -> None:
        try:
            while waiting := self._next():
                self._take(waiting.batch)
                waiting.is_taken.set()
        except BaseException as error:  # noqa: BLE001  # what lies behind must not be taken then
            self._worker.fail(error)

    def _next(self) -> _Waiting | None:
        while not self._closed.is_set() and self._worker.failure is None:
            with suppress(queue.Empty):
                return self._waiting.get(timeout=_TICK_SECONDS)
        return None

    def _take(self, batch: MicroBatch) -> None:
        """Hands a micro-batch over in parts: less of it is held in memory, and the applier has something sooner."""
        # Spark shares the limit out among the partitions, and rounds.
        is_full = batch.messages is not None and batch.messages + len(batch.ends) >= self._limit
        began = time.monotonic()
        for part, decoded in self._decoded_parts(batch, is_cut=is_full):
            there = self._topics.partitions(self._closed.is_set)
            if there is None:
                return
            self._follow_on(part)
            if not self._worker.offer(self._admitting(there, decoded), self._closed.is_set):
                return
            self._part_size.note(part.messages or 0, time.monotonic() - began)
            began = time.monotonic()

    def _decoded_parts(self, batch: MicroBatch, *, is_cut: bool) -> Iterator[tuple[MicroBatch, DecodedBatch]]:
        """Gives each part, decoded; decodes the next one while one is handed over.  Ends when the intake is closed: the
        next bridge reads again what was not taken."""
        for part, decoded in prefetched(self._parts(batch, is_cut=is_cut), "decoding"):
            yield part, decoded()
            if self._closed.is_set():
                return

    def _parts(self, batch: MicroBatch, *, is_cut: bool) -> Iterator[tuple[MicroBatch, _Decoded]]:
        """Decodes part after part; divides one anew that turns out to be too large."""
        rest: MicroBatch | None = batch if batch.messages != 0 else None
        while rest is not None and not self._closed.is_set():
            part, behind = rest.split(self._size())
            try:
                decoded = self._decoded(part, is_cut=is_cut or behind is not None)
            except TooLargeError as error:
                self._part_size.did_not_fit(part.messages or 0, error.found)
                continue
            yield part, decoded
            rest = behind

    def _size(self) -> int:
        """How many messages the next part has."""
        if not self._has_room:
            return min(self._part_size.by_rate, _ON_EXECUTORS * self._part_size.by_memory)
        return min(self._part_size.by_rate, self._part_size.by_memory)

    @property
    def _has_room(self) -> bool:
        """Whether what comes next is brought to the driver."""
        return self._order.on_executors is None or not self._order.held.exceeds(self._room)

    def _follow_on(self, part: MicroBatch) -> None:
        """Checks that a part begins where the last one ended; otherwise progress would pass what lies between."""
        for where, start in part.starts.items():
            if self._ends.get(where, start) != start:
                raise SourceError(
                    f"messages were left out: offset {self._ends[where]} was to be read next, and {start} came",
                    where=f"{where[0]}/{where[1]}",
                    fix="nothing behind the gap is in the target; start the bridge again, and report this",
                )
        self._ends.update(part.ends)

    def _admitting(self, there: set[PartitionId], decoded: DecodedBatch) -> DecodedBatch:
        """The batch with the partitions that Kafka shows and nothing was read of: Spark learns of new ones later, and
        what they hold may be earlier than the boundaries at hand."""
        added = there - self._known - decoded.read.keys()
        self._known |= there | decoded.read.keys()
        if not added:
            return decoded
        log.info("a partition was added; it is waited for like the others", partitions=sorted(added))
        return decoded.admitting(sorted(added))

    def _decoded(self, batch: MicroBatch, *, is_cut: bool) -> _Decoded:
        is_small = batch.messages is not None and batch.messages <= DRIVER_DECODES
        is_light = is_small and (batch.messages or 0) * _LIGHT <= self._part_size.by_memory
        has_room = self._has_room
        if is_light or (has_room and is_small):
            events = self._decoded_here(batch)
        elif has_room or self._order.on_executors is None:
            events = batch.collected(self._decode, self._most_bytes)
        else:
            staying = self._order.on_executors(batch.decoded(self._decode), batch.ends)
            return lambda: staying
        if batch.messages:
            self._part_size.fitted(batch.messages, events.nbytes)
        return lambda: self._order.batch(events, batch.ends, is_cut=is_cut)

    def _decoded_here(self, batch: MicroBatch) -> pa.Table:
        some = (decode_messages(self._decoder, messages, return_freed_memory) for messages in batch.read())
        most = self._most_bytes if batch.messages != 1 else math.inf
        return pa.concat_tables([EVENT_SCHEMA.empty_table(), *limited(some, most)])


_Decoded = Callable[[], DecodedBatch]
"""A part that is decoded: to put it in order is left to the thread that hands it over, so that the next one is decoded
meanwhile."""
