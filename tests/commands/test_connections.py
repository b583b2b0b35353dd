"""Which protocol a source has."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.commands.connections import protocol_of
from bridge.config import Settings
from bridge.errors import UsageError
from bridge.sources.kafka.client import unknown_topic_error
from bridge.sources.source import Source
from tests.support.wire import canal

COLUMNS = {"id": ("int", "1")}


def source(*samples: list[Any]) -> Source:
    """A source that holds these messages, one sample after another."""
    left = list(samples)
    return cast("Source", SimpleNamespace(sample=lambda _: left.pop(0)))


def test_an_empty_source_is_waited_for() -> None:
    """It is said once, and the first message decides."""
    said: list[str] = []
    waits: list[None] = []
    empty = source([], [], [], [(b"", canal("INSERT", COLUMNS))])
    assert protocol_of(Settings(), empty, said.append, lambda: waits.append(None)) == "canal-json"
    assert ["no message yet" in line for line in said] == [True, False]
    assert len(waits) == 3


def test_an_empty_source_that_nobody_waits_for_is_an_error() -> None:
    """A catch-up has nothing to catch up with."""
    with pytest.raises(UsageError, match="the source is empty"):
        protocol_of(Settings(), source([]), print)


def test_an_unknown_topic_is_named_with_the_one_that_is_meant() -> None:
    """In words, not in those of Kafka's library."""
    assert str(unknown_topic_error("order", ["orders", "other"])).endswith("did you mean orders?")
    assert "did you mean" not in str(unknown_topic_error("order", ["xyz"]))
