"""The one maker of Kafka producers of the tests."""

from __future__ import annotations

import time
from contextlib import suppress
from functools import partial
from typing import Any, Final

from confluent_kafka import KafkaError, KafkaException, Message, Producer
from confluent_kafka.admin import AdminClient

STUCK_SECONDS: Final = 60.0


def ordered_producer(bootstrap_servers: str, **options: Any) -> Producer:
    """A producer that keeps the order within each partition, as every sender of change messages does.

    Without idempotence, batches that a new topic's leader refuses at first are sent again behind those that came after
    them: rows stand behind their boundary then, and are late.

    options: properties of librdkafka, with _ for each dot.
    """
    more = {name.replace("_", "."): value for name, value in options.items()}
    return Producer({"bootstrap.servers": bootstrap_servers, "enable.idempotence": True, "log_level": 0, **more})


class SurvivingProducer:
    """Sends until Kafka has everything, in order within each partition, whatever becomes of brokers.

    Now and then librdkafka's idempotent producer sends nothing more after a broker was killed and partitions were added
    (seen in nights of faults; a new producer is served at once).  When nothing of what waits has arrived for
    `STUCK_SECONDS` although Kafka answers, another producer sends it again: messages may come twice, as from every
    producer that sends at least once.
    """

    def __init__(self, bootstrap_servers: str) -> None:
        self._servers = bootstrap_servers
        self._waiting: dict[int, tuple[str, bytes | None, bytes | None, int]] = {}
        self._sent, self.replaced = 0, 0
        self._producer = self._made()

    def _made(self) -> Producer:
        self._arrived_at, self._has_failed = time.monotonic(), False
        return ordered_producer(
            self._servers,
            linger_ms=5,
            message_timeout_ms=1_200_000,
            queue_buffering_max_messages=2_000_000,
            queue_buffering_max_kbytes=2 << 20,
        )

    def produce(self, topic: str, value: bytes | None, key: bytes | None, partition: int) -> None:
        """Takes one message; it is sent as soon as possible."""
        if not self._waiting:
            self._arrived_at = time.monotonic()
        self._sent += 1
        self._waiting[self._sent] = (topic, value, key, partition)
        self._send(self._sent)

    def poll(self, seconds: float = 0.0) -> None:
        """Notes what has arrived; call it often."""
        self._producer.poll(seconds)
        is_stuck = self._has_failed or time.monotonic() - self._arrived_at > STUCK_SECONDS
        if self._waiting and is_stuck and self._kafka_answers():
            self._replace()

    def flush(self, seconds: float) -> int:
        """Waits until everything has arrived; gives how many messages have not after so many seconds."""
        deadline = time.monotonic() + seconds
        while self._waiting and time.monotonic() < deadline:
            self.poll(0.1)
        return len(self._waiting)

    def count_partitions(self, topic: str) -> int:
        """Asks Kafka how many partitions a topic has."""
        return len(self._producer.list_topics(topic, 30).topics[topic].partitions)

    def _send(self, number: int) -> None:
        topic, value, key, partition = self._waiting[number]
        self._producer.produce(topic, value, key, partition, on_delivery=partial(self._note, self.replaced, number))

    def _note(self, producer: int, number: int, error: KafkaError | None, message: Message) -> None:  # noqa: ARG002
        if producer != self.replaced:
            return
        if error is None:
            del self._waiting[number]
            self._arrived_at = time.monotonic()
        else:
            self._has_failed = True

    def _kafka_answers(self) -> bool:
        """Asks with a client of its own: that of a producer that is stuck may get no answer any more."""
        with suppress(KafkaException):
            AdminClient({"bootstrap.servers": self._servers}).list_topics(timeout=1)
            return True
        return False

    def _replace(self) -> None:
        self.replaced += 1
        self._producer.purge()
        self._producer = self._made()
        for number in self._waiting:
            self._send(number)
