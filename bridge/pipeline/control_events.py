"""The events of a micro-batch besides row changes: boundaries, schema changes, bad messages, and tables left out; which
schema changes are replicated."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bridge.ddl.classes import StatementKind
from bridge.ddl.lexer import UnreadableError, tokens
from bridge.ddl.parser import Refused, classify
from bridge.errors import UsageError
from bridge.events import CLASH, Boundary, DdlStatement, Kind, LeftOut, Position, Undecodable
from bridge.filters.table_filter import TableFilter
from bridge.model import Entry, PartitionId, SchemaChange, TableName
from bridge.protocols.event_columns import placed_events

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


def control_events(others: pa.Table) -> ControlEvents:
    """Separates boundaries, schema changes and bad messages.

    others: events that are not row changes, in the order of (partition, offset).
    """
    others, left_out = without_left_out(others)
    boundaries: dict[PartitionId, int] = {}
    changes: list[SchemaChange] = []
    bad: list[BadMessage] = []
    for position, event in placed_events(others):
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
    """Tells whether the filter accepts any table that a schema change touches, or may touch; adds those that it surely
    touches to `seen`.

    A change of which only a part is accepted is wanted, so that it is recorded: the policy holds it.
    """
    classified = classify(change.text, change.schema)
    known = classified.known if isinstance(classified, Refused) else classified
    if known is None:
        return _may_be_wanted(change, tables)
    if known.database or known.kind is StatementKind.ALTER_DATABASE:  # which may mean any, where nothing names one
        return not known.database or tables.accepts_schema(known.database)
    seen.update(name for name in known.tables if name.schema)
    if not known.tables:
        return tables(change.schema, change.table)
    return any(tables(*name) if name.schema else tables.may_accept(name.table) for name in known.tables)


def _may_be_wanted(change: SchemaChange, tables: TableFilter) -> bool:
    """Tells whether a statement that is not understood names a table that the filter accepts, or cannot be read at
    all."""
    if tables(change.schema, change.table):
        return True
    try:
        found = tokens(change.text)
    except UnreadableError:
        return tables.accepts_schema(change.schema) if change.schema else True
    names = [token.name or "" for token in found]
    whole = (tables(schema, name) for schema, name in zip(names, names[2:], strict=False) if schema and name)
    bare = (tables(change.schema, name) if change.schema else tables.may_accept(name) for name in names if name)
    return any(whole) or any(bare)
