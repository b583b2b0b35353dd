"""Writes the statements of temporary tables: for the values of rows that are deleted and written anew, and for rows in
parts."""

from __future__ import annotations

import hashlib
from collections.abc import Collection, Iterable, Iterator
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.model import Column, Table
from bridge.quoting import free_name, quote_name
from bridge.rows.arrow_images import joined, parts_of, wrapped
from bridge.rows.net_changes import KeyedChanges, PatchedRows, WrittenRows
from bridge.rows.sql.conditions import WrittenColumns, key_conditions, keys_of, set_by_themselves
from bridge.rows.sql.enum_zeros import with_zeros
from bridge.rows.sql.statement import Rendering, Stage, Statement, cut_to_statements

_SELECTS_PER_STATEMENT: Final = 100


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

    Its name is unique for each table, however long the table's name is, for each column list and for each piece.
    """

    table: Table
    name: str

    @classmethod
    def of(cls, table: Table, rendering: Rendering, *purpose: object) -> _TemporaryTable:
        what = "\0".join(map(str, (*table.name, rendering.piece, *purpose)))
        digest = hashlib.sha1(what.encode(), usedforsecurity=False).hexdigest()
        return cls(table, quote_name(rendering.scratch_schema, f"keep {digest}"))

    def made(self, columns: Iterable[tuple[str, Column]]) -> Iterator[str]:
        """Gives the statements that create it.  columns: with the names that they have in it."""
        yield f"DROP TEMPORARY TABLE IF EXISTS {self.name}"
        mine = list(columns)
        number = quote_name(free_name("kept number", [name for name, _ in mine]))
        # Servers with sql_require_primary_key want a primary key of every table; the rows' own keys may be prefixes.
        lines = [f"{number} BIGINT AUTO_INCREMENT PRIMARY KEY", *(definition(*column) for column in mine)]
        yield f"CREATE TEMPORARY TABLE {self.name} ({','.join(lines)})"

    def dropped(self) -> str:
        """Gives the statement that drops it."""
        return f"DROP TEMPORARY TABLE {self.name}"


class PatchStatements:
    """Writes rows of which the messages hold a part, all of one column list."""

    def __init__(self, net: KeyedChanges, rendering: Rendering, rows: PatchedRows) -> None:
        self._net, self._rows, self._table = net, rows, net.table
        self._written = WrittenColumns.of(net.table, rows.columns)
        self._parts = _TemporaryTable.of(net.table, rendering, "parts", *rows)
        self._whole = _TemporaryTable.of(net.table, rendering, "whole", *rows)
        self._names = list(map(quote_name, self._written.names))
        names = [free_name(f"kept key {number}", net.table.columns) for number in range(len(net.key))]
        self._by_origin = [(name, net.table.columns[part]) for name, part in zip(names, net.key, strict=True)]
        self._origins = list(map(quote_name, names))

    def keep(self) -> Iterator[Statement]:
        """Keeps the parts; for rows that are written anew, it keeps the whole rows as they will be."""
        columns = self._table.columns
        written = ((name, columns[name.lower()]) for name in self._written.names)
        for sql in self._parts.made([*self._by_origin, *written]):
            yield self._statement(Stage.KEEP, sql)
        head = f"INSERT INTO {self._parts.name} ({','.join([*self._origins, *self._names])}) VALUES ("
        images = self._rows.images
        if self._written.positions is not None:
            images = joined(parts_of(images, self._written.positions))
        images = joined([self._rows.origins, images])
        types = [columns[name].type for name in (*self._net.key, *map(str.lower, self._written.names))]
        for body in cut_to_statements(with_zeros(images, types), "),("):
            yield self._statement(Stage.KEEP, f"{head}{body.replace(SEP, ',')})")
        if self._rows.moves:
            yield from self._keep_whole()

    def _keep_whole(self) -> Iterator[Statement]:
        written = [(column.name, column) for column in self._table.columns.values() if not column.generated]
        for sql in self._whole.made(written):
            yield self._statement(Stage.KEEP, sql)
        columns = [quote_name(name) for name, _ in written]
        values = ",".join(
            copied(column, "parts." if name in self._names else "t.")
            for name, (_, column) in zip(columns, written, strict=True)
        )
        sql = f"INSERT INTO {self._whole.name} ({','.join(columns)}) SELECT {values} FROM {self._old_rows()}"
        yield self._statement(Stage.KEEP, sql, expect=len(self._rows.images))
        yield self._statement(Stage.KEEP, self._parts.dropped())

    def write(self) -> Iterator[Statement]:
        """Writes the rows, in place or anew."""
        target = quote_name(*self._table.name)
        if self._rows.moves:
            columns = [column for column in self._table.columns.values() if not column.generated]
            names, values = ",".join(quote_name(one.name) for one in columns), ",".join(map(copied, columns))
            yield self._statement(
                Stage.WRITE, f"INSERT INTO {target} ({names}) SELECT {values} FROM {self._whole.name}"
            )
            yield self._statement(Stage.WRITE, self._whole.dropped())
            return
        written = [self._table.columns[name.lower()] for name in self._written.names]
        sets = [f"t.{name}={copied(one, 'parts.')}" for name, one in zip(self._names, written, strict=True)]
        sets += _unchanged(self._table, {name.lower() for name in self._written.names})
        sql = f"UPDATE {self._old_rows()} SET {','.join(sets)}"
        yield self._statement(Stage.WRITE, sql, expect=len(self._rows.images))
        yield self._statement(Stage.WRITE, self._parts.dropped())

    def _old_rows(self) -> str:
        """Joins the parts with the rows on the target; the parts, which are few, are read first."""
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        on = " AND ".join(f"t.{k}=parts.{o}" for k, o in zip(key, self._origins, strict=True))
        return f"{self._parts.name} parts STRAIGHT_JOIN {quote_name(*self._table.name)} t ON {on}"

    def _statement(self, stage: Stage, sql: str, *, expect: int | None = None) -> Statement:
        return Statement(stage, self._table.name, sql.encode(), expect, is_part=True)


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
        known = rows.columns.lower().split(SEP)
        extra = [c.name for name, c in net.table.columns.items() if name not in known and not c.generated]
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
        for condition in key_conditions(self._table, self._net.key, self._keys):
            yield self._statement(Stage.KEEP, f"{into}{select}{condition}")
        for body in self._of_respelled():
            yield self._statement(Stage.KEEP, f"{into}{body}")

    def _of_respelled(self) -> Iterator[str]:
        """Selects what rows hold at earlier spellings of the keys, under the spellings by which they are written."""
        if self._net.respelled is None:
            return
        went, now = self._net.respelled
        is_mine = pc.is_in(now, self._keys)
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        rest = ",".join(copied(self._table.columns[name.lower()]) for name in self._extra)
        commas, ands = [","] * (len(key) - 1), [f" AND {name}=" for name in key[1:]]
        head = f",{rest} FROM {quote_name(*self._table.name)} WHERE {key[0]}="
        parts = [part for keys in (now, went) for part in parts_of(keys.filter(is_mine), range(len(key)))]
        yield from cut_to_statements(
            wrapped(["SELECT ", *commas, head, *ands, ""], parts), " UNION ALL ", _SELECTS_PER_STATEMENT
        )

    def restore(self) -> Iterator[Statement]:
        key = [quote_name(self._table.columns[part].name) for part in self._net.key]
        on = " AND ".join(f"t.{name}=kept.{name}" for name in key)
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
