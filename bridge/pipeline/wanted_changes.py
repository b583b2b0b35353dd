"""Decides whether a schema change is replicated, by the tables that it touches."""

from __future__ import annotations

from bridge.ddl.lexer import UnreadableError, tokens
from bridge.ddl.parser import Refused, classify
from bridge.filters.table_filter import TableFilter
from bridge.model import SchemaChange, TableName


def is_wanted(change: SchemaChange, tables: TableFilter, seen: set[TableName]) -> bool:
    """Tells whether the filter accepts any table that a schema change touches, or may touch; adds those that it surely
    touches to `seen`.

    A change of which only a part is accepted is wanted, so that it is recorded: the policy holds it.
    """
    classified = classify(change.text, change.schema)
    known = classified.known if isinstance(classified, Refused) else classified
    if known is None:
        return _may_be_wanted(change, tables)
    if known.database:
        return tables.accepts_schema(known.database)
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
