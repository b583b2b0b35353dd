"""Which order a pipeline goes by: that of commit ts, vouched for by boundaries, or that of each partition.

Progress remembers it: positions with a floor belong to the order of the partitions (internals, decision 13).
"""

from __future__ import annotations

from collections.abc import Mapping

from bridge.model import PartitionId, PartitionStart
from bridge.mysql.state.progress import Progress
from bridge.pipeline.backlog import Starts


class OrderChanged(Exception):  # noqa: N818  # not an error: reading begins anew where progress says
    """The pipeline has gone over to the other order, and progress on the target says so; the text says why."""


def first_offsets(progress: Progress, lows: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    """Where the partitions of a Kafka begin that progress does not know: at the first offset there is, but in a topic
    that it knows at 0: such a partition was added since, and whatever is gone from its beginning was never read."""
    known = {topic for topic, _ in progress.positions}
    return {where: 0 if where[0] in known else low for where, low in lows.items()}


def starts_of(
    progress: Progress, lows: Mapping[PartitionId, int], *, by_partition: bool, begins: Mapping[str, int] | None = None
) -> Starts:
    """Where to read from, for every partition of the source; one that progress does not know begins at its low
    offset, and nothing of it is in the target but what lies below the beginning of its topic (TSO)."""
    floor = 0 if by_partition else None
    known = {where: progress.positions.get(where, PartitionStart(low, 0, low, floor)) for where, low in lows.items()}
    return {where: start._replace(begin=(begins or {}).get(where[0], start.begin)) for where, start in known.items()}
