"""Groups the statements of a step, so that several connections can take them in any order."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator

from bridge.model import TableName
from bridge.rows.sql.statement import Sharing, Statement

Unit = list[Statement]
"""Statements that one connection runs, in order."""


def units(statements: Iterable[Statement]) -> deque[Unit]:
    """Groups the statements that one connection must run together, the longest group first.  A statement that alone
    touches its keys is a group; otherwise all statements of a table are one, in order."""
    alone: list[Unit] = []
    together: dict[TableName, Unit] = {}
    for statement in statements:
        if statement.sharing is Sharing.ANY:
            alone.append([statement])
        else:
            together.setdefault(statement.table, []).append(statement)
    found = [*together.values(), *alone]
    return deque(sorted(found, key=lambda unit: -_size(unit)))


def taken_from(waiting: deque[Unit], taken: list[Unit], most_bytes: int | None) -> Iterator[Unit]:
    """Takes units until none is left, or those taken have about `most_bytes`, and notes them."""
    size = 0
    while most_bytes is None or size < most_bytes:
        try:
            taken.append(waiting.popleft())
        except IndexError:
            return
        size += _size(taken[-1])
        yield taken[-1]


def _size(unit: Unit) -> int:
    return sum(statement.size for statement in unit)
