"""The producer of the feed."""

from __future__ import annotations

from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

from bridge.local import Kafka
from tests.support import producers
from tests.support.producers import SurvivingProducer, ordered_producer

LONG_MS = 200_000
COUNT = 100


def test_a_producer_that_sends_nothing_is_replaced(
    kafka: Kafka, topic: Callable[..., str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """What waited arrives once, in order."""
    monkeypatch.setattr(producers, "STUCK_SECONDS", 3.0)
    name, producer = topic(), SurvivingProducer(kafka.bootstrap_servers)
    producer._producer = ordered_producer(kafka.bootstrap_servers, linger_ms=LONG_MS)
    for number in range(COUNT):
        producer.produce(name, b"%d" % number, None, 0)
    assert producer.flush(60) == 0
    assert producer.replaced >= 1
    reader = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": name, "enable.auto.commit": False})
    reader.assign([TopicPartition(name, 0, 0)])
    came = reader.consume(COUNT, 30)
    reader.close()
    assert [message.value() for message in came] == [b"%d" % number for number in range(COUNT)]
