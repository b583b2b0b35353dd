"""Tells which rows of the log are in a table of the target now: those behind the last schema change that touched it.

Pure.  A schema change that makes, empties, drops or renames a table, or touches its key, its types or its columns, is
the cut of that name: what the rows before it have become, only the upstream tells.

Tells before that which schema changes of the log the target has, and in which words.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Final

from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.classes import LEAVES_ROWS, OF_INDEXES, ChangeClass, StatementKind
from bridge.ddl.parser import Classified, Refused, Unclear, classify, has_if_not_exists
from bridge.filters.routes import Routes
from bridge.model import PartitionId, PartitionStart, SchemaChange, TableName, goes_by_partition, goes_by_transactions
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import NOTHING_TO_RUN, Journal, JournalEntry, JournalState
from bridge.mysql.state.progress import Progress
from bridge.pipeline.order import is_wanted
from bridge.protocols.values.event_time import SNAPSHOT_PLACE
from bridge.rows.moments import Moment, is_of_sending
from bridge.tso import tso_ms
from bridge.verify.options import VerifyOptions

NameKey = tuple[str, str]
_ALTERS: Final = frozenset({StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX})
WAITS_MS: Final = 600_000
"""For how long a statement may have waited for locks after its start.  MySQL may wait for a year (lock_wait_timeout);
whoever runs the statement hardly does."""
_LOST: Final = "Kafka has lost messages that may have changed it"
_FILTERED: Final = "event filters leave out some of its changes, and the pipeline began after its first ones"


@dataclass(frozen=True)
class LoggedChange:
    """A schema change as the log has it.  offsets: the offset of its copy in each partition.  place: as in `RowChange`.
    is_unclear: the operator left it out, or did by hand what was to be done of it, and what that was is not known."""

    commit_ts: int
    by_time: bool
    schema: str
    text: str
    offsets: Mapping[PartitionId, int]
    place: str | None = None
    is_unclear: bool = False


@dataclass(frozen=True)
class Cut:
    """The line between rows before a schema change and rows behind it.

    moment: rows that are not later come before the change.  Where messages go by event time, the offset of the change
    in the row's own partition decides instead; what stands behind it and is earlier beyond doubt was sent again, and
    comes before the change, too.
    is_dated_by_start: the change may have waited for locks, and nothing tells its end (MySQL's binlog dates a statement
    by its start, in whole seconds; official Canal without GTIDs and CKafka tell no place in it).
    """

    moment: Moment
    offsets: Mapping[PartitionId, int]
    is_dated_by_start: bool = False

    @classmethod
    def of(cls, change: LoggedChange) -> Cut:
        """Gives the cut of a schema change."""
        moment = Moment.of_change(change.commit_ts, change.by_time, change.place)
        tells_place = change.place not in (None, SNAPSHOT_PLACE) and not is_of_sending(change.place)
        is_dated_by_start = change.by_time and not tells_place and tso_ms(change.commit_ts) % 1000 == 0
        return cls(moment, change.offsets if change.by_time else {}, is_dated_by_start)


def ambiguous(names: Iterable[TableName]) -> set[NameKey]:
    """Gives the tables that differ from others in the case of letters only, or whose databases do."""
    distinct = set(names)
    schemas = Counter(schema.lower() for schema in {name.schema for name in distinct})
    tables = Counter(name.folded for name in distinct)
    return {key for key, count in tables.items() if count > 1 or schemas[key[0]] > 1}


@dataclass
class TableCoverage:
    """What the log tells of a name.

    cut: rows of that name count behind it; None where all do.
    is_made: the log saw the table made or emptied, and has told every row since.
    since: what rows from before the cut were before, where these may be in the table; "" where none are.
    is_there: whether the table must be on the target, or must not; None where the log does not tell.
    """

    name: TableName
    cut: Cut | None = None
    is_made: bool = False
    since: str = ""
    is_there: bool | None = None

    def is_whole(self, *, has_earlier_rows: bool) -> bool:
        """Tells whether the log holds every row of the table.  has_earlier_rows: whether it has rows before the cut."""
        return self.is_made and not (self.since and has_earlier_rows)


@dataclass
class Coverage:
    """What the log tells of all tables, by their names in the messages.

    since: up to this commit_ts (TSO) the log may have lost messages.
    primary: tables that have a primary key now: no other unique key identifies their rows.
    """

    tables: dict[NameKey, TableCoverage]
    since: int = 0
    primary: Container[NameKey] = frozenset()

    def of(self, name: TableName) -> TableCoverage:
        """Gives what the log tells of a name."""
        return self.tables.setdefault(name.folded, TableCoverage(name))

    def put(
        self, name: TableName, cut: Cut | None, *, is_made: bool = False, is_there: bool | None = None, since: str = ""
    ) -> None:
        """Begins a name anew: but for `since`, no row of it from before the cut, if there is one, is in the table."""
        before = self.of(name).cut
        if cut and cut.moment.ts <= self.since:  # what is lost may have come behind it
            cut = Cut(Moment.at(self.since), {})
        if cut and before and cut.moment.last < before.moment.last:  # on another server, whose clock is behind
            cut = replace(cut, moment=replace(cut.moment, last=before.moment.last))
        self.tables[name.folded] = TableCoverage(name, cut, is_made, since, is_there)

    def begin(self, name: TableName, change: LoggedChange, *, is_there: bool | None, is_made: bool = False) -> None:
        """Compares of a table only what comes after a schema change.  is_made: whether the log still tells every row of
        it where it has none from before the change."""
        since = f"it was changed at commit ts {change.commit_ts} ({' '.join(change.text.split())})"
        self.put(name, Cut.of(change), is_made=is_made, is_there=is_there, since=since)

    def begin_filtered(self, name: TableName, begin: int) -> None:
        """Compares of a table, of which event filters leave out row changes, only what comes after the copy from which
        its pipeline began (TSO)."""
        table = self.of(name)
        if table.is_there is not False and (table.cut is None or table.cut.moment.last < begin):
            cut = Cut(Moment.at(begin - 1), {})
            self.tables[name.folded] = TableCoverage(name, cut, since=_FILTERED, is_there=table.is_there)


def coverage_of(
    names: Iterable[TableName],
    changes: Sequence[LoggedChange],
    since: int = 0,
    primary: Container[NameKey] = frozenset(),
) -> Coverage:
    """Gives what the log tells of all tables.

    names: the tables that rows name.
    changes: schema changes in order, each once.
    since, primary: as of `Coverage`.
    """
    coverage = Coverage({}, since, primary)
    for name in names:
        coverage.put(name, Cut(Moment.at(since), {}) if since else None, since=_LOST if since else "")
    for change in changes:
        classified = classify(change.text, change.schema, is_certain=not change.is_unclear)
        subject = classified.classified if isinstance(classified, Refused) else classified
        if change.is_unclear:
            for name in _possible_tables(coverage, subject.tables) if subject else ():
                coverage.begin(name, change, is_there=None)
        elif isinstance(classified, Classified):
            _apply(coverage, change, classified)
    return coverage


def _possible_tables(coverage: Coverage, tables: Sequence[TableName]) -> list[TableName]:
    """Gives tables that an unclear statement may mean: all of one name where the database is not known."""
    bare = {name.table.lower() for name in tables if not name.schema}
    known_names = (table.name for table in coverage.tables.values() if table.is_there is not False)
    return [*(name for name in tables if name.schema), *(name for name in known_names if name.table.lower() in bare)]


def _apply(coverage: Coverage, change: LoggedChange, classified: Classified) -> None:
    tables, cut, is_retained = classified.tables, Cut.of(change), change.commit_ts > coverage.since
    if classified.kind is StatementKind.RECOVER_TABLE or ChangeClass.EXCHANGE_PARTITION in classified.classes:
        for name in tables:  # it moves rows that no message mentions
            coverage.begin(name, change, is_there=coverage.of(name).is_there)
        return
    match classified.kind:
        case StatementKind.CREATE_TABLE if coverage.of(tables[0]).is_there is False or not has_if_not_exists(
            change.text, classified
        ):
            # Rows of other partitions in its second may be of a table dropped before, if there was one.
            is_dated, is_first = cut.is_dated_by_start, coverage.of(tables[0]).cut is None
            of_all = None if is_retained and is_first and is_dated else cut
            coverage.put(tables[0], of_all, is_made=is_retained and (is_first or not is_dated), is_there=True)
        case StatementKind.TRUNCATE_TABLE if cut.is_dated_by_start:
            coverage.begin(tables[0], change, is_there=coverage.of(tables[0]).is_there)
        case StatementKind.TRUNCATE_TABLE:
            coverage.put(tables[0], cut, is_made=is_retained, is_there=coverage.of(tables[0]).is_there)
        case StatementKind.DROP_TABLE:
            for name in tables:
                coverage.put(name, cut, is_there=False)
        case StatementKind.DROP_DATABASE | StatementKind.CREATE_DATABASE if (
            ChangeClass.DROP_DATABASE in classified.classes
        ):
            for table in list(coverage.tables.values()):
                if table.name.schema.lower() == classified.database.lower():
                    coverage.put(table.name, cut, is_there=False)
        case StatementKind.RENAME_TABLE:
            for old, new in list(pairwise(tables))[::2]:
                _rename(coverage, old, new, change)
        case kind if kind in _ALTERS:
            leaves = LEAVES_ROWS if tables[0].folded in coverage.primary else LEAVES_ROWS - OF_INDEXES
            if not leaves.issuperset({*classified.classes} - {ChangeClass.RENAME_TABLE}):
                coverage.begin(tables[0], change, is_there=True, is_made=coverage.of(tables[0]).is_made)
            if ChangeClass.RENAME_TABLE in classified.classes:
                _rename(coverage, tables[0], tables[-1], change)


def _rename(coverage: Coverage, old: TableName, new: TableName, change: LoggedChange) -> None:
    """Views and sequences are renamed in the same words, so that only a table that the log has seen must be there."""
    is_there = coverage.of(old).is_there or None
    coverage.put(old, Cut.of(change), is_there=False)
    coverage.begin(new, change, is_there=is_there)


def applied_changes(
    look: Session, journal: Journal, progress: Progress, options: VerifyOptions, changes: Iterable[LoggedChange]
) -> list[LoggedChange]:
    """Gives the schema changes that a pipeline has run, as `as_run` does, and those that the operator has skipped."""
    pending = {(change.commit_ts, change.schema, change.text) for change in progress.pending}
    read, routes = positions_read(progress), options.row_rules.routes
    applied: list[LoggedChange] = []
    for change in changes:
        logged = SchemaChange(change.commit_ts, change.schema, "", change.text, "")
        is_clear = type(classify(change.text, change.schema)) is not Refused
        is_pending = (change.commit_ts, change.schema, change.text) in pending
        is_meant = is_clear and is_wanted(logged, options.tables, set())
        if is_pending or not (is_meant and _has_run(change, progress, read)):
            continue
        entry = journal.find(look, logged)
        if entry is not None and entry.state is JournalState.SKIPPED:
            applied += as_run(replace(change, is_unclear=True), None, routes)
        elif entry is None or not _is_left_out(entry):
            applied += as_run(change, entry, routes, options.tables)
    return applied


def _is_left_out(entry: JournalEntry) -> bool:
    """Tells whether a schema change touched no row.  Where one had run for another shard, rows of its own shard from
    before it lack what came with it."""
    classified = classify(entry.statement, entry.schema)
    is_alter = isinstance(classified, Classified) and classified.kind is StatementKind.ALTER_TABLE
    is_confirmed = entry.state is JournalState.CONFIRMED and not is_alter
    return is_confirmed or entry.state is JournalState.IGNORED or entry.outcome == NOTHING_TO_RUN


def as_run(
    change: LoggedChange, entry: JournalEntry | None, routes: Routes, accepts: Callable[[str, str], bool] | None = None
) -> Iterator[LoggedChange]:
    """Gives a schema change as it ran: with the names of the target, and in the operator's words where one was
    replaced; nothing where it cannot have run.

    entry: what the journal holds of it.  accepts: tells which tables are replicated; None when all are.
    """
    classified = classify(change.text, change.schema)
    if entry is not None and entry.replacement:
        yield replace(change, text=entry.replacement)
    elif isinstance(classified, Unclear):
        yield replace(change, is_unclear=True)
    elif routed := target_statement(change.text, change.schema, routes):
        tables = classified.tables if accepts and isinstance(classified, Classified) else ()
        choices = {accepts(*name) for name in tables} if accepts else set()
        is_unclear = change.is_unclear or (entry is not None and entry.is_by_hand and len(choices) > 1)
        yield replace(change, text=routed[0], schema=routed[1], is_unclear=is_unclear)


def positions_read(progress: Progress) -> Mapping[PartitionId, PartitionStart] | None:
    """Tells how far each partition is in the order of partitions or transactions; None in that of commit ts."""
    by_offsets = goes_by_partition(progress.positions) or goes_by_transactions(progress.positions)
    return progress.positions if by_offsets else None


def _has_run(change: LoggedChange, progress: Progress, read: Mapping[PartitionId, PartitionStart] | None) -> bool:
    if read is None:
        return change.commit_ts < progress.applied_ts
    starts = [(offset, read[where]) for where, offset in change.offsets.items() if where in read]
    is_below = not change.by_time and any(change.commit_ts < (start.floor or 0) for _, start in starts)
    return is_below or any(offset < start.offset for offset, start in starts)
