"""Samples of messages in Kafka."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable

import pytest
from confluent_kafka import Consumer, TopicPartition

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


def test_where_partitions_end(kafka: Kafka, topic: Callable[..., str]) -> None:
    """Behind their last message; at 0 where none is."""
    name = topic(3)
    producer = ordered_producer(kafka.bootstrap_servers)
    for _ in range(4):
        producer.produce(name, b"{}", partition=0)
    assert producer.flush(30) == 0
    source = KafkaSource(kafka.bootstrap_servers, [name], {})
    assert source.ends([(name, 0), (name, 2)]) == {(name, 0): 4, (name, 2): 0}


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
