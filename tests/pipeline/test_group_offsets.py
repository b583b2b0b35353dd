"""The offsets of a consumer group, at the end of a run."""

from __future__ import annotations

import time
from collections.abc import Mapping
from types import SimpleNamespace
from typing import cast

import pytest
from structlog.testing import capture_logs

from bridge.errors import SourceError
from bridge.model import PartitionId
from bridge.pipeline.applier import Applier
from bridge.pipeline.heartbeat import GroupOffsets
from bridge.sources.source import Source

SLOW_SECONDS = 1.5
"""A broker that has yet to make the topic of its consumer groups takes longer than a second."""
APPLIER = cast("Applier", SimpleNamespace(committed={("changes", 0): SimpleNamespace(offset=7)}))


class SlowBroker:
    """Takes offsets late, or refuses them then."""

    def __init__(self, *, is_refusing: bool) -> None:
        self.is_refusing = is_refusing
        self.offsets: dict[PartitionId, int] = {}

    def commit(self, _group: str, offsets: Mapping[PartitionId, int]) -> None:
        time.sleep(SLOW_SECONDS)
        if self.is_refusing:
            raise SourceError("Kafka does not take the offsets", fix="")
        self.offsets = dict(offsets)


@pytest.mark.parametrize("is_refusing", [False, True])
def test_a_short_run_waits_for_its_last_commit(is_refusing: bool) -> None:
    """Either Kafka has the offsets when the bridge ends, or the log says why not."""
    broker = SlowBroker(is_refusing=is_refusing)
    with capture_logs() as lines, GroupOffsets(cast("Source", broker), "shown") as group_offsets:
        group_offsets.report_on(APPLIER)
    assert broker.offsets == ({} if is_refusing else {("changes", 0): 7})
    assert [line["event"] for line in lines] == (["group_offsets_failed"] if is_refusing else [])
