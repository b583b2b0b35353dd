"""Updates that wait for each other's unique values."""

from __future__ import annotations

import pytest

from bridge.model import Table, TableName
from bridge.rows.keys.unique_circles import circles
from tests.support.upstreams import row_change

TABLE = Table(TableName("m", "t"), {}, keys=(("id",),), uniques=(("id",), ("u",), ("v", "w")))
COLUMNS = ("id", "u", "v", "w")


@pytest.mark.parametrize(
    ("moves", "found"),
    [
        ([(1, 2), (2, 1)], [[0, 1]]),
        ([(1, 2), (2, 3), (3, 1)], [[0, 1, 2]]),
        ([(1, 2), (2, 3), (3, 4)], []),
        ([(1, 2), (2, 1), (3, 4), (4, 3)], [[0, 1], [2, 3]]),
        ([(0, 1), (1, 2), (2, 1), (2, 9)], [[1, 2]]),
        ([(1, 1), (2, 2)], []),
        ([], []),
    ],
)
def test_circles(moves: list[tuple[int, int]], found: list[list[int]]) -> None:
    """Of those that have to come together, and of no other that only waits for one of them, or is waited for."""
    updates = [
        (TABLE, row_change(10, "t", COLUMNS, ["id"], before=[n, old, n, None], after=[n, new, n, None]))
        for n, (old, new) in enumerate(moves)
    ]
    assert circles(updates) == found


def test_values_of_several_keys() -> None:
    """A circle may go through different unique keys; a part of a value, or the value of another key, is none."""
    first = row_change(10, "t", COLUMNS, ["id"], before=[1, 1, 5, 5], after=[1, 2, 5, 6])
    second = row_change(10, "t", COLUMNS, ["id"], before=[2, 2, 5, 7], after=[2, 3, 5, 5])
    third = row_change(10, "t", COLUMNS, ["id"], before=[3, 9, 1, 1], after=[3, 8, 1, 7])
    assert circles([(TABLE, first), (TABLE, second), (TABLE, third)]) == [[0, 1]]
