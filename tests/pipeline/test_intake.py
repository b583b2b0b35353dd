"""Micro-batches on their way to the applier."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable, Sequence
from itertools import chain
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar, cast

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from py4j.protocol import Py4JError

from bridge.config import StreamSection
from bridge.demo.encode import ENCODERS
from bridge.ends import End
from bridge.errors import ApplyError, SourceError
from bridge.local import Kafka
from bridge.model import PartitionStart
from bridge.mysql.state.progress import Progress
from bridge.phases import PhaseClock
from bridge.pipeline import intake as intake_module
from bridge.pipeline.applier import ApplierConfig, ApplierThread, Counts
from bridge.pipeline.by_boundaries import BoundaryOrder
from bridge.pipeline.by_partitions.order import PartitionOrder
from bridge.pipeline.intake import LARGE, Intake
from bridge.pipeline.order import Order, control_events
from bridge.protocols import DecodeOptions
from bridge.rows.gathering import Amount
from bridge.sources.kafka.client import OffsetRange
from bridge.sources.kafka.offset_planner import KafkaBatch
from bridge.sources.kafka.source import KafkaSource
from bridge.sources.kafka.topic_guard import TopicGuard
from bridge.sources.part_size import LEAST_AT_ONCE
from bridge.spark.chunk_source import Planned, answering
from bridge.spark.decoded_batch import DecodedBatch, event_decoder
from bridge.spark.event_transfer import TooLargeError, coming_chunks, import_events
from bridge.spark.shards import Home
from tests.support.producers import ordered_producer
from tests.support.waiting import wait_for
from tests.support.wire import canal

TS = 470611868434825218


class Taker:
    """What the applier is handed."""

    failure: BaseException | None = None

    def __init__(self) -> None:
        self.came: list[Any] = []
        self.phases = PhaseClock()

    def offer(self, batch: Any, stop_waiting: Callable[[], bool]) -> bool:
        if stop_waiting():
            return False
        self.came.append(batch)
        return True

    def fold_ahead(self, batch: Any) -> None:
        assert batch is self.came[-1]

    def fail(self, error: BaseException) -> None:
        self.failure = error


class Boundaries:
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
        return KafkaBatch([OffsetRange(self._topic, 0, number, number + 1)], self._properties)


PROGRESS = Progress("bridge", 1, 0, 0, {}, ())


def _by_boundaries(topic: str) -> Order:
    starts = {(topic, 0): PartitionStart(0, 0, 0)}
    return BoundaryOrder(PROGRESS, starts, ApplierConfig(), Counts())


def _by_partitions(topic: str) -> Order:
    starts = {(topic, 0): PartitionStart(0, 0, 0, 0)}
    return PartitionOrder(PROGRESS, starts, lambda _, __: [], ApplierConfig(), Counts())


class Here(Intake):
    """Decodes in this process."""

    def _read_again(self, part: Any) -> DecodedBatch:
        tables = chain.from_iterable(self._decode(read()) for read in part.reads(1))
        limit = self._most_bytes if part.is_divisible else math.inf
        return DecodedBatch.of(import_events(chunk.events for chunk in coming_chunks(tables, None, limit)))


@pytest.fixture(autouse=True)
def _whole_here(monkeypatch: pytest.MonkeyPatch) -> None:
    """What Spark's tasks would give of a micro-batch is decoded in this process."""
    monkeypatch.setattr(intake_module, "collected", lambda decoded, *, stay: decoded())  # noqa: ARG005


def _intake(
    kafka: Kafka, topic: str, taker: Taker, order_of: Callable[[str], Order] = _by_boundaries, limit: int = 1000
) -> Here:
    size = {"driver_rows": 2000, "driver_bytes": 2 << 20, "bytes_at_once": 1 << 20}
    end = End("source", topic, retry_seconds=60)
    return Here(
        cast("Any", None),
        event_decoder("canal-json", DecodeOptions("UTC")),
        cast("StreamSection", SimpleNamespace(messages_per_batch=limit, **size)),
        order_of(topic),
        cast("ApplierThread", taker),
        TopicGuard(KafkaSource(kafka.bootstrap_servers, [topic], {}), end, {}, by_partition=False),
        writers=0,
        largest=Amount(1000, 1 << 20),
        home=Home(cast("Any", None), None),
    )


def _take(intake: Intake, planned: Callable[[Any, int], Any], number: int) -> None:
    """As Spark's callback does for one micro-batch."""
    batch = intake._batch = planned(None, number)
    intake.take(cast("Any", lambda: intake._read_again(batch)), number)


def _hand_over(intake: Intake, taker: Taker, planned: Callable[[Any, int], Any], *numbers: int) -> None:
    """As a query does that ends behind these micro-batches, or when one of them fails."""

    def query() -> None:
        for number in numbers:
            _take(intake, planned, number)

    thread = threading.Thread(target=query)
    thread.start()
    wait_for(lambda: not thread.is_alive() or taker.failure is not None, "the query goes on")
    intake.close()
    thread.join(10)
    assert not thread.is_alive()


def test_a_partition_that_spark_has_not_seen_is_waited_for(kafka: Kafka, topic: Callable[..., str]) -> None:
    """The micro-batch was planned before the partition was seen; what lies there may be earlier than the boundary that
    was read.  So it is admitted with the boundary, once."""
    name, taker = topic(1), Taker()
    planned = Boundaries(kafka, name, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    _hand_over(_intake(kafka, name, taker), taker, planned, 0, 1)
    first, second = taker.came
    assert control_events(first.events).boundaries == {(name, 0): TS}
    assert first.read == {(name, 0): 1, (name, 1): 0}
    assert second.read == {(name, 0): 2}


class Broken:
    """A micro-batch that cannot be read."""

    messages = None

    def __init__(self, error: Exception) -> None:
        self._error = error

    is_divisible = False

    def reads(self, _: int) -> list[Any]:
        raise self._error


@pytest.mark.parametrize(
    "error", [Py4JError("lost"), KafkaException("lost"), MemoryError(), OSError("full"), ApplyError("refused")]
)
def test_behind_what_failed_nothing_is_taken(kafka: Kafka, topic: Callable[..., str], error: Exception) -> None:
    """Progress would go past what was not read, for good."""
    name, taker = topic(1), Taker()
    planned, intake = Boundaries(kafka, name, 3), _intake(kafka, name, taker)
    _take(intake, planned, 0)
    failing = threading.Thread(target=_take, args=(intake, lambda *_: Broken(error), 1))
    failing.start()
    assert any(taker.failure is error or failing.join(0.1) for _ in range(100))
    assert failing.is_alive()  # or Spark would begin the next one
    intake.close()
    failing.join(10)
    _take(intake, planned, 2)
    assert [batch.read for batch in taker.came] == [{(name, 0): 1}]


def test_a_gap_is_never_taken(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Whatever made it."""
    name, taker = topic(1), Taker()
    planned = Boundaries(kafka, name, 3)
    _hand_over(_intake(kafka, name, taker), taker, planned, 0, 2)
    assert len(taker.came) == 1
    assert f"{name}/0" in str(taker.failure)


def _worker(take: Callable[[Any], object], interrupt: Callable[[], None]) -> ApplierThread:
    """The thread of an applier that does this, and nothing else."""
    applier = SimpleNamespace(
        finish_pending=lambda _: None,
        take=take,
        fold_ahead=lambda _: None,
        interrupt=interrupt,
        tick=lambda: None,
        phases=PhaseClock(),
        has_taken=threading.Event(),
    )
    worker = ApplierThread(cast("Any", applier), ())
    worker.start()
    return worker


def test_spark_goes_on_while_a_micro_batch_is_applied(kafka: Kafka, topic: Callable[..., str]) -> None:
    """The next one waits for the applier meanwhile, and Spark with a third, so that what waits is bounded."""
    name, goes_on, applied = topic(1), threading.Event(), list[Any]()
    worker = _worker(lambda batch: goes_on.wait(60) and applied.append(batch.read), goes_on.set)
    planned = Boundaries(kafka, name, 3)
    intake = _intake(kafka, name, cast("Any", worker))
    for number in (0, 1):
        _take(intake, planned, number)
    third = threading.Thread(target=_take, args=(intake, planned, 2))
    third.start()
    third.join(0.3)
    assert third.is_alive()
    goes_on.set()
    third.join(10)
    assert worker.drain(lambda: False)
    assert applied == [{(name, 0): number} for number in (1, 2, 3)]


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

    is_divisible = True

    def reads(self, _: int) -> list[Any]:
        self._decoded()
        return []


def _alone(taker: Taker, order_of: Callable[[str], Order] = _by_boundaries, limit: int = 1000) -> Intake:
    """An intake without Kafka."""
    intake = _intake(cast("Any", SimpleNamespace(bootstrap_servers="nowhere:1")), "t", taker, order_of, limit)
    intake._topics = cast("Any", SimpleNamespace(partitions=lambda _: set(), end=intake._topics.end))
    return intake


def _ended(plan: Callable[..., Any]) -> tuple[Intake, Taker, threading.Thread]:
    """An intake whose stream has nothing to give, and Spark, which has asked for it."""
    taker = Taker()
    intake = _alone(taker)
    intake._planner = cast("Any", SimpleNamespace(next=plan))
    asking = threading.Thread(target=intake.latest)
    asking.start()
    assert any(taker.failure is not None or intake.wait_for_end(0.1) for _ in range(100))
    return intake, taker, asking


def test_spark_begins_nothing_after_the_end_of_the_stream() -> None:
    """It would ask again at once, and for ever; the pipeline ends the query when the rest is applied."""
    intake, taker, asking = _ended(lambda *_: None)
    asking.join(0.3)
    assert asking.is_alive()
    intake.close()
    asking.join(10)
    assert not asking.is_alive()
    assert taker.failure is None


def test_a_stream_that_cannot_be_planned_fails_as_itself() -> None:
    """Not as an error of Spark, which would name its data source."""

    def lost(*_: object) -> None:
        raise SourceError("Kafka has lost messages")

    intake, taker, asking = _ended(lost)
    assert isinstance(taker.failure, SourceError)
    intake.close()
    asking.join(10)
    assert not asking.is_alive()


def test_who_asks_for_tasks_where_none_were_planned_ends(tmp_path: Path) -> None:
    """Spark begins the first micro-batch although the stream was over, while the query is being stopped; no thread
    fails."""
    with answering(_alone(Taker()), str(tmp_path)), pytest.raises(EOFError):
        Planned(str(tmp_path)).ask("tasks")


@pytest.mark.parametrize("writers", [0, 8])
@pytest.mark.parametrize("messages", [LARGE - 1, LARGE])
def test_large_micro_batches_stay_where_executors_write(
    monkeypatch: pytest.MonkeyPatch, writers: int, messages: int
) -> None:
    """Smaller ones come to the driver, as all do where the driver writes."""
    intake = _alone(Taker())
    monkeypatch.setattr(intake, "_writers", writers)
    assert intake._may_stay(messages) is (writers > 0 and messages == LARGE)
    assert _alone(Taker(), _by_partitions)._may_stay(messages) is False


@pytest.mark.parametrize(("by_memory", "size"), [(1_000, 1_000), (10_000, 80_000)])
def test_a_part_that_comes_to_the_driver_fits_there(monkeypatch: pytest.MonkeyPatch, by_memory: int, size: int) -> None:
    """Although several executors would hold it: with large rows it has too few messages to stay with them."""
    intake = _alone(Taker(), limit=500_000)
    monkeypatch.setattr(intake, "_writers", 8)
    intake._part_size.by_rate, intake._part_size.by_memory = 500_000, by_memory
    assert intake._size() == size


@pytest.mark.parametrize(
    ("writers", "rate", "size"),
    [(0, 25_000, 50_000), (8, 25_000, 4 * LARGE), (8, 10_000, 80_000), (8, 1_000, LEAST_AT_ONCE)],
)
def test_a_slow_target_gets_large_steps_where_executors_write(
    monkeypatch: pytest.MonkeyPatch, writers: int, rate: int, size: int
) -> None:
    """Each of these steps costs some Spark jobs, and the driver would write the small ones.  But none takes longer than
    a stop and verify wait for it."""
    intake = _alone(Taker(), limit=500_000)
    monkeypatch.setattr(intake, "_writers", writers)
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
            change = canal(
                "INSERT", {"v": ("text", "x" * size)}, database="m", pkNames=["v"], _tidb={"commitTs": TS + number}
            )
            producer.produce(name, change, None, partition)
            producer.poll(0)
    assert producer.flush(30) == 0
    intake = _intake(kafka, name, taker)
    whole = [OffsetRange(name, partition, 0, len(sizes)) for partition in (0, 1)]
    properties = (("bootstrap.servers", kafka.bootstrap_servers),)
    _hand_over(intake, taker, lambda *_: KafkaBatch(whole, properties), 0)
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
    parts = [Part(1, lambda: None) for _ in range(3)]

    def too_large() -> None:
        raise TooLargeError(Amount(1, 1))

    whole = Part(4, too_large, parts, is_cut=is_cut)
    _hand_over(intake, taker, lambda *_: whole, 0)
    assert [batch.is_cut for batch in taker.came] == [True, True, is_cut]


def test_a_stop_waits_for_nobody(kafka: Kafka, topic: Callable[..., str]) -> None:
    """An applier that waits for somebody's approval takes nothing, and is told to end only when reading has ended."""
    name, held = topic(1), threading.Event()
    worker = _worker(lambda _: held.wait(), held.set)
    planned = Boundaries(kafka, name, 5)
    intake = _intake(kafka, name, cast("Any", worker))

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
