"""Reads offset ranges of Kafka partitions in the process that decodes their messages.

They never pass through the JVM: to carry them through it took more processor time than to decode them.
"""

from __future__ import annotations

import time
from collections.abc import Generator, Iterable, Iterator, Mapping
from functools import cache
from queue import SimpleQueue
from threading import Thread
from typing import Any, Final, TypeVar

import orjson
from confluent_kafka import Consumer, KafkaError, TopicPartition

from bridge.model import PartitionId
from bridge.protocols.batch_decode import Messages
from bridge.sources.kafka.client import HARMLESS, Acls, OffsetRange, client, refusal_error, silence_error
from bridge.sources.part_size import FEW, LOT_BYTES, READ_AT_ONCE, joined_lots, latest_ms
from bridge.sources.source import have_ids, key_and_value

_REQUEST_BYTES: Final = 512 << 10
"""About how many bytes one request asks for, judged by the size of the messages before it.  They stay in the
processor's cache: with 16 MiB, reading and decoding took a sixth more processor time (3 KB a message, measured)."""
_GROWTH: Final = 8
"""The next request asks for at most so many times the number of messages that were received: they may be larger."""
_POLL_SECONDS: Final = 0.2
_TIMEOUT_MS: Final = 30_000
_T = TypeVar("_T")
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
    # The client reads a range, then goes elsewhere: what it has fetched beyond the end is fetched in vain, 5 % of
    # ranges of 25,000 messages of 3 KB; 21 % with 2,000 (measured).
    "queued.min.messages": 500,
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.queue.backoff.ms": 1,
    # The messages of a range exist already.  A fetch beyond the end of a partition would wait for new messages, and the
    # next partition with it: a second on a quiet topic of four partitions (measured).
    "fetch.wait.max.ms": 10,
}


class RangeReader:
    """A Kafka client that reads ranges, one after the other.  Only one thread may use it at a time.

    properties: Kafka client properties (librdkafka), with bootstrap.servers.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._fetched: dict[PartitionId, int] = {}
        callbacks = {"stats_cb": self._note_fetched}
        self._consumer = client(Consumer, {**CLIENT_DEFAULTS, **properties, **callbacks})
        self._acls = Acls.of(properties)
        self._silence_seconds = 2 * int(properties.get("socket.timeout.ms", _TIMEOUT_MS)) / 1000
        self._max_request = 1
        self._reading: Generator[Messages] = prefetched(iter(()), "reading")

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[Messages]:
        """Yields the messages of the ranges, in order.  A thread fetches the next ones while the caller works.

        An earlier reading that was given up ends now: the client reads one place at a time.
        Raises SourceError when Kafka no longer holds a message, UnansweredError when none comes for twice the timeout.
        """
        self._reading.close()
        self._reading = prefetched(joined_lots(self._read(ranges), self._adapt_request_size), "reading")
        return self._reading

    def close(self) -> None:
        """Ends reading and closes the client."""
        self._reading.close()
        self._consumer.close()

    def _read(self, ranges: Iterable[OffsetRange]) -> Iterator[Messages]:
        for part, received in self._beginnings(list(ranges)):
            if messages := self._within_range(part, part.start, received):
                yield _columns(part, messages)
            rest = part._replace(start=_next_offset(received, part.start))
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
        open_ranges = {(part.topic, part.partition): part for part in ranges}
        received: dict[PartitionId, list[Any]] = {where: [] for where in open_ranges}
        if not (1 < len(ranges) == len(open_ranges) and sum(part.size for part in ranges) <= FEW):
            return [(part, []) for part in ranges]
        self._assign(*ranges)
        count = size = 0
        last_progress = time.monotonic()
        # A partition that is written to gives messages beyond its range for ever, also while another one gives none.
        while open_ranges and size < LOT_BYTES and time.monotonic() - last_progress < _POLL_SECONDS:
            most = sum(rest.size for rest in open_ranges.values())
            for message in self._consumer.consume(min(self._max_request, most), timeout=_POLL_SECONDS):
                where = (message.topic(), message.partition())
                if where in open_ranges:
                    received[where].append(message)
                    open_ranges[where] = open_ranges[where]._replace(
                        start=_next_offset([message], open_ranges[where].start)
                    )
                    if message.error() is None:
                        count, size = count + 1, size + len(message.value() or b"")
                        last_progress = time.monotonic()
            open_ranges = {where: rest for where, rest in open_ranges.items() if rest.size}
            self._adapt_request_size(max(1, count), size)
        self._consumer.unassign()
        return [(part, received[part.topic, part.partition]) for part in ranges]

    def _assign(self, *ranges: OffsetRange) -> None:
        self._consumer.assign([TopicPartition(part.topic, part.partition, part.start) for part in ranges])

    def _note_fetched(self, statistics: str) -> None:
        """Stores the next offset that the client will fetch in each partition (librdkafka, STATISTICS.md).

        It moves even past aborted messages, which the client does not return.
        """
        self._fetched = {
            (topic, int(partition)): counts["next_offset"]
            for topic, numbers in orjson.loads(statistics)["topics"].items()
            for partition, counts in numbers["partitions"].items()
        }

    def _messages(self, part: OffsetRange) -> Iterator[Messages]:
        next_offset, last_progress, fetched = part.start, time.monotonic(), 0
        while next_offset < part.end:
            # consume() waits for as many messages as it is asked for: never ask for more than there can be.
            received = self._consumer.consume(min(self._max_request, part.end - next_offset), timeout=_POLL_SECONDS)
            fetched_before, fetched = fetched, self._fetched.get((part.topic, part.partition), 0)
            if received or fetched != fetched_before:
                last_progress = time.monotonic()
            elif time.monotonic() - last_progress > self._silence_seconds:
                raise silence_error(part, next_offset, self._silence_seconds)
            if messages := self._within_range(part, next_offset, received):
                yield _columns(part, messages)
            next_offset = _next_offset(received, next_offset)

    def _adapt_request_size(self, messages: int, size: int) -> None:
        """Sets how many messages the next request asks for.

        messages: the number of the latest messages.  size: the bytes of their values.
        """
        self._max_request = max(1, min(READ_AT_ONCE, _GROWTH * messages, _REQUEST_BYTES * messages // max(1, size)))

    def _within_range(self, part: OffsetRange, next_offset: int, received: list[Any]) -> list[Any]:
        """Returns the received messages that belong to the range; raises SourceError for an error that is not harmless.

        A message beyond the range shows that the rest of the range has only transaction markers and compacted offsets.
        """
        errors = [message.error() for message in received if message.error() is not None]
        for error in errors:
            if error.code() not in HARMLESS:
                raise refusal_error(part, _next_offset(received, next_offset), error, self._acls)
        if not errors and (not received or received[-1].offset() < part.end):
            return received
        return [message for message in received if message.error() is None and message.offset() < part.end]


def prefetched(items: Iterator[_T], name: str) -> Generator[_T]:
    """Yields the items; a thread of this name makes the next one while the caller uses the present one.

    A daemon, which a pool's thread is not: one that waits for a broker which is silent must not keep the process from
    ending.
    """
    requests: SimpleQueue[bool] = SimpleQueue()
    coming: SimpleQueue[tuple[_T | None, BaseException | None]] = SimpleQueue()

    def make() -> None:
        while requests.get():
            try:
                coming.put((next(items, None), None))
            except BaseException as error:  # noqa: BLE001  # raised again where the item is used
                coming.put((None, error))

    thread = Thread(target=make, name=name, daemon=True)
    thread.start()
    try:
        requests.put(True)
        while True:
            item, error = coming.get()
            if error is not None:
                raise error
            if item is None:
                return
            requests.put(True)
            yield item
    finally:
        requests.put(False)
        thread.join()


def _columns(part: OffsetRange, received: list[Any]) -> Messages:
    count = len(received)
    keys, values = [message.key() for message in received], [message.value() for message in received]
    if have_ids(received):
        keys, values = map(list, zip(*map(key_and_value, received), strict=True))
    return Messages(
        [part.topic] * count,
        [part.partition] * count,
        [message.offset() for message in received],
        keys,
        values,
        [latest_ms(received[-1].timestamp()[1])] * count,
    )


def _next_offset(received: list[Any], next_offset: int) -> int:
    """Returns the next offset to read: after the last message, or the end of the partition."""
    for message in reversed(received):
        if message.error() is None:
            return int(message.offset()) + 1
        if message.error().code() == KafkaError._PARTITION_EOF:
            return int(message.offset())
    return next_offset


@cache
def process_reader(properties: tuple[tuple[str, Any], ...]) -> RangeReader:
    """Returns this process's reader for these properties.  Spark's Python workers outlive their tasks, and so do their
    readers."""
    return RangeReader(dict(properties))
