"""The backlog: decoded changes that are not yet in the target, as immutable chunks, one per micro-batch."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bridge.model import Entry, PartitionId, PartitionStart, SchemaChange
from bridge.pipeline.bad_input.bad_messages import DueEntry
from bridge.pipeline.decoded_batch import SortedBatch
from bridge.pipeline.order import Starts
from bridge.rows.amount import Amount
from bridge.rows.order_and_slices import RowStore


@dataclass(frozen=True)
class Chunk:
    """What one micro-batch brought.

    starts: where a restart would read from to see this chunk again.
    last_ts: highest commit_ts of anything in it that is not applied yet; infinite when it holds a bad message that
        stops the bridge.
    """

    store: RowStore
    changes: tuple[SchemaChange, ...]
    starts: Starts
    last_ts: float
    quarantined: tuple[DueEntry, ...] = field(default=())


class Backlog:
    """Chunks that are not wholly applied, oldest first.

    positions: where the stream stands: the next offset and last boundary per partition.
    """

    def __init__(self, positions: Starts) -> None:
        self.positions: Starts = dict(positions)
        self.chunks: list[Chunk] = []

    @property
    def amount(self) -> Amount:
        """Row changes held, wherever they are."""
        return Amount.total(chunk.store.amount for chunk in self.chunks)

    @property
    def rows(self) -> int:
        """How many they are."""
        return self.amount.rows

    def add(self, batch: SortedBatch, quarantined: tuple[DueEntry, ...], boundary: Mapping[PartitionId, int]) -> None:
        """Takes a micro-batch in.

        batch: its bad messages are those that stop the bridge; quarantined: the others.
        boundary: the partitions' boundaries after it (TSO).
        """
        control = batch.control
        own_ts = (*(change.commit_ts for change in control.changes), *(due.ts for due in quarantined))
        last_ts = max((batch.rows.last_ts, *own_ts))
        starts = dict(self.positions)
        for partition in batch.read:
            starts.setdefault(partition, PartitionStart(0, 0, 0))
        if last_ts >= 0 or control.bad:
            last = math.inf if control.bad else last_ts
            self.chunks.append(Chunk(batch.rows, control.changes, starts, last, quarantined))
        self.positions = {
            partition: start._replace(
                offset=max(batch.read.get(partition, 0), start.offset),
                boundary=boundary.get(partition, start.boundary),
                read=max(batch.read.get(partition, 0), start.read),
            )
            for partition, start in starts.items()
        }

    def changes(self, low: int, high: int) -> list[SchemaChange]:
        """Schema changes with low <= commit_ts < high, copies included."""
        return [c for chunk in self.chunks for c in chunk.changes if low <= c.commit_ts < high]

    def quarantined(self, low: int, high: int) -> tuple[Entry, ...]:
        """What a transaction that moves the target from low to high quarantines."""
        return tuple(due.entry for chunk in self.chunks for due in chunk.quarantined if low <= due.ts < high)

    def restart_positions(self, applied_ts: int) -> Starts:
        """Where a restart begins once everything below applied_ts is in the target: at the oldest chunk that still
        holds anything at or above it."""
        alive = next((chunk for chunk in self.chunks if chunk.last_ts >= applied_ts), None)
        if alive is None:
            return self.positions
        return {
            partition: alive.starts.get(partition, PartitionStart(0, 0, 0))._replace(read=now.read)
            for partition, now in self.positions.items()
        }

    def release(self, applied_ts: int) -> None:
        """Forgets what lies below applied_ts."""
        self.chunks = [
            replace(chunk, store=chunk.store.from_ts(applied_ts))
            for chunk in self.chunks
            if chunk.last_ts >= applied_ts
        ]
