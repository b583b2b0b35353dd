"""`python -m bridge.demo --bootstrap-servers HOST:PORT --topic NAME`: sends the bank's changes until it is stopped.

It gives a trial of docker-compose.yml something to replicate.  A topic that has messages is left alone: the bank that
they came from cannot be continued.
"""

from __future__ import annotations

import argparse
import signal
import threading
from typing import Final

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from bridge import console
from bridge.demo.bank import Bank
from bridge.demo.encode import ENCODERS
from bridge.demo.producer import BankProducer

PARTITIONS: Final = 4
PER_BEAT: Final = 5
"""Transactions between two boundaries: some two hundred row changes a second."""
_SECONDS: Final = 60.0


def main() -> None:
    """Sends until SIGTERM or Ctrl-C."""
    arguments = argparse.ArgumentParser(prog="python -m bridge.demo")
    arguments.add_argument("--bootstrap-servers", required=True)
    arguments.add_argument("--topic", required=True)
    given = arguments.parse_args()
    if not _is_empty(given.bootstrap_servers, given.topic):
        console.note(f"the topic {given.topic} has messages; it is left as it is")
        return
    stop = threading.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, lambda *_: stop.set())
    encoder = ENCODERS["canal-json"](PARTITIONS)
    with BankProducer(Bank(1), encoder, given.bootstrap_servers, given.topic, PER_BEAT, lambda _: None) as upstream:
        console.note(f"sending to the topic {given.topic}")
        while not stop.wait(1):
            upstream.check()


def _is_empty(bootstrap_servers: str, topic: str) -> bool:
    """Makes the topic unless it is there; tells whether it holds no message."""
    admin = AdminClient({"bootstrap.servers": bootstrap_servers})
    known = admin.list_topics(timeout=_SECONDS).topics
    if topic not in known:
        admin.create_topics([NewTopic(topic, PARTITIONS, 1)])[topic].result(_SECONDS)
        return True
    consumer = Consumer({"bootstrap.servers": bootstrap_servers, "group.id": "unused"})
    try:
        ends = [
            consumer.get_watermark_offsets(TopicPartition(topic, partition), _SECONDS)[1]
            for partition in known[topic].partitions
        ]
    finally:
        consumer.close()
    return not any(ends)


if __name__ == "__main__":
    main()
