"""Samples of messages in Kafka."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.local import Kafka
from bridge.sources.kafka.source import KafkaSource
from tests.support.producers import ordered_producer


@pytest.mark.timeout(60)
def test_a_sample_ends_where_the_partitions_do(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Nobody waits for more messages than there are: a small topic took five seconds of each start."""
    name = topic(4)
    producer = ordered_producer(kafka.bootstrap_servers)
    for number in range(5):
        producer.produce(name, b"%d" % number, None, number % 2)
    producer.flush(30)
    source = KafkaSource(kafka.bootstrap_servers, [name], {})
    assert sorted(value or b"" for _, value in source.sample(200)) == [b"0", b"1", b"2", b"3", b"4"]
    assert len(source.sample(3)) == 3
