"""Offset ranges of Kafka partitions, read where they are decoded.

Spark plans a micro-batch's ranges and writes them to its log before it hands the batch over; the messages themselves
are read by the Python process that decodes them.  They never pass through the JVM, which took more processor time to
carry them there than decoding takes.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from functools import cache
from itertools import chain
from pathlib import Path
from typing import Any, Final, NamedTuple, TypeVar

import orjson
from confluent_kafka import Consumer, KafkaError, TopicPartition

from bridge.errors import SourceError
from bridge.model import PartitionId
from bridge.protocols.batch_decode import Messages
from bridge.sources.kafka_properties import client

_T = TypeVar("_T")

READ_AT_ONCE: Final = 10_000
_LOT_BYTES: Final = 8 << 20
"""Messages with values of so many bytes wait for no others."""
_ASKED_BYTES: Final = 16 << 20
"""About how many bytes are asked for at once.  The messages before tell how large messages are."""
_GROWTH: Final = 8
"""The next request asks for at most so many times as many messages as came: they may be larger."""
SILENCE_SECONDS: Final = 60.0
"""Reading a range is given up when its next message does not come for so long."""
_POLL_SECONDS: Final = 0.2
_PASSING: Final = frozenset({KafkaError._PARTITION_EOF, KafkaError._ALL_BROKERS_DOWN, KafkaError._TRANSPORT})
"""The end of the log, and lost connections that the client itself restores."""

ISOLATION: Final = "read_committed"
"""The same for all clients: Spark plans ranges that other clients read, up to an end that a third has asked for."""

CLIENT_DEFAULTS: Final = {
    "group.id": "bridge",
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": ISOLATION,
    "enable.partition.eof": True,
    "log_level": 0,
    "statistics.interval.ms": 5_000,
    # A range is read once and then another: what is fetched beyond its end is fetched in vain.
    "queued.min.messages": 2_000,
    "queued.max.messages.kbytes": 16 * 1024,
    "fetch.queue.backoff.ms": 1,
    # What is asked for is there.  A request for more, at the end of a partition, would keep the next partition waiting
    # until something comes: a second on a quiet topic of four partitions (measured).
    "fetch.wait.max.ms": 10,
}


class OffsetRange(NamedTuple):
    """The offsets [start, end) of a partition.  There may be fewer messages, since transaction markers, aborted and
    compacted messages leave gaps."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """How many messages it may hold."""
        return max(0, self.end - self.start)


class RangeLog:
    """What each micro-batch of a stream reads, from Spark's own log of offsets in the query's checkpoint folder
    (Structured Streaming, "Recovering from failures with checkpointing": written before the batch is run).

    starts: where the stream begins; a partition that comes later begins at 0: were its first messages gone already,
        reading them has to fail.
    """

    def __init__(self, folder: str, starts: Mapping[PartitionId, int]) -> None:
        self._folder, self._next = Path(folder) / "offsets", dict(starts)

    def ranges(self, batch_id: int) -> list[OffsetRange]:
        """The ranges of the next micro-batch; to be asked once for each, in order."""
        ends = orjson.loads((self._folder / str(batch_id)).read_bytes().splitlines()[2])
        ranges = [
            OffsetRange(topic, int(partition), self._next.get((topic, int(partition)), 0), end)
            for topic, partitions in ends.items()
            for partition, end in partitions.items()
        ]
        self._next.update({(r.topic, r.partition): r.end for r in ranges})
        return [r for r in ranges if r.size]


def shares(ranges: Iterable[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """The ranges cut into at most `count` shares of nearly equal size, none of them empty."""
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


def first_of(ranges: Iterable[OffsetRange], count: int) -> tuple[list[OffsetRange], list[OffsetRange]]:
    """The first `count`th part of every range, and what is behind it."""
    whole = [wanted for wanted in ranges if wanted.size]
    cuts = [wanted.start - (-wanted.size // count) for wanted in whole]
    first = [wanted._replace(end=cut) for wanted, cut in zip(whole, cuts, strict=True)]
    rest = [wanted._replace(start=cut) for wanted, cut in zip(whole, cuts, strict=True) if cut < wanted.end]
    return first, rest


class RangeReader:
    """A Kafka client that reads ranges, one after the other.  Not for several threads.

    properties: Kafka client properties (librdkafka), with bootstrap.servers.
    """

    def __init__(self, properties: Mapping[str, Any]) -> None:
        self._fetched: dict[PartitionId, int] = {}
        callbacks = {"stats_cb": self._note_fetched}
        self._consumer = client(Consumer, {**CLIENT_DEFAULTS, **properties, **callbacks})
        self._most = 1

    def read(self, ranges: Iterable[OffsetRange]) -> Iterator[Messages]:
        """The messages of the ranges, in order; what comes next is fetched while what came is being decoded.

        Raises SourceError when Kafka no longer holds one, or is silent.
        """
        return one_ahead(_in_lots(self._read(ranges), self._learn), "reading")

    def close(self) -> None:
        """Ends the client."""
        self._consumer.close()

    def _read(self, ranges: Iterable[OffsetRange]) -> Iterator[Messages]:
        for wanted in ranges:
            self._consumer.assign([TopicPartition(wanted.topic, wanted.partition, wanted.start)])
            yield from self._messages(wanted)
            self._consumer.unassign()

    def _note_fetched(self, statistics: str) -> None:
        """Where the client goes on fetching: behind aborted messages, too, which it passes over in silence (librdkafka,
        STATISTICS.md)."""
        self._fetched = {
            (topic, int(partition)): found["next_offset"]
            for topic, known in orjson.loads(statistics)["topics"].items()
            for partition, found in known["partitions"].items()
        }

    def _messages(self, wanted: OffsetRange) -> Iterator[Messages]:
        following, heard, fetched = wanted.start, time.monotonic(), 0
        while following < wanted.end:
            # consume() waits until it has as many as it is asked for: never ask for more than there are.
            came = self._consumer.consume(min(self._most, wanted.end - following), timeout=_POLL_SECONDS)
            was, fetched = fetched, self._fetched.get((wanted.topic, wanted.partition), 0)
            if came or fetched != was:
                heard = time.monotonic()
            elif time.monotonic() - heard > SILENCE_SECONDS:
                raise _silent(wanted, following)
            kept = self._kept(wanted, following, came)
            if kept:
                yield Messages(
                    [wanted.topic] * len(kept),
                    [wanted.partition] * len(kept),
                    [message.offset() for message in kept],
                    [message.key() for message in kept],
                    [message.value() for message in kept],
                )
            following = _after(came, following)

    def _learn(self, messages: int, size: int) -> None:
        """Learns from the latest messages and the bytes of their values how many messages may be asked for at once."""
        self._most = max(1, min(READ_AT_ONCE, _GROWTH * messages, _ASKED_BYTES * messages // max(1, size)))

    def _kept(self, wanted: OffsetRange, following: int, came: list[Any]) -> list[Any]:
        """What came, without the end of the log and what lies beyond the range: between them are only offsets that
        hold markers or were compacted."""
        errors = [message.error() for message in came if message.error() is not None]
        for error in errors:
            if error.code() not in _PASSING:
                raise _refused(wanted, following, error)
        if not errors and (not came or came[-1].offset() < wanted.end):
            return came
        return [message for message in came if message.error() is None and message.offset() < wanted.end]


def _in_lots(some: Iterable[Messages], learn: Callable[[int, int], None]) -> Iterator[Messages]:
    """The same messages in larger lots: small ranges are put together as long as they take little memory, since
    decoding few messages costs nearly as much as decoding many.

    learn: is told the number of messages of each lot, and the bytes of their values.
    """
    held: list[Messages] = []
    count = size = 0
    for messages in some:
        held.append(messages)
        count, size = count + len(messages.value), size + sum(map(len, filter(None, messages.value)))
        learn(count, size)
        if count >= READ_AT_ONCE // 2 or size >= _LOT_BYTES:
            yield _joined(held)
            held, count, size = [], 0, 0
    if held:
        yield _joined(held)


def _joined(lots: list[Messages]) -> Messages:
    return (
        lots[0] if len(lots) == 1 else Messages(*(list(chain.from_iterable(part)) for part in zip(*lots, strict=True)))
    )


def one_ahead(items: Iterator[_T], name: str) -> Iterator[_T]:
    """The items, each made ahead by a thread of this name while the one before is in use."""
    with ThreadPoolExecutor(1, name) as thread:
        coming = thread.submit(next, items, None)
        while (item := coming.result()) is not None:
            coming = thread.submit(next, items, None)
            yield item


def _after(came: list[Any], following: int) -> int:
    """The offset to go on from: behind the last message, or where the log ends."""
    for message in reversed(came):
        if message.error() is None:
            return int(message.offset()) + 1
        if message.error().code() == KafkaError._PARTITION_EOF:
            return int(message.offset())
    return following


def loaded(tasks: Iterable[int]) -> Iterator[int]:
    """Does nothing; to run it, a Python worker has to load all that reading and decoding need."""
    return iter(tasks)


@cache
def process_reader(properties: tuple[tuple[str, Any], ...]) -> RangeReader:
    """This process's reader for these properties.  A Python worker of Spark lives on from task to task, and so does its
    reader."""
    return RangeReader(dict(properties))


def _silent(wanted: OffsetRange, following: int) -> SourceError:
    return SourceError(
        f"no message came for {SILENCE_SECONDS:.0f} s",
        where=f"{wanted.topic}/{wanted.partition}/{following}",
        fix="see that Kafka answers and that the partition has a leader; then start the bridge again",
    )


def _refused(wanted: OffsetRange, following: int, error: Any) -> SourceError:
    return SourceError(
        f"Kafka refused to be read: {error.str()}",
        where=f"{wanted.topic}/{wanted.partition}/{following}",
        fix="see that Kafka still holds the messages and that its user may read the topic; then start the bridge again",
    )
