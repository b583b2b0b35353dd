"""Where partitions end, and where their messages of some moment begin."""

from __future__ import annotations

from collections.abc import Callable

from bridge.local import Kafka
from bridge.sources.kafka.source import KafkaSource
from tests.support.producers import ordered_producer


def test_messages_since_a_moment(kafka: Kafka, topic: Callable[..., str]) -> None:
    """The first message of each partition that is stamped then or later, whatever the order of the stamps; all messages
    where none is."""
    name = topic(3)
    producer = ordered_producer(kafka.bootstrap_servers)
    for partition, stamps in enumerate(([1000, 3000, 2000, 4000], [1000, 1500], [])):
        for ms in stamps:
            producer.produce(name, b"{}", partition=partition, timestamp=ms)
    assert producer.flush(30) == 0
    source = KafkaSource(kafka.bootstrap_servers, [name], {})

    def since(ms: int) -> list[int]:
        found = source.since([(name, number) for number in range(3)], ms)
        return [found[name, number] for number in range(3)]

    assert [since(ms) for ms in (0, 1000, 1001, 2500, 4001)] == [[0, 0, 0], [0, 0, 0], [1, 1, 0], [1, 0, 0], [0, 0, 0]]
    assert source.since([], 1000) == {}
    assert source.ends([(name, 0), (name, 2)]) == {(name, 0): 4, (name, 2): 0}
