"""Which order a pipeline goes by: that of commit ts, vouched for by boundaries, or that of each partition.

Progress remembers it: positions with a floor belong to the order of the partitions (design, decision 13).
"""

from __future__ import annotations

from collections.abc import Mapping

from bridge.stream.backlog import Starts
from bridge.stream.frontier import PartitionId
from bridge.target.progress import PartitionStart, Progress


class OrderChanged(Exception):  # noqa: N818  # not an error: reading begins anew where progress says
    """The pipeline has gone over to the other order, and progress on the target says so; the text says why."""


def starts_of(progress: Progress, lows: Mapping[PartitionId, int], *, by_partition: bool) -> Starts:
    """Where to read from, for every partition of the source; one that progress does not know begins at its low
    offset, and nothing of it is in the target."""
    floor = 0 if by_partition else None
    return {where: progress.positions.get(where, PartitionStart(low, 0, low, floor)) for where, low in lows.items()}
