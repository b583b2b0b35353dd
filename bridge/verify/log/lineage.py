"""Traces where rows of earlier messages are now: schema changes rename, empty and drop tables.

Pure.  Every table name in messages has a history, which the schema changes of that table cut.  The rows between two
cuts are one span, which is in one table now.  A schema change that touches the key, the types or the columns of a table
ends its spans: what the rows before it have become, only the upstream tells.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.ddl.by_table.column_changes import column_changes
from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.lexer import tokens
from bridge.ddl.parser import Classified, Refused, classify
from bridge.model import PartitionId, TableName
from bridge.rows.moments import Moment, is_of_sending
from bridge.tso import ms_tso, tso_ms

NameKey = tuple[str, str]
Span = tuple[NameKey, int]
"""The name that messages give a table, for comparison, and the number of a span in its history."""
_INDEXES: Final = frozenset({StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX})
WAITS_MS: Final = 600_000
"""For how long a statement may have waited for locks after its start.  MySQL may wait for a year (lock_wait_timeout);
whoever runs the statement hardly does."""


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
        distinct = set(names)
        schemas = Counter(schema.lower() for schema in {name.schema for name in distinct})
        tables = Counter((name.schema.lower(), name.table.lower()) for name in distinct)
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


@dataclass
class NameHistory:
    """The cuts of a name, and the spans between them; there is one span more than cuts.

    spans: of each the table that holds its rows now, None when they are gone or nothing is known of them.
    """

    cuts: list[Cut]
    spans: list[TableName | None]


class CoverageStart(NamedTuple):
    """A schema change since which the rows of a table are compared.

    spans: those that it ended, where the log held every row of the table until then: as long as these have no rows, it
    still does.  None where it did not.
    """

    name: TableName
    change: LoggedChange
    spans: frozenset[Span] | None


@dataclass
class Lineage:
    """Tells where the rows of every table name are now.

    histories: by name in the messages.
    identity: which names mean one table.
    since: up to this commit_ts (TSO) the log may have lost messages.
    primary: tables that have a primary key now: no other unique key identifies their rows.
    places: in which partitions the rows of each name are.
    only_tables: what happens to columns and keys counts for nothing.
    whole: tables of which the log holds every row, because it saw them made or emptied.
    dropped: tables that must not exist.
    required: tables that must exist; of a name that a RENAME TABLE gave, the log may not tell that it is a view's.
    starts: tables of which only what came since a schema change is compared.
    """

    histories: dict[NameKey, NameHistory]
    since: int = 0
    identity: NameIdentity = field(default_factory=lambda: NameIdentity())
    primary: Container[NameKey] = frozenset()
    places: Mapping[TableName, Collection[PartitionId]] = field(default_factory=dict)
    only_tables: bool = False
    whole: set[NameKey] = field(default_factory=set)
    dropped: dict[NameKey, TableName] = field(default_factory=dict)
    required: dict[NameKey, TableName] = field(default_factory=dict)
    starts: dict[NameKey, CoverageStart] = field(default_factory=dict)
    _held: dict[NameKey, list[tuple[NameHistory, int]]] = field(default_factory=dict)
    """By table, the spans whose rows are in it now: each by its history, and its number there."""

    def history(self, name: TableName) -> NameHistory:
        """Gives the history of a name, making it if need be."""
        key = self.key_of(name)
        if key not in self.histories:
            self.histories[key] = NameHistory([], [])
            self._begin(name)
        return self.histories[key]

    def begin(self, name: TableName, cut: Cut) -> None:
        """Begins a new span: rows of that name belong to the table of that name from here on."""
        self.history(name).cuts.append(cut)
        self._begin(name)

    def _begin(self, name: TableName) -> None:
        history = self.histories[self.key_of(name)]
        self._held.setdefault(self.key_of(name), []).append((history, len(history.spans)))
        history.spans.append(name)

    def move(self, old: TableName, new: TableName) -> None:
        """Moves the rows that are in a table now to another one, whose own do not count any more."""
        moving = self._held.pop(self.key_of(old), [])
        self.end(new)
        self._held[self.key_of(new)] = moving
        for history, i in moving:
            history.spans[i] = new

    def end(self, name: TableName) -> None:
        """Ends the spans whose rows are in a table now: they do not count any more."""
        for history, i in self._held.pop(self.key_of(name), ()):
            history.spans[i] = None

    def held_spans(self, name: TableName) -> set[Span]:
        """Gives the spans whose rows are in a table now."""
        keys = {id(history): key for key, history in self.histories.items()}
        return {(keys[id(history)], i) for history, i in self._held.get(self.key_of(name), ())}

    def settle(self, used: Container[Span]) -> None:
        """Counts a table as whole although a schema change touched it, where none of the spans before have rows.

        used: the spans that have rows."""
        for key, start in list(self.starts.items()):
            if start.spans is not None and not any(span in used for span in start.spans):
                self.whole.add(key)
                del self.starts[key]

    def forget(self, names: Iterable[TableName]) -> None:
        """Forgets what tables hold and whether they must be there."""
        for name in names:
            key = self.key_of(name)
            self.whole.discard(key)
            self.required.pop(key, None)
            self.dropped.pop(key, None)
            self.starts.pop(key, None)

    def is_in_doubt(self, change: LoggedChange, tables: Iterable[TableName]) -> bool:
        """Tells whether rows of some of these tables may be from before a schema change although their time is later:
        it is dated by its start, and they are in partitions that do not hold it."""
        keys = set(map(self.key_of, tables))
        places = (place for name, all_of in self.places.items() if self.key_of(name) in keys for place in all_of)
        return _is_dated_by_start(change) and any(place not in change.offsets for place in places)

    def key_of(self, name: TableName) -> NameKey:
        """Gives the name of a table for comparison."""
        return self.identity.key_of(name)


def trace(
    names: Iterable[TableName],
    changes: Sequence[LoggedChange],
    since: int = 0,
    identity: NameIdentity = NameIdentity(),  # immutable
    primary: Container[NameKey] = frozenset(),
    places: Mapping[TableName, Collection[PartitionId]] | None = None,
    *,
    only_tables: bool = False,
) -> Lineage:
    """Traces all tables.

    names: the tables that rows name.
    changes: schema changes in order, each once.
    since: up to this commit_ts (TSO) the log may have lost messages, and with them rows of tables that it saw made.
    identity: which names mean one table.
    primary, places, only_tables: as of `Lineage`.
    """
    lineage = Lineage({}, since, identity, primary, places or {}, only_tables)
    for name in names:
        lineage.history(name)
    for change in changes:
        classified = classify(change.text, change.schema, is_certain=not change.is_unclear)
        named = classified.known if isinstance(classified, Refused) else classified
        if change.is_unclear and named is not None:
            _lose_sight(lineage, named.tables, change)
        elif isinstance(classified, Classified) and change.is_skipped:
            _skip(lineage, change, classified)
        elif isinstance(classified, Classified):
            _apply(lineage, change, classified)
    return lineage


def _cut(change: LoggedChange) -> Cut:
    """Gives the cut behind which rows surely came after a schema change.

    MySQL's binlog dates a statement by its start, in whole seconds, and it may have waited for locks.  Only a place in
    the binlog tells its end (official Canal without GTIDs and CKafka tell none).  Rows of the partitions that hold the
    statement are told by their offsets.
    """
    cut = Cut.of(change)
    if not _is_dated_by_start(change):
        return cut
    return Cut(Moment.at(ms_tso(tso_ms(change.commit_ts) + WAITS_MS)), change.offsets, cut.moment)


def _is_dated_by_start(change: LoggedChange) -> bool:
    tells_place = change.place is not None and not is_of_sending(change.place)
    return change.by_time and not tells_place and tso_ms(change.commit_ts) % 1000 == 0


def _lose_sight(lineage: Lineage, tables: Sequence[TableName], change: LoggedChange) -> None:
    """Ends what is known of tables, and of all of one name where the database is not known."""
    bare = {name.table.lower() for name in tables if not name.schema}
    placed = [table for history in lineage.histories.values() for table in history.spans if table]
    names = dict.fromkeys([*(n for n in tables if n.schema), *(n for n in placed if n.table.lower() in bare)])
    lineage.forget(names)
    for name in names:
        _start_coverage(lineage, name, change)


def _start_coverage(lineage: Lineage, name: TableName, change: LoggedChange, *, brings_rows: bool = True) -> None:
    """Compares of a table only what comes after a schema change.  brings_rows: whether that may have brought rows."""
    key = lineage.key_of(name)
    before = lineage.starts.get(key)
    earlier = frozenset[Span]() if key in lineage.whole else before.spans if before else None
    spans = None if brings_rows or earlier is None else earlier | lineage.held_spans(name)
    _end(lineage, [name], _cut(change))
    lineage.whole.discard(key)
    lineage.starts[key] = CoverageStart(name, change, spans)


def _skip(lineage: Lineage, change: LoggedChange, classified: Classified) -> None:
    """Follows a statement that the operator left out, and may have done in part by hand."""
    is_altering = classified.kind is StatementKind.ALTER_TABLE and _changes_rows(lineage, classified, change.text)
    if is_altering or classified.kind in {StatementKind.TRUNCATE_TABLE, StatementKind.DROP_TABLE}:
        for name in classified.tables:
            _start_coverage(lineage, name, change)


def _changes_rows(lineage: Lineage, classified: Classified, text: str) -> bool:
    """Tells whether an ALTER TABLE touches the key, the types or the columns of its table, or takes rows away."""
    if lineage.only_tables:
        return False
    effects = column_changes(text)
    has_primary = lineage.key_of(classified.tables[0]) in lineage.primary
    return bool(
        effects.made
        or effects.renamed
        or effects.dropped
        or effects.retyped
        or effects.loses_rows
        or effects.converts_texts
        or (effects.changes_keys and not (has_primary and "PRIMARY" not in {token.word for token in tokens(text)}))
    )


def _apply(lineage: Lineage, change: LoggedChange, classified: Classified) -> None:
    tables, cut, is_whole = classified.tables, Cut.of(change), change.commit_ts > lineage.since
    if classified.kind is StatementKind.RECOVER_TABLE or ChangeClass.EXCHANGE_PARTITION in classified.classes:
        for name in tables:
            _start_coverage(lineage, name, change)  # it moves rows that no message mentions
        return
    match classified.kind:
        case StatementKind.CREATE_TABLE if not _if_not_exists(change.text):
            _end(lineage, tables, cut)
            _made(lineage, tables[0], whole=is_whole)
        case StatementKind.TRUNCATE_TABLE if lineage.is_in_doubt(change, tables):
            _start_coverage(lineage, tables[0], change)
        case StatementKind.TRUNCATE_TABLE:
            _end(lineage, tables, cut)
            lineage.starts.pop(lineage.key_of(tables[0]), None)
            lineage.whole |= {lineage.key_of(tables[0])} if is_whole else set()
        case StatementKind.DROP_TABLE:
            _end(lineage, tables, cut)
            _dropped(lineage, tables)
        case StatementKind.DROP_VIEW | StatementKind.DROP_SEQUENCE:
            for name in tables:
                lineage.required.pop(lineage.key_of(name), None)  # RENAME TABLE renames views too
        case StatementKind.DROP_DATABASE | StatementKind.CREATE_DATABASE if _empties_database(classified):
            inside = _tables_in(lineage, classified.database)
            _end(lineage, inside, cut)
            _dropped(lineage, inside)
        case StatementKind.RENAME_TABLE:
            for old, new in list(pairwise(tables))[::2]:
                _rename(lineage, old, new, cut)
            if lineage.is_in_doubt(change, tables):
                _end(lineage, tables, _cut(change))
                for name in tables:
                    if lineage.key_of(name) in lineage.required:
                        _start_coverage(lineage, name, change)
        case StatementKind.ALTER_TABLE:
            if _changes_rows(lineage, classified, change.text):
                _start_coverage(lineage, tables[0], change, brings_rows=False)
                lineage.required[lineage.key_of(tables[0])] = tables[0]
            if ChangeClass.RENAME_TABLE in classified.classes:
                _rename(lineage, tables[0], tables[-1], cut)
        case kind if kind in _INDEXES and not (lineage.only_tables or lineage.key_of(tables[0]) in lineage.primary):
            _start_coverage(lineage, tables[0], change, brings_rows=False)


def _tables_in(lineage: Lineage, database: str) -> list[TableName]:
    """Gives the tables that a database has, as far as messages told of them."""
    names = {table for history in lineage.histories.values() for table in history.spans if table}
    names |= set(lineage.required.values())
    key_of = lineage.identity.schema_key
    return [name for name in names if key_of(name.schema) == key_of(database)]


def _empties_database(classified: Classified) -> bool:
    """Tells whether the statement empties a database: DROP, or CREATE OR REPLACE."""
    return ChangeClass.DROP_DATABASE in classified.classes


def _if_not_exists(text: str) -> bool:
    """Tells whether the statement may have left an existing table as it was."""
    words = [token.word for token in tokens(text)[:8]]
    return any(words[i : i + 3] == ["IF", "NOT", "EXISTS"] for i in range(len(words)))


def _made(lineage: Lineage, name: TableName, *, whole: bool) -> None:
    key = lineage.key_of(name)
    lineage.forget([name])
    lineage.required[key] = name
    if whole:
        lineage.whole.add(key)


def _dropped(lineage: Lineage, names: Sequence[TableName]) -> None:
    lineage.forget(names)
    for name in names:
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
    is_whole, start = lineage.key_of(old) in lineage.whole, lineage.starts.get(lineage.key_of(old))
    _dropped(lineage, [old])
    _made(lineage, new, whole=is_whole)
    if start:
        lineage.starts[lineage.key_of(new)] = start._replace(name=new)
