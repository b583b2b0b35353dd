"""What a new user meets in the first hour, before a first row is in the target."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.local import Kafka
from tests.support.command import bridge


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
