"""Offset ranges of Kafka partitions, read where they are decoded.

The driver plans the ranges of a micro-batch (`offset_planner`); the messages themselves are read by the Python process
that decodes them.  They never pass through the JVM: to carry them through it took more processor time than to decode
them.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from functools import cache
from itertools import chain
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from confluent_kafka import Consumer, KafkaError, TopicPartition

from bridge.errors import SourceError, UnansweredError
from bridge.model import PartitionId
from bridge.protocols.batch_decode import Messages
from bridge.sources.kafka_acls import Acls, may_not
from bridge.sources.kafka_properties import client
from bridge.sources.part_size import DRIVER_DECODES

_T = TypeVar("_T")

READ_AT_ONCE: Final = 10_000
_CHUNK_BYTES: Final = 8 << 20
"""Messages whose values have so many bytes are passed on without waiting for more."""
_REQUEST_BYTES: Final = 16 << 20
"""About how many bytes one request asks for, judged by the size of the messages before it."""
_GROWTH: Final = 8
"""The next request asks for at most so many times the number of messages that were received: they may be larger."""
AWAY: Final = frozenset(
    {
        *(KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT, KafkaError._RESOLVE, KafkaError._TIMED_OUT),
        *(KafkaError._WAIT_COORD, KafkaError.LEADER_NOT_AVAILABLE, KafkaError.NOT_LEADER_FOR_PARTITION),
        *(KafkaError.BROKER_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT, KafkaError.NETWORK_EXCEPTION),
        *(KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.NOT_COORDINATOR),
        *(KafkaError.KAFKA_STORAGE_ERROR, KafkaError.FENCED_LEADER_EPOCH, KafkaError.UNKNOWN_LEADER_EPOCH),
        *(KafkaError.OFFSET_NOT_AVAILABLE, KafkaError.PREFERRED_LEADER_NOT_AVAILABLE),
    }
)
"""Brokers that are gone, names that are not known, leaders that change, coordinators that load: Kafka is away, and may
answer later."""
SILENCE_SECONDS: Final = 60.0
"""Reading a range fails when its next message does not come for so long."""
_POLL_SECONDS: Final = 0.2
_HARMLESS: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError.GROUP_AUTHORIZATION_FAILED, *AWAY})
"""Errors after which reading continues: the end of a partition, what the client itself waits for, and that it may not
use the consumer group that it has to name, which it does not use."""

_DROPPED: Final = frozenset({KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE})

ISOLATION: Final = "read_committed"
"""The same for all clients: one looks up the ends of ranges that others read."""

CLIENT_DEFAULTS: Final = {
    "group.id": "bridge",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": ISOLATION,
    "enable.partition.eof": True,
    "log_level": 0,
    "statistics.interval.ms": 5_000,
    # The client reads a range, then goes elsewhere: messages fetched beyond the end of the range are fetched in vain.
    "queued.min.messages": 2_000,
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.queue.backoff.ms": 1,
    # The messages of a range exist already.  A fetch beyond the end of a partition would wait for new messages, and the
    # next partition with it: a second on a quiet topic of four partitions (measured).
    "fetch.wait.max.ms": 10,
}


class OffsetRange(NamedTuple):
    """The offsets [start, end) of a partition.  There may be fewer messages than offsets: transaction markers, aborted
    messages and compaction leave gaps."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The most messages that it can hold."""
        return max(0, self.end - self.start)


def shares(ranges: Iterable[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """Cuts the ranges into at most `count` shares of nearly equal size, none of them empty."""
    ranges = list(ranges)
    quota = -(-sum(r.size for r in ranges) // count) if ranges else 0
    cut: list[list[OffsetRange]] = []
    room = 0
    for whole in ranges:
        rest = whole
        while rest.size:
            if room == 0:
                cut.append([])
                room = quota
            piece = rest._replace(end=min(rest.end, rest.start + room))
            cut[-1].append(piece)
            rest = rest._replace(start=piece.end)
            room -= piece.size
    return cut


def split_ranges(ranges: Iterable[OffsetRange], count: int) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """Splits every range after 1/`count` of its offsets (rounded up); returns the first parts, and the rest."""
    whole = [wanted for wanted in ranges if wanted.size]
    cuts = [wanted.start - (-wanted.size // count) for wanted in whole]
    first = [wanted._replace(end=cut) for wanted, cut in zip(whole, cuts, strict=True)]
    rest = [wanted._replace(start=cut) for wanted, cut in zip(whole, cuts, strict=True) if cut < wanted.end]
    return first, rest


class RangeReader:
    """A Kafka client that reads ranges, one after the other.  Only one thread may use it at a time.

    properties: Kafka client properties (librdkafka), with bootstrap.servers.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._fetched: dict[PartitionId, int] = {}
        callbacks = {"stats_cb": self._note_fetched}
        self._consumer = client(Consumer, {**CLIENT_DEFAULTS, **properties, **callbacks})
        self._acls = Acls.of(properties)
        self._max_request = 1
        self._reading: Generator[Messages] = prefetched(iter(()), "reading")

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[Messages]:
        """Yields the messages of the ranges, in order.  A thread fetches the next ones while the caller works.

        An earlier reading that was given up ends now: the client reads one place at a time.
        Raises SourceError when Kafka no longer holds a message, UnansweredError when none comes for 60 s.
        """
        self._reading.close()
        self._reading = prefetched(joined_chunks(self._read(ranges), self._adapt_request_size), "reading")
        return self._reading

    def close(self) -> None:
        """Ends reading and closes the client."""
        self._reading.close()
        self._consumer.close()

    def _read(self, ranges: Iterable[OffsetRange]) -> Iterator[Messages]:
        for wanted, received in self._beginnings(list(ranges)):
            if kept := self._within_range(wanted, wanted.start, received):
                yield _columns(wanted, kept)
            rest = wanted._replace(start=_next_offset(received, wanted.start))
            if rest.size:
                self._assign(rest)
                yield from self._messages(rest)
                self._consumer.unassign()

    def _beginnings(self, ranges: list[OffsetRange]) -> list[tuple[OffsetRange, list[Any]]]:
        """Reads ranges of few messages together, since to go from one partition to the next takes longer than to read
        these: 38 ms for four of 30 messages, and 2 ms together (measured).

        Returns each range with what was received from its start on: all of it, or less where messages are large or do
        not come at once, and nothing where the ranges are not read together.
        """
        left = {(wanted.topic, wanted.partition): wanted for wanted in ranges}
        received: dict[PartitionId, list[Any]] = {where: [] for where in left}
        if not (1 < len(ranges) == len(left) and sum(wanted.size for wanted in ranges) <= DRIVER_DECODES):
            return [(wanted, []) for wanted in ranges]
        self._assign(*ranges)
        count = size = 0
        last_progress = time.monotonic()
        # A partition that is written to gives messages beyond its range for ever, also while another one gives none.
        while left and size < _CHUNK_BYTES and time.monotonic() - last_progress < _POLL_SECONDS:
            most = sum(rest.size for rest in left.values())
            for message in self._consumer.consume(min(self._max_request, most), timeout=_POLL_SECONDS):
                where = (message.topic(), message.partition())
                if where in left:
                    received[where].append(message)
                    left[where] = left[where]._replace(start=_next_offset([message], left[where].start))
                    if message.error() is None:
                        count, size = count + 1, size + len(message.value() or b"")
                        last_progress = time.monotonic()
            left = {where: rest for where, rest in left.items() if rest.size}
            self._adapt_request_size(max(1, count), size)
        self._consumer.unassign()
        return [(wanted, received[wanted.topic, wanted.partition]) for wanted in ranges]

    def _assign(self, *ranges: OffsetRange) -> None:
        self._consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start) for wanted in ranges])

    def _note_fetched(self, statistics: str) -> None:
        """Stores the next offset that the client will fetch in each partition (librdkafka, STATISTICS.md).

        It moves even past aborted messages, which the client does not return.
        """
        self._fetched = {
            (topic, int(partition)): found["next_offset"]
            for topic, known in orjson.loads(statistics)["topics"].items()
            for partition, found in known["partitions"].items()
        }

    def _messages(self, wanted: OffsetRange) -> Iterator[Messages]:
        next_offset, last_progress, fetched = wanted.start, time.monotonic(), 0
        while next_offset < wanted.end:
            # consume() waits for as many messages as it is asked for: never ask for more than there can be.
            received = self._consumer.consume(min(self._max_request, wanted.end - next_offset), timeout=_POLL_SECONDS)
            fetched_before, fetched = fetched, self._fetched.get((wanted.topic, wanted.partition), 0)
            if received or fetched != fetched_before:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > SILENCE_SECONDS:
                raise _silence_error(wanted, next_offset)
            kept = self._within_range(wanted, next_offset, received)
            if kept:
                yield _columns(wanted, kept)
            next_offset = _next_offset(received, next_offset)

    def _adapt_request_size(self, messages: int, size: int) -> None:
        """Sets how many messages the next request asks for.

        messages: the number of the latest messages.  size: the bytes of their values.
        """
        self._max_request = max(1, min(READ_AT_ONCE, _GROWTH * messages, _REQUEST_BYTES * messages // max(1, size)))

    def _within_range(self, wanted: OffsetRange, next_offset: int, received: list[Any]) -> list[Any]:
        """Returns the received messages that belong to the range; raises SourceError for an error that is not harmless.

        A message beyond the range shows that the rest of the range has only transaction markers and compacted offsets.
        """
        errors = [message.error() for message in received if message.error() is not None]
        for error in errors:
            if error.code() not in _HARMLESS:
                raise _refusal_error(wanted, _next_offset(received, next_offset), error, self._acls)
        if not errors and (not received or received[-1].offset() < wanted.end):
            return received
        return [message for message in received if message.error() is None and message.offset() < wanted.end]


def _columns(wanted: OffsetRange, received: list[Any]) -> Messages:
    count = len(received)
    return Messages(
        [wanted.topic] * count,
        [wanted.partition] * count,
        [message.offset() for message in received],
        [message.key() for message in received],
        [message.value() for message in received],
        [latest_ms(received[-1].timestamp()[1])] * count,
    )


def latest_ms(kafka_ms: int) -> int:
    """Returns the latest moment that messages can be of that are read now (milliseconds since 1970): the clock of this
    machine may be behind.  kafka_ms: Kafka's timestamp of the last of them, not above 0 without one."""
    return max(kafka_ms, round(time.time() * 1000))


def joined_chunks(
    messages_read: Iterable[Messages], on_size: Callable[[int, int], None] = lambda *_: None
) -> Iterator[Messages]:
    """Joins messages to larger chunks, as long as they take little memory: decoding few messages costs nearly as much
    as decoding many.

    on_size: is called with the number of messages in the present chunk, and the bytes of their values.
    """
    held: list[Messages] = []
    count = size = 0
    for messages in messages_read:
        held.append(messages)
        count, size = count + len(messages.value), size + sum(map(len, filter(None, messages.value)))
        on_size(count, size)
        if count >= READ_AT_ONCE // 2 or size >= _CHUNK_BYTES:
            yield _join(held)
            held, count, size = [], 0, 0
    if held:
        yield _join(held)


def _join(lots: list[Messages]) -> Messages:
    return (
        lots[0] if len(lots) == 1 else Messages(*(list(chain.from_iterable(part)) for part in zip(*lots, strict=True)))
    )


def prefetched(items: Iterator[_T], name: str) -> Generator[_T]:
    """Yields the items; a thread of this name makes the next one while the caller uses the present one.

    A daemon, which a pool's thread is not: one that waits for a broker which is silent must not keep the process from
    ending.
    """
    wanted: SimpleQueue[bool] = SimpleQueue()
    coming: SimpleQueue[tuple[_T | None, BaseException | None]] = SimpleQueue()

    def make() -> None:
        while wanted.get():
            try:
                coming.put((next(items, None), None))
            except BaseException as error:  # noqa: BLE001  # raised again where the item is used
                coming.put((None, error))

    thread = Thread(target=make, name=name, daemon=True)
    thread.start()
    try:
        wanted.put(True)
        while True:
            item, error = coming.get()
            if error is not None:
                raise error
            if item is None:
                return
            wanted.put(True)
            yield item
    finally:
        wanted.put(False)
        thread.join()


def _next_offset(received: list[Any], next_offset: int) -> int:
    """Returns the next offset to read: after the last message, or the end of the partition."""
    for message in reversed(received):
        if message.error() is None:
            return int(message.offset()) + 1
        if message.error().code() == KafkaError._PARTITION_EOF:
            return int(message.offset())
    return next_offset


def load_imports(tasks: Iterable[int]) -> Iterator[int]:
    """Does nothing.  To run it, a Python worker has to import everything that reading and decoding need."""
    return iter(tasks)


@cache
def process_reader(properties: tuple[tuple[str, Any], ...]) -> RangeReader:
    """Returns this process's reader for these properties.  Spark's Python workers outlive their tasks, and so do their
    readers."""
    return RangeReader(dict(properties))


def _silence_error(wanted: OffsetRange, next_offset: int) -> UnansweredError:
    return UnansweredError(
        f"no message came for {SILENCE_SECONDS:.0f} s",
        where=f"{wanted.topic}/{wanted.partition}/{next_offset}",
        fix="check that Kafka answers and that the partition has a leader; then start the bridge again",
    )


def dropped_error(partition: PartitionId, offset: int, held: str = "") -> SourceError:
    """Makes the error of messages that are still needed, and that Kafka has dropped.  held: what it holds, in words."""
    topic, number = partition
    return SourceError(
        f"Kafka no longer holds the messages from offset {offset} on{held}",
        where=f"{topic}/{number}",
        fix="the missing changes are lost, or the topic was created again: copy the upstream's tables to the"
        " target, `bridge reset`, and start with --from the moment of the copy",
    )


def _refusal_error(wanted: OffsetRange, next_offset: int, error: Any, acls: Acls) -> SourceError:
    if error.code() in _DROPPED:
        return dropped_error((wanted.topic, wanted.partition), next_offset)
    if error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED:
        return may_not(("READ",), wanted.topic, acls)
    return SourceError(
        f"Kafka refused the read: {error.str()}",
        where=f"{wanted.topic}/{wanted.partition}/{next_offset}",
        fix="check that Kafka still holds the messages and that its user may read them; then start the bridge again",
    )
