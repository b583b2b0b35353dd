"""The interface of the orders in which changes are applied, and how they cut a window into segments at its schema
changes.

With boundaries, changes are applied in the order of commit ts (`by_boundaries`); without, in the order of each
partition (`by_partitions`).  Progress records which: positions with a floor belong to the order of the partitions.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Final, NamedTuple, Protocol

import pyarrow as pa
import pyarrow.compute as pc

from bridge.ddl.classes import StatementKind
from bridge.ddl.lexer import UnreadableError, read_tokens
from bridge.ddl.parser import Refused, classify
from bridge.errors import AheadOfTargetError, UsageError
from bridge.events import CLASH, Boundary, DdlStatement, Kind, LeftOut, Position, Undecodable
from bridge.filters.table_filter import TableFilter
from bridge.model import UNUSED, Advance, Entry, PartitionId, PartitionStart, Positions, SchemaChange, TableName
from bridge.mysql.state.progress import Progress
from bridge.protocols.batch_decode import placed_events
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.decoded_batch import DecodedBatch

LeftOutRows = tuple[LeftOut, Position, int]
"""Rows of a table that is not replicated, the position of the first one, and how many there are."""


class BadMessage(NamedTuple):
    """A message that cannot be decoded.

    boundary: the last boundary (TSO) of its partition before it in the same micro-batch; 0 without one.
    """

    entry: Entry
    boundary: int

    @property
    def partition(self) -> PartitionId:
        """Its partition."""
        return self.entry.position.topic, self.entry.position.partition


@dataclass(frozen=True)
class ControlEvents:
    """The events of a micro-batch that are not row changes.

    boundaries: highest boundary per partition (TSO).
    changes, bad: schema changes and bad messages, in order of partition and offset.
    left_out: the tables that are not replicated.
    """

    boundaries: dict[PartitionId, int]
    changes: tuple[SchemaChange, ...] = ()
    bad: tuple[BadMessage, ...] = ()
    left_out: tuple[LeftOutRows, ...] = ()


def control_events(events: pa.Table) -> ControlEvents:
    """Separates boundaries, schema changes and bad messages.

    events: those that are not row changes, in the order of (partition, offset).
    """
    events, left_out = without_left_out(events)
    boundaries: dict[PartitionId, int] = {}
    changes: list[SchemaChange] = []
    bad: list[BadMessage] = []
    for position, event in placed_events(events):
        where = position.topic, position.partition
        match event:
            case Undecodable():
                code, reason, key, value, schemas, _ = event
                entry = Entry(position, code, reason, key=key, value=value, schemas=schemas)
                bad.append(BadMessage(entry, boundaries.get(where, 0)))
            case DdlStatement():
                changes.append(SchemaChange(event.commit_ts, event.schema, event.table, event.statement, str(position)))
            case Boundary():
                boundaries[where] = max(event.commit_ts, boundaries.get(where, 0))
    return ControlEvents(boundaries, tuple(changes), tuple(bad), left_out)


def without_left_out(events: pa.Table) -> tuple[pa.Table, tuple[LeftOutRows, ...]]:
    """Removes the events of tables that are not replicated (EVENT_SCHEMA, in any order); returns the rest and the
    tables.  Raises UsageError for a table that shares its target with another one."""
    is_left_out = pc.equal(events["kind"], int(Kind.LEFT_OUT))
    if not pc.any(is_left_out).as_py():
        return events, ()
    groups = events.filter(is_left_out).group_by(["schema", "table", "text", "columns", "topic", "partition"])
    places = [("topic", "ascending"), ("partition", "ascending"), ("offset_min", "ascending")]
    left_out = []
    for group in groups.aggregate([("offset", "min"), ("offset", "count")]).sort_by(places).to_pylist():
        position = Position(group["topic"], group["partition"], group["offset_min"])
        if group["columns"] == CLASH:
            raise clash_error(group["text"], str(position))
        left_out.append((LeftOut(group["schema"], group["table"], group["text"]), position, group["offset_count"]))
    return events.filter(pc.invert(is_left_out)), tuple(left_out)


def clash_error(why: str | None, position: str) -> UsageError:
    """Makes the error for a table that shares its target with another one."""
    return UsageError(
        f"two tables have one target: {why}; nothing of it was written",
        where=position,
        fix="change --route, or leave one of them out with --filter",
    )


def is_wanted(change: SchemaChange, tables: TableFilter, seen: set[TableName]) -> bool:
    """Tells whether the filter accepts any table that a schema change may touch, if only one of several.  Adds the
    tables that it surely touches to `seen`.  One of which only a part is accepted is held by the policy."""
    classification = classify(change.text, change.schema)
    statement = classification.classified if isinstance(classification, Refused) else classification
    if statement is None:
        return _may_be_wanted(change, tables)
    if statement.database or statement.kind is StatementKind.ALTER_DATABASE:  # without a name it may be any
        return not statement.database or tables.accepts_schema(statement.database)
    seen.update(name for name in statement.tables if name.schema)
    if not statement.tables:
        return tables(change.schema, change.table)
    return any(tables(*name) if name.schema else tables.may_accept(name.table) for name in statement.tables)


def _may_be_wanted(change: SchemaChange, tables: TableFilter) -> bool:
    """Tells whether a statement that is not understood names a table that the filter accepts, or cannot be read at
    all."""
    if tables(change.schema, change.table):
        return True
    try:
        words = read_tokens(change.text)
    except UnreadableError:
        return tables.accepts_schema(change.schema) if change.schema else True
    names = [token.name or "" for token in words]
    whole = (tables(schema, name) for schema, name in zip(names, names[2:], strict=False) if schema and name)
    bare = (tables(change.schema, name) if change.schema else tables.may_accept(name) for name in names if name)
    return any(whole) or any(bare)


TOGETHER: Final = 65_536
"""How many characters the schema changes at the end of one segment have at most: after each of them, all that are still
to run are written to progress again."""
Starts = dict[PartitionId, PartitionStart]


@dataclass(frozen=True)
class Segment:
    """The row changes with low <= commit_ts < high, then the schema changes, in order."""

    low: int
    high: int
    changes: tuple[SchemaChange, ...] = ()

    def cut_at(self, ts: int) -> tuple[Segment, ...]:
        """Gives the parts below and from `ts` on; the segment itself where one of them would be empty."""
        if not self.low < ts < self.high:
            return (self,)
        return Segment(self.low, ts), Segment(ts, self.high, self.changes)


def fold_copies(changes: Iterable[SchemaChange]) -> list[SchemaChange]:
    """Removes copies of schema changes, and sorts them into the order in which they run.

    That is the order of commit_ts, then of the position of the first copy (topic, partition, offset), so that it does
    not depend on how they arrived.  Copies, broadcast or repeated, have the same commit_ts, schema and text.
    """
    firsts: dict[tuple[int, str, str], SchemaChange] = {}
    for change in sorted(changes, key=lambda change: change.read_at):
        firsts.setdefault((change.commit_ts, change.schema, change.text), change)
    return sorted(firsts.values(), key=lambda change: change.commit_ts)


def cut_window(low: int, high: int, changes: Sequence[SchemaChange], row_ts: Sequence[int]) -> Iterator[Segment]:
    """Cuts the window [low, high) into segments.

    changes: the schema changes of the window, in the order of `fold_copies`.  Rows at the commit_ts of a change come
        before it.
    row_ts: commit_ts of the window's rows, ascending.
    Changes of one commit_ts end one segment together, and so do changes without rows between them, up to `TOGETHER`.
    """
    batch: list[SchemaChange] = []
    for change in changes:
        is_next = bool(batch) and batch[-1].commit_ts < change.commit_ts
        is_much = sum(len(earlier.text) for earlier in batch) > TOGETHER
        if is_next and (is_much or bisect_right(row_ts, batch[-1].commit_ts) < bisect_right(row_ts, change.commit_ts)):
            yield Segment(low, batch[-1].commit_ts + 1, tuple(batch))
            low, batch = batch[-1].commit_ts + 1, []
        batch.append(change)
    if batch:
        yield Segment(low, batch[-1].commit_ts + 1, tuple(batch))
        low = batch[-1].commit_ts + 1
    if low < high:
        yield Segment(low, high)


class OrderChanged(Exception):  # noqa: N818  # not an error: the bridge reads again from its progress
    """The pipeline has changed to the other order, and has recorded it in its progress; the text says why."""


class Due(NamedTuple):
    """What has to be applied next: the row changes of a segment, then its schema changes.

    rows: None when there are no row changes.
    at_once: whether one transaction must hold all of it, since the target may have parts of it.
    """

    segment: Segment
    rows: RowChanges | None
    at_once: bool = False


class Order(Protocol):
    """Holds what was read, and decides what of it is due, and where a restart begins.

    The applier's thread calls it.  Any thread may call `coming`, and read what is no method.
    """

    applied_ts: int
    """Everything below it that is due is in the target (TSO)."""
    positions: Positions
    """How far each partition was read."""

    # --- taking micro-batches

    takes_rows: ClassVar[bool]
    """Whether it takes row changes in order, wherever they are (`DecodedBatch.divided`); otherwise it takes events as
    they were read, all of them here."""

    def take(self, batch: DecodedBatch) -> None:
        """Takes one micro-batch."""

    def tick(self) -> None:
        """Checks what has become due by time.  Called regularly while no micro-batch comes."""
        return

    def end(self) -> None:
        """Notes that nothing more will be read."""

    # --- what is due

    def due(self) -> Iterator[Due]:
        """Yields what may be applied now, in order.  The caller commits each, and calls `moved`, before it takes the
        next."""

    def coming(self, batch: DecodedBatch) -> RowChanges | None:
        """Guesses which row changes will be due next, behind all that is due and `batch`; None where nothing tells."""
        del batch
        return None

    def put_back(self, error: AheadOfTargetError) -> bool:
        """Takes back what was due last, as the target lacks a table or a column of it; gives False when it has waited
        for that long enough."""
        del error
        return False

    @property
    def doubt(self) -> str:
        """What else may be the cause where the target refuses something; "" for nothing."""
        return ""

    def next_bad(self) -> Sequence[BadMessage]:
        """Returns the bad messages that stop the bridge; empty unless one of them comes next."""

    def handover(self) -> tuple[Advance, str] | None:
        """Tells how progress records that the other order takes over, and why; None if it does not."""

    def final_ts(self) -> int | None:
        """Returns the applied ts to record at the end of the input; None if it is recorded already."""

    # --- what a restart needs

    def advance_to(self, high: int, end: int, changes: tuple[SchemaChange, ...] = ()) -> Advance:
        """Returns the change of progress for a transaction that brings the target to `high` (TSO).

        end: the end of its segment (TSO).
        changes: the schema changes that have to run after it.
        """

    def moved(self, step: Advance) -> None:
        """Notes that a transaction was committed, and drops what is now in the target."""

    # --- status

    @property
    def by_partition(self) -> bool:
        """Whether this is the order of the partitions."""

    @property
    def resolved_ts(self) -> int:
        """Everything below it may be applied (TSO)."""

    @property
    def quiet_seconds(self) -> float:
        """For how long no change has come of a source that was read to its end (seconds); 0 with boundaries."""
        return 0.0

    @property
    def until_reached(self) -> bool:
        """Whether everything below `until` is in the target; True without `until`."""

    @property
    def waiting(self) -> Amount:
        """The row changes that wait, and the bytes of those that are not on the disk."""

    def waiting_for(self) -> str:
        """Tells what the target waits for, and why; may be called from any thread."""


def first_offsets(progress: Progress, lows: Mapping[PartitionId, int]) -> dict[PartitionId, int]:
    """Returns where to begin in partitions that progress does not know.

    In a new topic that is the first offset that Kafka holds.  In a known topic it is 0: the partition was added
    meanwhile, and messages that are already gone from its beginning were never read.
    """
    topics = {topic for topic, _ in progress.positions}
    return {where: 0 if where[0] in topics else low for where, low in lows.items()}


def starts_of(
    progress: Progress,
    lows: Mapping[PartitionId, int],
    *,
    by_partition: bool,
    begins: Mapping[str, int] | None = None,
    unused: Collection[PartitionId] = (),
) -> Starts:
    """Returns where to read from, for every partition of the source.

    lows: where partitions begin that progress does not know.
    begins: where topics begin (TSO); changes below it count as in the target.
    unused: partitions that the sender does not write to.
    """
    floor = 0 if by_partition else None
    starts = {where: progress.positions.get(where, PartitionStart(low, 0, low, floor)) for where, low in lows.items()}
    return {
        where: start._replace(
            boundary=UNUSED if where in unused else max(0, start.boundary),
            begin=(begins or {}).get(where[0], start.begin),
        )
        for where, start in starts.items()
    }
