"""Tells where a restart begins when only a part of a step is in the target."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from typing import Generic, TypeVar

import numpy as np
import pyarrow as pa

from bridge.model import PartitionId
from bridge.pipeline.by_partitions.merge import Rows
from bridge.pipeline.by_partitions.partition_queue import AppliedRow
from bridge.pipeline.by_partitions.repeated_rows import last_applied, seen_before
from bridge.rows.grouping import Bools, Longs

Change = TypeVar("Change")


@dataclass(frozen=True)
class StepRows(Generic[Change]):
    """The rows of the present step.

    numbers: their commit_ts in the step, and their offsets, by partition.
    after_rows: the next offset of each partition after these rows.
    rows: those of each partition, as they were read.
    before: the last row of each partition before them.
    copies: which rows are sent again, by their places.
    passed: the schema change behind these rows.
    shown: the highest time of each partition before them.
    table, times: the rows that count, in order, and their event times (TSO).
    """

    high: int
    rows: Mapping[PartitionId, Rows]
    before: Mapping[PartitionId, AppliedRow]
    copies: Mapping[PartitionId, Bools]
    passed: Change | None
    shown: Mapping[PartitionId, int]
    numbers: Mapping[PartitionId, tuple[Longs, Longs]]
    after_rows: Mapping[PartitionId, int]
    table: pa.Table
    times: Longs

    def rows_below(self, applied_ts: int) -> tuple[pa.Table, Longs]:
        """Gives the rows that count below applied_ts, and their event times."""
        count = int(np.searchsorted(self.table["commit_ts"].to_numpy(), applied_ts, "left"))
        return self.table.slice(0, count), self.times[:count]

    def offset_at(self, where: PartitionId, applied_ts: int) -> int:
        """Gives the offset of a partition's first message that is not below applied_ts."""
        numbers, offsets = self.numbers.get(where, (np.empty(0, np.int64), np.empty(0, np.int64)))
        first = int(np.searchsorted(numbers, applied_ts, "left"))
        return int(offsets[first]) if first < len(offsets) else self.after_rows[where]

    def shown_at(self, where: PartitionId, applied_ts: int) -> int:
        """Gives the highest time (TSO) of a partition's messages below applied_ts."""
        before = self.shown.get(where, 0)
        if where not in self.numbers:
            return before
        return int(self.rows[where].times[: self._count_at(where, applied_ts)].max(initial=before))

    def applied_at(self, where: PartitionId, applied_ts: int) -> AppliedRow:
        """Gives a partition's last row below applied_ts that names its place."""
        rows, seen = self.rows[where], partial(seen_before, self.rows[where], self.shown[where])
        return last_applied(rows, self._count_at(where, applied_ts), self.before[where], self.copies.get(where), seen)

    def _count_at(self, where: PartitionId, applied_ts: int) -> int:
        return int(np.searchsorted(self.numbers[where][0], applied_ts, "left"))
