"""Chooses the columns and the key by which a table can be compared on two servers.  Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
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
    absent: the numbers of columns that the target lacks; True where their value would be NULL.
    notes: what is not compared, and why.
    """

    shape: ComparedColumns
    absent: Mapping[int, bool]
    notes: tuple[str, ...]


def column_plan(source: Definition, target: Definition | None) -> ColumnPlan:
    """Plans how a table of the source is compared with the target's.  A target without the table lacks all of its
    columns."""
    expected: list[ColumnInfo] = []
    actual: list[ColumnInfo] = []
    absent: dict[int, bool] = {}
    notes: list[str] = []
    for name, column in source.columns.items():
        other = target.columns.get(name) if target else None
        if other.generated if other else column.generated:
            continue
        if other is not None and not _alike(column, other):
            types = f"{column.type} on the source, {other.type} on the target"
            notes.append(f"values of column {column.name} are not compared: {types}")
            continue
        if other is None:
            absent[len(expected)] = column.default is None and column.nullable
        expected.append(column)
        actual.append(other or column)
    names = [column.name.lower() for column in expected]
    usable = set(names) - {names[i] for i in absent if target}
    key = _key(source, target, usable)
    if not key and expected:
        notes.append("it has no key: rows are counted, not matched")
    shape = ComparedColumns(tuple(expected), tuple(actual), tuple(names.index(part) for part in key))
    return ColumnPlan(shape, absent, tuple(notes))


def _alike(left: ColumnInfo, right: ColumnInfo) -> bool:
    """Tells whether equal values of the two columns have equal canonical forms."""
    one, other = left.value_class, right.value_class
    return one == other or any({one, other} <= kind for kind in (_NUMERIC, _REAL, _TEXTS))


def _key(source: Definition, target: Definition | None, usable: set[str]) -> tuple[str, ...]:
    """Finds a key that both sides have and that identifies rows on both."""
    for key in source.keys:
        if usable.issuperset(key) and (target is None or any(set(key) == set(other) for other in target.keys)):
            return key
    return ()


def catalog_table(source: Definition, target: Definition | None, changed: Iterable[str] = ()) -> Table:
    """Gives the target's table as the writer sees it, with the columns that it is about to be given.

    changed: columns, in lower case, that get the source's types before rows are written."""
    columns = {**source.columns, **(target.columns if target else {})}
    columns |= {name: source.columns[name] for name in changed}
    indexes = (target or source).indexes.values()
    return Table(
        source.name,
        {
            name: Column(c.name, c.type, c.charset or None, c.generated, c.nullable, c.collation or None)
            for name, c in columns.items()
        },
        source.keys,
        tuple(index.parts for index in indexes if index.unique),
    )


def why_rows_stay(plan: ColumnPlan, source: Definition, target: Definition) -> str:
    """Gives the reason why rows of the target's table cannot be fixed before its columns are; "" where they can."""
    compared = {column.name.lower() for column in plan.shape.expected}
    retyped = {name for name, column in source.columns.items() if name in target.columns and not column.generated}
    retyped -= compared
    if not plan.shape.key and any(retyped.intersection(key) for key in source.keys):
        return (
            "has a key of another type, so that nothing tells which of its rows differ: once it has the source's, have"
            " verify write a new file"
        )
    if plan.absent.keys() == set(range(len(plan.shape.actual))):
        return (
            "has none of the columns by which its rows could be found: once the file has made them, empty it, and have"
            " verify write a new file"
        )
    return ""
