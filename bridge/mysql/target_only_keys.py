"""Finds unique keys that the target has and the upstream lacks.

Such a key may forbid two rows that the upstream has together.  The target refuses the second one with error 1062, and
safe mode then deletes the first, as it must for rows of an overlapping initial load.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable
from typing import Final, NamedTuple

from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.table_definition import TABLE_TYPES

FIX: Final = "drop it on the target, or create it upstream as well: rows that it does not allow together are deleted"

_SYSTEM: Final = "('information_schema', 'mysql', 'performance_schema', 'sys', 'metrics_schema')"


_Keys = dict[str, list[tuple[str, int | None]]]
"""By name; of each column also how much of it the key holds."""


class ExtraKey(NamedTuple):
    """A unique key that only the target has."""

    table: TableName
    key: str
    columns: str

    def __str__(self) -> str:
        return f"the unique key {self.key} ({self.columns}) of {self.table} is the target's own"


def find_extra_keys(
    target: Session, upstream: Session, target_name: Callable[[TableName], TableName]
) -> list[ExtraKey]:
    """Finds unique keys of tables that both have, under which the target may refuse rows that the upstream holds.

    A key that holds all columns of one of the upstream's unique keys does not count.  Keys on expressions are ignored.
    target_name: gives the name of a table of the upstream on the target.
    """
    known: dict[TableName, list[_Keys]] = defaultdict(list)
    for name, keys in _uniques(upstream).items():  # several are the shards of one table
        known[_lower(target_name(name))].append(keys)
    return [
        ExtraKey(name, key, ", ".join(column for column, _ in parts))
        for name, keys in sorted(_uniques(target).items())
        if name in known
        for key, parts in sorted(keys.items())
        if all(column for column, _ in parts)
        and not all(any(frozenset(theirs) <= frozenset(parts) for theirs in one.values()) for one in known[name])
    ]


def _lower(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())


def _uniques(session: Session) -> dict[TableName, _Keys]:
    """Reads the unique keys of every table, by name; in lower case, as servers differ in what they keep."""
    found: dict[TableName, _Keys] = {
        TableName(schema, table): defaultdict(list)
        for schema, table in session.rows(
            "SELECT LOWER(table_schema), LOWER(table_name) FROM information_schema.tables"
            f" WHERE LOWER(table_schema) NOT IN {_SYSTEM} AND table_type IN {TABLE_TYPES}"
        )
    }
    for schema, table, key, column, length in session.rows(
        "SELECT LOWER(table_schema), LOWER(table_name), index_name, LOWER(column_name), sub_part"
        f" FROM information_schema.statistics WHERE LOWER(table_schema) NOT IN {_SYSTEM} AND non_unique = 0"
        " ORDER BY table_schema, table_name, index_name, seq_in_index"
    ):
        if (name := TableName(schema, table)) in found:
            found[name][key].append((column or "", None if length is None else int(length)))
    return found
