"""Keys of the beginnings of columns: the server holds equal beginnings for one key, and finds rows by whole values."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.ddl.policy import ddl_rules
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


@pytest.mark.parametrize("writers", [0, 2])
@pytest.mark.parametrize(
    ("changes", "rows"),
    [
        ([change(10, ALICE, ["ABC-3", 2])], [("ABC-3", 2, 9)]),
        ([change(10, ALICE, ALICIA), change(11, ALICIA, ["abc", 3])], [("abc", 3, 9)]),
        ([change(10, ALICE, None), change(10, None, ["ABC-3", 2])], [("ABC-3", 2, 9)]),
        ([change(10, ALICE, ["ABC-3", 7]), change(10, ["zzz", 7], ["ZZZ", 1])], [("ABC-3", 7, 9), ("ZZZ", 1, 8)]),
        ([change(10, ALICE, ["abc-1", 7]), change(10, ["zzz", 7], None)], [("abc-1", 7, 9)]),
    ],
)
def test_what_only_the_target_knows_of_a_row(target: str, writers: int, changes: list[Any], rows: list[Any]) -> None:
    """Stays where the row goes from one spelling of its key and comes by another, and is written anew because a unique
    value changes."""
    sql(
        target,
        "CREATE DATABASE m",
        "CREATE TABLE m.t (k VARCHAR(20), u INT, extra INT, PRIMARY KEY (k(3)), UNIQUE KEY (u))"
        " COLLATE utf8mb4_general_ci",
        "INSERT INTO m.t VALUES ('abc-1', 1, 9), ('zzz', 7, 8)",
        "SELECT 1",
    )
    run_all(target, in_one_partition([*changes, boundary(20)]), writers=writers)
    found = sql(target, "SELECT k, u, extra FROM m.t ORDER BY k")
    assert [row for row in found if row != ("zzz", 7, 8)] == rows


@pytest.mark.parametrize("extra", ["", ", extra INT"])
def test_a_target_that_is_ahead_with_another_spelling(target: str, extra: str) -> None:
    """Its row gives way to the older one, which has its key in another spelling, and a unique value of another row.
    (Of TiDB, such a row stops the bridge.)"""
    sql(
        target,
        "CREATE DATABASE m",
        f"CREATE TABLE m.t (k VARCHAR(20), u INT{extra}, PRIMARY KEY (k(3)), UNIQUE KEY (u))"
        " COLLATE utf8mb4_general_ci",
        "INSERT INTO m.t (k, u) VALUES ('ABC-3', 2), ('zzz', 1)",
        "SELECT 1",
    )
    changes = [change(10, None, ALICE), change(11, ALICE, ["abc-1", 3]), change(12, None, ["zzz", 1])]
    run_all(target, in_one_partition([*changes, boundary(20)]), rows_per_transaction=1, ddl=ddl_rules(source="mysql-8"))
    assert sql(target, "SELECT k, u FROM m.t ORDER BY k") == [("abc-1", 3), ("zzz", 1)]
