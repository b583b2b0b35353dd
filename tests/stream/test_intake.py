"""Micro-batches on their way to the applier."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
from confluent_kafka import KafkaException, Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from py4j.protocol import Py4JError

from bridge.demo.encode import ENCODERS
from bridge.errors import ApplyError
from bridge.local import Kafka
from bridge.protocols import DecodeOptions
from bridge.stream.backlog import Arrival, Backlog
from bridge.stream.intake import Gate, Intake
from bridge.stream.kafka_source import KafkaBatch, KafkaSource
from bridge.stream.ranges import OffsetRange
from bridge.stream.source import Extent
from bridge.stream.topics import TopicGuard
from bridge.stream.worker import ApplierThread
from bridge.target.progress import PartitionStart

TS = 470611868434825218


class Arrivals:
    """What the applier is handed."""

    failure: BaseException | None = None

    def __init__(self) -> None:
        self.came: list[Arrival] = []

    def offer(self, arrival: Arrival, given_up: Callable[[], bool]) -> bool:
        self.came.append(arrival)
        return not given_up()

    def fail(self, error: BaseException) -> None:
        self.failure = error


class Planned:
    """Boundaries in partition 0 of a topic, and the micro-batches of one each that are planned of them."""

    def __init__(self, kafka: Kafka, topic: str, count: int) -> None:
        self._topic = topic
        self._properties = (("bootstrap.servers", kafka.bootstrap_servers),)
        producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
        for number in range(count):
            for message in ENCODERS["canal-json"](1).boundary(TS + number):
                producer.produce(topic, message.value, message.key, 0)
        producer.flush(30)

    def __call__(self, _: Any, number: int) -> KafkaBatch:
        """The micro-batch of a number."""
        return KafkaBatch(cast("Any", None), [OffsetRange(self._topic, 0, number, number + 1)], self._properties)


def _intake(kafka: Kafka, topic: str, arrivals: Arrivals) -> Intake:
    return Intake(
        "canal-json",
        DecodeOptions("UTC"),
        Backlog({(topic, 0): PartitionStart(0, 0, 0)}),
        cast("ApplierThread", arrivals),
        Gate(),
        room=1000,
        topics=TopicGuard(KafkaSource(kafka.bootstrap_servers, [topic], {}), {}, by_partition=False),
        by_partition=False,
        limit=1000,
    )


def test_a_partition_that_spark_has_not_seen_is_waited_for(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Spark planned the micro-batch before it saw the partition; what lies there may be earlier than the boundary that
    was read.  So it is admitted with the boundary, once."""
    name, arrivals = topic(1), Arrivals()
    planned = Planned(kafka, name, 2)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    intake = _intake(kafka, name, arrivals)
    for number in (0, 1):
        intake.hand_over(planned, cast("Any", None), number)
    first, second = (control for _, control in arrivals.came)
    assert first.boundaries == {(name, 0): TS}
    assert first.read == {(name, 0): 1, (name, 1): 0}
    assert second.read == {(name, 0): 2}


def test_the_head_comes_first(kafka: Kafka, topic: Callable[..., str]) -> None:
    """However soon the query's first micro-batch comes: what the head holds is before it."""
    name, arrivals = topic(1), Arrivals()
    planned = Planned(kafka, name, 2)
    intake = _intake(kafka, name, arrivals)
    with intake.ahead(planned(None, 0)):
        intake.hand_over(planned, cast("Any", None), 1)
    assert [control.read for _, control in arrivals.came] == [{(name, 0): 1}, {(name, 0): 2}]


class Breaking:
    """A head of several parts of which the second cannot be read."""

    def __init__(self, parts: list[KafkaBatch], error: Exception) -> None:
        self._parts, self._error = parts, error

    def parts(self, _: int) -> list[Any]:
        return [self._parts[0], self, *self._parts[1:]]

    @property
    def messages(self) -> int:
        raise self._error


@pytest.mark.parametrize(
    "error", [Py4JError("lost"), KafkaException("lost"), MemoryError(), OSError("full"), ApplyError("refused")]
)
def test_behind_a_head_that_failed_nothing_is_taken(kafka: Kafka, topic: Callable[..., str], error: Exception) -> None:
    """Progress would go past what was not read, for good."""
    name, arrivals = topic(1), Arrivals()
    planned = Planned(kafka, name, 3)
    intake = _intake(kafka, name, arrivals)
    with intake.ahead(cast("Any", Breaking([planned(None, 0)], error))):
        intake.hand_over(planned, cast("Any", None), 2)
    assert [control.read for _, control in arrivals.came] == [{(name, 0): 1}]
    assert arrivals.failure is error


def test_a_gap_is_never_taken(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Whatever made it."""
    name, arrivals = topic(1), Arrivals()
    planned = Planned(kafka, name, 3)
    intake = _intake(kafka, name, arrivals)
    for number in (0, 2):
        intake.hand_over(planned, cast("Any", None), number)
    assert len(arrivals.came) == 1
    assert f"{name}/0" in str(arrivals.failure)


def test_who_waits_for_the_applier_gives_up_at_a_stop() -> None:
    """An applier that waits for somebody's approval takes nothing, and is told to end only behind the gate."""
    gate, held = Gate(), threading.Event()
    waiting = SimpleNamespace(
        finish_pending=lambda _: None, take=lambda _: held.wait(), interrupt=held.set, tick=lambda: None
    )
    worker = ApplierThread(cast("Any", waiting), ())
    worker.start()
    offered = []

    def offer() -> None:
        with gate.entered():
            offered.extend(worker.offer(cast("Any", number), lambda: gate.is_closed) for number in range(3))

    thread = threading.Thread(target=offer)
    thread.start()
    time.sleep(0.5)
    gate.close()
    thread.join()
    assert offered == [True, True, False]
    assert worker.stop(5)


def test_the_head_leaves_something_to_the_query() -> None:
    """A part of every partition, where there is more behind it than in it; else all is left to the query."""
    source = KafkaSource("nowhere:1", ["t"], {})
    starts = {("t", n): PartitionStart(10, 0, 0) for n in range(3)}
    extents = {("t", 0): Extent(0, 110), ("t", 1): Extent(0, 60), ("t", 2): Extent(5, 10)}
    spark = cast("Any", SimpleNamespace(sparkContext=SimpleNamespace(master="spark://nowhere:1")))
    head = source.head(spark, "/tmp", starts, extents, 50)
    assert head is not None
    assert head.ends == {("t", 0): 43, ("t", 1): 26}
    assert head.messages == 49
    assert source.head(spark, "/tmp", starts, extents, 76) is None
