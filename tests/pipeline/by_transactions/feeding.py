"""Partitions that are read at different speeds, while messages are still being sent."""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa

from bridge.model import PartitionId


class Batch(NamedTuple):
    """The events of a micro-batch, and where each partition was read to."""

    events: pa.Table
    ends: dict[PartitionId, int]


class Feed:
    """The messages of a capture, as a process of the bridge meets them.

    events: in the order in which Kafka took them, as the capture has them.
    deaths: before which of them the connector was away; then it is met wherever it was.
    sent: how many of them were there when it began, at least.  count: how many are there.
    """

    def __init__(self, events: pa.Table, draw: random.Random, deaths: Sequence[int] = (), sent: int = 0) -> None:
        self._events, self._draw, self._deaths = events, draw, deaths
        self._where = list(zip(events["topic"].to_pylist(), events["partition"].to_pylist(), strict=True))
        self._offsets = events["offset"].to_numpy()
        self._numbers: dict[PartitionId, list[int]] = {}
        for number, where in enumerate(self._where):
            self._numbers.setdefault(where, []).append(number)
        self.partitions = sorted(self._numbers)
        self._at = dict.fromkeys(self.partitions, 0)
        self.count = sent if deaths else draw.randint(sent, len(self._where))

    def begin(self, offsets: Mapping[PartitionId, int]) -> None:
        """Reads from these offsets on."""
        for where in self.partitions:
            own = self._offsets[self._numbers[where]]
            self._at[where] = int(np.searchsorted(own, offsets[where]))
            if self._at[where]:
                self.count = max(self.count, self._numbers[where][self._at[where] - 1] + 1)

    def sent(self) -> dict[PartitionId, int]:
        """Where the partitions end now."""
        return {where: self._end(where, self._there(where)) for where in self.partitions}

    def _there(self, where: PartitionId) -> int:
        return int(np.searchsorted(self._numbers[where], self.count))

    def _end(self, where: PartitionId, count: int) -> int:
        return int(self._offsets[self._numbers[where][count - 1]]) + 1 if count else 0

    def next(self) -> Batch | None:
        """A micro-batch; None at the end."""
        if all(self._at[where] == len(self._numbers[where]) for where in self.partitions):
            return None
        later = min(len(self._where), self.count + self._draw.choice([0, 20, 300, 2000]))
        self.count = min([later, *(death for death in self._deaths if self.count < death)])
        return self._batch([0, 1, 30, 400, 5000])

    @property
    def is_away(self) -> bool:
        """Whether the connector has died, and not begun anew."""
        return self.count in self._deaths

    def rest(self) -> Batch:
        """Everything that has been sent."""
        return self._batch([len(self._where)])

    def _batch(self, counts: Sequence[int]) -> Batch:
        taken: list[int] = []
        for where in self._draw.sample(self.partitions, len(self.partitions)):
            most = self._there(where) - self._at[where]
            count = min(most, self._draw.choice(counts))
            taken += self._numbers[where][self._at[where] : self._at[where] + count]
            self._at[where] += count
        return Batch(
            self._events.take(pa.array(taken, pa.int64())),
            {where: self._end(where, self._at[where]) for where in self.partitions},
        )
