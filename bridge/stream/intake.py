"""Between the stream and the applier: micro-batches are decoded and handed over."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

import pyarrow as pa
import structlog
from pyspark.sql import DataFrame

from bridge.errors import BridgeError, SourceError
from bridge.events import EVENT_SCHEMA
from bridge.protocols import DecodeOptions, make_decoder
from bridge.stream.backlog import Arrival, Backlog, arrival_of, events_as_read
from bridge.stream.decode import decode_messages, event_decoder
from bridge.stream.executors import arrival_on_executors
from bridge.stream.frontier import PartitionId
from bridge.stream.source import MicroBatch, MicroBatches
from bridge.stream.topics import TopicGuard
from bridge.stream.worker import ApplierThread

DRIVER_DECODES: Final = 2_000
"""A micro-batch of at most so many messages is decoded on the driver, without a Spark job: for few messages, Python
workers cost more than they bring (measured: 0.1 s)."""

SECONDS_AT_ONCE: Final = 2.0
"""As many messages are read at a time as have lately been decoded, and taken by the applier, in so many seconds."""
LEAST_AT_ONCE: Final = 10_000
FIRST_AT_ONCE: Final = 50_000
"""The first are wanted soon: until they are there, the target has nothing to do."""
HEAD_MESSAGES: Final = 6 * FIRST_AT_ONCE
HEAD_AT_ONCE: Final = 25_000
"""What can be read and applied while Spark plans the first micro-batch, and how much of it at a time."""


log = structlog.get_logger()


class Pace:
    """How many messages are read at a time: it follows the rate at which they are applied.

    most: at most.
    """

    def __init__(self, most: int) -> None:
        self._most, self.size = most, min(most, FIRST_AT_ONCE)

    def note(self, messages: int, seconds: float) -> None:
        """So many were decoded and taken by the applier in so many seconds; few say nothing of the rate."""
        if messages > DRIVER_DECODES:
            rate = messages / max(seconds, 1e-3)
            self.size = min(self._most, max(LEAST_AT_ONCE, round(rate * SECONDS_AT_ONCE)))


class Gate:
    """Lets micro-batches in one at a time until it is closed; stopping a query inside one would break it in two."""

    def __init__(self) -> None:
        self._inside = threading.Lock()
        self._closed = False

    @contextmanager
    def entered(self) -> Iterator[bool]:
        """Whether it is open, as long as the block lasts."""
        with self._inside:
            yield not self._closed

    @property
    def is_closed(self) -> bool:
        """Who is inside should come out."""
        return self._closed

    def close(self) -> None:
        """Lets nobody in any more, and waits for who is inside."""
        self._closed = True
        with self._inside:
            pass


class Intake:
    """What foreachBatch does: decode, and hand over to the applier.

    room: rows the backlog may hold before micro-batches stay on the executors.
    topics: whose messages they have to be.
    by_partition: they never do, as all they hold is due at once.
    limit: the most messages of a micro-batch.
    """

    def __init__(
        self,
        protocol: str,
        options: DecodeOptions,
        backlog: Backlog,
        worker: ApplierThread,
        gate: Gate,
        room: int,
        topics: TopicGuard,
        *,
        by_partition: bool,
        limit: int,
    ) -> None:
        self._backlog, self._worker, self._gate, self._room, self._topics = (
            backlog, worker, gate, room, topics
        )  # fmt: skip
        self._by_partition, self._limit, self._pace = by_partition, limit, Pace(limit)
        self._known = set(backlog.positions)
        self._decode = event_decoder(protocol, options)
        self._decoder = make_decoder(protocol, options)
        self._query_waits = threading.Event()
        self._ends: dict[PartitionId, int] = {}

    def hand_over(self, micro_batches: MicroBatches, batch: DataFrame, batch_id: int) -> None:
        """One micro-batch: at most one Spark job when the driver has room for it."""
        self._query_waits.set()
        with self._gate.entered() as is_open:
            if is_open and self._worker.failure is None:
                try:
                    self._take(micro_batches(batch, batch_id), is_head=False)
                except BridgeError as error:  # through Spark it would come back as a traceback
                    self._worker.fail(error)

    @contextmanager
    def ahead(self, head: MicroBatch | None) -> Iterator[None]:
        """Hands over what comes before all micro-batches, while the block starts the query that they come from: Spark
        takes two seconds to plan the first one, and its Python workers as long to start.  Until then, the head is
        decoded here.  It is never all there is."""
        if head is None:
            yield
            return
        inside = threading.Event()

        def work() -> None:
            with self._gate.entered():
                inside.set()
                try:
                    self._take(head, is_head=True)
                except BaseException as error:  # noqa: BLE001  # what lies behind the head must not be taken then
                    self._worker.fail(error)

        threading.Thread(target=work, name="head", daemon=True).start()
        inside.wait()
        yield

    def _take(self, batch: MicroBatch, *, is_head: bool) -> None:
        """By parts, when the applier is slow: so much less is held in memory, and the sooner it has something."""
        parts = batch.parts(min(self._pace.size, HEAD_AT_ONCE) if is_head else self._pace.size)
        for number, part in enumerate(parts, start=1):
            if self._gate.is_closed:
                return  # what is not taken is read again, by the next bridge
            began = time.monotonic()
            is_small = part.messages is not None and part.messages <= DRIVER_DECODES
            arrival = self._arrival(
                part,
                here=is_small or (is_head and not self._query_waits.is_set()),
                is_last=number == len(parts) and not is_head,
            )
            there = self._topics.partitions(lambda: self._gate.is_closed)
            if there is None:
                return
            self._follow_on(part)
            if not self._worker.offer(self._admitting(there, arrival), lambda: self._gate.is_closed):
                return
            if not is_head:
                self._pace.note(part.messages or 0, time.monotonic() - began)

    def _follow_on(self, part: MicroBatch) -> None:
        """Every part begins where the last one ended: progress would go past what lies in a gap."""
        for where, start in part.starts.items():
            if self._ends.get(where, start) != start:
                raise SourceError(
                    f"messages were left out: offset {self._ends[where]} was to be read next, and {start} came",
                    where=f"{where[0]}/{where[1]}",
                    mend="nothing behind the gap is in the target; start the bridge again, and report this",
                )
        self._ends.update(part.ends)

    def _admitting(self, there: set[PartitionId], arrival: Arrival) -> Arrival:
        """The arrival with the partitions that Kafka shows and nothing was read of: Spark learns of new ones later, and
        what they hold may be earlier than the boundaries at hand."""
        store, control = arrival
        added = there - self._known - control.read.keys()
        self._known |= there | control.read.keys()
        if not added:
            return arrival
        log.info("a partition was added; it is waited for like the others", partitions=sorted(added))
        return store, replace(control, read={**control.read, **dict.fromkeys(added, 0)})

    def _arrival(self, batch: MicroBatch, *, here: bool, is_last: bool) -> Arrival:
        if here:
            events = (decode_messages(self._decoder, some) for some in batch.read())
            return self._gathered(pa.Table.from_batches(events, EVENT_SCHEMA), batch, is_last=is_last)
        if not self._by_partition and self._backlog.rows > self._room:
            return arrival_on_executors(batch.decoded(self._decode), batch.ends)
        return self._gathered(batch.collected(self._decode), batch, is_last=is_last)

    def _gathered(self, events: pa.Table, batch: MicroBatch, *, is_last: bool) -> Arrival:
        if not self._by_partition:
            return arrival_of(events, batch.ends)
        # Spark shares the limit out among the partitions, and rounds.
        is_cut = not is_last or (batch.messages is not None and batch.messages + len(batch.ends) >= self._limit)
        return events_as_read(events, batch.ends, is_cut=is_cut)
