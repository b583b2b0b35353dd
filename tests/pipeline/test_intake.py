"""Micro-batches on their way to the applier."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pyarrow as pa
import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from py4j.protocol import Py4JError

from bridge.demo.encode import ENCODERS
from bridge.ends.end import End
from bridge.ends.phases import PhaseClock
from bridge.errors import ApplyError, SourceError
from bridge.events import EVENT_SCHEMA
from bridge.filters.table_filter import TableFilter
from bridge.local import Kafka
from bridge.model import PartitionStart
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier_thread import ApplierThread
from bridge.pipeline.by_boundaries.backlog import Backlog
from bridge.pipeline.by_boundaries.frontier import Frontier
from bridge.pipeline.by_boundaries.order import BoundaryOrder
from bridge.pipeline.by_partitions.order import IdlePolicy, PartitionOrder
from bridge.pipeline.by_partitions.partition_backlog import PartitionBacklog
from bridge.pipeline.decoded_batch import sorted_batch
from bridge.pipeline.intake import Intake
from bridge.pipeline.order import Order
from bridge.pipeline.watching.counts import Counts
from bridge.protocols import DecodeOptions
from bridge.rows.amount import Amount
from bridge.sources.kafka.batches import KafkaBatch
from bridge.sources.kafka.offset_ranges import OffsetRange
from bridge.sources.kafka.source import KafkaSource
from bridge.sources.kafka.topic_guard import TopicGuard
from bridge.sources.part_size import DRIVER_DECODES, LEAST_AT_ONCE
from bridge.spark.kept_rows.large_steps import LARGE
from tests.support.producers import ordered_producer

TS = 470611868434825218


class Taker:
    """What the applier is handed."""

    failure: BaseException | None = None

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.phases = PhaseClock()

    def offer(self, batch: Any, stop_waiting: Callable[[], bool]) -> bool:
        self.came.append(batch)
        return not stop_waiting()

    def fold_ahead(self, batch: Any) -> None:
        assert batch is self.came[-1]

    def fail(self, error: BaseException) -> None:
        self.failure = error


class Planned:
    """Boundaries in partition 0 of a topic, and the micro-batches of one each that are planned of them."""

    def __init__(self, kafka: Kafka, topic: str, count: int) -> None:
        self._topic = topic
        self._properties = (("bootstrap.servers", kafka.bootstrap_servers),)
        producer = ordered_producer(kafka.bootstrap_servers)
        for number in range(count):
            for message in ENCODERS["canal-json"](1).boundary(TS + number):
                producer.produce(topic, message.value, message.key, 0)
        producer.flush(30)

    def __call__(self, _: Any, number: int) -> KafkaBatch:
        """The micro-batch of a number."""
        return KafkaBatch(cast("Any", None), [OffsetRange(self._topic, 0, number, number + 1)], self._properties)


PROGRESS = Progress("bridge", 1, 0, 0, {}, ())


def _by_boundaries(topic: str) -> Order[Any]:
    starts = {(topic, 0): PartitionStart(0, 0, 0)}
    return BoundaryOrder(PROGRESS, Frontier([], time.monotonic), Backlog(starts), tables=TableFilter(), counts=Counts())


def _by_partitions(topic: str) -> Order[Any]:
    backlog = PartitionBacklog({(topic, 0): PartitionStart(0, 0, 0, 0)}, 0)
    return PartitionOrder(
        PROGRESS, backlog, IdlePolicy(0, lambda _: {}), lambda _, __: [], tables=TableFilter(), counts=Counts()
    )


def _intake(
    kafka: Kafka, topic: str, taker: Taker, order_of: Callable[[str], Order[Any]] = _by_boundaries, limit: int = 1000
) -> Intake:
    return Intake(
        "canal-json",
        DecodeOptions("UTC"),
        order_of(topic),
        cast("ApplierThread", taker),
        room=Amount(1000, 1 << 20),
        topics=TopicGuard(
            KafkaSource(kafka.bootstrap_servers, [topic], {}),
            End("source", topic, retry_seconds=60),
            {},
            by_partition=False,
        ),
        writers=lambda: 0,
        bytes_at_once=1 << 20,
        limit=limit,
    )


def _take(intake: Intake, planned: Callable[[Any, int], Any], number: int) -> None:
    """As Spark's callback does for one micro-batch."""
    stream = SimpleNamespace(next=lambda batch, _: planned(batch, number))
    intake.take(cast("Any", stream), cast("Any", None), number)


def _hand_over(intake: Intake, planned: Callable[[Any, int], KafkaBatch], *numbers: int) -> None:
    """As a query does that ends behind these micro-batches."""
    intake.start()
    for number in numbers:
        _take(intake, planned, number)
    assert any(intake.wait_until_done(0.2) for _ in range(150))


def test_a_partition_that_spark_has_not_seen_is_waited_for(kafka: Kafka, topic: Callable[..., str]) -> None:
    """The micro-batch was planned before the partition was seen; what lies there may be earlier than the boundary that
    was read.  So it is admitted with the boundary, once."""
    name, taker = topic(1), Taker()
    planned = Planned(kafka, name, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    _hand_over(_intake(kafka, name, taker), planned, 0, 1)
    first, second = taker.came
    assert first.control.boundaries == {(name, 0): TS}
    assert first.read == {(name, 0): 1, (name, 1): 0}
    assert second.read == {(name, 0): 2}


class Broken:
    """A part that cannot be read."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    @property
    def messages(self) -> int:
        raise self._error

    def split(self, _: int) -> tuple[Any, None]:
        return self, None


class Breaking:
    """A micro-batch of two parts of which the second cannot be read."""

    messages = None
    is_cut = False

    def __init__(self, readable: KafkaBatch, error: Exception) -> None:
        self._parts = readable, Broken(error)

    def split(self, _: int) -> tuple[Any, Any]:
        return self._parts


@pytest.mark.parametrize(
    "error", [Py4JError("lost"), KafkaException("lost"), MemoryError(), OSError("full"), ApplyError("refused")]
)
def test_behind_a_part_that_failed_nothing_is_taken(kafka: Kafka, topic: Callable[..., str], error: Exception) -> None:
    """Progress would go past what was not read, for good."""
    name, taker = topic(1), Taker()
    planned = Planned(kafka, name, 3)
    breaking = cast("Any", Breaking(planned(None, 0), error))
    _hand_over(_intake(kafka, name, taker), lambda _, number: planned(_, number) if number else breaking, 0, 2)
    assert [batch.read for batch in taker.came] == [{(name, 0): 1}]
    assert taker.failure is error


def test_a_gap_is_never_taken(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Whatever made it."""
    name, taker = topic(1), Taker()
    planned = Planned(kafka, name, 3)
    _hand_over(_intake(kafka, name, taker), planned, 0, 2)
    assert len(taker.came) == 1
    assert f"{name}/0" in str(taker.failure)


class Slow(Taker):
    """An applier that takes nothing before it is told to."""

    def __init__(self) -> None:
        super().__init__()
        self.takes = threading.Event()

    def offer(self, batch: Any, stop_waiting: Callable[[], bool]) -> bool:
        while not self.takes.wait(0.01) and not stop_waiting():
            pass
        return super().offer(batch, stop_waiting)


def test_spark_goes_on_while_a_micro_batch_is_taken(kafka: Kafka, topic: Callable[..., str]) -> None:
    """It plans the next one meanwhile, and waits with a second, so that what waits is bounded."""
    name, taker = topic(1), Slow()
    planned = Planned(kafka, name, 3)
    intake = _intake(kafka, name, taker)
    intake.start()
    for number in (0, 1):
        _take(intake, planned, number)
    third = threading.Thread(target=_take, args=(intake, planned, 2))
    third.start()
    third.join(0.3)
    assert third.is_alive()
    taker.takes.set()
    third.join(10)
    assert intake.wait_until_done(30)
    assert [batch.read for batch in taker.came] == [{(name, 0): number} for number in (1, 2, 3)]


class Part:
    """A part of a micro-batch without events; `decoded` is told when it is decoded."""

    starts: ClassVar[dict[Any, int]] = {}
    ends: ClassVar[dict[Any, int]] = {}

    def __init__(
        self, messages: int | None, decoded: Callable[[], None], parts: Sequence[Any] = (), *, is_cut: bool = False
    ) -> None:
        self.messages, self._decoded, self._parts, self.is_cut = messages, decoded, parts, is_cut

    def split(self, _: int) -> tuple[Any, Any]:
        if not self._parts:
            return self, None
        first, *others = self._parts
        return first, Part(self.messages, self._decoded, others) if others else None

    def collected(self, *_: Any) -> pa.Table:
        self._decoded()
        return pa.Table.from_batches([], EVENT_SCHEMA)


def _alone(taker: Taker, order_of: Callable[[str], Order[Any]] = _by_boundaries, limit: int = 1000) -> Intake:
    """An intake without Kafka."""
    intake = _intake(cast("Any", SimpleNamespace(bootstrap_servers="nowhere:1")), "t", taker, order_of, limit)
    intake._topics = cast("Any", SimpleNamespace(partitions=lambda _: set(), end=intake._topics.end))
    return intake


def test_what_only_the_query_can_read_is_read_before_it_goes_on() -> None:
    """A micro-batch whose size nobody knows is one that only Spark's query holds."""
    taker = Slow()
    intake = _alone(taker)
    intake.start()
    only_here = Part(None, lambda: None)
    query = threading.Thread(target=_take, args=(intake, lambda *_: only_here, 0))
    query.start()
    query.join(0.3)
    assert query.is_alive()
    taker.takes.set()
    query.join(10)
    assert not query.is_alive()
    assert intake.wait_until_done(10)


def _ended(made: Callable[[], Any]) -> tuple[Intake, Taker, threading.Thread]:
    """An intake whose stream has nothing to give, and Spark's callback, which has asked for it."""
    taker = Taker()
    intake = _alone(taker)
    intake.start()
    callback = threading.Thread(target=_take, args=(intake, lambda *_: made(), 0))
    callback.start()
    assert intake.wait_for_end(10)
    return intake, taker, callback


def test_spark_begins_nothing_after_the_end_of_the_stream() -> None:
    """Its clock would call again at once, and for ever; the pipeline ends the query when the rest is applied."""
    intake, taker, callback = _ended(lambda: None)
    assert intake.wait_until_done(10)
    callback.join(0.3)
    assert callback.is_alive()
    intake.close()
    callback.join(10)
    assert not callback.is_alive()
    assert taker.failure is None


def test_a_stream_that_cannot_be_planned_fails_as_itself() -> None:
    """Not as an error of Spark, which would name its callback."""

    def lost() -> None:
        raise SourceError("Kafka has lost messages")

    intake, taker, callback = _ended(lost)
    assert isinstance(taker.failure, SourceError)
    intake.close()
    callback.join(10)
    assert not callback.is_alive()


def test_one_part_is_decoded_ahead() -> None:
    """While the one before it is handed over; no more, so that the memory is bounded."""
    taker, decoded = Slow(), list[int]()
    intake = _alone(taker)
    intake.start()
    parts = [Part(DRIVER_DECODES + 1, partial(decoded.append, number)) for number in range(4)]
    whole = Part(4 * DRIVER_DECODES, lambda: None, parts)
    _take(intake, lambda *_: cast("Any", whole), 0)
    assert not intake.wait_until_done(0.5)
    assert decoded == [0, 1]
    taker.takes.set()
    assert intake.wait_until_done(10)
    assert decoded == [0, 1, 2, 3]
    assert len(taker.came) == 4


@pytest.mark.parametrize("writers", [0, 8])
def test_a_large_part_stays_where_executors_write_it(monkeypatch: pytest.MonkeyPatch, writers: int) -> None:
    """A smaller one comes to the driver, as every part does where the driver writes."""
    taker, came, stayed = Taker(), list[int](), list[int]()
    intake = _alone(taker)
    monkeypatch.setattr(intake, "_writers", lambda: writers)

    def stays(batch: Part, _: Any) -> Any:
        stayed.append(batch.messages or 0)
        return sorted_batch(pa.Table.from_batches([], EVENT_SCHEMA))

    monkeypatch.setattr(intake._order, "on_executors", stays)
    sizes = (LARGE.rows - 1, LARGE.rows)
    intake.start()
    _take(intake, lambda *_: Part(sum(sizes), lambda: None, [Part(n, partial(came.append, n)) for n in sizes]), 0)
    assert intake.wait_until_done(10)
    assert taker.failure is None
    assert (came, stayed) == (([*sizes], []) if not writers else ([sizes[0]], [sizes[1]]))


@pytest.mark.parametrize(("by_memory", "size"), [(1_000, 1_000), (10_000, 80_000)])
def test_a_part_that_comes_to_the_driver_fits_there(monkeypatch: pytest.MonkeyPatch, by_memory: int, size: int) -> None:
    """Although several executors would hold it: with large rows it has too few messages to stay with them."""
    intake = _alone(Taker(), limit=500_000)
    monkeypatch.setattr(intake, "_writers", lambda: 8)
    intake._part_size.by_rate, intake._part_size.by_memory = 500_000, by_memory
    assert intake._size() == size


@pytest.mark.parametrize(
    ("writers", "rate", "size"),
    [
        (0, 25_000, 50_000),
        (8, 25_000, 4 * LARGE.rows),
        (8, 10_000, 80_000),
        (8, 1_000, LEAST_AT_ONCE),
    ],
)
def test_a_slow_target_gets_large_steps_where_executors_write(
    monkeypatch: pytest.MonkeyPatch, writers: int, rate: int, size: int
) -> None:
    """Each of these steps costs some Spark jobs, and the driver would write the small ones.  But none takes longer than
    a stop and verify wait for it."""
    intake = _alone(Taker(), limit=500_000)
    monkeypatch.setattr(intake, "_writers", lambda: writers)
    monkeypatch.setattr(intake._order, "on_executors", lambda *_: None)
    intake._part_size.note(20_000, 20_000 / rate)
    assert intake._size() == size


def test_parts_fit_into_the_memory(kafka: Kafka, topic: Callable[..., str]) -> None:
    """What messages take is only known when they are decoded: a part that is too large is parted anew, whatever lies
    behind it follows, and parts grow again where messages are small."""
    name, taker = topic(2), Taker()
    producer = ordered_producer(kafka.bootstrap_servers)
    sizes = [100] * 20 + [100_000] * 20 + [100] * 200 + [900_000] + [100] * 20
    for number, size in enumerate(sizes):
        for partition in (0, 1):
            change = {"id": 0, "database": "m", "table": "t", "pkNames": ["v"], "isDdl": False, "type": "INSERT",
                      "es": 1, "ts": 1, "sql": "", "sqlType": {"v": 12}, "mysqlType": {"v": "text"}, "old": None,
                      "data": [{"v": "x" * size}], "_tidb": {"commitTs": TS + number}}  # fmt: skip
            producer.produce(name, json.dumps(change), None, partition)
            producer.poll(0)
    assert producer.flush(30) == 0
    intake = _intake(kafka, name, taker)
    whole = [OffsetRange(name, partition, 0, len(sizes)) for partition in (0, 1)]
    properties = (("bootstrap.servers", kafka.bootstrap_servers),)
    intake.start()
    _take(intake, lambda *_: KafkaBatch(cast("Any", None), whole, properties), 0)
    assert any(intake.wait_until_done(0.2) for _ in range(300))
    assert taker.failure is None
    parts = [batch.rows.amount for batch in taker.came]
    assert sum(part.rows for part in parts) == 2 * len(sizes)
    assert [part for part in parts if part.bytes > 1 << 20 and part.rows > 1] == []
    assert max(part.rows for part in parts) > 40
    assert taker.came[-1].read == {(name, 0): len(sizes), (name, 1): len(sizes)}


@pytest.mark.parametrize("is_cut", [True, False])
def test_what_the_limit_cut_goes_on_behind_its_last_part(is_cut: bool) -> None:
    """However few messages that part holds: what no part says, the whole micro-batch does."""
    taker = Taker()
    intake = _alone(taker, _by_partitions)
    intake.start()
    parts = [Part(DRIVER_DECODES + 1, lambda: None) for _ in range(3)]
    whole = Part(4 * DRIVER_DECODES, lambda: None, parts, is_cut=is_cut)
    _take(intake, lambda *_: cast("Any", whole), 0)
    assert any(intake.wait_until_done(0.2) for _ in range(50))
    assert [batch.is_cut for batch in taker.came] == [True, True, is_cut]


class Few:
    """A stream of so many micro-batches of one boundary each, and then nothing; `ends` says what comes then."""

    def __init__(self, planned: Planned, count: int, *, ends: bool) -> None:
        self._planned, self._count, self._ends = planned, count, ends
        self.number = 0

    def ahead(self, most: int, wait: Callable[[float], bool]) -> KafkaBatch | None:
        assert most == DRIVER_DECODES
        if self.number < self._count:
            self.number += 1
            return self._planned(None, self.number - 1)
        while not self._ends and not wait(0.05):
            pass
        return None

    def next(self, _: Any, wait: Callable[[float], bool]) -> KafkaBatch | None:
        while self.number >= self._count and not wait(0.05):
            pass
        return self.ahead(DRIVER_DECODES, wait)


def test_small_micro_batches_are_taken_before_spark_is_there(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Those that come afterwards follow without a gap."""
    name, taker, clock = topic(1), Taker(), threading.Event()
    stream: Any = Few(Planned(kafka, name, 5), 3, ends=False)
    intake = _intake(kafka, name, taker)
    intake.start()
    intake.take_ahead(stream)
    assert any(len(taker.came) == 3 or clock.wait(0.05) for _ in range(200))
    assert not intake.has_ended
    intake.executors_may_decode()
    taking = _clock_ticks(intake, stream)
    stream._count = 5
    taking.join(10)
    assert not taking.is_alive()
    intake.take(stream, cast("Any", None), 0)
    assert any(intake.wait_until_done(0.2) for _ in range(150))
    assert [batch.read for batch in taker.came] == [{(name, 0): number} for number in range(1, 6)]


def test_the_driver_goes_on_until_the_executors_are_ready(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Spark may call before: its workers take longer to start than its query."""
    name, taker, clock = topic(1), Taker(), threading.Event()
    stream: Any = Few(Planned(kafka, name, 5), 4, ends=False)
    intake = _intake(kafka, name, taker)
    intake.start()
    taking = _clock_ticks(intake, stream, ahead=True)
    assert any(len(taker.came) == 4 or clock.wait(0.05) for _ in range(200))
    assert taking.is_alive()
    stream._count = 5
    intake.executors_may_decode()
    taking.join(10)
    assert not taking.is_alive()
    assert any(len(taker.came) == 5 or clock.wait(0.05) for _ in range(200))
    assert [batch.read for batch in taker.came] == [{(name, 0): number} for number in range(1, 6)]


class Cut(Few):
    """Each micro-batch leaves messages out, and holds more than the driver decodes once Spark is there."""

    wanted: ClassVar[list[int]] = []

    def ahead(self, most: int, wait: Callable[[float], bool]) -> KafkaBatch | None:
        self.wanted.append(most)
        batch = super().ahead(DRIVER_DECODES, wait)
        return batch and Large(batch.spark, batch.ranges, batch.properties, is_cut=True)


class Large(KafkaBatch):
    """Counts as many messages."""

    messages = 4 * DRIVER_DECODES

    def split(self, size: int) -> tuple[KafkaBatch, None]:  # noqa: ARG002
        return self, None


def test_a_backlog_is_taken_in_larger_micro_batches(kafka: Kafka, topic: Callable[..., str]) -> None:
    """The driver decodes these, too, and waits for no executor."""
    name, taker = topic(1), Taker()
    stream: Any = Cut(Planned(kafka, name, 3), 3, ends=True)
    intake = _intake(kafka, name, taker)
    intake.start()
    intake.take_ahead(stream)
    assert intake.wait_for_end(30)
    assert any(intake.wait_until_done(0.2) for _ in range(150))
    assert [batch.read for batch in taker.came] == [{(name, 0): number} for number in range(1, 4)]
    assert stream.wanted[0] == DRIVER_DECODES
    assert all(most > DRIVER_DECODES for most in stream.wanted[1:])


def test_a_stream_may_end_before_spark_is_there(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Then nobody needs it."""
    name, taker = topic(1), Taker()
    intake = _intake(kafka, name, taker)
    intake.start()
    intake.take_ahead(cast("Any", Few(Planned(kafka, name, 2), 2, ends=True)))
    assert intake.wait_for_end(30)
    assert any(intake.wait_until_done(0.2) for _ in range(150))
    assert [batch.read for batch in taker.came] == [{(name, 0): number} for number in (1, 2)]


def test_an_applier_that_takes_nothing_does_not_keep_spark_waiting(kafka: Kafka, topic: Callable[..., str]) -> None:
    """What was planned before is kept, and comes first."""
    name, taker, clock = topic(1), Slow(), threading.Event()
    stream: Any = Few(Planned(kafka, name, 5), 5, ends=False)
    intake = _intake(kafka, name, taker)
    intake.start()
    intake.take_ahead(stream)
    assert any(stream.number == 3 or clock.wait(0.05) for _ in range(200))
    intake.executors_may_decode()
    taking = _clock_ticks(intake, stream)
    taking.join(0.5)
    assert taking.is_alive()
    assert stream.number < 5
    taker.takes.set()
    taking.join(10)
    assert not taking.is_alive()
    while stream.number < 5:
        intake.take(stream, cast("Any", None), 0)
    assert any(intake.wait_until_done(0.2) for _ in range(150))
    assert [batch.read for batch in taker.came] == [{(name, 0): number} for number in range(1, 6)]


def test_a_close_ends_what_is_taken_ahead(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Also when Spark has called, and its workers never start."""
    name, taker = topic(1), Taker()
    stream: Any = Few(Planned(kafka, name, 1), 1, ends=False)
    intake = _intake(kafka, name, taker)
    intake.start()
    intake.take_ahead(stream)
    taking = _clock_ticks(intake, stream)
    intake.close(10)
    taking.join(10)
    assert not taking.is_alive()
    assert taker.failure is None


def _clock_ticks(intake: Intake, stream: Any, *, ahead: bool = False) -> threading.Thread:
    """Calls as Spark does, from another thread.  ahead: the driver begins at the same time."""
    if ahead:
        intake.take_ahead(stream)
    ticking = threading.Thread(target=intake.take, args=(stream, cast("Any", None), 0), daemon=True)
    ticking.start()
    return ticking


def test_a_stop_waits_for_nobody(kafka: Kafka, topic: Callable[..., str]) -> None:
    """An applier that waits for somebody's approval takes nothing, and is told to end only when reading has ended."""
    name, held = topic(1), threading.Event()
    waiting = SimpleNamespace(
        finish_pending=lambda _: None,
        take=lambda _: held.wait(),
        interrupt=held.set,
        tick=lambda: None,
        phases=PhaseClock(),
        has_taken=threading.Event(),
    )
    worker = ApplierThread(cast("Any", waiting), ())
    worker.start()
    planned = Planned(kafka, name, 5)
    intake = _intake(kafka, name, cast("Any", worker))
    intake.start()

    def query() -> None:
        for number in range(5):
            _take(intake, planned, number)

    thread = threading.Thread(target=query)
    thread.start()
    thread.join(1)
    assert thread.is_alive()
    intake.close()
    thread.join(10)
    assert not thread.is_alive()
    assert worker.failure is None
    assert worker.stop(5)
