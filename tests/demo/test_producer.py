"""`python -m bridge.demo`, the producer of the trial: what becomes of its topic when it starts again."""

from __future__ import annotations

import signal
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.local import Kafka
from tests.support.command import Process, bridge
from tests.support.pipelines import sql
from tests.support.producers import ordered_producer

PROGRAM = (sys.executable, "-m", "bridge.demo")


def sent(kafka: Kafka, topic: str, folder: Path) -> None:
    """Runs the producer until it has sent something, and stops it as `docker compose down` does."""
    arguments = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", topic)
    with Process(folder, *arguments, program=PROGRAM) as producer:
        producer.says("sending to the topic")
        producer.signal(signal.SIGTERM)
        assert producer.wait() == 0, producer.end_of_log


@pytest.mark.usefixtures("spark")
def test_a_trial_that_is_started_again_goes_on(
    kafka: Kafka, topic: Callable[..., str], target: str, tmp_path: Path
) -> None:
    """The bank opens anew in the same topic, and the bridge follows."""
    name = topic(3)
    replay = ("replay", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", name, "--target", target)
    for _ in range(2):
        sent(kafka, name, tmp_path)
        ended = bridge(*replay)
        assert ended.code == 0, ended.err
        assert sql(target, "SELECT SUM(balance) FROM bank.checking")[0][0] is not None
    ran = sql(target, "SELECT COUNT(*) FROM _bridge.schema_changes WHERE statement LIKE 'CREATE DATABASE%'")
    assert ran == [(2,)]


def test_a_topic_of_somebody_else_is_left_alone(kafka: Kafka, topic: Callable[..., str], tmp_path: Path) -> None:
    """Whoever reads their own topic with the trial finds nothing of the bank in it."""
    name = topic(1)
    producer = ordered_producer(kafka.bootstrap_servers)
    producer.produce(name, b"{}")
    assert producer.flush(60) == 0
    arguments = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", name)
    for _ in range(2):
        with Process(tmp_path, *arguments, program=PROGRAM) as process:
            assert process.wait() == 0
            assert f"the topic {name} has messages of somebody else" in process.log
