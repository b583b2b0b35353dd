"""Messages into Kafka."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from bridge.demo.encode import EncodedMessage
from tests.support.producers import ordered_producer


def fill(servers: str, topic: str, messages: Iterable[EncodedMessage]) -> int:
    """Produces all of them as fast as Kafka takes them; gives how many there were."""
    producer = ordered_producer(
        servers, compression_type="lz4", linger_ms=50, batch_size=1_000_000, queue_buffering_max_messages=200_000
    )
    count = 0
    for message in messages:
        send(producer, topic, message)
        count += 1
    left = producer.flush(120)
    assert not left, f"Kafka did not take {left} messages"
    return count


def send(producer: Producer, topic: str, message: EncodedMessage) -> None:
    """One message; waits while the producer's queue is full."""
    partition, key, value = message
    while True:
        try:
            producer.produce(topic, key=key, value=value, partition=partition)
        except BufferError:
            producer.poll(0.1)
        else:
            return
