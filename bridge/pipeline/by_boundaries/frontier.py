"""The frontier: the boundary of each partition, and their minimum, the resolved ts (internals, "Words")."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Final

from bridge.errors import SourceError
from bridge.events import Position
from bridge.model import UNUSED, PartitionId

_SILENT_SECONDS: Final = 60.0
"""Boundaries come each second; a partition that brings none for so long, while others do, may bring none any more."""


def used(topic: str, partition: int) -> SourceError:
    """Makes the error of a partition that is said to be unused and holds messages."""
    return SourceError(
        f"the partition {topic}/{partition} is said to be unused (source.unused_partitions), and has had messages",
        where=topic,
        fix="start the bridge with that setting without it ([] for none); rows of it below the applied ts (bridge"
        " status) then count as late: where there are any, bridge verify --against upstream finds and fixes them",
    )


@dataclass
class _Partition:
    boundary: int
    seen_at: float
    """Clock time of the last boundary, or of the start."""
    frozen_by: Position | None = None


class Frontier:
    """The boundaries of all partitions.  One thread changes them; others may read them.

    clock: seconds, monotonic; only used to say how long a partition has been silent.
    partitions: each with its boundary so far; none is waited for where that is UNUSED.
    """

    def __init__(self, partitions: Iterable[tuple[PartitionId, int]], clock: Callable[[], float]) -> None:
        now, boundaries = clock(), dict(partitions)
        self._clock = clock
        self._unused = frozenset(where for where, ts in boundaries.items() if ts == UNUSED)
        self._partitions = {where: _Partition(ts, now) for where, ts in boundaries.items() if ts != UNUSED}

    @property
    def partitions(self) -> list[PartitionId]:
        """All partitions known so far."""
        return list(self._partitions)

    def boundary(self, partition: PartitionId) -> int:
        """The partition's boundary (TSO), 0 while there is none."""
        state = self._partitions.get(partition)
        return state.boundary if state else 0

    @property
    def has_boundary(self) -> bool:
        """Whether any partition has had a boundary."""
        return any(state.boundary for state in list(self._partitions.values()))

    def observe(self, partition: PartitionId, ts: int) -> None:
        """Notes that a boundary arrived.  A lower one than before is a repeated message.  A frozen partition keeps its
        own."""
        state = self._state_of(partition)
        state.seen_at = self._clock()
        if state.frozen_by is None:
            state.boundary = max(state.boundary, ts)

    def freeze(self, position: Position) -> None:
        """Freezes the boundary of a partition at a bad message: later boundaries would say that it is complete."""
        state = self._state_of((position.topic, position.partition))
        state.frozen_by = state.frozen_by or position

    def admit(self, partition: PartitionId) -> None:
        """Adds a partition unless it is known.  Until it has a boundary, nothing is complete.

        Raises SourceError for one that is said to be unused: a message of it was read."""
        self._state_of(partition)

    @property
    def resolved_ts(self) -> int:
        """The ts below which everything is complete in every partition, 0 while one has no boundary."""
        return min((state.boundary for state in list(self._partitions.values())), default=0)

    def resolved_with(self, boundaries: Mapping[PartitionId, int]) -> int:
        """The ts below which everything will be complete once these boundaries have arrived, too, as far as the
        partitions are known."""
        states = list(self._partitions.items())
        return min(
            (
                state.boundary if state.frozen_by else max(state.boundary, boundaries.get(where, 0))
                for where, state in states
            ),
            default=0,
        )

    @property
    def silence(self) -> float:
        """Seconds since the last boundary of any partition, or since the start."""
        return min((self._clock() - state.seen_at for state in list(self._partitions.values())), default=0.0)

    def waiting_for(self) -> str:
        """Tells which partition holds the resolved ts back, and why, for the status line."""
        if not self._partitions:
            return "the source has no partitions"
        (topic, partition), state = min(list(self._partitions.items()), key=lambda item: item[1].boundary)
        where = f"partition {partition}" if len({t for t, _ in list(self._partitions)}) == 1 else f"{topic}/{partition}"
        if state.frozen_by:
            return f"{where} is stopped by a bad message at {state.frozen_by}"
        silent = self._clock() - state.seen_at
        return f"{where} has had no boundary for {silent:.0f} s{self._hint(topic, partition, state, silent)}"

    def _hint(self, topic: str, partition: int, state: _Partition, silent: float) -> str:
        """Says why a partition may be silent for good while others are not; "" where nothing shows that it is."""
        if silent < _SILENT_SECONDS or self.silence > silent / 2:
            return ""
        if state.boundary == 0:
            where = f"{topic}/{partition}"
            return f"; if the changefeed's partition-num leaves it out, name it in source.unused_partitions: {where}"
        return f"; if the table of this topic was dropped upstream, take it out: bridge reset --topic {topic}"

    def _state_of(self, partition: PartitionId) -> _Partition:
        state = self._partitions.get(partition)
        if partition in self._unused:
            topic, number = partition
            raise used(topic, number)
        if state is None:
            state = self._partitions[partition] = _Partition(0, self._clock())
        return state
