"""The embedded Kafka broker."""

from __future__ import annotations

import time
import uuid
from collections.abc import Iterator
from typing import Any

import pytest
from confluent_kafka import Consumer, Message, TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource

from bridge.local import Kafka, LocalError
from tests.support.producers import ordered_producer

pytestmark = pytest.mark.system


@pytest.fixture(scope="module")
def broker() -> Iterator[Kafka]:
    """A broker of this module's own, as its tests kill it."""
    with Kafka(properties={"compression.type": "lz4"}) as broker:
        yield broker


@pytest.fixture
def topic(broker: Kafka) -> str:
    name = f"test-{uuid.uuid4().hex[:12]}"
    broker.create_topic(name, 2)
    return name


def produce(broker: Kafka, topic: str, value: bytes, **options: Any) -> None:
    producer = ordered_producer(broker.bootstrap_servers, message_max_bytes=64 << 20)
    errors: list[object] = []
    producer.produce(topic, value, partition=1, on_delivery=lambda error, _: errors.append(error), **options)
    assert producer.flush(30) == 0
    assert errors == [None]


def consume(broker: Kafka, topic: str) -> Message:
    """The first message of partition 1."""
    group = {"group.id": "test", "enable.auto.commit": False, "log_level": 0}
    consumer = Consumer({"bootstrap.servers": broker.bootstrap_servers, **group})
    try:
        consumer.assign([TopicPartition(topic, 1, 0)])
        message = consumer.poll(30)
    finally:
        consumer.close()
    assert message is not None
    assert message.error() is None
    return message


def test_old_and_future_timestamps_are_kept(broker: Kafka, topic: str) -> None:
    """Replayed captures carry their own timestamps; the broker neither refuses nor expires them."""
    now = int(time.time() * 1000)
    for timestamp in (now - 10 * 365 * 86_400_000, now + 365 * 86_400_000):
        produce(broker, topic, b"x", timestamp=timestamp)
    settings = broker_settings(broker)
    assert settings["log.retention.ms"] == "-1"
    assert int(settings["log.message.timestamp.before.max.ms"]) == 2**63 - 1


def test_large_messages_are_taken(broker: Kafka, topic: str) -> None:
    """TiCDC's max-message-bytes may be far above Kafka's default of 1 MiB."""
    produce(broker, topic, b"\x00" * (32 << 20))
    assert len(consume(broker, topic).value() or b"") == 32 << 20


def broker_settings(broker: Kafka) -> dict[str, str]:
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    resource = ConfigResource(ConfigResource.Type.BROKER, "1")
    entries = admin.describe_configs([resource])[resource].result(30)
    return {name: entry.value for name, entry in entries.items()}


def test_a_refused_topic_is_told_with_kafkas_words(broker: Kafka, topic: str) -> None:
    """A topic that exists is an error, not silently shared."""
    with pytest.raises(LocalError, match=f"{topic}.*already exists"):
        broker.create_topic(topic, 1)


def test_killed_broker_keeps_messages_and_address(broker: Kafka, topic: str) -> None:
    """`kill` then `restart` is a power cut: acknowledged messages are there, at the same address."""
    produce(broker, topic, b"kept")
    address, pid = broker.bootstrap_servers, broker.pid
    broker.kill()
    broker.restart()
    assert consume(broker, topic).value() == b"kept"
    assert (broker.bootstrap_servers, broker.pid != pid) == (address, True)


def test_a_broker_is_fetched_once(broker: Kafka, monkeypatch: pytest.MonkeyPatch) -> None:
    """Only the first start on a machine fetches; the others need no network."""
    monkeypatch.setattr("bridge.local.kafka.retrieve", lambda *_: pytest.fail("it was fetched again"))
    assert "kafka.Kafka" in Kafka()._command(broker.folder)


def test_a_refused_property_is_told_with_the_brokers_words() -> None:
    """A broker that does not come up is an error that quotes it, and leaves nothing behind."""
    broker = Kafka(properties={"message.max.bytes": "x"})
    with pytest.raises(LocalError, match=r"message\.max\.bytes"):
        broker.start()
    with pytest.raises(LocalError, match="not started"):
        _ = broker.folder
