"""Finds the rows that a fix file cannot write, since rows that stay may have their values of a further unique key."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Iterator, Sequence
from typing import Final

from bridge.model import Table
from bridge.rows.keys.key_steps import other_uniques
from bridge.verify.compare.key_sql import KeyValues
from bridge.verify.compare.row_diff import ComparedColumns, ComparedRow, Difference

_ANY: Final = -1
"""Stands for a part of a unique key of which nobody knows the value."""


def unwritable(
    table: Table,
    shape: ComparedColumns,
    whole: Sequence[Difference],
    parts: Sequence[Difference],
    kept: Iterable[ComparedRow],
) -> list[Difference]:
    """Finds the differences whose expected row the target would refuse.

    whole: rows that are deleted and written anew; parts: rows that are updated in place, which are in the way of others
    until then; kept: rows that stay.  What cannot be written stays as it is, and so may be in the way of others.
    """
    coming = [one for one in (*whole, *parts) if one.expected]
    uniques = _positions(table, shape, coming)
    waiting: dict[Hashable, list[int]] = {}
    for number, one in enumerate(coming):
        changed = [unique for unique in uniques if _changes(unique, one)]
        for form in _forms(shape, changed, _after(one)):
            waiting.setdefault(form, []).append(number)
    staying: list[tuple[int | None, KeyValues]] = [(None, row.values) for row in kept]
    for number in range(len(coming) - len(parts), len(coming)):
        staying += [*_now(number, coming[number]), (number, _after(coming[number]))]
    refused: set[int] = set()
    while staying:
        mine, values = staying.pop()
        for form in _forms(shape, uniques, values):
            meeting = waiting.pop(form, [])
            if mine in meeting:
                waiting[form] = [mine]
            for number in set(meeting) - refused - {mine}:
                refused.add(number)
                staying += _now(number, coming[number])
    return [coming[number] for number in sorted(refused)]


def _positions(table: Table, shape: ComparedColumns, coming: Iterable[Difference]) -> list[tuple[int, ...]]:
    """Gives the columns of each further unique key by their numbers, `_ANY` for those that cannot be compared."""
    numbers = {column.name.lower(): i for i, column in enumerate(shape.actual)}
    lacking = [one.expected for one in coming if one.expected and one.actual is None]
    unknown = {i for row in lacking if row.known is not None for i in range(len(row.values)) if not row.knows(i)}
    key = tuple(shape.actual[i].name.lower() for i in shape.key)
    return [
        tuple(_ANY if (i := numbers.get(part, _ANY)) in unknown or length is not None else i for part, length in parts)
        for parts in (_parts_of(table, unique) for unique in other_uniques(table, key))
    ]


def _parts_of(table: Table, unique: tuple[str, ...]) -> list[tuple[str, int | None]]:
    lengths = table.prefixes.get(unique, (None,) * len(unique))
    return list(zip(unique, lengths, strict=True))


def _changes(unique: Collection[int], difference: Difference) -> bool:
    """Tells whether a row gets another value of a unique key: the one that it has is no other row's."""
    actual = difference.actual
    return actual is None or _ANY in unique or any(_after(difference)[i] != actual.values[i] for i in unique)


def _after(difference: Difference) -> KeyValues:
    """Gives the values that a row has once it is written."""
    expected, actual = difference.expected, difference.actual
    assert expected is not None
    if actual is None:
        return expected.values
    return tuple(value if expected.knows(i) else actual.values[i] for i, value in enumerate(expected.values))


def _now(number: int, difference: Difference) -> list[tuple[int | None, KeyValues]]:
    return [(number, difference.actual.values)] if difference.actual else []


def _forms(shape: ComparedColumns, uniques: Iterable[tuple[int, ...]], values: KeyValues) -> Iterator[Hashable]:
    """Gives the values of each unique key in a form in which they are equal when the target may take them for equal.
    Where one of them is NULL, they are equal to nothing."""
    for unique in uniques:
        known = [i for i in unique if i != _ANY]
        if all(values[i] is not None for i in known):
            yield unique, shape.spelled(known, tuple(values[i] for i in known))
