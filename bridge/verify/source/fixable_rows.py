"""Which differing rows a fix file can write, and how it finds them, where the target's columns are others.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from bridge.mysql.table_definition import Definition
from bridge.verify.compare.comparable_columns import ColumnPlan
from bridge.verify.compare.row_diff import Difference


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


def rows_on_target(plan: ColumnPlan, differences: Sequence[Difference]) -> Sequence[Difference]:
    """Gives the rows of a target's table without a key only the columns that it has: those by which they are found."""
    if plan.shape.key or not plan.absent:
        return differences
    there = frozenset(range(len(plan.shape.actual))) - plan.absent.keys()
    return [replace(one, actual=replace(one.actual, columns=there) if one.actual else None) for one in differences]
