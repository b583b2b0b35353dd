"""`python -m bridge.demo --bootstrap-servers HOST:PORT --topic NAME`: sends the bank's changes until it is stopped.

It gives a trial of docker-compose.yml something to replicate.  After a restart the bank opens anew in the same topic:
its database is dropped and made again.  A topic that has messages of somebody else is left alone.
"""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Final

from confluent_kafka import Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from tenacity import retry, retry_if_exception, stop_after_delay, wait_fixed

from bridge import console
from bridge.demo.bank import Bank
from bridge.demo.encode import ENCODERS
from bridge.demo.producer import BankProducer

PARTITIONS: Final = 4
PER_BEAT: Final = 5
"""Transactions between two boundaries: some two hundred row changes a second."""
_SECONDS: Final = 60.0
_GROUP: Final = "bridge.demo"
_BEGINNING: Final = (KafkaError.NOT_COORDINATOR, KafkaError.COORDINATOR_LOAD_IN_PROGRESS)
"""What a broker that has just begun answers to questions about groups."""


def _has_just_begun(error: BaseException) -> bool:
    return isinstance(error, KafkaException) and error.args[0].code() in _BEGINNING


def main() -> None:
    """Sends until SIGTERM or Ctrl-C."""
    arguments = argparse.ArgumentParser(prog="python -m bridge.demo")
    arguments.add_argument("--bootstrap-servers", required=True)
    arguments.add_argument("--topic", required=True)
    given = arguments.parse_args()
    topic = _Topic(given.bootstrap_servers, given.topic)
    if not (topic.is_own or topic.is_empty):
        console.note(f"the topic {given.topic} has messages of somebody else; it is left as it is")
        return
    bank = Bank(1, is_new=topic.is_empty)
    topic.take()
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    encoder = ENCODERS["canal-json"](topic.partitions)
    with BankProducer(bank, encoder, given.bootstrap_servers, given.topic, PER_BEAT, lambda _: None) as upstream:
        console.note(f"sending to the topic {given.topic}")
        while not stop.wait(1):
            upstream.check()
        upstream.pause()  # with a boundary behind everything that was sent


class _Topic:
    """The topic, which is made unless it is there.  That it is the bank's is kept as offsets of a consumer group, which
    no consumer has."""

    def __init__(self, bootstrap_servers: str, name: str) -> None:
        admin = AdminClient({"bootstrap.servers": bootstrap_servers})
        if name not in (described := admin.list_topics(timeout=_SECONDS).topics):
            admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(_SECONDS)
        self.partitions = len(described[name].partitions) if name in described else PARTITIONS
        self._places = [TopicPartition(name, partition, 0) for partition in range(self.partitions)]
        self._consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": _GROUP})

    @property
    def is_empty(self) -> bool:
        """Whether it has never held a message."""
        return not any(self._consumer.get_watermark_offsets(place, _SECONDS)[1] for place in self._places)

    @property
    @retry(
        retry=retry_if_exception(_has_just_begun), stop=stop_after_delay(_SECONDS), wait=wait_fixed(0.2), reraise=True
    )
    def is_own(self) -> bool:
        """Whether its messages are the bank's."""
        return all(place.offset == 0 for place in self._consumer.committed(self._places, _SECONDS))

    def take(self) -> None:
        """Makes it the bank's."""
        self._consumer.commit(offsets=self._places, asynchronous=False)
        self._consumer.close()


if __name__ == "__main__":
    main()
