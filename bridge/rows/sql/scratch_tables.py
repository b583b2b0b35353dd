"""Keeps values of columns that messages lack, in temporary tables, while their rows are deleted and written anew."""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Iterator

from bridge.events import SEP
from bridge.model import Column, Table
from bridge.quoting import free_name, quote_name
from bridge.rows.sql.conditions import set_by_themselves
from bridge.rows.sql.statement import Rendering


class KeptValues:
    """Keeps them for rows of one column list.  extra: the columns that it lacks, but for generated ones.

    The temporary table's name is unique for each table, however long the table's name is, for each column list and for
    each piece.
    """

    def __init__(self, table: Table, key: tuple[str, ...], rendering: Rendering, columns: str) -> None:
        names = columns.lower().split(SEP)
        self.extra = [c for name, c in table.columns.items() if name not in names and not c.generated]
        self._table, self._key = table, [table.columns[part] for part in key]
        self._lengths = table.prefixes.get(key, (None,) * len(key))
        what = "\0".join((*table.name, str(rendering.piece), columns))
        digest = hashlib.sha1(what.encode(), usedforsecurity=False).hexdigest()
        self._name = quote_name(rendering.scratch_schema, f"keep {digest}")

    def keep(self, conditions: Iterable[str]) -> Iterator[str]:
        """Gives the statements that make the table and fill it.  conditions: of the rows."""
        columns = [*self._key, *self.extra]
        number = quote_name(free_name("kept number", [column.name for column in columns]))
        # Servers with sql_require_primary_key want a primary key of every table; the rows' own keys may be prefixes.
        lines = [f"{number} BIGINT AUTO_INCREMENT PRIMARY KEY", *map(_definition, columns)]
        yield f"DROP TEMPORARY TABLE IF EXISTS {self._name}"
        yield f"CREATE TEMPORARY TABLE {self._name} ({','.join(lines)})"
        names, values = ",".join(quote_name(column.name) for column in columns), ",".join(map(_copied, columns))
        for condition in conditions:
            rows = f"SELECT {values} FROM {quote_name(*self._table.name)} WHERE {condition}"
            yield f"INSERT INTO {self._name} ({names}) {rows}"

    def restore(self) -> Iterator[str]:
        """Gives the statements that give the rows their values back, and drop the table."""
        on = " AND ".join(
            f"LEFT(t.{name},{length})=LEFT(kept.{name},{length})" if length else f"t.{name}=kept.{name}"
            for name, length in zip((quote_name(column.name) for column in self._key), self._lengths, strict=True)
        )
        own = {column.name for column in self.extra}
        stay = [name for name in set_by_themselves(self._table) if name not in own]
        values = [
            *(f"t.{quote_name(column.name)}={_copied(column, 'kept.')}" for column in self.extra),
            *(f"t.{quote_name(name)}=t.{quote_name(name)}" for name in stay),
        ]
        target = quote_name(*self._table.name)
        yield f"UPDATE {target} t JOIN {self._name} kept ON {on} SET {','.join(values)}"
        yield f"DROP TEMPORARY TABLE {self._name}"


def _definition(column: Column) -> str:
    """Gives the line of CREATE TABLE for a column of another table's type.  TiDB has no CREATE TABLE ... AS SELECT."""
    text = f" CHARACTER SET {column.charset} COLLATE {column.collation}" if column.charset else ""
    return f"{quote_name(column.name)} {column.type}{text} {'NULL' if column.nullable else 'NOT NULL'}"


def _copied(column: Column, alias: str = "") -> str:
    """Writes the value of a column that is copied to another one of its type.  alias: of the table, with its point."""
    name = f"{alias}{quote_name(column.name)}"
    return f"CAST({name} AS UNSIGNED)" if column.has_nameless_member else name
