"""The backlog: decoded changes that are not in the target yet, one micro-batch after the other."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bridge.model import Entry, PartitionId, PartitionStart, SchemaChange
from bridge.pipeline.bad_input.bad_messages import DueEntry
from bridge.pipeline.order import Starts
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowChanges


@dataclass(frozen=True)
class ReadBatch:
    """What waits of one micro-batch.

    starts: where a restart has to begin to read it again.
    last_ts: no change in it that is not applied yet has a higher commit_ts; infinite when it holds a bad message that
        stops the bridge.
    """

    rows: RowChanges
    changes: tuple[SchemaChange, ...]
    starts: Starts
    last_ts: float
    quarantined: tuple[DueEntry, ...] = field(default=())


class Backlog:
    """The micro-batches that are not completely applied, oldest first.

    positions: the next offset to read, and the last boundary, of each partition.
    """

    def __init__(self, positions: Starts) -> None:
        self.positions: Starts = dict(positions)
        self.batches: list[ReadBatch] = []

    @property
    def amount(self) -> Amount:
        """How much the row changes take that wait, in the driver and on executors."""
        return Amount.total(batch.rows.amount for batch in self.batches)

    def add(
        self,
        read: Mapping[PartitionId, int],
        rows: RowChanges,
        changes: tuple[SchemaChange, ...],
        quarantined: tuple[DueEntry, ...],
        boundary: Mapping[PartitionId, int],
        *,
        is_stopped: bool = False,
    ) -> None:
        """Adds what waits of a micro-batch.

        read: per partition, the offset after the last message read.
        quarantined: its bad messages, but for those that stop the bridge.  is_stopped: whether it has any of these.
        boundary: the boundary of each partition after the micro-batch (TSO).
        """
        own_ts = (*(change.commit_ts for change in changes), *(due.ts for due in quarantined))
        last_ts = max((rows.last_ts, *own_ts))
        starts = dict(self.positions)
        for partition in read:
            starts.setdefault(partition, PartitionStart(0, 0, 0))
        if last_ts >= 0 or is_stopped:
            self.batches.append(ReadBatch(rows, changes, starts, math.inf if is_stopped else last_ts, quarantined))
        self.positions = {
            partition: start._replace(
                offset=max(read.get(partition, 0), start.offset),
                boundary=boundary.get(partition, start.boundary),
                read=max(read.get(partition, 0), start.read),
            )
            for partition, start in starts.items()
        }

    def changes(self, low: int, high: int) -> list[SchemaChange]:
        """Returns the schema changes with low <= commit_ts < high, with their copies."""
        return [c for batch in self.batches for c in batch.changes if low <= c.commit_ts < high]

    def quarantined(self, low: int, high: int) -> tuple[Entry, ...]:
        """Returns what the transaction that moves the target from low to high has to quarantine."""
        return tuple(due.entry for batch in self.batches for due in batch.quarantined if low <= due.ts < high)

    def restart_positions(self, applied_ts: int) -> Starts:
        """Returns where a restart begins when everything below applied_ts is in the target: at the oldest one that
        holds anything at or above it."""
        alive = next((batch for batch in self.batches if batch.last_ts >= applied_ts), None)
        if alive is None:
            return self.positions
        return {
            partition: alive.starts.get(partition, PartitionStart(0, 0, 0))._replace(read=now.read)
            for partition, now in self.positions.items()
        }

    def release(self, applied_ts: int) -> None:
        """Drops what is below applied_ts."""
        self.batches = [
            replace(batch, rows=batch.rows.from_ts(applied_ts)) for batch in self.batches if batch.last_ts >= applied_ts
        ]
