"""The backlog: decoded changes that are not yet in the target, as immutable chunks, one per micro-batch."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import Kind, Position
from bridge.model import NO_ENDS, Entry, PartitionId, PartitionStart, SchemaChange
from bridge.pipeline.bad_messages import BadMessage, DueEntry, message_entry
from bridge.rows.amount import Amount
from bridge.rows.gathering import taken
from bridge.rows.grouping import distinct
from bridge.rows.order_and_slices import RowStore, TableStore, in_order

Starts = dict[PartitionId, PartitionStart]
_ROWS_PER_SLICE: Final = 200
"""A slice costs as much as copying so many row changes."""


class LeftOut(NamedTuple):
    """Rows of a table that is not replicated.

    why: nothing is ever written to its database, None where the filter leaves it out.
    position: of the first.  rows: how many there are, where nothing is ever written.
    """

    schema: str
    table: str
    why: str | None
    position: Position
    rows: int


@dataclass(frozen=True)
class ControlEvents:
    """The events of a micro-batch that are not row changes, and how far it read.

    boundaries: highest boundary per partition.
    read: per partition, the offset after the last event.
    bad: bad messages that stop the bridge (on arrival: all of them), in order.
    aside: what is to be put aside.
    by_time: some changes lack a TSO, so that boundaries say nothing of them.
    is_cut: the source may have held more when it was read.
    left_out: tables whose rows it did not read.
    """

    boundaries: dict[PartitionId, int]
    read: dict[PartitionId, int]
    changes: tuple[SchemaChange, ...]
    bad: tuple[BadMessage, ...]
    aside: tuple[DueEntry, ...] = ()
    by_time: bool = False
    is_cut: bool = False
    left_out: tuple[LeftOut, ...] = ()


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
    aside: tuple[DueEntry, ...] = field(default=())


def arrival_of(events: pa.Table, ends: Mapping[PartitionId, int] = NO_ENDS) -> Arrival:
    """Row changes, and everything else, of one micro-batch's events (EVENT_SCHEMA, any order), in the driver.

    ends: the offsets up to which it read, where they are known: its last messages may have no events.
    """
    is_row = events["kind"].to_numpy() <= int(Kind.DELETE)
    others = _in_offset_order(_taken(events, np.flatnonzero(~is_row)))
    by_time = bool(pc.any(events["by_time"]).as_py())
    rows = TableStore(in_order(events, np.flatnonzero(is_row)))
    return rows, control_events(others, _read(events) | dict(ends), by_time=by_time)


def _taken(events: pa.Table, numbers: npt.NDArray[np.int64]) -> pa.Table:
    """The events of these numbers; where they are few, without looking at the others."""
    if len(numbers) * _ROWS_PER_SLICE > events.num_rows:
        return taken(events, numbers)
    return pa.concat_tables([events.slice(0, 0), *(events.slice(number, 1) for number in numbers)])


def _in_offset_order(events: pa.Table) -> pa.Table:
    return taken(events, np.lexsort((events["offset"].to_numpy(), events["partition"].to_numpy())))


def events_as_read(events: pa.Table, ends: Mapping[PartitionId, int] = NO_ENDS, *, is_cut: bool = False) -> Arrival:
    """All of a micro-batch's events as one store, of which only the table counts, in any order: for those who keep each
    partition's order."""
    return TableStore(events), ControlEvents({}, _read(events) | dict(ends), (), (), is_cut=is_cut)


def _read(events: pa.Table) -> dict[PartitionId, int]:
    """The offset after the last event of each partition."""
    topics, numbers = distinct(events, ("topic",))
    partitions = events["partition"].to_numpy().astype(np.int64)
    widths = int(partitions.max(initial=0)) + 1
    ends = np.zeros(len(topics) * widths, np.int64)
    np.maximum.at(ends, numbers * widths + partitions, events["offset"].to_numpy() + 1)
    return {(topics[n // widths][0], int(n % widths)): int(ends[n]) for n in np.flatnonzero(ends)}


def control_events(others: pa.Table, read: dict[PartitionId, int], *, by_time: bool = False) -> ControlEvents:
    """Sorts out boundaries, schema changes and bad messages; `others` is in the order of (partition, offset)."""
    others, left_out = without_left_out(others)
    boundaries: dict[PartitionId, int] = {}
    changes: list[SchemaChange] = []
    bad: list[BadMessage] = []
    names = (
        "topic",
        "partition",
        "offset",
        "kind",
        "commit_ts",
        "schema",
        "table",
        "text",
        "columns",
        "before",
        "after",
    )
    for topic, partition, offset, kind, commit_ts, schema, table, text, code, key, value in _rows_of(others, names):
        where, position = (topic, partition), Position(topic, partition, offset)
        if kind == Kind.BAD:
            bad.append(BadMessage(message_entry(position, code, text, key, value), boundaries.get(where, 0)))
        elif kind == Kind.SCHEMA_CHANGE:
            changes.append(SchemaChange(commit_ts, schema, table, text, str(position)))
        else:
            boundaries[where] = max(commit_ts, boundaries.get(where, 0))
    return ControlEvents(boundaries, read, tuple(changes), tuple(bad), by_time=by_time, left_out=left_out)


def without_left_out(events: pa.Table) -> tuple[pa.Table, tuple[LeftOut, ...]]:
    """Events (EVENT_SCHEMA, any order) without those of tables that are not replicated, and those tables."""
    is_left_out = pc.equal(events["kind"], int(Kind.LEFT_OUT))
    if not pc.any(is_left_out).as_py():
        return events, ()
    found = events.filter(is_left_out).group_by(["schema", "table", "text", "topic", "partition"])
    groups = found.aggregate([("offset", "min"), ("offset", "count")])
    names = ("schema", "table", "text", "topic", "partition", "offset_min", "offset_count")
    return events.filter(pc.invert(is_left_out)), tuple(
        LeftOut(schema, table, why, Position(*where), count)
        for schema, table, why, *where, count in sorted(_rows_of(groups, names), key=lambda row: row[3:])
    )


def _rows_of(table: pa.Table, names: Sequence[str]) -> Iterable[tuple[Any, ...]]:
    return zip(*(table[name].to_pylist() for name in names), strict=True)


Arrival = tuple[RowStore, ControlEvents]
"""What one micro-batch brings."""


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

    def add(self, store: RowStore, control: ControlEvents, boundary: dict[PartitionId, int]) -> None:
        """Takes a micro-batch in; `boundary` holds the partitions' boundaries after it."""
        own_ts = (*(change.commit_ts for change in control.changes), *(due.ts for due in control.aside))
        last_ts = max((store.last_ts, *own_ts))
        starts = dict(self.positions)
        for partition in control.read:
            starts.setdefault(partition, PartitionStart(0, 0, 0))
        if last_ts >= 0 or control.bad:
            last = math.inf if control.bad else last_ts
            self.chunks.append(Chunk(store, control.changes, starts, last, control.aside))
        self.positions = {
            partition: start._replace(
                offset=max(control.read.get(partition, 0), start.offset),
                boundary=boundary.get(partition, start.boundary),
                read=max(control.read.get(partition, 0), start.read),
            )
            for partition, start in starts.items()
        }

    def changes(self, low: int, high: int) -> list[SchemaChange]:
        """Schema changes with low <= commit_ts < high, copies included."""
        return [c for chunk in self.chunks for c in chunk.changes if low <= c.commit_ts < high]

    def put_aside(self, low: int, high: int) -> tuple[Entry, ...]:
        """What a transaction that moves the target from low to high puts aside."""
        return tuple(due.entry for chunk in self.chunks for due in chunk.aside if low <= due.ts < high)

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
