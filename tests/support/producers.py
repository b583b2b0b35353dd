"""The one maker of Kafka producers of the tests."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Producer


def ordered_producer(bootstrap_servers: str, **options: Any) -> Producer:
    """A producer that keeps the order within each partition, as every sender of change messages does.

    Without idempotence, batches that a new topic's leader refuses at first are sent again behind those that came after
    them: rows stand behind their boundary then, and are late.

    options: properties of librdkafka, with _ for each dot.
    """
    more = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "log_level": 0, **more})


def patient_producer(bootstrap_servers: str) -> Producer:
    """The same; it keeps what it is to send while the broker is away for minutes."""
    return ordered_producer(
        bootstrap_servers,
        linger_ms=5,
        message_timeout_ms=1_200_000,
        queue_buffering_max_messages=2_000_000,
        queue_buffering_max_kbytes=2 << 20,
    )
