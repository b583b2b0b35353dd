"""Micro-batches on their way to the applier."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from bridge.demo.encode import ENCODERS
from bridge.local import Kafka
from bridge.protocols import DecodeOptions
from bridge.stream.backlog import Arrival, Backlog
from bridge.stream.intake import Gate, Intake
from bridge.stream.kafka_source import KafkaBatch, KafkaSource
from bridge.stream.ranges import OffsetRange
from bridge.stream.topics import TopicGuard
from bridge.stream.worker import ApplierThread
from bridge.target.progress import PartitionStart

TS = 470611868434825218


class Arrivals:
    """What the applier is handed."""

    failure: BaseException | None = None

    def __init__(self) -> None:
        self.came: list[Arrival] = []

    def offer(self, arrival: Arrival) -> None:
        self.came.append(arrival)

    def fail(self, error: BaseException) -> None:
        raise error


def test_a_partition_that_spark_has_not_seen_is_waited_for(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Spark planned the micro-batch before it saw the partition; what lies there may be earlier than the boundary that
    was read.  So it is admitted with the boundary, once."""
    name = topic(1)
    producer = Producer({"bootstrap.servers": kafka.bootstrap_servers})
    for message in ENCODERS["canal-json"](1).boundary(TS) * 2:
        producer.produce(name, message.value, message.key, 0)
    producer.flush(30)
    admin = AdminClient({"bootstrap.servers": kafka.bootstrap_servers})
    admin.create_partitions([NewPartitions(name, 2)])[name].result(30)
    source, arrivals = KafkaSource(kafka.bootstrap_servers, [name], {}), Arrivals()
    properties = (("bootstrap.servers", kafka.bootstrap_servers),)

    def as_planned(_: Any, number: int) -> KafkaBatch:
        return KafkaBatch(cast("Any", None), [OffsetRange(name, 0, number, number + 1)], properties)

    intake = Intake(
        as_planned,
        "canal-json",
        DecodeOptions("UTC"),
        Backlog({(name, 0): PartitionStart(0, 0, 0)}),
        cast("ApplierThread", arrivals),
        Gate(),
        room=1000,
        topics=TopicGuard(source, {}, by_partition=False),
        by_partition=False,
        limit=1000,
    )
    for number in (0, 1):
        intake.hand_over(cast("Any", None), number)
    first, second = (control for _, control in arrivals.came)
    assert first.boundaries == {(name, 0): TS}
    assert first.read == {(name, 0): 1, (name, 1): 0}
    assert second.read == {(name, 0): 2}
