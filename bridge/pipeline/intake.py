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
from bridge.sources.range_reader import prefetched
from bridge.sources.source import READING, MicroBatch, Stream, Wait
from bridge.sources.topic_guard import TopicGuard
from bridge.spark.event_transfer import TooLargeError, limited
from bridge.spark.process_memory import return_freed_memory
from bridge.spark.worker_decoder import event_decoder

DRIVER_DECODES: Final = 2_000
"""A micro-batch of at most so many messages is decoded on the driver: a Spark job costs more than it saves for so few
(measured: 0.1 s)."""

SECONDS_AT_ONCE: Final = 2.0
"""A part has as many messages as were lately decoded, and accepted by the applier, in so many seconds."""
LEAST_AT_ONCE: Final = 10_000
MOST_AT_ONCE: Final = 100_000
OF_A_TABLE: Final = 50
"""A part has so many messages for each of its tables at least, as every table of a transaction costs the target some
statements.  With 1,000 tables and a slow target, parts of 50,000 took 25 % less of MariaDB's processor time, and 15 %
less of the driver's, than parts of 10,000 (measured)."""
FIRST_AT_ONCE: Final = 20_000
"""The first part is small: until it is decoded, the target has nothing to do."""
_NO_LIMIT: Final = 1 << 40
_FILLED: Final = 0.75
_GROWTH: Final = 4
_ON_EXECUTORS: Final = 2
"""Parts that stay on the executors may be so many times larger: each piece of a window scans whole parts, so they
should be few."""
_LIGHT_SHARE: Final = 16
"""When the driver has no room for more, it still decodes a micro-batch that takes at most 1/16 of what it may decode at
once."""
_TICK_SECONDS: Final = 0.2

log = structlog.get_logger()


class PartSize:
    """Decides how many messages a part has, from the rate at which they are applied, their tables and their size.

    most: the most messages of a part.
    most_bytes: about the most bytes that a part takes once it is decoded.
    """

    def __init__(self, most: int, most_bytes: int) -> None:
        self._most, self.by_rate = most, min(most, FIRST_AT_ONCE)
        self._most_bytes, self.by_memory = most_bytes, _NO_LIMIT
        self.by_tables = 0

    def note(self, messages: int, seconds: float) -> None:
        """Notes that the applier has accepted `messages` after `seconds`.  Few messages tell nothing about the rate."""
        if messages > DRIVER_DECODES:
            rate = messages / max(seconds, 1e-3)
            self.by_rate = min(self._most, max(LEAST_AT_ONCE, round(rate * SECONDS_AT_ONCE)))

    def had_tables(self, tables: int) -> None:
        """Notes that the messages of a part were of so many tables."""
        self.by_tables = min(self._most, OF_A_TABLE * tables)

    @property
    def wanted(self) -> int:
        """How many messages a part should have if memory were no limit."""
        return max(self.by_rate, self.by_tables)

    def fitted(self, messages: int, size: int) -> None:
        """Notes that `messages` took `size` bytes.  A quarter of the room stays free for larger ones, and the limit
        grows slowly, since larger messages may follow a few small ones."""
        messages_that_fit = _FILLED * self._most_bytes * messages // max(1, size)
        self.by_memory = max(1, min(int(messages_that_fit), _GROWTH * max(self.by_memory, messages)))

    def did_not_fit(self, messages: int, found: Amount) -> None:
        """Notes that `messages` took too many bytes.  found: the rows and bytes that were decoded until then."""
        self.by_memory = max(1, min(messages // 2, int(_FILLED * self._most_bytes * found.rows // found.bytes)))


class _Waiting(NamedTuple):
    batch: MicroBatch
    is_taken: threading.Event


class Intake:
    """Accepts micro-batches from foreachBatch.  A thread decodes them and gives them to the applier, while the
    next one is planned.

    order: makes batches for the applier, and tells how much waits and whether rows may stay on the executors.
    room: how much may wait in the driver before batches stay on the executors.
    topics: checks that the messages come from the same topics as at the start.
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
        self._most_bytes = bytes_at_once
        self._part_size = PartSize(min(limit, MOST_AT_ONCE), bytes_at_once)
        self._known = set(order.positions)
        self._decode = event_decoder(protocol, options)
        self._decoder = make_decoder(protocol, options)
        self._ends: dict[PartitionId, int] = {}
        self._waiting: queue.Queue[_Waiting | None] = queue.Queue(maxsize=1)  # None: nothing more comes
        self._closed, self._ended = threading.Event(), threading.Event()
        self._thread = threading.Thread(target=self._work, name="intake", daemon=True)

    def start(self) -> None:
        """Starts the thread."""
        self._thread.start()

    def take(self, stream: Stream, batch: DataFrame, _: int) -> None:
        """Takes the next micro-batch of a stream; foreachBatch calls it.

        Returns when at most one micro-batch waits.  One whose messages only Spark can read (capture files) must be
        processed before this returns.  When the stream has come to its end, or fails, this returns once the intake is
        closed, so that Spark begins nothing more; a failure becomes the applier's.
        """
        coming = self._next_of(partial(stream.next, batch, self._closed.wait))
        if coming is not None:
            self._hand_over(_Waiting(coming, threading.Event()))
        else:
            self._ended.set()
            self._closed.wait()

    def take_ahead(self, stream: Stream, is_over: Wait) -> None:
        """Takes micro-batches of a stream before Spark is there, small ones, which the driver decodes.

        Returns when `is_over` (see Wait) says so, or when the stream has come to its end; a failure becomes the
        applier's.
        """
        while not is_over(_TICK_SECONDS if self._waiting.full() else 0.0) and not self._ended.is_set():
            if self._waiting.full():
                continue
            coming = self._next_of(partial(stream.ahead, DRIVER_DECODES, is_over))
            if coming is not None:
                self._waiting.put(_Waiting(coming, threading.Event()))
            elif not is_over(0.0):
                self._ended.set()

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
        if self._thread.is_alive():
            self._thread.join(seconds)

    def _is_taking(self) -> bool:
        return self._thread.is_alive() and not self._closed.is_set()

    def _work(self) -> None:
        try:
            while waiting := self._next_batch():
                self._worker.phases.decoding(begins=True)
                self._process(waiting.batch)
                self._worker.phases.decoding(begins=False)
                waiting.is_taken.set()
        except BaseException as error:  # noqa: BLE001  # nothing after it may be applied
            self._worker.fail(error)

    def _next_batch(self) -> _Waiting | None:
        while not self._closed.is_set() and self._worker.failure is None:
            with suppress(queue.Empty):
                return self._waiting.get(timeout=_TICK_SECONDS)
        return None

    def _process(self, batch: MicroBatch) -> None:
        """Decodes a micro-batch in parts, so that it takes less memory and the applier can begin sooner."""
        began = time.monotonic()
        for part, decoded in self._decoded_parts(batch):
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

    def _decoded_parts(self, batch: MicroBatch) -> Iterator[tuple[MicroBatch, DecodedBatch]]:
        """Yields each part, decoded; the next one is decoded while the caller works.  Ends when the intake is closed:
        after a restart, the bridge reads again what was not applied."""
        for part, decoded in prefetched(self._parts(batch), "decoding"):
            yield part, decoded()
            if self._closed.is_set():
                return

    def _parts(self, batch: MicroBatch) -> Iterator[tuple[MicroBatch, _Decoded]]:
        """Decodes part after part.  One that is too large is divided again."""
        rest: MicroBatch | None = batch if batch.messages != 0 else None
        while rest is not None and not self._closed.is_set():
            part, remaining = rest.split(self._size())
            try:
                decoded = self._decoded(part, is_cut=batch.is_cut or remaining is not None)
            except TooLargeError as error:
                self._part_size.did_not_fit(part.messages or 0, error.found)
                continue
            yield part, decoded
            rest = remaining

    def _size(self) -> int:
        """Returns the number of messages of the next part."""
        if not self._has_room:
            return min(self._part_size.wanted, _ON_EXECUTORS * self._part_size.by_memory)
        return min(self._part_size.wanted, self._part_size.by_memory)

    @property
    def _has_room(self) -> bool:
        """Whether the next part is brought to the driver."""
        return self._order.on_executors is None or not self._order.held.exceeds(self._room)

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

    def _decoded(self, batch: MicroBatch, *, is_cut: bool) -> _Decoded:
        is_small = batch.messages is not None and batch.messages <= DRIVER_DECODES
        is_light = is_small and (batch.messages or 0) * _LIGHT_SHARE <= self._part_size.by_memory
        has_room = self._has_room
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
