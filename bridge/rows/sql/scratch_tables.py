"""Writes the statements of temporary tables: for the values of rows that are deleted and written anew."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import NamedTuple

import pyarrow as pa

from bridge.events import SEP
from bridge.model import Column, Table
from bridge.quoting import free_name, quote_name
from bridge.rows.net_changes import KeyedChanges, WrittenRows
from bridge.rows.sql.conditions import key_conditions, keys_of, prefix_conditions, set_by_themselves
from bridge.rows.sql.statement import Rendering, Stage, Statement


def definition(name: str, column: Column) -> str:
    """Gives the line of CREATE TABLE for a column of another table's type.  TiDB has no CREATE TABLE ... AS SELECT."""
    text = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{quote_name(name)} {column.type}{text} {'NULL' if column.nullable else 'NOT NULL'}"


def copied(column: Column, alias: str = "") -> str:
    """Writes the value of a column that is copied to another one of its type.  alias: of the table, with its point."""
    name = f"{alias}{quote_name(column.name)}"
    return f"CAST({name} AS UNSIGNED)" if column.has_nameless_member else name


class _TemporaryTable(NamedTuple):
    """A temporary table with columns of another table's types.

    Its name is unique for each table, however long the table's name is, and for each column list.
    """

    table: Table
    name: str

    @classmethod
    def of(cls, table: Table, rendering: Rendering, *purpose: object) -> _TemporaryTable:
        what = "\0".join(map(str, (*table.name, *purpose)))
        digest = hashlib.sha1(what.encode(), usedforsecurity=False).hexdigest()
        return cls(table, quote_name(rendering.scratch_schema, f"keep {digest}"))

    def made(self, columns: Iterable[tuple[str, Column]]) -> Iterator[str]:
        """Gives the statements that create it.  columns: with the names that they have in it."""
        yield f"DROP TEMPORARY TABLE IF EXISTS {self.name}"
        named_columns = list(columns)
        number = quote_name(free_name("kept number", [name for name, _ in named_columns]))
        # Servers with sql_require_primary_key want a primary key of every table; the rows' own keys may be prefixes.
        lines = [f"{number} BIGINT AUTO_INCREMENT PRIMARY KEY", *(definition(*column) for column in named_columns)]
        yield f"CREATE TEMPORARY TABLE {self.name} ({','.join(lines)})"

    def dropped(self) -> str:
        """Gives the statement that drops it."""
        return f"DROP TEMPORARY TABLE {self.name}"


def _unchanged(table: Table, written: Collection[str]) -> Iterator[str]:
    """Gives assignments that keep columns as they are which the server would otherwise set.  written: names in lower
    case."""
    for name in map(quote_name, (n for n in set_by_themselves(table) if n.lower() not in written)):
        yield f"t.{name}=t.{name}"


class KeptValues:
    """Keeps the values of target-only columns for rows of one column list that are deleted and inserted again."""

    def __init__(self, net: KeyedChanges, scratch: _TemporaryTable, extra: list[str], keys: pa.Array) -> None:
        self._net, self._scratch, self._extra, self._keys = net, scratch, extra, keys
        self._table = net.table

    @classmethod
    def of(cls, net: KeyedChanges, rendering: Rendering, rows: WrittenRows) -> KeptValues | None:
        """Keeps the values of rows of one column list; None when there is nothing to keep."""
        names = rows.columns.lower().split(SEP)
        extra = [c.name for name, c in net.table.columns.items() if name not in names and not c.generated]
        if not extra or not len(rows.freed):
            return None
        scratch = _TemporaryTable.of(net.table, rendering, rows.columns)
        return cls(net, scratch, extra, keys_of(rows.columns, rows.freed, net.key))

    def keep(self) -> Iterator[Statement]:
        columns = [self._table.columns[part] for part in (*self._net.key, *map(str.lower, self._extra))]
        names = ",".join(quote_name(column.name) for column in columns)
        for sql in self._scratch.made((column.name, column) for column in columns):
            yield self._statement(Stage.KEEP, sql)
        select = f"SELECT {','.join(map(copied, columns))} FROM {quote_name(*self._table.name)} WHERE "
        into = f"INSERT INTO {self._scratch.name} ({names}) "
        conditions = prefix_conditions if self._net.key in self._table.prefixes else key_conditions
        for condition in conditions(self._table, self._net.key, self._keys):
            yield self._statement(Stage.KEEP, f"{into}{select}{condition}")

    def restore(self) -> Iterator[Statement]:
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        lengths = self._table.prefixes.get(self._net.key, (None,) * len(key))
        on = " AND ".join(
            f"LEFT(t.{name},{length})=LEFT(kept.{name},{length})" if length else f"t.{name}=kept.{name}"
            for name, length in zip(key, lengths, strict=True)
        )
        extra = {name.lower() for name in self._extra}
        values = ",".join(
            [
                *(f"t.{quote_name(name)}={copied(self._table.columns[name.lower()], 'kept.')}" for name in self._extra),
                *_unchanged(self._table, extra),
            ]
        )
        target = quote_name(*self._table.name)
        yield self._statement(Stage.RESTORE, f"UPDATE {target} t JOIN {self._scratch.name} kept ON {on} SET {values}")
        yield self._statement(Stage.RESTORE, self._scratch.dropped())

    def _statement(self, stage: Stage, sql: str) -> Statement:
        return Statement(stage, self._table.name, sql.encode())
