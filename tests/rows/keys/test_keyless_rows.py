"""Rows without a key that keep what only the target knows of them."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.rows.keys.keyless_rows import KeylessRows, RowImages
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change

COLUMNS = ["a", "b"]


@given(st.lists(st.tuples(st.integers(0, 3), st.integers(0, 3), st.sampled_from("iud")), max_size=25))
def test_any_history_comes_out_as_it_went(history: list[tuple[int, int, str]]) -> None:
    """Whatever rows come, change and go: taken together, all of it finds its rows, and leaves those that are left."""
    there = Counter(dict.fromkeys(range(4), 2))
    rows = Counter(there)
    changes = []
    for ts, (one, other, kind) in enumerate(history):
        if kind != "i" and not rows[one]:
            continue
        before, after = None if kind == "i" else one, None if kind == "d" else other
        rows -= Counter([before] if before is not None else [])
        rows += Counter([after] if after is not None else [])
        changes.append(RowImages(ts, before, after))
    found = KeylessRows[int].after(changes)
    for image, count in found.copies.items():
        there[image] += min(count, 0)
    moves = list(found.moves())
    for was, now, count in moves:
        there[was] -= count
        assert there[was] >= 0
        there[now] += count
    for image, count in found.copies.items():
        assert there[image] >= 0
        there[image] += max(count, 0)
    assert +there == +rows
    assert all(count > 0 and was != now for was, now, count in moves)


def test_what_begins_where_another_ends_comes_first() -> None:
    """So that the row which has just come is not taken for the one that was there."""
    rows = KeylessRows[str].after([RowImages(1, "a", "b"), RowImages(1, "b", "c"), RowImages(1, "c", "d")])
    assert list(rows.moves()) == [("c", "d", 1), ("b", "c", 1), ("a", "b", 1)]
    circle = KeylessRows[str].after([RowImages(1, "a", "b"), RowImages(1, "b", "a")])
    assert sorted(circle.moves()) == [("a", "b", 1), ("b", "a", 1)]


def change(ts: int, before: list[Any] | None, after: list[Any] | None) -> Any:
    return row_change(ts, "t", COLUMNS, [], before=before, after=after)


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ([change(10, [1, 1], [1, 5])], [(1, 5, 7), (2, 2, 8), (2, 2, 8)]),
        ([change(10, [1, 1], [1, 5]), change(11, [1, 5], [2, 9])], [(2, 2, 8), (2, 2, 8), (2, 9, 7)]),
        ([change(10, [1, 1], [2, 2]), change(10, [2, 2], [3, 3])], [(2, 2, 7), (2, 2, 8), (3, 3, 8)]),
        ([change(10, [2, 2], [4, 4]), change(10, [2, 2], None)], [(1, 1, 7), (4, 4, 8)]),
        ([change(10, [1, 1], [1, 5]), change(11, [1, 5], None)], [(2, 2, 8), (2, 2, 8)]),
        ([change(10, None, [5, 5]), change(11, [5, 5], [6, 6])], [(1, 1, 7), (2, 2, 8), (2, 2, 8), (6, 6, None)]),
        ([change(10, [1, 1], None), change(11, None, [6, 6])], [(2, 2, 8), (2, 2, 8), (6, 6, None)]),
    ],
)
def test_an_update_keeps_what_only_the_target_knows(
    target: str, changes: list[Any], rows: list[Any], writers: int
) -> None:
    """The row stays and is changed where it is; one that is new has the column's default."""
    sql(
        target,
        "CREATE DATABASE m",
        "CREATE TABLE m.t (a INT, b INT, mine INT)",
        "INSERT INTO m.t VALUES (1, 1, 7), (2, 2, 8), (2, 2, 8)",
        "SELECT 1",
    )
    run_all(target, in_one_partition([*changes, boundary(20)]), writers=writers)
    assert sorted(sql(target, "SELECT * FROM m.t"), key=repr) == rows
