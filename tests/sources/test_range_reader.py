"""Offset ranges: planned by Spark's log, shared over tasks, read whole."""

from __future__ import annotations

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import SourceError
from bridge.local import Kafka
from bridge.protocols.batch_decode import Messages
from bridge.sources import range_reader as ranges
from bridge.sources.part_size import FIRST_AT_ONCE, LEAST_AT_ONCE, PartSize
from bridge.sources.range_reader import (
    READ_AT_ONCE,
    OffsetRange,
    RangeReader,
    joined_chunks,
    shares,
    split_ranges,
)
from tests.support.models import Clock
from tests.support.producers import ordered_producer

RANGES = st.lists(
    st.builds(
        lambda partition, start, size: OffsetRange("t", partition, start, start + size),
        st.integers(0, 5), st.integers(0, 1000), st.integers(0, 500),
    ),
    max_size=6,
)  # fmt: skip


def _nobody(messages: int, size: int) -> None:
    """Learns nothing of the sizes."""


def _offsets(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]


@given(RANGES, st.integers(1, 8))
def test_shares_hold_every_offset_once_in_order_and_are_nearly_equal(ranges: list[OffsetRange], count: int) -> None:
    """No message is read twice or left out, and no task has more than its part."""
    cut = shares(ranges, count)
    assert len(cut) <= count
    assert [offset for share in cut for offset in _offsets(share)] == _offsets(ranges)
    total = len(_offsets(ranges))
    assert all(0 < len(_offsets(share)) <= -(-total // count) for share in cut)


@given(RANGES, st.integers(1, 8))
def test_ranges_cut_hold_every_offset_once_in_order(ranges: list[OffsetRange], count: int) -> None:
    """What is read by parts is read whole, each partition by as much at a time."""
    ranges = list({r.partition: r for r in ranges}.values())
    first, rest = split_ranges(ranges, count)
    read = _offsets(first) + _offsets(rest)
    assert sorted(read) == sorted(_offsets(ranges))
    assert all(r.size for r in (*first, *rest))
    assert count > 1 or not rest
    for whole in ranges:
        assert [o for p, o in read if p == whole.partition] == list(range(whole.start, whole.end))
        assert sum(r.size for r in first if r.partition == whole.partition) == -(-whole.size // count)


def test_the_pace_follows_the_rate() -> None:
    """A slow target is given less at a time, a fast one all that the settings allow; a handful says nothing."""
    pace = PartSize(100_000, 1 << 30)
    assert pace.by_rate == FIRST_AT_ONCE
    pace.note(100_000, 10.0)
    assert pace.by_rate == 20_000
    pace.note(20_000, 100.0)
    assert pace.by_rate == LEAST_AT_ONCE
    pace.note(50, 5.0)
    assert pace.by_rate == LEAST_AT_ONCE
    pace.note(10_000, 0.05)
    assert pace.by_rate == 100_000


def test_many_tables_make_larger_parts() -> None:
    """However slow the target is: a row for each table would cost as many statements as fifty of each."""
    pace = PartSize(100_000, 1 << 30)
    pace.note(20_000, 100.0)
    pace.had_tables(10)
    assert pace.ahead == 16_000
    assert pace.wanted() == LEAST_AT_ONCE
    pace.had_tables(1_000)
    assert pace.ahead == 50_000
    assert pace.wanted() == 50_000
    pace.had_tables(10_000)
    assert pace.wanted() == pace.ahead == 100_000
    pace.note(20_000, 0.1)
    pace.had_tables(1)
    assert pace.wanted() == 100_000


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
    monkeypatch.setattr(ranges, "_CHUNK_BYTES", chunk_bytes)
    monkeypatch.setattr(ranges, "DRIVER_DECODES", few)
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
            error=lambda: None, offset=lambda: 9999, key=lambda: b"", value=lambda: b"", timestamp=lambda: (0, -1)
        )
        return [done] if self._at >= 9999 else []


@pytest.mark.parametrize("step", [1000, 0])
def test_a_long_aborted_transaction_is_no_silence(monkeypatch: pytest.MonkeyPatch, step: int) -> None:
    """Nothing of it is handed over, however long it takes to fetch; only a client that fetches nothing is given up."""
    clock = Clock()
    monkeypatch.setattr("bridge.sources.range_reader.time.monotonic", lambda: clock.now)
    monkeypatch.setattr("bridge.sources.range_reader.Consumer", Passing)
    monkeypatch.setattr(Passing, "step", step)
    reader = RangeReader({"clock": clock})
    with nullcontext() if step else pytest.raises(SourceError, match="no message came"):
        assert [messages.offset for messages in reader.read([OffsetRange("t", 0, 0, 10_000)])] == [[9999]]


@given(st.lists(st.integers(1, READ_AT_ONCE // 3), max_size=12))
def test_messages_of_small_ranges_come_together(sizes: list[int]) -> None:
    """All of them, in order, in lots that are worth decoding."""
    some = [
        Messages(["t"] * size, [n] * size, list(range(size)), [None] * size, [b"x"] * size)
        for n, size in enumerate(sizes)
    ]
    lots = list(joined_chunks(some, _nobody))
    places = [place for lot in lots for place in zip(lot.partition, lot.offset, strict=True)]
    assert places == [(n, offset) for n, size in enumerate(sizes) for offset in range(size)]
    assert all(len(lot.value) == len(lot.key) == len(lot.topic) == len(lot.offset) for lot in lots)
    assert all(len(lot.offset) >= READ_AT_ONCE // 2 for lot in lots[:-1])


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
    assert max(sum(map(len, filter(None, lot.value))) for lot in lots) < 2 * ranges._REQUEST_BYTES
    assert asked[0] == 1
    assert max(asked[:3]) <= ranges._REQUEST_BYTES // 900_000
    assert max(asked) > 1000


def test_large_messages_wait_for_no_others() -> None:
    """They would fill the memory."""
    large = Messages(["t"], [0], [0], [None], [bytes(9 << 20)])
    small = Messages(["t"] * 2, [0] * 2, [1, 2], [None] * 2, [b"x", None])
    lots = [small, large, small, small, large, large]
    assert [len(lot.value) for lot in joined_chunks(lots, _nobody)] == [3, 5, 1]
