"""Traces where rows of earlier messages are now: schema changes rename, empty and drop tables and columns.

Pure.  Every table name in messages has a history, which the schema changes of that table cut.  The rows between two
cuts are one span.  A span knows in which table its rows are now, and the names of their columns there.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import pairwise
from typing import Final

from bridge.ddl.by_table.column_changes import ColumnChanges, column_changes
from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.lexer import tokens
from bridge.ddl.parser import Classified, Refused, classify
from bridge.model import PartitionId, TableName
from bridge.rows.moments import Moment, is_of_sending
from bridge.tso import ms_tso, tso_ms

NameKey = tuple[str, str]
_NOTHING: Final = ColumnChanges({}, frozenset(), frozenset(), loses_rows=False)
_OF_SOME_ROWS: Final = ColumnChanges({}, frozenset(), frozenset(), loses_rows=True)
_REMOVING: Final = frozenset({StatementKind.TRUNCATE_TABLE, StatementKind.DROP_TABLE})
_MOVING: Final = frozenset({StatementKind.TRUNCATE_TABLE, StatementKind.RENAME_TABLE})
WAITS_MS: Final = 600_000
"""For how long a statement may have waited for locks after its start.  MySQL may wait for a year (lock_wait_timeout);
whoever runs the statement hardly does."""
_OF_AN_INDEX: Final = ColumnChanges({}, frozenset(), frozenset(), loses_rows=False, changes_keys=True)


@dataclass(frozen=True)
class LoggedChange:
    """A schema change as the log has it.  offsets: the offset of its copy in each partition.  place: as in `Event`.
    is_skipped: the operator left it out.  is_unclear: the operator did by hand what was to be done of it, and what that
    was is not known."""

    commit_ts: int
    by_time: bool
    schema: str
    text: str
    offsets: Mapping[PartitionId, int]
    place: str | None = None
    is_skipped: bool = False
    is_unclear: bool = False


@dataclass(frozen=True)
class Cut:
    """The line between rows before a schema change and rows behind it.

    moment: rows that are not later come before the change.  Where messages go by event time, the offset of the change
    in the row's own partition decides instead; what stands behind it and is earlier beyond doubt was sent again, and
    comes before the change, too.
    own: the moment for that, None for `moment`.
    """

    moment: Moment
    offsets: Mapping[PartitionId, int]
    own: Moment | None = None

    @classmethod
    def of(cls, change: LoggedChange) -> Cut:
        """Gives the cut of a schema change."""
        moment = Moment.of_change(change.commit_ts, change.by_time, change.place)
        return cls(moment, change.offsets if change.by_time else {})


@dataclass(frozen=True)
class NameIdentity:
    """Tells which names mean one table: those that differ only in the case of letters, as in TiDB, but for tables and
    databases that are there under several such names.

    schemas, tables: the lower-case names of these.
    """

    schemas: frozenset[str] = frozenset()
    tables: frozenset[NameKey] = frozenset()

    @classmethod
    def among(cls, names: Iterable[TableName]) -> NameIdentity:
        """Gives the identity of names that are all there."""
        known = set(names)
        schemas = Counter(schema.lower() for schema in {name.schema for name in known})
        tables = Counter((name.schema.lower(), name.table.lower()) for name in known)
        return cls(
            frozenset(schema for schema, count in schemas.items() if count > 1),
            frozenset(table for table, count in tables.items() if count > 1),
        )

    def key_of(self, name: TableName) -> NameKey:
        """Gives the name of a table for comparison."""
        folded = name.schema.lower(), name.table.lower()
        table = name.table if folded in self.tables else folded[1]
        return self.schema_key(name.schema), table

    def schema_key(self, schema: str) -> str:
        """Gives the name of a database for comparison."""
        folded = schema.lower()
        return schema if folded in self.schemas else folded


@dataclass(frozen=True)
class Span:
    """The rows of a name between two cuts.

    table: the table that holds the rows now, None when they are gone or nothing is known of them.
    columns: from lower-case names in messages to present names, None for columns that are gone; columns that are not
    listed kept their names.
    retyped: columns, by their present names, whose values may look different since, and how often their type was
    changed.
    converted: how often the texts of all columns got another character set or collation since.
    may_be_gone: whether rows may have been deleted with their table partition, or by a statement after them.
    altered: how many schema changes since may have changed the table's key.
    converted_ever: how many changes of types and conversions of texts there were since, also of columns that are gone.
    undefaulted: columns, by their present names, whose values the rows do not get when they are inserted without them.
    """

    table: TableName | None
    columns: Mapping[str, str | None] = field(default_factory=dict)
    retyped: Mapping[str, int] = field(default_factory=dict)
    converted: int = 0
    may_be_gone: bool = False
    altered: int = 0
    converted_ever: int = 0
    undefaulted: frozenset[str] = frozenset()

    def now(self, name: str) -> str | None:
        """Tells what a column of the messages is called now, in lower case."""
        return self.columns.get(name.lower(), name.lower())


@dataclass
class NameHistory:
    """The cuts of a name, and the spans between them; there is one span more than cuts."""

    cuts: list[Cut]
    spans: list[Span]


@dataclass
class Lineage:
    """Tells where the rows of every table name are now.

    histories: by name in the messages.
    identity: which names mean one table.
    since: up to this commit_ts (TSO) the log may have lost messages.
    whole: tables of which the log holds every row, because it saw them made or emptied.
    dropped: tables that must not exist.
    made: tables that must exist; of a name that a RENAME TABLE gave, the log may not tell that it is a view's.
    """

    histories: dict[NameKey, NameHistory]
    since: int = 0
    identity: NameIdentity = field(default_factory=lambda: NameIdentity())
    whole: set[NameKey] = field(default_factory=set)
    dropped: dict[NameKey, TableName] = field(default_factory=dict)
    made: dict[NameKey, TableName] = field(default_factory=dict)
    _held: dict[NameKey, list[tuple[NameHistory, int]]] = field(default_factory=dict)
    """By table, the spans whose rows are in it now: each by its history, and its number there."""

    def history(self, name: TableName) -> NameHistory:
        """Gives the history of a name."""
        key = self.key_of(name)
        if key not in self.histories:
            self.histories[key] = NameHistory([], [])
            self._begin(name)
        return self.histories[key]

    def begin(self, name: TableName, cut: Cut) -> None:
        """Begins a new span, to which rows of that name belong from here on."""
        self.history(name).cuts.append(cut)
        self._begin(name)

    def _begin(self, name: TableName) -> None:
        history = self.histories[self.key_of(name)]
        self._held.setdefault(self.key_of(name), []).append((history, len(history.spans)))
        history.spans.append(Span(name))

    def alter(self, name: TableName, altered: Callable[[Span], Span]) -> None:
        """Alters the spans whose rows are in a table now."""
        for history, i in self._held.get(self.key_of(name), ()):
            history.spans[i] = altered(history.spans[i])

    def move(self, old: TableName, new: TableName) -> None:
        """Moves the rows that are in a table now to another one, whose own do not count any more."""
        moving = self._held.pop(self.key_of(old), [])
        self.end(new)
        self._held[self.key_of(new)] = moving
        self.alter(new, partial(replace, table=new))

    def end(self, name: TableName) -> None:
        """Ends the spans whose rows are in a table now: they do not count any more."""
        self.alter(name, partial(replace, table=None))
        self._held.pop(self.key_of(name), None)

    def key_of(self, name: TableName) -> NameKey:
        """Gives the name of a table for comparison."""
        return self.identity.key_of(name)


def trace(
    names: Iterable[TableName],
    changes: Sequence[LoggedChange],
    since: int = 0,
    identity: NameIdentity = NameIdentity(),  # immutable
) -> Lineage:
    """Traces all tables.

    names: the tables that rows name.
    identity: which names mean one table.
    changes: schema changes in order, each once.
    since: up to this commit_ts (TSO) the log may have lost messages, and with them rows of tables that it saw made.
    """
    lineage = Lineage({}, since, identity)
    for name in names:
        lineage.history(name)
    for change in changes:
        classified = classify(change.text, change.schema, is_certain=not change.is_unclear)
        known = classified.known if isinstance(classified, Refused) else classified
        if change.is_unclear and known is not None:
            _lose_sight(lineage, known.tables, Cut.of(change))
        elif isinstance(classified, Classified) and change.is_skipped:
            _skip(lineage, change, classified)
        elif isinstance(classified, Classified):
            _apply(lineage, change, classified)
            if change.by_time and not _tells_place(change) and tso_ms(change.commit_ts) % 1000 == 0:
                _doubt(lineage, change, classified)
    return lineage


def _tells_place(change: LoggedChange) -> bool:
    """Tells whether the message of a schema change names its place in the binlog, not only when it was sent."""
    return change.place is not None and not is_of_sending(change.place)


def _doubt(lineage: Lineage, change: LoggedChange, classified: Classified) -> None:
    """Notes that rows of other partitions may be from before a statement, though their time is later.

    MySQL's binlog dates a statement by its start, in whole seconds, and it may have waited for locks.  Only a place in
    the binlog tells its end (official Canal without GTIDs and CKafka tell none).  Where it takes columns away, a row
    that has such a column is from before it.
    """
    if classified.kind is StatementKind.ALTER_TABLE and len(classified.tables) == 1:
        changes, spans = column_changes(change.text), lineage.history(classified.tables[0]).spans
        went = {old: now for old, now in _altered(Span(None), changes).columns.items() if old not in changes.come}
        spans[-1] = replace(spans[-1], columns={**went, **spans[-1].columns})
    if classified.kind not in _MOVING:
        return
    until = Moment.at(ms_tso(tso_ms(change.commit_ts) + WAITS_MS))
    cut = Cut(until, change.offsets, Cut.of(change).moment)
    for name in dict.fromkeys(classified.tables):
        spans = lineage.history(name).spans
        spans[-1] = replace(spans[-1], may_be_gone=True)
        lineage.begin(name, cut)


def _lose_sight(lineage: Lineage, tables: Sequence[TableName], cut: Cut) -> None:
    """Ends what is known of tables, and of all of one name where the database is not known."""
    bare = {name.table.lower() for name in tables if not name.schema}
    met = [span.table for history in lineage.histories.values() for span in history.spans if span.table]
    names = dict.fromkeys([*(n for n in tables if n.schema), *(n for n in met if n.table.lower() in bare)])
    _end(lineage, names, cut)
    for name in names:
        lineage.whole.discard(lineage.key_of(name))
        lineage.made.pop(lineage.key_of(name), None)
        lineage.dropped.pop(lineage.key_of(name), None)


def _skip(lineage: Lineage, change: LoggedChange, classified: Classified) -> None:
    """Follows a statement that the operator left out: rows that it would have removed may have been deleted by hand,
    and a column that it would have dropped may have gone, and come anew."""
    if classified.kind in _REMOVING:
        for name in classified.tables:
            _alter(lineage, name, _OF_SOME_ROWS, Cut.of(change))
    elif classified.kind is StatementKind.ALTER_TABLE:
        left = column_changes(change.text)
        changes = replace(_NOTHING, loses_rows=left.loses_rows, retyped=left.dropped)
        _alter(lineage, classified.tables[0], changes, Cut.of(change))


def _apply(lineage: Lineage, change: LoggedChange, classified: Classified) -> None:
    tables, cut, is_whole = classified.tables, Cut.of(change), change.commit_ts > lineage.since
    if classified.kind is StatementKind.RECOVER_TABLE or ChangeClass.EXCHANGE_PARTITION in classified.classes:
        _end(lineage, tables, cut)  # the change moves rows that no message mentions
        lineage.whole -= {lineage.key_of(name) for name in tables}
        return
    match classified.kind:
        case StatementKind.CREATE_TABLE if not _if_not_exists(change.text):
            _end(lineage, tables, cut)
            _made(lineage, tables[0], whole=is_whole)
        case StatementKind.TRUNCATE_TABLE:
            _end(lineage, tables, cut)
            lineage.whole |= {lineage.key_of(tables[0])} if is_whole else set()
        case StatementKind.DROP_TABLE:
            _end(lineage, tables, cut)
            _dropped(lineage, tables)
        case StatementKind.DROP_VIEW | StatementKind.DROP_SEQUENCE:
            for name in tables:
                lineage.made.pop(lineage.key_of(name), None)  # RENAME TABLE renames views too
        case StatementKind.DROP_DATABASE | StatementKind.CREATE_DATABASE if _empties_database(classified):
            inside = _tables_in(lineage, classified.database)
            _end(lineage, inside, cut)
            _dropped(lineage, inside)
        case StatementKind.RENAME_TABLE:
            for old, new in list(pairwise(tables))[::2]:
                _rename(lineage, old, new, cut)
        case StatementKind.ALTER_TABLE:
            _alter(lineage, tables[0], column_changes(change.text), cut)
            if ChangeClass.RENAME_TABLE in classified.classes:
                _rename(lineage, tables[0], tables[-1], cut)
        case StatementKind.CREATE_INDEX | StatementKind.DROP_INDEX:
            _alter(lineage, tables[0], _OF_AN_INDEX, cut)


def _tables_in(lineage: Lineage, database: str) -> list[TableName]:
    """Gives the tables that a database has, as far as messages told of them."""
    known = {span.table for history in lineage.histories.values() for span in history.spans if span.table}
    known |= set(lineage.made.values())
    key_of = lineage.identity.schema_key
    return [name for name in known if key_of(name.schema) == key_of(database)]


def _empties_database(classified: Classified) -> bool:
    """Tells whether the statement empties a database: DROP, or CREATE OR REPLACE."""
    return ChangeClass.DROP_DATABASE in classified.classes


def _if_not_exists(text: str) -> bool:
    """Tells whether the statement may have left an existing table as it was."""
    words = [token.word for token in tokens(text)[:8]]
    return any(words[i : i + 3] == ["IF", "NOT", "EXISTS"] for i in range(len(words)))


def _made(lineage: Lineage, name: TableName, *, whole: bool) -> None:
    key = lineage.key_of(name)
    lineage.made[key] = name
    lineage.dropped.pop(key, None)
    if whole:
        lineage.whole.add(key)


def _dropped(lineage: Lineage, names: Iterable[TableName]) -> None:
    for name in names:
        lineage.whole.discard(lineage.key_of(name))
        lineage.made.pop(lineage.key_of(name), None)
        lineage.dropped[lineage.key_of(name)] = name


def _end(lineage: Lineage, names: Iterable[TableName], cut: Cut) -> None:
    """Ends the spans of these tables: the rows in them do not count any more."""
    for name in names:
        lineage.history(name)
        lineage.end(name)
        lineage.begin(name, cut)


def _rename(lineage: Lineage, old: TableName, new: TableName, cut: Cut) -> None:
    lineage.history(old)
    lineage.history(new)
    lineage.move(old, new)
    lineage.begin(new, cut)
    lineage.begin(old, cut)
    is_whole = lineage.key_of(old) in lineage.whole
    _dropped(lineage, [old])
    lineage.whole.discard(lineage.key_of(new))
    _made(lineage, new, whole=is_whole)


def _alter(lineage: Lineage, name: TableName, changes: ColumnChanges, cut: Cut) -> None:
    if changes == _NOTHING:
        return
    lineage.history(name)
    lineage.alter(name, partial(_altered, changes=changes))
    lineage.begin(name, cut)


def _altered(span: Span, changes: ColumnChanges) -> Span:
    columns: dict[str, str | None] = {}
    for name in {*span.columns, *changes.renamed, *changes.dropped}:
        now = span.now(name)
        columns[name] = None if now is None or now in changes.dropped else changes.renamed.get(now, now)
    retyped = Counter(span.retyped) + Counter(changes.retyped)
    return replace(
        span,
        columns=columns,
        retyped={changes.renamed.get(name, name): n for name, n in retyped.items() if name not in changes.dropped},
        converted=span.converted + changes.converts_texts,
        may_be_gone=span.may_be_gone or changes.loses_rows,
        altered=span.altered + bool(changes.changes_keys or changes.dropped),
        converted_ever=span.converted_ever + len(changes.retyped) + changes.converts_texts,
        undefaulted=changes.undefaulted | {changes.renamed.get(n, n) for n in span.undefaulted - changes.dropped},
    )
