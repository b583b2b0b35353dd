"""Ranges of offsets, and how they are divided among tasks and parts."""

from __future__ import annotations

from collections.abc import Iterable
from typing import NamedTuple


class OffsetRange(NamedTuple):
    """The offsets [start, end) of a partition.  There may be fewer messages than offsets: transaction markers, aborted
    messages and compaction leave gaps."""

    topic: str
    partition: int
    start: int
    end: int

    @property
    def size(self) -> int:
        """The most messages that it can hold."""
        return max(0, self.end - self.start)


def shares(ranges: Iterable[OffsetRange], count: int) -> list[list[OffsetRange]]:
    """Cuts the ranges into at most `count` shares of nearly equal size, none of them empty."""
    ranges = list(ranges)
    quota = -(-sum(r.size for r in ranges) // count) if ranges else 0
    cut: list[list[OffsetRange]] = []
    room = 0
    for whole in ranges:
        rest = whole
        while rest.size:
            if room == 0:
                cut.append([])
                room = quota
            piece = rest._replace(end=min(rest.end, rest.start + room))
            cut[-1].append(piece)
            rest = rest._replace(start=piece.end)
            room -= piece.size
    return cut
