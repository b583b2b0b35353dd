"""Ranges of offsets are read whole, and no further."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest

from bridge.config import SourceSection
from bridge.errors import SourceError
from bridge.local import Kafka
from bridge.sources.kafka import range_reader as ranges
from bridge.sources.kafka.client import OffsetRange
from bridge.sources.kafka.range_reader import RangeReader
from bridge.sources.part_size import LOT_BYTES
from tests.support.models import Clock
from tests.support.producers import ordered_producer


@pytest.fixture(scope="module")
def topic(kafka: Kafka) -> str:
    """Offsets 0 to 9 hold messages, 10 the marker of an aborted transaction's end, 11 on again messages."""
    name = "ranges"
    kafka.create_topic(name, 1)
    plain = ordered_producer(kafka.bootstrap_servers)
    for number in range(10):
        plain.produce(name, key=None, value=str(number))
    plain.flush()
    transactional = ordered_producer(kafka.bootstrap_servers, transactional_id="x")
    transactional.init_transactions()
    for first in (10, 12):
        transactional.begin_transaction()
        transactional.produce(name, key=b"", value=str(first))
        transactional.commit_transaction()
    return name


def _read(kafka: Kafka, *ranges: OffsetRange) -> list[int]:
    reader = RangeReader({"bootstrap.servers": kafka.bootstrap_servers})
    try:
        return [offset for messages in reader.read(ranges) for offset in messages.offset]
    finally:
        reader.close()


@pytest.mark.parametrize(
    ("start", "end", "offsets"),
    [
        (0, 10, list(range(10))),
        (3, 5, [3, 4]),
        (8, 12, [8, 9, 10]),  # 11 is a marker in the middle
        (11, 12, []),
        (10, 14, [10, 12]),  # 13 is a marker at the end of the log
        (13, 14, []),
    ],
)
def test_a_range_is_read_whole_and_no_further(
    kafka: Kafka, topic: str, start: int, end: int, offsets: list[int]
) -> None:
    """Markers of transactions take offsets too; a range that ends with one does not wait for a message."""
    assert _read(kafka, OffsetRange(topic, 0, start, end)) == offsets


def test_ranges_follow_each_other_in_one_client(kafka: Kafka, topic: str) -> None:
    """A reader goes back and forth as it is told."""
    assert _read(kafka, OffsetRange(topic, 0, 5, 7), OffsetRange(topic, 0, 0, 2)) == [5, 6, 0, 1]


class Counting:
    """A reader's client, which counts how often the reader goes to other partitions."""

    def __init__(self, consumer: Any) -> None:
        self._consumer, self.assigned = consumer, list[int]()
        self.unassign, self.consume, self.close = consumer.unassign, consumer.consume, consumer.close

    def assign(self, partitions: list[Any]) -> None:
        self.assigned.append(len(partitions))
        self._consumer.assign(partitions)


@pytest.fixture(scope="module")
def three(kafka: Kafka, topic: str) -> tuple[str, str]:
    """Two topics: `topic`, and one of two partitions with 100 messages of 100 bytes in each."""
    kafka.create_topic("three", 2)
    producer = ordered_producer(kafka.bootstrap_servers)
    for number in range(200):
        producer.produce("three", value=bytes(100), partition=number % 2)
    assert producer.flush(60) == 0
    return topic, "three"


@pytest.mark.parametrize(
    ("chunk_bytes", "few", "together", "all_together"),
    [(8 << 20, 2_000, 3, True), (1_000, 2_000, 3, False), (8 << 20, 20, 1, False)],
)
def test_ranges_of_few_messages_are_read_together(
    kafka: Kafka, three: tuple[str, str], monkeypatch: pytest.MonkeyPatch, chunk_bytes: int, few: int,
    together: int, all_together: bool,
) -> None:  # fmt: skip
    """From partition to partition took 10 ms each.  What is large is read one range after the other, as are many
    messages; all come in the order of the ranges, also past a range that ends with the marker of a transaction."""
    monkeypatch.setattr(ranges, "LOT_BYTES", chunk_bytes)
    monkeypatch.setattr(ranges, "FEW", few)
    wanted = [OffsetRange(three[0], 0, 8, 12), OffsetRange(three[1], 1, 90, 100), OffsetRange(three[1], 0, 20, 80)]
    reader = RangeReader({"bootstrap.servers": kafka.bootstrap_servers})
    counting: Any = Counting(reader._consumer)
    reader._consumer = counting
    lots = list(reader.read(wanted))
    again = list(reader.read(wanted[1:]))
    reader.close()
    places = [place for lot in lots for place in zip(lot.topic, lot.partition, lot.offset, strict=True)]
    expected = [(one.topic, one.partition, offset) for one in wanted for offset in range(one.start, one.end)]
    assert places == [place for place in expected if place != (three[0], 0, 11)]
    assert sum(len(lot.offset) for lot in again) == 70
    assert counting.assigned[0] == together
    assert (counting.assigned == [3, 2]) == all_together


def test_of_ranges_read_together_one_may_be_gone(kafka: Kafka, three: tuple[str, str]) -> None:
    """The error names the partition."""
    with pytest.raises(SourceError, match="Kafka no longer holds the messages from offset 500 on") as caught:
        _read(kafka, OffsetRange(three[1], 0, 90, 95), OffsetRange(three[1], 1, 500, 501))
    assert caught.value.where == "three/1"


class Busy(Counting):
    """A client whose Kafka gets one more message in partition 0 of a topic before each request."""

    def __init__(self, consumer: Any, kafka: Kafka, topic: str) -> None:
        super().__init__(consumer)
        self._topic, self._producer = topic, ordered_producer(kafka.bootstrap_servers)
        self.consume, self._requests = self._more, 0

    def _more(self, count: int, timeout: float) -> Any:
        self._requests += 1
        assert self._requests < 1_000, "it asks for ever"
        self._producer.produce(self._topic, value=b"", partition=0)
        assert self._producer.flush(60) == 0
        return self._consumer.consume(count, timeout=timeout)


def test_a_partition_that_is_written_to_does_not_hide_that_another_one_is_gone(kafka: Kafka) -> None:
    """Messages beyond its range come for ever: the reader waited for the other partition as long as they did."""
    kafka.create_topic("busy", 2)
    producer = ordered_producer(kafka.bootstrap_servers)
    for number in range(20):
        producer.produce("busy", value=b"x", partition=number % 2)
    assert producer.flush(60) == 0
    reader = RangeReader({"bootstrap.servers": kafka.bootstrap_servers})
    busy: Any = Busy(reader._consumer, kafka, "busy")
    reader._consumer = busy
    assert sum(len(lot.offset) for lot in reader.read([OffsetRange("busy", n, 5, 10) for n in (0, 1)])) == 10
    with pytest.raises(SourceError, match="Kafka no longer holds the messages from offset 500 on") as caught:
        list(reader.read([OffsetRange("busy", 0, 5, 10), OffsetRange("busy", 1, 500, 501)]))
    reader.close()
    assert caught.value.where == "busy/1"


def test_a_reading_that_was_given_up_ends_with_the_next_one(
    kafka: Kafka, topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Somebody may still hold it, as an error holds the frames that it passed; its thread would share the client."""
    monkeypatch.setattr(ranges, "READ_AT_ONCE", 2)
    monkeypatch.setattr("bridge.sources.part_size.READ_AT_ONCE", 2)
    reader = RangeReader({"bootstrap.servers": kafka.bootstrap_servers})
    given_up = reader.read([OffsetRange(topic, 0, 5, 10)])
    assert next(given_up).offset == [5]
    anew = [offset for messages in reader.read([OffsetRange(topic, 0, 0, 4)]) for offset in messages.offset]
    rest = list(given_up)
    reader.close()
    assert (anew, rest) == ([0, 1, 2, 3], [])


def test_keys_and_values_come_as_they_were_sent(kafka: Kafka, topic: str) -> None:
    """A null key stays null, an empty one empty."""
    reader = RangeReader({"bootstrap.servers": kafka.bootstrap_servers})
    (messages,) = reader.read([OffsetRange(topic, 0, 9, 11)])
    reader.close()
    assert (messages.topic, messages.partition) == ([topic] * 2, [0, 0])
    assert (messages.key, messages.value) == ([None, b""], [b"9", b"10"])


def test_an_offset_that_is_gone_is_an_error(kafka: Kafka, topic: str) -> None:
    """What Kafka no longer holds is never passed over."""
    with pytest.raises(SourceError, match="Kafka no longer holds the messages from offset 500 on"):
        _read(kafka, OffsetRange(topic, 0, 500, 501))


TIMEOUT = SourceSection(timeout_seconds=5).client_properties


class Passing:
    """A client that passes over a long aborted transaction, 30 s of the clock at a time; `step` offsets each time."""

    step = 1000

    def __init__(self, properties: dict[str, Any]) -> None:
        self._say, self._clock, self._at = properties["stats_cb"], properties["clock"], 0

    def assign(self, _: object) -> None: ...

    def unassign(self) -> None: ...

    def consume(self, *_: object, timeout: float) -> list[Any]:
        del timeout
        self._clock.now += 30
        self._at += self.step
        self._say(json.dumps({"topics": {"t": {"partitions": {"0": {"next_offset": self._at}}}}}))
        done = SimpleNamespace(
            error=lambda: None,
            offset=lambda: 9999,
            key=lambda: b"",
            value=lambda: b"",
            timestamp=lambda: (0, -1),
            headers=lambda: None,
        )
        return [done] if self._at >= 9999 else []


@pytest.mark.parametrize(("step", "given", "said"), [(1000, {}, ""), (0, {}, "60 s"), (0, TIMEOUT, "10 s")])
def test_a_long_aborted_transaction_is_no_silence(
    monkeypatch: pytest.MonkeyPatch, step: int, given: dict[str, str], said: str
) -> None:
    """Nothing of it is handed over, however long it takes to fetch; only a client that fetches nothing for twice
    source.timeout_seconds is given up."""
    clock = Clock()
    monkeypatch.setattr("bridge.sources.kafka.range_reader.time.monotonic", lambda: clock.now)
    monkeypatch.setattr("bridge.sources.kafka.range_reader.Consumer", Passing)
    monkeypatch.setattr(Passing, "step", step)
    reader = RangeReader({"clock": clock, **given})
    with pytest.raises(SourceError, match=f"no message came for {said}") if said else nullcontext():
        assert [messages.offset for messages in reader.read([OffsetRange("t", 0, 0, 10_000)])] == [[9999]]


def test_few_large_messages_are_asked_for_at_once(kafka: Kafka) -> None:
    """How large they are, those before them tell; the first one is asked for alone."""
    kafka.create_topic("large", 1)
    producer = ordered_producer(kafka.bootstrap_servers, compression_type="lz4")
    for size in [900_000] * 30 + [10] * 3000:
        producer.produce("large", bytes(size))
    assert producer.flush(60) == 0
    reader = RangeReader({"bootstrap.servers": kafka.bootstrap_servers})
    asked, consumer = list[int](), reader._consumer

    def consume(count: int, timeout: float) -> Any:
        asked.append(count)
        return consumer.consume(count, timeout=timeout)

    stand_in: Any = SimpleNamespace(assign=consumer.assign, unassign=consumer.unassign, consume=consume)
    reader._consumer = stand_in
    try:
        lots = list(reader.read([OffsetRange("large", 0, 0, 3030)]))
    finally:
        consumer.close()
    assert [offset for lot in lots for offset in lot.offset] == list(range(3030))
    assert max(sum(map(len, filter(None, lot.value))) for lot in lots) < 2 * LOT_BYTES
    assert asked[:3] == [1, 1, 1]
    assert max(asked) > 1000
