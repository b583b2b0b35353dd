"""Where partitions begin that progress does not know."""

from __future__ import annotations

from bridge.model import PartitionStart
from bridge.mysql.state.progress import Progress
from bridge.pipeline.order import first_offsets


def test_a_partition_added_to_a_known_topic_begins_at_0() -> None:
    """A topic that is new to the pipeline begins with what there is of it."""
    progress = Progress("bridge", 1, 9, 0, {("a", 0): PartitionStart(5, 0, 5)}, ())
    lows = {("a", 0): 3, ("a", 1): 4, ("b", 0): 7}
    assert first_offsets(progress, lows) == {("a", 0): 0, ("a", 1): 0, ("b", 0): 7}
    assert first_offsets(Progress("bridge", 1, 9, 0, {}, ()), lows) == lows
