"""Event filters: which kinds of row changes, and which schema changes, of some tables are left out.

The settings, and the names of events, are those of TiCDC (TiDB, Changefeed Log Filters: Event filter rules).  A name
may also be one of the bridge's own classes.

Settings that come as lists of tables in the file: routes, and event filters.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

from pydantic import BaseModel, ConfigDict, Field

from bridge.ddl.classes import ChangeClass
from bridge.ddl.parser import Classified
from bridge.errors import UsageError, meant
from bridge.events import Kind
from bridge.filters.routes import Route
from bridge.filters.table_filter import GoRegexpError, TableFilter, compiled

C = ChangeClass

_NO_ALTER: Final = frozenset(
    {
        *(C.CREATE_DATABASE, C.ALTER_DATABASE, C.DROP_DATABASE, C.CREATE_TABLE, C.DROP_TABLE, C.TRUNCATE_TABLE),
        *(C.RENAME_TABLE, C.RECOVER_TABLE, C.CREATE_VIEW, C.DROP_VIEW, C.NOTHING),
    }
)
_EVENTS: Final[dict[str, frozenset[Kind | ChangeClass]]] = {
    **{change.value: frozenset({change}) for change in C},
    "insert": frozenset({Kind.INSERT}),
    "update": frozenset({Kind.UPDATE}),
    "delete": frozenset({Kind.DELETE}),
    "all dml": frozenset({Kind.INSERT, Kind.UPDATE, Kind.DELETE}),
    "all ddl": frozenset(C),
    "alter table": frozenset(C) - _NO_ALTER,
    "create schema": frozenset({C.CREATE_DATABASE}),
    "drop schema": frozenset({C.DROP_DATABASE}),
    "modify schema charset and collate": frozenset({C.ALTER_DATABASE}),
    "add table partition": frozenset({C.ADD_PARTITION}),
    "drop table partition": frozenset({C.DROP_PARTITION}),
    "truncate table partition": frozenset({C.TRUNCATE_PARTITION}),
    "exchange table partition": frozenset({C.EXCHANGE_PARTITION}),
    "reorganize table partition": frozenset({C.REORGANIZE_PARTITION}),
    "modify table comment": frozenset({C.TABLE_COMMENT}),
    "modify table charset and collate": frozenset({C.TABLE_CHARSET}),
    "set default value": frozenset({C.COLUMN_DEFAULT}),
    "alter index visibility": frozenset({C.INDEX_VISIBILITY}),
    "alter ttl info": frozenset({C.TTL}),
    "alter ttl remove": frozenset({C.REMOVE_TTL}),
}
"""What names mean: the bridge's own classes, then TiCDC's names."""
_ELSEWHERE: Final = {
    "multi schema change": "name the classes of its actions; a statement is left out when all of them are",
    "remove table partitioning": "`alter table partitioning` stands for this as well",
}
"""TiCDC's names that mean something which the bridge does not tell apart."""


@dataclass(frozen=True)
class EventFilter:
    """One event filter.

    tables: the tables that it is for.
    rows: the kinds of row changes that it leaves out.
    classes: the classes of schema changes that it leaves out.
    statements: Go regular expressions of schema changes that it leaves out.
    """

    tables: TableFilter
    rows: frozenset[Kind] = frozenset()
    classes: frozenset[ChangeClass] = frozenset()
    statements: tuple[str, ...] = ()

    def is_for(self, change: Classified) -> list[bool]:
        """Tells of each object that a schema change begins from whether the filter is for it."""
        if change.database:
            return [self.tables.accepts_schema(change.database)]
        return [self.tables(*mention.table) for mention in change.begins_from]

    def matches(self, statement: str) -> bool:
        """Tells whether one of the regular expressions is found in a statement."""
        return any(compiled(pattern).search(statement) for pattern in self.statements)


def ignored_classes(filters: Iterable[EventFilter], change: Classified, statement: str) -> tuple[set[ChangeClass], str]:
    """Tells which classes of a schema change the filters leave out, and "" or why a part of it is unclear: the filter
    is for some of its tables only."""
    ignored: set[ChangeClass] = set()
    for event_filter in filters:
        classes = set(change.classes) if event_filter.matches(statement) else event_filter.classes & set(change.classes)
        is_for = event_filter.is_for(change)
        if classes and any(is_for) and not all(is_for):
            return set(), "an event filter leaves out such statements of some of its tables only"
        if classes and is_for and all(is_for):
            ignored |= classes
    return ignored, ""


def event_filter(matcher: Sequence[str], events: Iterable[str], statements: Iterable[str]) -> EventFilter:
    """Makes an event filter from its settings.  Raises UsageError for what is not known, or cannot be done."""
    if not matcher:
        raise UsageError("an event filter has no matcher", fix='write matcher = ["db.table"]')
    kinds = frozenset[Kind | ChangeClass]().union(*(_event(" ".join(name.lower().split())) for name in events))
    if not kinds and not (statements := tuple(statements)):
        raise UsageError(
            f"the event filter of {', '.join(matcher)} leaves nothing out", fix="give ignore-event or ignore-sql"
        )
    for text in statements:
        try:
            compiled(text)
        except GoRegexpError as error:
            raise UsageError(
                f"the regular expression {text!r} in ignore-sql cannot be read: {error}", fix="write it as Go does"
            ) from error
    return EventFilter(
        TableFilter(tuple(matcher)),
        frozenset(kind for kind in kinds if isinstance(kind, Kind)),
        frozenset(kind for kind in kinds if isinstance(kind, ChangeClass)),
        tuple(statements),
    )


def _event(name: str) -> frozenset[Kind | ChangeClass]:
    if name in _ELSEWHERE:
        raise UsageError(f"ignore-event cannot hold {name!r}", fix=_ELSEWHERE[name])
    if name not in _EVENTS:
        names = ", ".join(sorted(_EVENTS))
        raise UsageError(f"ignore-event knows no event {name!r}", fix=f"{meant(name, _EVENTS)}the events are: {names}")
    return _EVENTS[name]


class RouteTable(BaseModel):
    """A table, or all tables of a database, with other names on the target, as in TiDB Data Migration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_pattern: str = Field(alias="schema-pattern")
    """The databases, by a pattern of `filter`."""
    table_pattern: str = Field(default="*", alias="table-pattern")
    """The tables, by a pattern of `filter`."""
    target_schema: str | None = Field(default=None, alias="target-schema")
    """The database on the target; without it the name stays."""
    target_table: str | None = Field(default=None, alias="target-table")
    """The table on the target; without it the name stays."""
    merge: bool = False
    """Whether several tables, the shards of one, may go to one target (`=>`)."""

    @property
    def route(self) -> Route:
        """The route; UsageError for one that cannot be read or had."""
        return Route(self.schema_pattern, self.table_pattern, self.target_schema, self.target_table, self.merge)


class EventFilterTable(BaseModel):
    """What is left out of some tables, as in TiCDC's `[[filter.event-filters]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    matcher: tuple[str, ...] = ()
    """The tables, by the rules of `filter`."""
    ignore_event: tuple[str, ...] = Field(default=(), alias="ignore-event")
    """What is left out: `insert`, `update`, `delete`, or classes of schema changes."""
    ignore_sql: tuple[str, ...] = Field(default=(), alias="ignore-sql")
    """Go regular expressions of schema changes that are left out."""

    @property
    def event_filter(self) -> EventFilter:
        """The event filter; UsageError for what is not known, or cannot be done."""
        return event_filter(self.matcher, self.ignore_event, self.ignore_sql)
