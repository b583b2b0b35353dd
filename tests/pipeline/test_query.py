"""What one query reads, and what is read before it."""

from __future__ import annotations

import threading
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.config import Stream
from bridge.model import PartitionStart
from bridge.pipeline.intake import DRIVER_DECODES, HEAD_MESSAGES
from bridge.pipeline.query import Reading
from bridge.protocols import DecodeOptions
from bridge.sources.source import Extent

WHERE = ("t", 0)


@pytest.mark.parametrize(
    ("ahead", "driver_rows", "size"),
    [
        (DRIVER_DECODES, 500_000, None),
        (DRIVER_DECODES + 1, 500_000, HEAD_MESSAGES),
        (DRIVER_DECODES + 1, 10_000, 10_000),
        (DRIVER_DECODES + 1, 0, None),
    ],
)
def test_the_head_is_no_more_than_the_driver_may_hold(
    monkeypatch: pytest.MonkeyPatch, ahead: int, driver_rows: int, size: int | None
) -> None:
    """The setting bounds the memory, however much is asked for at a time."""
    monkeypatch.setattr("bridge.pipeline.query.warm_up", lambda _: None)
    source = SimpleNamespace(head=lambda *arguments: arguments[-1])
    settings = Stream(driver_rows=driver_rows)
    reading = Reading(
        cast("Any", source), "canal-json", DecodeOptions(None), settings, {}, threading.Event(), lambda: None
    )
    starts, extents = {WHERE: PartitionStart(5, 0, 0)}, {WHERE: Extent(0, 5 + ahead)}
    assert cast("Any", reading._head(cast("Any", None), starts, extents, "")) == size
