"""Turns the lines of SHOW CREATE TABLE into the statements that give a target the same table.  Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final

from bridge.model import TableName
from bridge.mysql.table_definition import ColumnInfo, Definition
from bridge.quoting import quote_name

_NAME: Final = r"`(?P<name>(?:[^`]|``)+)`"
_COLUMN: Final = re.compile(rf"  {_NAME} (?P<rest>.*?),?$")
_NAMES_CHARSET: Final = re.compile(r" (?:/\*!\d+ )?(?:CHARACTER SET|CHARSET|COLLATE) ")
_INDEX: Final = re.compile(rf"  (?P<kind>PRIMARY KEY|(?:UNIQUE |FULLTEXT |SPATIAL )?KEY {_NAME}) (?P<rest>.*?),?$")


def column_lines(create: str) -> dict[str, str]:
    """Gives each column by lower-case name: its line of the CREATE TABLE."""
    matches = (match for line in create.splitlines() if (match := _COLUMN.match(line)))
    return {match["name"].replace("``", "`").lower(): f"`{match['name']}` {match['rest']}" for match in matches}


def index_lines(create: str) -> dict[str, str]:
    """Gives each index by name, PRIMARY among them: its line of the CREATE TABLE."""
    matches = (match for line in create.splitlines() if (match := _INDEX.match(line)))
    return {(match["name"] or "PRIMARY").replace("``", "`"): f"{match['kind']} {match['rest']}" for match in matches}


def create_statements(source: Definition, create: str, name: TableName) -> list[str]:
    """Writes the statements that create a missing table, by its name on the target, and its database."""
    qualified = create.replace(quote_name(source.name.table), quote_name(*name), 1)
    return [f"CREATE DATABASE IF NOT EXISTS {quote_name(name.schema)}", qualified]


def column_statements(table: Definition, create: str, missing: Sequence[str], changed: Sequence[str]) -> list[str]:
    """Writes the statements that add missing columns, and modify those of another type."""
    definitions = column_lines(create)
    lines = {
        name: _with_collation(definitions[name], table.columns[name])
        for name in (*missing, *changed)
        if name in definitions
    }
    alter = f"ALTER TABLE {quote_name(*table.name)}"
    return [
        *(f"{alter} ADD COLUMN {lines[name]}{_place(table, name)}" for name in missing if name in lines),
        *(f"{alter} MODIFY COLUMN {lines[name]}" for name in changed if name in lines),
    ]


def _with_collation(line: str, column: ColumnInfo) -> str:
    """Writes out the collation of a column that has that of its table, as the target's table may have another one."""
    head = f"{quote_name(column.name)} {column.type}"
    if not column.charset or not line.startswith(head) or _NAMES_CHARSET.match(line, len(head)):
        return line
    return f"{head} CHARACTER SET {column.charset} COLLATE {column.collation}{line[len(head) :]}"


def opening_statements(target: Definition, barring: Iterable[str]) -> list[str]:
    """Writes the statements that allow NULL in the target's own columns, where no row could be written without them."""
    columns = [target.columns[name] for name in barring]
    return [
        f"ALTER TABLE {quote_name(*target.name)} MODIFY COLUMN {quote_name(column.name)} {column.type}"
        f"{f' CHARACTER SET {column.charset} COLLATE {column.collation}' if column.charset else ''} NULL"
        for column in columns
    ]


def _place(source: Definition, name: str) -> str:
    names = list(source.columns)
    at = names.index(name)
    return f" AFTER {quote_name(source.columns[names[at - 1]].name)}" if at else " FIRST"


def index_statements(table: Definition, create: str, missing: Iterable[str], in_the_way: Collection[str]) -> list[str]:
    """Writes the statements that add missing indexes.  in_the_way: names that the target's own indexes have."""
    lines: Mapping[str, str] = index_lines(create)
    return [
        f"ALTER TABLE {quote_name(*table.name)} {_drop(name) if name in in_the_way else ''}ADD {lines[name]}"
        for name in missing
        if name in lines
    ]


def _drop(name: str) -> str:
    return "DROP PRIMARY KEY, " if name == "PRIMARY" else f"DROP KEY {quote_name(name)}, "
