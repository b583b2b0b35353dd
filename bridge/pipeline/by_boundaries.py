"""The order of commit ts: waits for boundaries, and yields what is complete."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from typing import ClassVar, Final

import structlog

from bridge.errors import SourceError
from bridge.events import Position
from bridge.model import UNUSED, Advance, Entry, PartitionId, PartitionStart, SchemaChange, topic_begins
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import ApplierConfig, Counts
from bridge.pipeline.order import (
    BadMessage,
    ControlEvents,
    Due,
    Order,
    Segment,
    Starts,
    control_events,
    cut_window,
    fold_copies,
    is_wanted,
)
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.decoded_batch import DecodedBatch

_SILENT_SECONDS: Final = 60.0
"""Boundaries come each second; a partition that brings none for so long, while others do, may bring none any more."""


def used_partition_error(topic: str, partition: int) -> SourceError:
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
    boundary_time: float
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
    def boundaries(self) -> dict[PartitionId, int]:
        """The boundary (TSO) of each partition known so far."""
        return {where: state.boundary for where, state in list(self._partitions.items())}

    def observe(self, partition: PartitionId, ts: int) -> None:
        """Notes that a boundary arrived.  A frozen partition keeps its own."""
        state = self._state_of(partition)
        state.boundary_time = self._clock()
        if state.frozen_by is None:
            state.boundary = max(state.boundary, ts)

    def freeze(self, bad: BadMessage) -> None:
        """Freezes a partition at the last boundary before a bad message; later ones would call it complete."""
        self.observe(bad.partition, bad.boundary)
        state = self._state_of(bad.partition)
        state.frozen_by = state.frozen_by or bad.entry.position

    def admit(self, partition: PartitionId) -> None:
        """Adds a partition, unless it is there.  Until it has a boundary, nothing is complete.

        Raises SourceError for one that the settings call unused."""
        self._state_of(partition)

    @property
    def resolved_ts(self) -> int:
        """The ts below which everything is complete in every partition, 0 while one has no boundary."""
        return min(self.boundaries.values(), default=0)

    @property
    def silence(self) -> float:
        """Seconds since the last boundary of any partition, or since the start."""
        return min((self._clock() - state.boundary_time for state in list(self._partitions.values())), default=0.0)

    def waiting_for(self) -> str:
        """Tells which partition holds the resolved ts back, and why, for the status line."""
        if not self._partitions:
            return "the source has no partitions"
        (topic, partition), state = min(list(self._partitions.items()), key=lambda item: item[1].boundary)
        where = f"partition {partition}" if len({t for t, _ in list(self._partitions)}) == 1 else f"{topic}/{partition}"
        if state.frozen_by:
            return f"{where} is stopped by a bad message at {state.frozen_by}"
        silent = self._clock() - state.boundary_time
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
            raise used_partition_error(topic, number)
        if state is None:
            state = self._partitions[partition] = _Partition(0, self._clock())
        return state


EMPTY_WINDOW_SECONDS: Final = 1.0
"""A window without changes is written to progress at most this often."""
VANISHED_SECONDS: Final = 30.0
"""When no boundary comes for so long, while changes come, the status names the probable cause."""

log = structlog.get_logger()


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
    quarantined: tuple[Entry, ...] = field(default=())


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
        quarantined: tuple[Entry, ...],
        boundary: Mapping[PartitionId, int],
        *,
        is_stopped: bool = False,
    ) -> None:
        """Adds what waits of a micro-batch.

        quarantined: its bad messages, but for those that stop the bridge.  is_stopped: whether it has any of these.
        boundary: the boundary of each partition after the micro-batch (TSO).
        """
        own_ts = (*(change.commit_ts for change in changes), *(entry.commit_ts for entry in quarantined))
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
        return tuple(entry for batch in self.batches for entry in batch.quarantined if low <= entry.commit_ts < high)

    def restart_positions(self, applied_ts: int) -> Starts:
        """Returns where a restart begins when everything below applied_ts is in the target: at the oldest one that
        holds anything at or above it."""
        oldest = next((batch for batch in self.batches if batch.last_ts >= applied_ts), None)
        if oldest is None:
            return self.positions
        return {
            partition: oldest.starts.get(partition, PartitionStart(0, 0, 0))._replace(read=now.read)
            for partition, now in self.positions.items()
        }

    def release(self, applied_ts: int) -> None:
        """Drops what is below applied_ts."""
        self.batches = [
            replace(batch, rows=batch.rows.from_ts(applied_ts)) for batch in self.batches if batch.last_ts >= applied_ts
        ]


class BoundaryOrder(Order):
    """Yields everything below the resolved ts, in windows from the applied ts to the resolved ts.

    starts: where each partition begins.
    """

    by_partition = False
    takes_rows: ClassVar[bool] = True

    def __init__(self, progress: Progress, starts: Starts, config: ApplierConfig, counts: Counts) -> None:
        self._frontier = Frontier(((where, start.boundary) for where, start in starts.items()), config.clock)
        self._backlog, self._tables, self._counts = Backlog(starts), config.tables, counts
        self._until, self._boundary_seconds, self._clock = config.until, config.boundary_seconds, config.clock
        self._rows_of, self._on_bad_message = config.rows_of, config.on_bad_message
        self._begins = topic_begins(starts)
        self._begin_of = partial(_begin_of, progress.start_ts, self._begins)
        self._offsets_at_start = {partition: start.read for partition, start in progress.positions.items()}
        self._written_at = -EMPTY_WINDOW_SECONDS
        self._begun_ts = progress.applying_ts
        self._bad: list[BadMessage] = []
        self._waits_since: float | None = None
        self._handover_reason, self._ended = "", False
        self.applied_ts, self.positions = progress.applied_ts, starts

    # --- taking micro-batches

    def take(self, batch: DecodedBatch) -> None:
        """Takes one micro-batch.  When it has changes without a TSO, drops it: the other order will read it again."""
        if batch.by_time:
            self._handover_reason = "messages without a commit ts have come"
            return
        if (cut_rows := self._on_bad_message.cut_rows) is not None:
            batch = replace(batch, events=cut_rows.completed(batch.events, lambda _: self.applied_ts))
        batch = batch.divided()
        self._take_in(batch.read, batch.rows, control_events(batch.events))

    def _take_in(self, read: Mapping[PartitionId, int], rows: RowChanges, control: ControlEvents) -> None:
        """Takes what was read: row changes, and other events.  read: as of `DecodedBatch`."""
        self._counts.note_left_out(control.left_out)
        self._count_dropped(rows)
        rows = rows.from_ts(self.applied_ts)
        if ahead := {topic: begin for topic, begin in self._begins.items() if begin > self.applied_ts}:
            rows = rows.from_begins(ahead)
        for partition in read:
            self._frontier.admit(partition)
        bad_messages = [bad for bad in control.bad if not self._is_repeated(bad)]
        stopping = tuple(filter(self._on_bad_message.stops, bad_messages))
        quarantined = tuple(self._due(bad) for bad in bad_messages if not self._on_bad_message.stops(bad))
        for bad in stopping:
            self._frontier.freeze(bad)
            self._bad.append(bad)
        for partition, ts in control.boundaries.items():
            self._frontier.observe(partition, ts)
        changes = tuple(c for c in control.changes if c.commit_ts >= self._lowest_ts(c))
        for change in control.changes:
            if change.commit_ts < self._lowest_ts(change):
                self._count_dropped_change(change)
        self._backlog.add(read, rows, changes, quarantined, self._frontier.boundaries, is_stopped=bool(stopping))
        self.positions = self._backlog.positions

    def _lowest_ts(self, change: SchemaChange) -> int:
        """Returns the commit_ts below which a schema change of this topic has run or counts as run."""
        return max(self.applied_ts, self._begin_of(change.read_at.topic))

    def _is_repeated(self, bad: BadMessage) -> bool:
        """Tells whether the pipeline has passed a bad message before, and counts it.  Call it before the boundaries of
        the micro-batch are observed."""
        was_read = bad.entry.position.offset < self._offsets_at_start.get(bad.partition, 0)
        if was_read and self._boundary_before(bad) < self.applied_ts:
            self._counts.repeated += 1
            return True
        return False

    def _due(self, bad: BadMessage) -> Entry:
        return self._on_bad_message.due(bad, max(self._boundary_before(bad), self.applied_ts))

    def _boundary_before(self, bad: BadMessage) -> int:
        return max(bad.boundary, self._frontier.boundaries.get(bad.partition, 0))

    def _count_dropped(self, rows: RowChanges) -> None:
        dropped = rows.count_below(self.applied_ts, self._begin_of, self._offsets_at_start)
        self._counts.repeated += dropped.repeated
        self._counts.late += dropped.late.total()
        if dropped.late:
            log.warning(
                "late_changes_dropped",
                changes=dropped.late.total(),
                applied_ts=self.applied_ts,
                partitions=sorted(f"{topic}/{partition}" for topic, partition in dropped.late),
                fix="after a restart of the changefeed they are copies of what is in the target; otherwise run bridge"
                " verify",
            )

    def _count_dropped_change(self, change: SchemaChange) -> None:
        at = change.read_at
        was_read = at.offset < self._offsets_at_start.get(at[:2], 0)
        if was_read or change.commit_ts < self._begin_of(at.topic):
            self._counts.repeated += 1
            return
        self._counts.late += 1
        log.warning(
            "late_schema_change_dropped",
            statement=change.text,
            position=change.position,
            commit_ts=change.commit_ts,
            fix="after a restart of the changefeed it is a copy of one that ran; otherwise compare the table with the"
            " upstream's",
        )

    def end(self) -> None:
        self._ended = True

    # --- what is due

    def due(self) -> Iterator[Due]:
        """Yields the window up to the resolved ts, cut at schema changes and at the end of an interrupted step."""
        low, high = self.applied_ts, self.resolved_ts
        if high <= low:
            return
        backlog, counts = self._backlog, self._counts
        changes = fold_copies(c for c in backlog.changes(low, high) if is_wanted(c, self._tables, counts.tables))
        rows = self._rows_of((waiting.rows for waiting in backlog.batches), low, high)
        if rows.count == 0 and not changes and not backlog.quarantined(low, high):
            if self._clock() - self._written_at >= EMPTY_WINDOW_SECONDS:
                yield Due(Segment(low, high), None)
            return
        bounds = [low, *(change.commit_ts + 1 for change in changes), high]
        for segment in cut_window(low, high, changes, rows.marks(bounds)):
            for part in segment.cut_at(self._begun_ts):
                yield Due(part, rows.between(part.low, part.high), at_once=part.low < self._begun_ts)

    def coming(self, batch: DecodedBatch) -> RowChanges | None:
        """Guesses the rows of the window behind the present one.  None where a batch has more than rows and boundaries,
        and behind schema changes."""
        batch = batch.divided()
        control, low = control_events(batch.events), self.resolved_ts
        if batch.by_time or control.changes or control.bad or self._until is not None:
            return None
        ends = (max(ts, control.boundaries.get(where, 0)) for where, ts in self._frontier.boundaries.items())
        high = min(ends, default=0)
        rows = RowChanges.joined([*(waiting.rows for waiting in self._backlog.batches), batch.rows], low, high)
        return rows if high > low and not self._backlog.changes(low, high) and rows.is_here else None

    def next_bad(self) -> Sequence[BadMessage]:
        """Returns the bad messages that were read, unless `until` is reached."""
        return self._bad if self._until is None or self.applied_ts < self._until else ()

    def handover(self) -> tuple[Advance, str] | None:
        """Changes to the order of the partitions when changes without a TSO have come, or no boundary for too long.
        Everything below the applied ts is in the target then; the rest is read again."""
        reason = self._handover_reason or self._lack_of_boundaries()
        if not reason or self.next_bad():
            return None
        rest = self._backlog.restart_positions(self.applied_ts)
        floors = {where: start._replace(floor=self.applied_ts, seen=self.applied_ts) for where, start in rest.items()}
        return Advance(self.applied_ts, self.applied_ts, floors), reason

    def _lack_of_boundaries(self) -> str:
        seconds = self._boundary_seconds
        if seconds is None or any(self._frontier.boundaries.values()) or not self._backlog.batches:
            return ""
        self._waits_since = self._clock() if self._waits_since is None else self._waits_since
        if self._ended:
            return "the input holds no boundary"
        if self._clock() - self._waits_since >= seconds:
            return f"changes have come for {seconds:g} s, and no boundary"
        return ""

    def final_ts(self) -> int:
        """Returns the resolved ts: an empty window may not be recorded yet."""
        return max(self.applied_ts, self.resolved_ts)

    # --- what a restart needs

    def advance_to(self, high: int, end: int, changes: tuple[SchemaChange, ...] = ()) -> Advance:
        return Advance(
            self.applied_ts,
            high,
            self._backlog.restart_positions(high),
            changes,
            self._backlog.quarantined(self.applied_ts, high),
            (end, max(self.applied_ts, self.resolved_ts)),
        )

    def moved(self, step: Advance) -> None:
        self.applied_ts = step.new_ts
        self._backlog.release(step.new_ts)
        self._written_at = self._clock()

    # --- status

    @property
    def resolved_ts(self) -> int:
        """The ts below which everything is complete; during an interrupted step not above the applied ts."""
        complete = self._complete_ts
        return complete if complete >= self._begun_ts else min(complete, self.applied_ts)

    @property
    def _complete_ts(self) -> int:
        """The resolved ts of the frontier, at most `until`."""
        resolved = self._frontier.resolved_ts
        return resolved if self._until is None else min(resolved, self._until)

    @property
    def until_reached(self) -> bool:
        return self._until is None or self.applied_ts >= self._until

    @property
    def waiting(self) -> Amount:
        return self._backlog.amount

    def waiting_for(self) -> str:
        if self._until is not None and self.applied_ts >= self._until:
            return "nothing: --until is reached"
        reason = self._frontier.waiting_for()
        if (
            self._boundary_seconds is not None
            and self._frontier.silence > VANISHED_SECONDS
            and self._backlog.amount.rows
        ):
            reason += (
                "; changes came meanwhile: if the extension was switched off, switch it on again; if it has to stay"
                " off, start the bridge again with --set debezium.without_boundaries=true"
            )
        return reason


def _begin_of(start_ts: int, begins: Mapping[str, int], topic: str) -> int:
    """Gives the TSO below which all changes of a topic count as in the target from the beginning."""
    return max(start_ts, begins.get(topic, 0))
