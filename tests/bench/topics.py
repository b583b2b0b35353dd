"""Messages into Kafka."""

from __future__ import annotations

from collections.abc import Iterable

from confluent_kafka import Producer

from bridge.demo.encode import EncodedMessage


def fill(servers: str, topic: str, messages: Iterable[EncodedMessage]) -> int:
    """Produces all of them as fast as Kafka takes them; gives how many there were."""
    producer = Producer(
        {
            "bootstrap.servers": servers,
            "compression.type": "lz4",
            "linger.ms": 50,
            "batch.size": 1_000_000,
            "queue.buffering.max.messages": 200_000,
            "log_level": 0,
        }
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
