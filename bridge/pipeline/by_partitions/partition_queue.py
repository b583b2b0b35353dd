"""Holds what was read of one partition and is not in the target yet, in the partition's order."""

from __future__ import annotations

import copy
from collections import deque
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import islice
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.events import EVENT_SCHEMA, Kind, Position
from bridge.model import PartitionStart, SchemaChange
from bridge.pipeline.by_partitions.merge import Rows
from bridge.pipeline.by_partitions.row_schemas import ColumnEvidence, RowsAhead, UnclearRows
from bridge.rows.gathering import Longs
from bridge.rows.moments import (
    Moment,
    Places,
    are_of_next_server,
    coordinates_of,
    is_of_sending,
    is_of_snapshot,
    names_of,
    new_beginning,
    newest_places,
)
from bridge.rows.order_and_slices import TableChunk
from bridge.spark.kept_rows import spilled


@dataclass(frozen=True)
class Stop:
    """An event that is not a row change.  Nothing after it may be applied before it.

    index: the number of rows before it in the queue.
    arrived: time of the clock at which it was read.
    """

    index: int
    event: dict[str, Any]
    arrived: float

    @property
    def is_bad(self) -> bool:
        """Whether it is a message that cannot be decoded."""
        return bool(self.event["kind"] == Kind.BAD)

    @property
    def schema_change(self) -> SchemaChange:
        """The event as a schema change, which it must be."""
        event = self.event
        position = Position(event["topic"], event["partition"], event["offset"])
        place = event["place"] or ""
        return SchemaChange(event["commit_ts"], event["schema"], event["table"], event["text"], str(position), place)

    @property
    def moment(self) -> Moment:
        """The moment of a schema change."""
        return Moment.of_change(self.event["commit_ts"], bool(self.event["by_time"]), self.event["place"])


Bound = Moment | RowsAhead | ColumnEvidence | UnclearRows
"""What rows may not pass."""


class AppliedRow(NamedTuple):
    """The last row of a partition in the target that named its place: its time (TSO) and its place, "" for none.

    rows: how many rows of that place are in the target, or the index (`RowChange.index`) of the last one.
    again: how many of them are still to be sent again; of rows without a place in a binlog, 1 where they were.
    """

    ts: int
    place: str
    rows: int = 0
    again: int = 0


NO_ROW: Final = AppliedRow(0, "")
_SNAPSHOT_FIX: Final = (
    "rows and tables that were deleted upstream while the connector was off are not in it, and stay, and rows of tables"
    " without a key are there twice: bridge verify --against upstream shows them"
)
_SERVER_FIX: Final = (
    "behind a failover, what was sent and this server lacks stays in the target, and of its first transaction"
    " Debezium's connector may leave out rows; behind RESET MASTER, a sender may leave out all until the place or GTID"
    " where it stood came again: bridge verify --against upstream shows them"
)

log = structlog.get_logger()


class _Run:
    """Consecutive events of one micro-batch."""

    def __init__(self, chunk: TableChunk, arrived: float) -> None:
        self.chunk, self.arrived, table = chunk, arrived, chunk.table
        self.times: Longs = table["commit_ts"].to_numpy()
        self.offsets = table["offset"].to_numpy()
        self.stops = np.flatnonzero(table["kind"].to_numpy() > Kind.DELETE)

    def __len__(self) -> int:
        return len(self.times)

    @property
    def table(self) -> pa.Table:
        """The events."""
        return self.chunk.table

    def slice(self, start: int, end: int) -> _Run:
        """Returns a part of the run, which shares its memory."""
        part = _Run(TableChunk(self.table.slice(start, end - start), is_here=self.chunk.is_here), self.arrived)
        part.places = self.places.slice(start, end)
        part.stop_events = {at - start: event for at, event in self.stop_events.items() if start <= at < end}
        return part

    @cached_property
    def places(self) -> Places:
        """The places of the events."""
        return Places.of(self.table["place"])

    @cached_property
    def stop_events(self) -> dict[int, dict[str, Any]]:
        """The events that are no row changes, by their index.  Made each time, ordering took ten times as long."""
        return dict(zip(self.stops.tolist(), self.table.take(pa.array(self.stops)).to_pylist(), strict=True))

    def rows_up_to(self, bounds: Sequence[Bound], columns: Sequence[tuple[Moment, int, int]]) -> int:
        """Counts the events before the first stop and before the first message with a row behind one of the bounds.

        columns: moments beside what columns tell: how many events are before it, and from which on all are behind it.
        """
        end = int(self.stops[0]) if len(self.stops) else len(self)
        rows, behind = self.table.slice(0, end), np.zeros(end, np.bool_)
        for moment, before, from_ in (*columns, *((bound, 0, end) for bound in bounds if isinstance(bound, Moment))):
            later = moment.is_before(rows, self.places.slice(0, end) if moment.places else None)
            later[max(0, from_) :] = True
            later[: max(0, before)] = False
            behind |= later
        for bound in bounds:
            if isinstance(bound, RowsAhead | UnclearRows):
                behind |= bound.among(rows)
        if not behind.any():
            return end
        return int(np.searchsorted(self.offsets, self.offsets[int(behind.argmax())], "left"))


class PartitionQueue:
    """Row changes and stops of one partition.

    read: the offset after the last message read.
    boundary: the last boundary (TSO) after the last event without a TSO, 0 when there is none.
    arrived: time of the clock at the last event.
    seen, shown: the highest times (TSO) of all events so far, and of what was taken out.
    places: by the names of a place, that of the last event so far; the newest last.
    has_rows: whether any event so far was a row change.
    applied: the last row in the target that named its place.
    began_anew: between which times (TSO) the upstream's binlog began anew last, as far as this partition shows; None
    when it did not.
    """

    def __init__(self, start: PartitionStart, now: float) -> None:
        self.start, self.read, self.boundary, self.arrived = start, start.offset, 0, now
        self.seen, self.shown = start.place_ts, start.seen
        self.places = {names_of(start.place): start.place} if start.place else {}
        self.has_rows = False
        self.applied = AppliedRow(start.place_ts, start.place, start.rows, start.again)
        self.began_anew: tuple[int, int] | None = None
        self._highest = coordinates_of(start.place) if start.place else {}
        self._runs: deque[_Run] = deque()
        self._count = 0

    def note(self, events: pa.Table) -> Places:
        """Notes how far events of a micro-batch (EVENT_SCHEMA, in order) go, and gives their places.  Warns of a
        snapshot that is not the first of all, of another server's binlog, and of one that begins anew."""
        self.has_rows = self.has_rows or pc.min(events["kind"]).as_py() <= Kind.DELETE
        places, begins_snapshot = Places.of(events["place"]), False
        is_next = are_of_next_server(places.numbers, self._highest)
        if places.numbers:
            highest = max(self.seen, self.shown)
            for name, numbers in places.numbers.items():
                if is_of_snapshot(name):  # all rows of a snapshot have its place
                    snapshot_numbers = numbers[numbers >= 0]
                    begins_snapshot |= bool((snapshot_numbers != self._highest.pop(name, snapshot_numbers[0])).any())
            began, goes_back = new_beginning(places, events["commit_ts"].to_numpy(), self._highest, highest)
            self.began_anew = began or self.began_anew
            is_next |= goes_back
        self.seen = max(self.seen, pc.max(events["commit_ts"]).as_py() or 0)
        for names, place in newest_places(events, places).items():
            newest = next(reversed(self.places), names)
            begins_snapshot |= is_of_snapshot(names) and not is_of_snapshot(newest)
            self.places.pop(names, None)  # the newest comes last
            self.places[names] = place
        where = f"{events['topic'][0]}/{events['partition'][0]}"
        if begins_snapshot:
            log.warning("snapshot_again", partitions=where, fix=_SNAPSHOT_FIX)
        if is_next:
            log.warning("next_server", partitions=where, fix=_SERVER_FIX)
        return places

    def append(self, events: pa.Table, now: float, places: Places) -> bool:
        """Appends the events of a micro-batch (EVENT_SCHEMA, in order) that are no boundaries; tells whether there were
        any.  places: as `note` gave them, perhaps of more events."""
        is_boundary = pc.equal(events["kind"], int(Kind.BOUNDARY))
        without_tso = np.flatnonzero(events["by_time"].to_numpy())
        if len(without_tso):
            self.boundary = 0
        start = int(without_tso[-1]) + 1 if len(without_tso) else 0
        boundaries = events["commit_ts"].slice(start).filter(is_boundary.slice(start))
        self.boundary = max(self.boundary, pc.max(boundaries).as_py() or 0)
        changes = events.filter(pc.invert(is_boundary))
        if changes.num_rows == 0:
            return False
        self._runs.append(run := _Run(TableChunk(changes), now))
        if changes.num_rows == places.count:
            run.places = places
        self._count += changes.num_rows
        self.arrived = now
        return True

    def __len__(self) -> int:
        return self._count

    @property
    def bytes_in_memory(self) -> int:
        """The bytes of the events that are not on disk."""
        return sum(run.chunk.amount.bytes for run in list(self._runs) if run.chunk.is_here)

    @property
    def ends_in_copies(self) -> bool:
        """Whether the queue is empty behind a copy, so that the producer was killed, and will send more copies."""
        ts, place, _, again = self.applied
        return bool(again) and not len(self) and (not place or is_of_sending(place)) and ts < self.shown

    @property
    def offset(self) -> int:
        """The offset of the first message in the queue; `read` when it is empty."""
        return int(self._runs[0].offsets[0]) if self._runs else self.read

    @property
    def restart(self) -> PartitionStart:
        """Where a restart begins: behind the last message that was taken out."""
        ts, place, rows, again = self.applied
        return self.start._replace(
            offset=self.offset,
            boundary=0,
            read=self.read,
            place=place,
            place_ts=ts,
            seen=self.shown,
            rows=rows,
            again=again,
        )

    @property
    def head_time(self) -> int | None:
        """The time (TSO) of what comes next; None when the queue is empty, or a bad message comes next."""
        is_bad = (head := self.head) is not None and head.is_bad
        return int(self._runs[0].times[0]) if self._runs and not is_bad else None

    @property
    def last_time(self) -> int:
        """The highest time in the queue (TSO), 0 when it is empty."""
        return max((int(run.times.max()) for run in self._runs), default=0)

    @property
    def head(self) -> Stop | None:
        """The stop that comes next; None when a row does, or the queue is empty."""
        if not self._runs or not len(self._runs[0].stops) or self._runs[0].stops[0] > 0:
            return None
        return self._stop(self._runs[0], 0, 0)

    def first_stop(self, bounds: Sequence[Bound]) -> Stop | None:
        """Returns the first stop, unless a row that is behind one of the bounds comes before it."""
        for before, run, count in self._counted(bounds):
            if count < len(run):
                return self._stop(run, count, before + count) if count in run.stops[:1] else None
        return None

    def schema_changes(self) -> Iterator[Stop]:
        """Gives all schema changes in the queue."""
        before = 0
        for run in self._runs:
            stops = (self._stop(run, at, before + at) for at in run.stops.tolist())
            yield from (stop for stop in stops if not stop.is_bad)
            before += len(run)

    def begins_behind(self, bounds: Sequence[Bound]) -> bool:
        """Tells whether the row that comes next is behind one of the bounds."""
        return any(count == 0 for _, _, count in islice(self._counted(bounds), 1))

    def has(self, unclear: UnclearRows) -> bool:
        """Tells whether one of these rows waits, before one that was clearly sent behind the schema change."""
        answers = (unclear.come_first_among(run.table) for run in self._runs)
        return next((answer for answer in answers if answer is not None), False)

    def rows_up_to(self, bounds: Sequence[Bound]) -> Rows:
        """Returns the rows before the first stop and before the first row that is behind one of the bounds."""
        tables = []
        for _, run, count in self._counted(bounds):
            tables += [run.table.slice(0, count)] * bool(count)
            if count < len(run):
                break
        return Rows(pa.concat_tables([EVENT_SCHEMA.empty_table(), *tables]))

    def drop(self, stop: Stop) -> None:
        """Removes a stop."""
        before = stop.index
        for i, run in enumerate(self._runs):
            if before < len(run):
                self._runs[i] = run.slice(0, before)
                self._runs.insert(i + 1, run.slice(before + 1, len(run)))
                break
            before -= len(run)
        self._runs = deque(run for run in self._runs if len(run))
        self._count -= 1

    def advance(self, rows: int) -> None:
        """Removes the first rows."""
        self._count -= rows
        while rows:
            run = self._runs.popleft()
            if rows < len(run):
                self._runs.appendleft(run.slice(rows, len(run)))
            rows -= min(rows, len(run))

    def to_disk(self) -> None:
        """Moves the events of the newest micro-batch to the disk."""
        if self._runs:
            self._runs[-1].chunk = spilled(self._runs[-1].chunk)
            vars(self._runs[-1]).pop("places", None)

    def copy(self) -> PartitionQueue:
        """Returns a copy, of which something may be taken out without changing this one."""
        clone = copy.copy(self)
        clone._runs = self._runs.copy()
        return clone

    def _counted(self, bounds: Sequence[Bound]) -> Iterator[tuple[int, _Run, int]]:
        """Gives each run with the number of events before it, and of its own events up to the bounds."""
        start = 0
        evidences = [bound for bound in bounds if isinstance(bound, ColumnEvidence)]
        columns = [(evidence.moment, *evidence.bounds(run.table for run in self._runs)) for evidence in evidences]
        for run in self._runs:
            yield (
                start,
                run,
                run.rows_up_to(bounds, [(moment, before - start, from_ - start) for moment, before, from_ in columns]),
            )
            start += len(run)

    def _stop(self, run: _Run, at: int, index: int) -> Stop:
        return Stop(index, run.stop_events[at], run.arrived)
