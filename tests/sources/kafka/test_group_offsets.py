"""The offsets of a consumer group, which the bridge sets and never reads."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

from confluent_kafka import Consumer, TopicPartition

from bridge.local import Kafka

COMMITS = 200
COMMITTER = f"""
import signal, sys, time
from bridge.errors import SourceError
from bridge.sources.kafka.source import KafkaSource
signal.alarm(60)  # a committer that never comes to its end fails the test
source = KafkaSource(sys.argv[1], [sys.argv[2]], {{"socket.timeout.ms": "1000"}})
taken = 0
while taken < {COMMITS}:
    try:
        source.commit("lag", {{(sys.argv[2], 0): taken + 1}})
        taken += 1
    except SourceError:
        pass
    print(taken, flush=True)
    time.sleep(0.02)
"""
"""Commits again and again; a process of its own, since a client in which an assertion fails takes its process with
it."""


def test_a_broker_that_restarts_ends_no_committer(kafka: Kafka, topic: Callable[..., str]) -> None:
    """What is committed while the broker is away is refused; later it is taken again."""
    name = topic()
    command = [sys.executable, "-c", COMMITTER, kafka.bootstrap_servers, name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as committer:
        assert committer.stdout is not None
        while (committer.stdout.readline() or "end").strip() not in {"1", "end"}:
            pass
        kafka.restart()
        last = [line.strip() for line in committer.stdout][-1]
    assert committer.returncode == 0
    settings = {"bootstrap.servers": kafka.bootstrap_servers, "group.id": "lag"}
    with Consumer(settings) as consumer:
        [found] = consumer.committed([TopicPartition(name, 0)], timeout=30)
    assert found.offset == int(last)
