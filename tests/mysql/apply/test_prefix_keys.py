"""Keys of the beginnings of columns: the server holds equal beginnings for one key, and finds rows by whole values."""

from __future__ import annotations

from typing import Any

import pytest

from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change

COLUMNS = ["k", "u"]
ALICE, ALICIA = ["abc-1", 1], ["ABC-3", 1]


def change(ts: int, before: list[Any] | None, after: list[Any] | None) -> Any:
    return row_change(ts, "t", COLUMNS, ["k"], before=before, after=after)


@pytest.mark.parametrize("unique", ["", ", UNIQUE KEY (u)"])
@pytest.mark.parametrize("columns", ["k VARCHAR(20), u INT", "k VARCHAR(20), u INT, extra INT"])
@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ([change(10, ALICE, ALICIA), change(11, ALICIA, None)], []),
        ([change(10, ALICE, ALICIA), change(11, ALICIA, ALICE), change(12, ALICE, None)], []),
        ([change(10, ALICE, ALICIA)], [("ABC-3", 1)]),
        ([change(10, ALICE, ["ABC-3", 2])], [("ABC-3", 2)]),
        ([change(10, ALICE, None), change(11, None, ALICIA), change(12, ALICIA, None)], []),
    ],
)
def test_a_row_that_goes_from_another_spelling(
    target: str, columns: str, unique: str, writers: int, changes: list[Any], rows: list[Any]
) -> None:
    """Is gone, although the last message names it as nobody does on the target; in one window."""
    sql(
        target,
        "CREATE DATABASE m",
        f"CREATE TABLE m.t ({columns}, PRIMARY KEY (k(3)){unique}) COLLATE utf8mb4_general_ci",
        "INSERT INTO m.t (k, u) VALUES ('abc-1', 1), ('zzz', 7)",
        "SELECT 1",
    )
    run_all(target, in_one_partition([*changes, boundary(20)]), writers=writers)
    assert sql(target, "SELECT k, u FROM m.t ORDER BY k") == [*rows, ("zzz", 7)]
