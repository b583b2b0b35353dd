"""What was read of one partition and is not in the target yet, in the partition's order."""

from __future__ import annotations

import tempfile
from collections import deque
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import EVENT_SCHEMA, Kind
from bridge.pipeline.by_partitions.merge import Longs, Rows


@dataclass(frozen=True)
class Stop:
    """An event that is no row change, and that nothing behind it may overtake.  index: how many rows are before it in
    the queue; arrived: clock time at which it was read."""

    index: int
    event: dict[str, Any]
    arrived: float

    @property
    def is_bad(self) -> bool:
        """A message that cannot be decoded."""
        return bool(self.event["kind"] == Kind.BAD)


class _Run:
    """Consecutive events of one micro-batch."""

    def __init__(self, table: pa.Table, arrived: float) -> None:
        self.table, self.arrived, self.on_disk = table, arrived, False
        self.times: Longs = table["commit_ts"].to_numpy()
        self.offsets: Longs = table["offset"].to_numpy()
        self.by_time = table["by_time"].to_numpy()
        self.stops: Longs = np.flatnonzero(table["kind"].to_numpy() > Kind.DELETE)

    def __len__(self) -> int:
        return len(self.times)

    def slice(self, start: int, end: int) -> _Run:
        """Part of it; shares the memory."""
        part = _Run.__new__(_Run)
        part.table, part.arrived, part.on_disk = self.table.slice(start, end - start), self.arrived, self.on_disk
        part.times, part.offsets, part.by_time = (c[start:end] for c in (self.times, self.offsets, self.by_time))
        part.stops = self.stops[(self.stops >= start) & (self.stops < end)] - start
        return part

    def to_disk(self) -> None:
        """Moves the events into a file without a name, mapped into memory, which the kernel may drop and read again."""
        if self.on_disk:
            return
        with tempfile.NamedTemporaryFile(suffix=".arrow") as file:
            with pa.ipc.new_file(file.name, EVENT_SCHEMA) as writer:
                writer.write_table(self.table)
            self.table, self.on_disk = pa.ipc.open_file(pa.memory_map(file.name)).read_all(), True

    def rows_below(self, bound: int) -> int:
        """How many events come before the first stop and before the first row with a time above `bound`; a message is
        never cut."""
        end = int(self.stops[0]) if len(self.stops) else len(self)
        later = self.times[:end] > bound
        if not later.any():
            return end
        return int(np.searchsorted(self.offsets, self.offsets[int(later.argmax())], "left"))


class PartitionQueue:
    """Row changes and stops of one partition.

    read: the offset after the last message read.
    boundary: the last boundary (TSO) behind every event without a TSO, 0 when there is none.
    arrived: clock time of the last event.
    seen: the highest time of any event so far (TSO).
    """

    def __init__(self, read: int, now: float) -> None:
        self.read, self.boundary, self.arrived, self.seen = read, 0, now, 0
        self._runs: deque[_Run] = deque()
        self._count = 0

    def append(self, events: pa.Table, now: float) -> bool:
        """Events of one micro-batch in order (EVENT_SCHEMA), boundaries among them; whether any is kept."""
        is_boundary = pc.equal(events["kind"], int(Kind.BOUNDARY))
        without_tso = np.flatnonzero(events["by_time"].to_numpy())
        if len(without_tso):
            self.boundary = 0
        behind = int(without_tso[-1]) + 1 if len(without_tso) else 0
        boundaries = events["commit_ts"].slice(behind).filter(is_boundary.slice(behind))
        self.boundary = max(self.boundary, pc.max(boundaries).as_py() or 0)
        changes = events.filter(pc.invert(is_boundary))
        if changes.num_rows == 0:
            return False
        self._runs.append(_Run(changes, now))
        self._count += changes.num_rows
        self.arrived = now
        return True

    def __len__(self) -> int:
        return self._count

    @property
    def bytes_in_memory(self) -> int:
        """Of what is not on disk."""
        return sum(run.table.nbytes for run in self._runs if not run.on_disk)

    @property
    def offset(self) -> int:
        """Of the first message that is still here; `read` when there is none."""
        return int(self._runs[0].offsets[0]) if self._runs else self.read

    @property
    def head_time(self) -> int | None:
        """The time (TSO) of what comes next, None when nothing is here or it is a bad message."""
        head = self.head
        if head is not None and head.is_bad:
            return None
        return int(self._runs[0].times[0]) if self._runs else None

    @property
    def last_time(self) -> int:
        """The highest time here, 0 when nothing is."""
        return max((int(run.times.max()) for run in self._runs), default=0)

    @property
    def head(self) -> Stop | None:
        """The stop that comes next, None when a row does or nothing is here."""
        if not self._runs or not len(self._runs[0].stops) or self._runs[0].stops[0] > 0:
            return None
        return self._stop(self._runs[0], 0, 0)

    def first_stop(self, bound: int) -> Stop | None:
        """The first stop, unless a row with a time above `bound` comes before it."""
        before = 0
        for run in self._runs:
            count = run.rows_below(bound)
            if count < len(run):
                return self._stop(run, count, before + count) if count in run.stops[:1] else None
            before += count
        return None

    def rows_below(self, bound: int) -> Rows:
        """What comes before the first stop and before the first row with a time above `bound`."""
        parts = list(self._parts_below(bound))
        return Rows(
            pa.concat_tables([EVENT_SCHEMA.empty_table(), *(part.table for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.times for part in parts)]),
            np.concatenate([np.empty(0, np.int64), *(part.offsets for part in parts)]),
            np.concatenate([np.empty(0, np.bool_), *(part.by_time for part in parts)]),
        )

    def drop(self, stop: Stop) -> None:
        """Takes a stop out."""
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
        """Forgets the first rows."""
        self._count -= rows
        while rows:
            run = self._runs.popleft()
            if rows < len(run):
                self._runs.appendleft(run.slice(rows, len(run)))
            rows -= min(rows, len(run))

    def to_disk(self) -> None:
        """Moves the newest micro-batch's events out of the memory."""
        if self._runs:
            self._runs[-1].to_disk()

    def _parts_below(self, bound: int) -> Iterator[_Run]:
        for run in self._runs:
            count = run.rows_below(bound)
            if count:
                yield run.slice(0, count)
            if count < len(run):
                return

    def _stop(self, run: _Run, at: int, index: int) -> Stop:
        return Stop(index, run.table.slice(at, 1).to_pylist()[0], run.arrived)
