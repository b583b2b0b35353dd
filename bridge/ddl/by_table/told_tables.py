"""Gives names of a schema change the databases that its message tells beside the statement."""

from __future__ import annotations

from collections.abc import Collection

from bridge.ddl.parser import Unclear, classify
from bridge.model import TableName
from bridge.quoting import quote_name


def with_told_databases(statement: str, schema: str, told: Collection[TableName]) -> str:
    """Writes the databases into a statement, where `classify` does not know those of all names and the message tells
    them; gives any other statement as it came.

    told: the tables that the message names.  One that the statement names with its database tells nothing of the
    others: Debezium's connector names only the new table of a rename.
    """
    found = classify(statement, schema)
    if not isinstance(found, Unclear):
        return statement
    named = [*found.known.touched, *([found.known.like] if found.known.like else [])]
    named_whole = {_folded(one.table) for one in named if one.is_qualified}
    rest = [name for name in dict.fromkeys(told) if _folded(name) not in named_whole]
    for one in sorted(named, key=lambda one: one.span, reverse=True):
        same = [name for name in rest if name.table.lower() == one.table.table.lower()]
        if not one.is_qualified and len(same) == 1:
            start, end = one.span
            statement = statement[:start] + quote_name(same[0].schema, one.table.table) + statement[end:]
    return statement


def _folded(name: TableName) -> tuple[str, str]:
    return name.schema.lower(), name.table.lower()
