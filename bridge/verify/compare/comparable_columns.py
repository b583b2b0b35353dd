"""Chooses the columns and the key by which a table can be compared on two servers.  Pure."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.model import Column, Table
from bridge.mysql.table_definition import ColumnInfo, Definition, ValueClass
from bridge.verify.compare.row_diff import ComparedColumns

_NUMERIC = frozenset({ValueClass.INTEGER, ValueClass.DECIMAL, ValueClass.NUMBER})
_REAL = frozenset({ValueClass.FLOAT, ValueClass.DOUBLE})
_TEXTS = frozenset({ValueClass.TEXT, ValueClass.JSON})


@dataclass(frozen=True)
class ColumnPlan:
    """How a table is compared.

    shape: the columns that are compared.
    notes: what is not compared, and why.
    """

    shape: ComparedColumns
    notes: tuple[str, ...]


def column_plan(source: Definition, target: Definition | None) -> ColumnPlan:
    """Plans how a table of the source is compared with the target's, by the columns that both have.  target: None for a
    missing table."""
    expected: list[ColumnInfo] = []
    actual: list[ColumnInfo] = []
    notes: list[str] = []
    for name, column in source.columns.items():
        other = target.columns.get(name) if target else column
        if other is None or other.generated:
            continue
        if not _alike(column, other):
            types = f"{column.type} on the source, {other.type} on the target"
            notes.append(f"values of column {column.name} are not compared: {types}")
            continue
        expected.append(column)
        actual.append(other)
    names = [column.name.lower() for column in expected]
    key = _key(source, target or source, set(names))
    if not key and expected:
        notes.append("it has no key: rows are counted, not matched")
    shape = ComparedColumns(tuple(expected), tuple(actual), tuple(names.index(part) for part in key))
    return ColumnPlan(shape, tuple(notes))


def _alike(left: ColumnInfo, right: ColumnInfo) -> bool:
    """Tells whether equal values of the two columns have equal canonical forms."""
    one, other = left.value_class, right.value_class
    return one == other or any({one, other} <= kind for kind in (_NUMERIC, _REAL, _TEXTS))


def _key(source: Definition, target: Definition, usable: set[str]) -> tuple[str, ...]:
    """Finds a key that both sides have and that identifies rows on both."""
    for key in source.keys:
        if usable.issuperset(key) and any(set(key) == set(other) for other in target.keys):
            return key
    return ()


def catalog_table(definition: Definition) -> Table:
    """Gives a table as the writer sees it."""
    columns = {
        name: Column(c.name, c.type, c.charset or None, c.generated, c.nullable, c.collation or None)
        for name, c in definition.columns.items()
    }
    uniques = tuple(index.parts for index in definition.indexes.values() if index.unique)
    return Table(definition.name, columns, definition.keys, uniques)
