"""Decides whether a schema change is replicated, by the tables that it touches."""

from __future__ import annotations

from bridge.ddl.parser import Classified, classify
from bridge.errors import SchemaChangeError
from bridge.filters.table_filter import TableFilter
from bridge.model import SchemaChange, TableName
from bridge.tso import tso_ms


def is_wanted(change: SchemaChange, tables: TableFilter, seen: set[TableName]) -> bool:
    """Tells whether the filter accepts the tables that a schema change touches, and adds them to `seen`.

    Raises SchemaChangeError when the filter accepts only some of them.
    """
    classified = classify(change.text, change.schema)
    if not isinstance(classified, Classified) or not (classified.tables or classified.database):
        return tables(change.schema, change.table)
    if classified.database:
        return tables.accepts_schema(classified.database)
    seen.update(classified.tables)
    accepted = {tables(*name) for name in classified.tables}
    if len(accepted) > 1:
        raise SchemaChangeError(
            f"a schema change touches tables inside and outside of the filter: {change.text}",
            where=f"{change.position}, commit ts {change.commit_ts} ({tso_ms(change.commit_ts)} ms)",
            fix="change --filter so that all of them, or none, are replicated",
        )
    return accepted.pop()
