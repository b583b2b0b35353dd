"""Whether a schema change is replicated, by the tables that it touches."""

from __future__ import annotations

from bridge.ddl.parser import Classified, classify
from bridge.errors import SchemaChangeError
from bridge.model import SchemaChange, TableName
from bridge.table_filter import TableFilter
from bridge.tso import tso_ms


def is_wanted(change: SchemaChange, tables: TableFilter, met: set[TableName]) -> bool:
    """Whether the filter takes what a schema change touches; the tables it names are added to `met`.

    Raises SchemaChangeError when it touches tables inside and outside of the filter.
    """
    classified = classify(change.text, change.schema)
    if not isinstance(classified, Classified) or not (classified.tables or classified.database):
        return tables(change.schema, change.table)
    if classified.database:
        return tables.accepts_schema(classified.database)
    met.update(classified.tables)
    wanted = {tables(*name) for name in classified.tables}
    if len(wanted) > 1:
        raise SchemaChangeError(
            f"a schema change touches tables inside and outside of the filter: {change.text}",
            where=f"{change.position}, commit ts {change.commit_ts} ({tso_ms(change.commit_ts)} ms)",
            fix="change --filter so that all of them, or none, are replicated",
        )
    return wanted.pop()
