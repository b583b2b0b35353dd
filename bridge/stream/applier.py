"""The applier: takes micro-batches in, waits for boundaries, moves the target from one moment to the next.

It knows nothing of Spark's query; `Applier.take` is called with one micro-batch after the other.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from typing import Final

import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.errors import BadMessageError, SchemaChangeError
from bridge.events import tso_ms
from bridge.filters import TableFilter
from bridge.stream.backlog import Backlog, ControlEvents, RowStore, TableStore, in_order, split_events
from bridge.stream.frontier import Frontier, PartitionId
from bridge.stream.segments import Segment, cut_transactions, cut_window, fold_copies
from bridge.target.catalog import Table, TableName, load_tables
from bridge.target.ddl_text import Classified, classify
from bridge.target.netchanges import NetChanges, RowChange, fold, missing_table
from bridge.target.progress import Advance, Progress, SchemaChange
from bridge.target.render import Rendering, Stage, Statement, render
from bridge.target.writer import Writer, no_statements

EMPTY_WINDOW_SECONDS: Final = 1.0
"""A window without changes is written to progress at most this often."""
BAD_MESSAGE_GRACE_SECONDS: Final = 10.0
"""How long a bad message waits for slower partitions to bring in what is complete before it."""

log = structlog.get_logger()


@dataclass
class Counts:
    """What has happened so far, for status, summary and metrics."""

    messages: int = 0
    rows: int = 0
    late: Counter[PartitionId] = field(default_factory=Counter)
    repeated: Counter[PartitionId] = field(default_factory=Counter)


@dataclass(frozen=True)
class Limits:
    """rows_per_transaction: about how many row changes a target transaction holds.
    until: nothing at or above this commit_ts is applied (TSO), None without an end."""

    rows_per_transaction: int = 50_000
    until: int | None = None


class Interrupted(Exception):  # noqa: N818  # not an error: the applier was asked to end between two transactions
    """Raised where the applier ends after `interrupt`."""


class Applier:
    """Applies what is complete, in order, for one pipeline."""

    def __init__(
        self,
        writer: Writer,
        progress: Progress,
        frontier: Frontier,
        backlog: Backlog,
        *,
        tables: TableFilter,
        limits: Limits,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._writer, self.frontier, self.backlog = writer, frontier, backlog
        self._tables, self._limits, self._clock = tables, limits, clock
        self._start_ts = progress.start_ts
        self._read_before = {partition: start.read for partition, start in progress.positions.items()}
        self._catalog: dict[TableName, Table] = {}
        self._written_at = -EMPTY_WINDOW_SECONDS
        self._bad: list[tuple[str, str]] = []
        self._bad_since = 0.0
        self._interrupted = False
        self.applied_ts = progress.applied_ts
        self.counts = Counts()

    @property
    def resolved_ts(self) -> int:
        """The moment to move to: the frontier's, not beyond `until`."""
        resolved = self.frontier.resolved_ts
        return resolved if self._limits.until is None else min(resolved, self._limits.until)

    def interrupt(self) -> None:
        """Ends the applier before its next transaction; may be called from any thread."""
        self._interrupted = True

    def finish_pending(self, pending: tuple[SchemaChange, ...]) -> None:
        """Runs the schema changes that an earlier run left in progress."""
        self._writer.run_pending(pending)

    def take(self, events: pa.Table) -> None:
        """One micro-batch's events (EVENT_SCHEMA); then applies everything that is complete."""
        rows, control = split_events(events)
        self.take_in(TableStore(self._drop_applied(rows)), control)
        self.advance()

    def take_in(self, store: RowStore, control: ControlEvents) -> None:
        """Moves frontier and backlog; applies nothing."""
        for partition in control.read:
            self.frontier.admit(partition)
        for partition, ts in control.boundaries.items():
            self.frontier.observe(partition, ts)
        for position, reason in control.bad:
            self._bad_since = self._bad_since or self._clock()
            self.frontier.freeze(position)
            self._bad.append((str(position), reason))
        changes = tuple(c for c in control.changes if c.commit_ts >= self.applied_ts)
        control = ControlEvents(control.boundaries, control.read, changes, control.bad)
        read_before = sum(start.read for start in self.backlog.positions.values())
        self.backlog.add(store, control, {p: self.frontier.boundary(p) for p in self.frontier.partitions})
        self.counts.messages += sum(start.read for start in self.backlog.positions.values()) - read_before

    def advance(self) -> None:
        """Applies every complete window; raises BadMessageError when a bad message is next."""
        resolved = self.resolved_ts
        if resolved > self.applied_ts:
            self._apply_window(resolved)
        if self._bad and resolved == self.frontier.frozen_at:
            raise self._bad_message()

    def tick(self) -> None:
        """To be called now and then while no micro-batch comes."""
        self.advance()
        if self._bad and self._clock() - self._bad_since > BAD_MESSAGE_GRACE_SECONDS:
            raise self._bad_message()

    def finish(self) -> None:
        """At the end of the input: everything complete is applied and written, a bad message is raised."""
        self.advance()
        self._write_progress(self.applied_ts)
        if self._bad and (self._limits.until is None or self.applied_ts < self._limits.until):
            raise self._bad_message()

    def waiting_for(self) -> str:
        """What holds the target back, and why."""
        if self._limits.until is not None and self.applied_ts >= self._limits.until:
            return "nothing: --until is reached"
        return self.frontier.waiting_for()

    def _bad_message(self) -> BadMessageError:
        where, reason = self._bad[0]
        more = f" (and {len(self._bad) - 1} more behind it)" if len(self._bad) > 1 else ""
        return BadMessageError(
            f"a message cannot be decoded: {reason}{more}",
            where=where,
            mend="everything complete before it is in the target; mend what the reason names, or if the message is"
            " broken for good, leave its table out with --filter; then start the bridge again",
        )

    def _drop_applied(self, rows: pa.Table) -> pa.Table:
        fresh = pc.greater_equal(rows["commit_ts"], self.applied_ts)
        dropped = rows.filter(pc.invert(fresh))
        if dropped.num_rows:
            self._count_dropped(dropped)
            rows = rows.filter(fresh)
        return rows

    def _count_dropped(self, dropped: pa.Table) -> None:
        names = ("topic", "partition", "offset", "commit_ts")
        late_before = self.counts.late.total()
        for topic, partition, offset, ts in zip(*(dropped[name].to_pylist() for name in names), strict=True):
            where = (topic, partition)
            is_late = offset >= self._read_before.get(where, 0) and ts >= self._start_ts
            (self.counts.late if is_late else self.counts.repeated)[where] += 1
        late = self.counts.late.total() - late_before
        if late:
            log.warning(
                "changes came below the applied ts and were dropped: copies of what is in the target, if the"
                " changefeed was restarted; if not, run bridge verify",
                changes=late,
                applied_ts=self.applied_ts,
                partitions=sorted({str(p) for _, p in self.counts.late}),
            )

    def _apply_window(self, high: int) -> None:
        low = self.applied_ts
        changes = fold_copies(c for c in self.backlog.changes(low, high) if self._wanted(c))
        stores = [chunk.store for chunk in self.backlog.chunks if isinstance(chunk.store, TableStore)]
        rows = in_order([store.due(low, high) for store in stores])
        if rows.num_rows == 0 and not changes:
            if self._clock() - self._written_at >= EMPTY_WINDOW_SECONDS:
                self._write_progress(high)
            return
        row_ts = rows["commit_ts"].to_pylist()
        at = 0
        for segment in cut_window(low, high, changes, row_ts):
            count = bisect_left(row_ts, segment.high, lo=at) - at
            self._apply_segment(segment, rows.slice(at, count), row_ts[at : at + count])
            at += count

    def _apply_segment(self, segment: Segment, rows: pa.Table, row_ts: list[int]) -> None:
        pieces = list(cut_transactions(row_ts, self._limits.rows_per_transaction)) or [(0, 0)]
        for i, (start, end) in enumerate(pieces):
            is_last = i == len(pieces) - 1
            high = segment.high if is_last else row_ts[end]
            piece = rows.slice(start, end - start)
            self._commit(high, piece, segment.changes if is_last else ())
        if segment.changes:
            self._writer.run_pending(segment.changes)
            self._catalog.clear()

    def _commit(self, high: int, rows: pa.Table, changes: tuple[SchemaChange, ...]) -> None:
        if self._interrupted:
            raise Interrupted
        step = Advance(self.applied_ts, high, self.backlog.restart_positions(high), changes)
        if rows.num_rows:
            by_table = _by_table(rows)
            self._load(by_table)
            nets = [fold(self._catalog[name], changes_of) for name, changes_of in by_table.items()]
            self._writer.apply(step, lambda rendering: _in_stages(_statements_of(nets, rendering)))
        else:
            self._writer.apply(step, no_statements)
        self.counts.rows += rows.num_rows
        self._moved(high)

    def _write_progress(self, high: int) -> None:
        self._writer.apply(Advance(self.applied_ts, high, self.backlog.restart_positions(high)))
        self._moved(high)

    def _moved(self, high: int) -> None:
        self.applied_ts = high
        self.backlog.release(high)
        self._written_at = self._clock()

    def _load(self, by_table: dict[TableName, list[RowChange]]) -> None:
        missing = [name for name in by_table if name not in self._catalog]
        if not missing:
            return
        session = self._writer.session()
        self._catalog.update(load_tables(session, missing))
        session.rollback()
        for name in missing:
            if name not in self._catalog:
                raise missing_table(name, by_table[name][0].commit_ts)

    def _wanted(self, change: SchemaChange) -> bool:
        classified = classify(change.text, change.schema)
        if not isinstance(classified, Classified) or not (classified.tables or classified.database):
            return self._tables(change.schema, change.table)
        if classified.database:
            return self._tables.accepts_schema(classified.database)
        wanted = {self._tables(*name) for name in classified.tables}
        if len(wanted) > 1:
            raise SchemaChangeError(
                f"a schema change touches tables inside and outside of the filter: {change.text}",
                where=f"{change.position}, commit ts {change.commit_ts} ({tso_ms(change.commit_ts)} ms)",
                mend="change --filter so that all of them, or none, are replicated",
            )
        return wanted.pop()


def _by_table(rows: pa.Table) -> dict[TableName, list[RowChange]]:
    names = ("schema", "table", "commit_ts", "kind", "columns", "key", "before", "after")
    by_table: dict[TableName, list[RowChange]] = {}
    for schema, table, *change in zip(*(rows[name].to_pylist() for name in names), strict=True):
        by_table.setdefault(TableName(schema, table), []).append(RowChange(*change))
    return by_table


def _statements_of(nets: Iterable[NetChanges], rendering: Rendering) -> Iterator[Statement]:
    """The statements of several tables, table by table."""
    for net in nets:
        yield from render(net, rendering)


def _in_stages(statements: Iterable[Statement]) -> Iterator[Statement]:
    """Statements of all tables, stage by stage."""
    ordered: dict[Stage, list[Statement]] = {stage: [] for stage in Stage}
    for statement in statements:
        ordered[statement.stage].append(statement)
    for stage in Stage:
        yield from ordered[stage]
