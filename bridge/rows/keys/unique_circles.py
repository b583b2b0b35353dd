"""Finds updates that take unique values from each other in a circle, so that none of them can come first.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from bridge.events import SEP, Event
from bridge.model import Table, TableName


class _Value(NamedTuple):
    """A value of a unique key."""

    table: TableName
    unique: tuple[str, ...]
    literals: tuple[str, ...]


def circles(updates: Sequence[tuple[Table, Event]]) -> list[list[int]]:
    """Finds the circles among updates with ready literals; gives the numbers of those that have to come together.

    An update waits for the one that gives up a unique value which it takes.  Values in other spellings are not found.
    """
    gives = [_values(table, event, event.before, event.after) for table, event in updates]
    takes = [_values(table, event, event.after, event.before) for table, event in updates]
    givers: dict[_Value, set[int]] = {}
    for number, values in enumerate(gives):
        for value in values:
            givers.setdefault(value, set()).add(number)
    waits = {n: {other for value in values for other in givers.get(value, ())} for n, values in enumerate(takes)}
    left = set(waits)
    while True:
        awaited = {other for number in left for other in waits[number]}
        in_circle = {number for number in left & awaited if waits[number] & left}
        if in_circle == left:
            return list(_connected(left, waits))
        left = in_circle


def _values(table: Table, event: Event, image: str | None, other: str | None) -> set[_Value]:
    """Gives the unique values of an image that the other image does not have."""
    return set(_all_values(table, event, image)) - set(_all_values(table, event, other))


def _all_values(table: Table, event: Event, image: str | None) -> Iterator[_Value]:
    if image is None:
        return
    row = dict(zip((event.columns or "").lower().split(SEP), image.split(SEP), strict=True))
    for unique in table.uniques:
        literals = tuple(row.get(part, "NULL") for part in unique)
        if "NULL" not in literals:
            yield _Value(table.name, unique, literals)


def _connected(left: set[int], waits: dict[int, set[int]]) -> Iterator[list[int]]:
    """Gives the numbers that are left in groups that do not wait for each other."""
    while left:
        group, found = set[int](), {min(left)}
        while found:
            group |= found
            found = {n for n in left - group if waits[n] & group or any(n in waits[one] for one in group)}
        left = left - group
        yield sorted(group)
