"""Where partitions end."""

from __future__ import annotations

from collections.abc import Callable

from bridge.local import Kafka
from bridge.sources.kafka.source import KafkaSource
from tests.support.producers import ordered_producer


def test_where_partitions_end(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Behind their last message; at 0 where none is."""
    name = topic(3)
    producer = ordered_producer(kafka.bootstrap_servers)
    for _ in range(4):
        producer.produce(name, b"{}", partition=0)
    assert producer.flush(30) == 0
    source = KafkaSource(kafka.bootstrap_servers, [name], {})
    assert source.ends([(name, 0), (name, 2)]) == {(name, 0): 4, (name, 2): 0}
