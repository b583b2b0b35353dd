"""Topics that Kafka compacts: what it takes away leaves no trace, so the operator is warned."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from bridge.local import Kafka
from tests.support.bridges import kafka_arguments
from tests.support.command import bridge


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(("policy", "is_compacted"), [("compact,delete", True), ("delete", False)])
def test_a_compacted_topic_is_named(
    target: str, kafka: Kafka, topic: Callable[..., str], policy: str, is_compacted: bool
) -> None:
    """By `bridge check`, and in the log at the start; it is no failure."""
    name = topic(1, {"cleanup.policy": policy})
    replay = kafka_arguments("replay", kafka.bootstrap_servers, name, target)
    ended = bridge(*replay)
    assert (ended.code, "topic_is_compacted" in ended.err) == (0, is_compacted), ended.err
    checked = bridge("check", *replay[1:])
    assert (f"Kafka compacts the topic {name}" in checked.out) == is_compacted, checked.out
