"""What a new user meets in the first hour, before a first row is in the target."""

from __future__ import annotations

import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from bridge.local import Kafka
from tests.support.bridges import applied_ts
from tests.support.command import Process, bridge
from tests.support.producers import ordered_producer

WATERMARK = b'{"id":0,"database":"","table":"","isDdl":false,"type":"TIDB_WATERMARK","es":0,"ts":0,"sql":"","mysqlType"\
:null,"data":null,"old":null,"_tidb":{"watermarkTs":470611868434825218}}'


@pytest.mark.system
def test_a_topic_without_messages_is_waited_for(
    kafka: Kafka, topic: Callable[..., str], target: str, tmp_path: Path
) -> None:
    """`bridge run` says so once, begins with the first message, and ends cleanly at a stop."""
    name = topic(1)
    arguments = ("run", "--bootstrap-servers", kafka.bootstrap_servers, "--topic", name, "--target", target)
    with Process(tmp_path, *arguments) as process:
        process.says("there is no message yet")
        producer = ordered_producer(kafka.bootstrap_servers)
        producer.produce(name, WATERMARK)
        assert producer.flush(60) == 0
        process.says("protocol canal-json: 1 of 1 messages")
        process.wait_for(lambda: "progress" in process.log or bool(applied_ts(target)), "progress")
        process.wait_for(lambda: applied_ts(target) > 0, "the boundary in the target")
        assert process.log.count("there is no message yet") == 1
        process.signal(signal.SIGTERM)
        assert process.wait() == 0, process.end_of_log


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("command", ["run", "replay", "inspect"])
@pytest.mark.parametrize("protocol", ["auto", "canal-json"])
def test_an_unknown_topic_is_one_plain_line(
    kafka: Kafka, topic: Callable[..., str], target: str, command: str, protocol: str
) -> None:
    """With the name that is most like it, and not in the words of Kafka's library."""
    name = topic(1)
    source = ("--bootstrap-servers", kafka.bootstrap_servers, "--topic", f"{name}s", "--protocol", protocol)
    ended = bridge(command, *source, *(() if command == "inspect" else ("--target", target)))
    lines = [line for line in ended.err.splitlines() if line.startswith("bridge: ")]
    assert (ended.code, len(lines)) == (3, 1), ended.err
    assert lines[0].startswith(f"bridge: Kafka has no topic '{name}s'; fix: check --topic")
    assert "KafkaError" not in ended.err
