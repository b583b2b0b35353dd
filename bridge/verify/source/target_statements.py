"""Writes the statements that give a target what tables of the source have, as the pipeline itself would.  Pure."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.ddl.collation_tables import SOURCES, CollationRules
from bridge.ddl.parser import Refused
from bridge.ddl.policy import DdlRules
from bridge.ddl.rewrite import rewrite
from bridge.ddl.rule import Site, UnsupportedError
from bridge.ddl.server_features import Capabilities, Flavour
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
    drops = {one: f"DROP {'PRIMARY KEY' if one == 'PRIMARY' else f'KEY {quote_name(one)}'}, " for one in in_the_way}
    return [
        f"ALTER TABLE {quote_name(*table.name)} {drops.get(name, '')}ADD {lines[name]}"
        for name in missing
        if name in lines
    ]


def source_name(source: Capabilities) -> str:
    """Gives the name in `collation_tables.SOURCES` for such a server."""
    if source.flavour is Flavour.MYSQL:
        return "mysql-5.7" if source.version < (8,) else "mysql-8"
    if source.flavour is Flavour.TIDB and source.collations.compares_bytes:
        return "tidb-old-collations"
    return source.flavour.value


_JSON: Final = re.compile(
    r"(?P<name>`(?:[^`]|``)+`) longtext(?: CHARACTER SET \w+)?(?: COLLATE \w+)?"
    r"(?P<more>[^\n]*?) CHECK \(json_valid\((?P=name)\)\)"
)
"""A JSON column as MariaDB prints it."""


@dataclass(frozen=True)
class StatementTranslator:
    """Translates statements from one server to another.  rules: the operator's rules; only their collations are
    used."""

    source: Capabilities
    target: Capabilities
    rules: DdlRules

    @property
    def _collations(self) -> CollationRules:
        return CollationRules(SOURCES[source_name(self.source)], self.rules.collations.mapped)

    def collation(self, name: str) -> str:
        """Gives the collation of the target that one of the source becomes; itself where there is none."""
        return self._collations.on(self.target.collations, name) or name

    def translate(self, statement: str, schema: str) -> tuple[str | None, str]:
        """Gives a statement of the source in a form that the target accepts, or None and the reason."""
        name = source_name(self.source)
        if self.target.flavour is not Flavour.MARIADB:
            statement = _JSON.sub(r"\g<name> json\g<more>", statement)
        try:
            # The text is of the bridge's own session, whose modes are known, and rows are compared again behind it.
            site = Site(self.target, self._collations, name, is_approved=True)
            rewritten = rewrite(statement, schema, site)
        except UnsupportedError as unsupported:
            return None, str(unsupported)
        if isinstance(rewritten, Refused):
            return (statement, "") if self.source.flavour is self.target.flavour else (None, rewritten.reason)
        return rewritten.text, "" if rewritten.text else "the target has nothing like it"
