"""The applier: takes micro-batches in, waits for boundaries, moves the target from one moment to the next.

It knows nothing of Spark's query; `Applier.take` is called with one micro-batch after the other.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field, replace
from typing import ClassVar, Final, NoReturn

import structlog

from bridge.ddl.parser import Classified, classify
from bridge.errors import HeldError, SchemaChangeError
from bridge.model import Advance, PartitionId, SchemaChange, Table, TableName, topic_begins
from bridge.mysql.apply.writer import Writer
from bridge.mysql.state.progress import Progress
from bridge.pipeline.backlog import Arrival, Backlog, ControlEvents, LeftOut
from bridge.pipeline.bad_message_policy import OnBadMessage
from bridge.pipeline.bad_messages import BadMessage, DueEntry, bad_message_error, boundaries_before
from bridge.pipeline.frontier import Frontier
from bridge.pipeline.ordered.order import OrderChanged
from bridge.pipeline.segments import Segment, cut_window, fold_copies
from bridge.rows.amount import Amount
from bridge.rows.net_changes import missing_table
from bridge.rows.order_and_slices import DriverRows, RowStore, TableStore, WindowRows
from bridge.table_filter import TableFilter
from bridge.tso import tso_ms

EMPTY_WINDOW_SECONDS: Final = 1.0
"""A window without changes is written to progress at most this often."""
HELD_SECONDS: Final = 0.5
"""How often is looked whether a held schema change has been released."""
BAD_MESSAGE_GRACE_SECONDS: Final = 10.0
"""How long a bad message waits for slower partitions to bring in what is complete before it."""

TRANSACTION: Final = Amount(50_000, 128 << 20)

VANISHED_SECONDS: Final = 30.0
"""Without a boundary for so long, while changes come, the status says what may be the cause."""

log = structlog.get_logger()


@dataclass
class Counts:
    """What has happened so far, for status, summary and metrics."""

    messages: int = 0
    rows: int = 0
    quarantined: int = 0
    applying_since: float | None = None
    """When the first transaction with row changes began, by the applier's clock."""
    late: Counter[PartitionId] = field(default_factory=Counter)
    repeated: Counter[PartitionId] = field(default_factory=Counter)
    left_out: Counter[TableName] = field(default_factory=Counter)
    """Row changes that are never written, by table (`reserved_schemas`)."""
    tables: set[TableName] = field(default_factory=set)
    """Those that were met, replicated or not."""


@dataclass(frozen=True)
class Limits:
    """transaction: about how much of row changes a target transaction holds.
    until: nothing at or above this commit_ts is applied (TSO), None without an end.
    boundary_seconds: how long a first boundary is waited for before the order of the partitions has to do; None where
        one is sure to come."""

    transaction: Amount = TRANSACTION
    until: int | None = None
    boundary_seconds: float | None = None


RowsOf = Callable[[list[RowStore], int, int], WindowRows]
"""Stores, low and high commit_ts to the row changes of a window."""


def driver_rows(stores: list[RowStore], low: int, high: int) -> WindowRows:
    """The window's row changes when all stores are in the driver's memory."""
    return DriverRows.merged([store.due(low, high) for store in stores if isinstance(store, TableStore)])


class Interrupted(Exception):  # noqa: N818  # not an error: the applier was asked to end between two transactions
    """Raised where the applier ends after `interrupt`."""


class Applier:
    """Applies what is complete, in order, for one pipeline.

    by_partition: takes micro-batches as they were read (`events_as_read`), not sorted out.
    """

    by_partition: ClassVar[bool] = False

    def __init__(
        self,
        writer: Writer,
        progress: Progress,
        frontier: Frontier,
        backlog: Backlog,
        *,
        tables: TableFilter,
        limits: Limits,
        rows_of: RowsOf = driver_rows,
        on_bad_message: OnBadMessage = OnBadMessage(),  # noqa: B008  # immutable
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer, self.frontier, self.backlog = writer, frontier, backlog
        self._tables, self._limits, self._rows_of, self._clock = tables, limits, rows_of, clock
        self._start_ts, self._begins = progress.start_ts, topic_begins(backlog.positions)
        self._read_before = {partition: start.read for partition, start in progress.positions.items()}
        self._catalog: dict[TableName, Table] = {}
        self._written_at = -EMPTY_WINDOW_SECONDS
        self._on_bad_message = on_bad_message
        self._bad: list[BadMessage] = []
        self._bad_since = 0.0
        self._interrupted = False
        self._held = ""
        self._has_read = False
        self._rows_since: float | None = None
        self.applied_ts = progress.applied_ts
        self.counts = Counts()

    @property
    def resolved_ts(self) -> int:
        """The moment to move to: the frontier's, not beyond `until`."""
        resolved = self.frontier.resolved_ts
        return resolved if self._limits.until is None else min(resolved, self._limits.until)

    @property
    def until_reached(self) -> bool:
        """Everything below `until` is in the target, or there is no such end."""
        return self._limits.until is None or self.applied_ts >= self._limits.until

    def interrupt(self) -> None:
        """Ends the applier before its next transaction; may be called from any thread."""
        self._interrupted = True

    def finish_pending(self, pending: tuple[SchemaChange, ...]) -> None:
        """Runs the schema changes that progress lists, as an earlier run may have left them."""
        self._writer.run_pending(pending)
        self._held = ""

    def take(self, arrival: Arrival) -> None:
        """One micro-batch; then applies everything that is complete.

        Raises OrderChanged when the micro-batch, which is not taken in then, holds changes without a TSO.
        """
        if arrival[1].by_time:
            self.leave_boundaries("messages without a commit ts have come")
        store, control = self._completed(arrival)
        self._has_read = True
        self._note_left_out(control.left_out)
        self._count_dropped(store)
        store = store.from_ts(self.applied_ts)
        if ahead := {topic: begin for topic, begin in self._begins.items() if begin > self.applied_ts}:
            store = store.from_begins(ahead)
        self._take_in(store, control)
        self.advance()
        self._watch_for_boundaries()

    def _completed(self, arrival: Arrival) -> Arrival:
        """With the whole rows of messages that were cut to their key."""
        store, control = arrival
        if self._on_bad_message.cut_rows is None or not control.bad:
            return arrival
        done = self._on_bad_message.cut_rows.completed(control.bad, lambda _: self.applied_ts)
        return store.with_rows(done.rows) if done.rows.num_rows else store, replace(control, bad=done.bad)

    def _take_in(self, store: RowStore, control: ControlEvents) -> None:
        for partition in control.read:
            self.frontier.admit(partition)
        aside = self._put_aside(control.bad)
        stopping = tuple(filter(self._on_bad_message.stops, control.bad))
        for partition, ts in boundaries_before(control.boundaries, stopping).items():
            self.frontier.observe(partition, ts)
        for bad in stopping:
            self._bad_since = self._bad_since or self._clock()
            self.frontier.freeze(bad.entry.position)
            self._bad.append(bad)
        changes = tuple(c for c in control.changes if c.commit_ts >= self._lowest_ts(c))
        for change in control.changes:
            if change.commit_ts < self._lowest_ts(change):
                self._count_dropped_change(change)
        control = replace(control, changes=changes, bad=stopping, aside=aside)
        read_before = sum(start.read for start in self.backlog.positions.values())
        self.backlog.add(store, control, {p: self.frontier.boundary(p) for p in self.frontier.partitions})
        self.counts.messages += sum(start.read for start in self.backlog.positions.values()) - read_before

    def _begin_of(self, topic: str) -> int:
        return max(self._start_ts, self._begins.get(topic, 0))

    def _lowest_ts(self, change: SchemaChange) -> int:
        """From which on schema changes are to run that lie where this one does."""
        return max(self.applied_ts, self._begin_of(change.position.rsplit("/", 2)[0]))

    def _put_aside(self, bad_messages: tuple[BadMessage, ...]) -> tuple[DueEntry, ...]:
        """When those that do not stop the bridge are due; before the micro-batch's own boundaries are observed."""
        aside = []
        for bad in bad_messages:
            if self._on_bad_message.stops(bad):
                continue
            boundary = max(bad.boundary, self.frontier.boundary(bad.partition))
            if boundary < self.applied_ts and bad.entry.position.offset < self._read_before.get(bad.partition, 0):
                self.counts.repeated[bad.partition] += 1
            else:
                aside.append(self._on_bad_message.due(bad, max(boundary, self.applied_ts)))
        return tuple(aside)

    def advance(self) -> None:
        """Applies every complete window; raises BadMessageError when a bad message is next."""
        resolved = self.resolved_ts
        if resolved > self.applied_ts:
            self._apply_window(resolved)
        if self._bad_is_next() and resolved == self.frontier.frozen_at:
            raise bad_message_error(self._bad)

    def leave_boundaries(self, reason: str) -> NoReturn:
        """Goes over to the order of the partitions: what is complete is applied, progress remembers that everything
        below it is in the target, and OrderChanged is raised so that the rest is read again."""
        self.advance()
        rest = self.backlog.restart_positions(self.applied_ts)
        floors = {where: start._replace(floor=self.applied_ts) for where, start in rest.items()}
        self._writer.apply(Advance(self.applied_ts, self.applied_ts, floors))
        raise OrderChanged(reason)

    def _watch_for_boundaries(self, *, at_the_end: bool = False) -> None:
        """Without a first boundary for too long, or in the whole input, the order of the partitions has to do."""
        seconds = self._limits.boundary_seconds
        if seconds is None or self.frontier.has_boundary or not self.backlog.rows:
            return
        self._rows_since = self._clock() if self._rows_since is None else self._rows_since
        if at_the_end:
            self.leave_boundaries("the input holds no boundary")
        if self._clock() - self._rows_since >= seconds:
            self.leave_boundaries(f"changes have come for {seconds:g} s, and no boundary")

    def tick(self) -> None:
        """To be called now and then while no micro-batch comes."""
        self._watch_for_boundaries()
        self.advance()
        if self._bad_is_next() and self._clock() - self._bad_since > BAD_MESSAGE_GRACE_SECONDS:
            raise bad_message_error(self._bad)

    def finish(self) -> None:
        """At the end of the input: everything complete is applied and written, a bad message is raised."""
        self.advance()
        self._watch_for_boundaries(at_the_end=True)
        self._write_progress(max(self.applied_ts, self.resolved_ts))  # an empty window may not be written yet
        if self._bad_is_next():
            raise bad_message_error(self._bad)

    def wait_for_operator(self, held: HeldError) -> None:
        """What a bridge does that is to go on once a held schema change is released; raises Interrupted."""
        self._held = f"{held.what}; {held.mend}"
        time.sleep(HELD_SECONDS)
        if self._interrupted:
            raise Interrupted

    def waiting_for(self) -> str:
        """What holds the target back, and why."""
        if self._held:
            return self._held
        if self._limits.until is not None and self.applied_ts >= self._limits.until:
            return "nothing: --until is reached"
        if not self._has_read:
            return "the first messages are being read"
        said = self.frontier.waiting_for()
        if self._limits.boundary_seconds is not None and self.frontier.silence > VANISHED_SECONDS and self.backlog.rows:
            said += (
                "; changes came meanwhile: if the extension was switched off, switch it on again, or when it is to stay"
                " off, start the bridge again with --set debezium.without_boundaries=true"
            )
        return said

    def _bad_is_next(self) -> bool:
        return bool(self._bad) and (self._limits.until is None or self.applied_ts < self._limits.until)

    def _note_left_out(self, left_out: Iterable[LeftOut]) -> None:
        for schema, table, why, position, rows in left_out:
            name = TableName(schema, table)
            self.counts.tables.add(name)
            if why is None:
                continue
            if name not in self.counts.left_out:
                log.warning(
                    "row changes of a table are left out; such rows are never written",
                    table=str(name),
                    why=why,
                    position=str(position),
                )
            self.counts.left_out[name] += rows

    def _count_dropped(self, store: RowStore) -> None:
        dropped = store.count_below(self.applied_ts, self._begin_of, self._read_before)
        self.counts.repeated.update(dropped.repeated)
        self.counts.late.update(dropped.late)
        if dropped.late:
            log.warning(
                "changes came below the applied ts and were dropped: copies of what is in the target, if the"
                " changefeed was restarted; if not, run bridge verify",
                changes=dropped.late.total(),
                applied_ts=self.applied_ts,
                partitions=sorted(f"{topic}/{partition}" for topic, partition in dropped.late),
            )

    def _count_dropped_change(self, change: SchemaChange) -> None:
        topic, partition, offset = change.position.rsplit("/", 2)
        where = (topic, int(partition))
        if int(offset) < self._read_before.get(where, 0) or change.commit_ts < self._begin_of(topic):
            self.counts.repeated[where] += 1
            return
        self.counts.late[where] += 1
        log.warning(
            "a schema change came below the applied ts and was dropped: a copy of one that ran, if the changefeed was"
            " restarted; if not, compare the table with the upstream's",
            statement=change.text,
            position=change.position,
            commit_ts=change.commit_ts,
        )

    def _apply_window(self, high: int) -> None:
        low = self.applied_ts
        changes = fold_copies(c for c in self.backlog.changes(low, high) if self._wanted(c))
        rows = self._rows_of([chunk.store for chunk in self.backlog.chunks], low, high)
        if rows.count == 0 and not changes and not self.backlog.put_aside(low, high):
            if self._clock() - self._written_at >= EMPTY_WINDOW_SECONDS:
                self._write_progress(high)
            return
        bounds = [low, *(change.commit_ts + 1 for change in changes), high]
        for segment in cut_window(low, high, changes, rows.marks(bounds)):
            self._apply_segment(segment, rows.between(segment.low, segment.high))

    def _apply_segment(self, segment: Segment, rows: WindowRows) -> None:
        following: int | None = 0
        for following, piece in rows.pieces(self._limits.transaction):
            is_last = following is None
            high = segment.high if following is None else following
            self._commit(high, piece, segment.changes if is_last else (), segment.high)
        if following is not None:
            self._commit(segment.high, None, segment.changes, segment.high)
        if segment.changes:
            self.finish_pending(segment.changes)
            self._catalog.clear()

    def _commit(self, high: int, rows: WindowRows | None, changes: tuple[SchemaChange, ...], end: int) -> None:
        """Moves the target to `high`, in a segment that ends at `end`."""
        if self._interrupted:
            raise Interrupted
        step = self._step(high, end, changes)
        if rows is None:
            self._writer.apply(step)
        else:
            if self.counts.applying_since is None:
                self.counts.applying_since = self._clock()
            self._load(rows.tables())
            step = self._on_bad_message.apply(self._writer, step, rows, self._catalog)
            self.counts.rows += rows.count - sum(entry.change is not None for entry in step.put_aside)
        self._moved(step)

    def _write_progress(self, high: int) -> None:
        step = self._step(high, high)
        self._writer.apply(step)
        self._moved(step)

    def _step(self, high: int, end: int, changes: tuple[SchemaChange, ...] = ()) -> Advance:
        positions, put_aside = self.backlog.restart_positions(high), self.backlog.put_aside(self.applied_ts, high)
        return Advance(self.applied_ts, high, positions, changes, put_aside, self._bounds(end))

    def _bounds(self, end: int) -> tuple[int, ...]:
        """What progress must not pass in a segment that ends at `end`; it may stand still where nothing is resolved."""
        return end, max(self.applied_ts, self.resolved_ts)

    def _moved(self, step: Advance) -> None:
        self.counts.quarantined += len(step.put_aside)
        self.applied_ts = step.new_ts
        self.backlog.release(step.new_ts)
        self._written_at = self._clock()

    def _load(self, names: dict[TableName, int]) -> None:
        self.counts.tables.update(names)
        missing = [name for name in names if name not in self._catalog]
        if not missing:
            return
        self._catalog.update(self._writer.load_tables(missing))
        for name in missing:
            if name not in self._catalog:
                raise missing_table(name, names[name])

    def _wanted(self, change: SchemaChange) -> bool:
        classified = classify(change.text, change.schema)
        if not isinstance(classified, Classified) or not (classified.tables or classified.database):
            return self._tables(change.schema, change.table)
        if classified.database:
            return self._tables.accepts_schema(classified.database)
        self.counts.tables.update(classified.tables)
        wanted = {self._tables(*name) for name in classified.tables}
        if len(wanted) > 1:
            raise SchemaChangeError(
                f"a schema change touches tables inside and outside of the filter: {change.text}",
                where=f"{change.position}, commit ts {change.commit_ts} ({tso_ms(change.commit_ts)} ms)",
                mend="change --filter so that all of them, or none, are replicated",
            )
        return wanted.pop()
