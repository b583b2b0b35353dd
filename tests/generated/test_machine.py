"""The parts of the generator by themselves."""

from __future__ import annotations

from collections.abc import Callable
from random import Random
from typing import Any

import pytest

from tests.generated.bench import Bench
from tests.generated.cases import Case, make_case
from tests.generated.decisions import DecidedTable
from tests.generated.dimensions import ALL, DIMENSIONS, Coverage, draw, is_sound, possible
from tests.generated.failures import Failure
from tests.generated.resent import Taken, two_rows_hold
from tests.generated.shards import SHARDS, Shards
from tests.generated.shrinking import shrunk
from tests.generated.tables import Column, Equality, Unique, make_table
from tests.generated.upstream import Alter, Delete, Insert, Statement, Transaction, Update, Upstream


def by_code_point(sql: str) -> list[tuple[Any, ...]]:
    """A server that takes no two texts for equal."""
    return [(n, n) for n in range(sql.count(" i, ") // 2)]


@pytest.mark.parametrize(
    ("collation", "one", "other", "prefix", "same"),
    [
        ("utf8mb4_bin", "a", "a ", None, True),
        ("utf8mb4_bin", "a", "A", None, False),
        ("utf8mb4_nopad_bin", "a", "a ", None, False),
        ("utf8mb4_general_ci", "a", "á", None, True),
        ("utf8mb4_unicode_ci", "ß", "ss", None, True),
        ("utf8mb4_uca1400_nopad_ai_ci", "b", "b ", None, False),
        ("utf8mb4_bin", "abc-1", "abc-2", 3, True),
        ("utf8mb4_general_ci", "abc-1", "ABC-3", 3, True),
        ("utf8mb4_bin", "abc-1", "abd", 3, False),
    ],
)
def test_equality_is_the_server_s(
    bench: Bench, collation: str, one: str, other: str, prefix: int | None, same: bool
) -> None:
    """Keys are equal where the server says so: by collation, padding and prefix."""
    column = make_table("t", "single key", "varchar", collation, "none", Random(0)).columns[0]
    equal = bench.equality.same(one, column, prefix) == bench.equality.same(other, column, prefix)
    assert equal is same


@pytest.mark.parametrize("nets", [False, True])
def test_the_upstream_refuses_what_a_server_would(nets: bool) -> None:
    """A second row of a key, a missing row, a taken unique value: nothing of the transaction happens."""
    table = make_table("t", "unique keys", "int", "utf8mb4_bin", "none", Random(0))
    upstream = Upstream([table], Equality(by_code_point), nets=nets)
    assert upstream.run(Transaction(1, (Insert(0, {"k": 1, "w": 1}),)), 1)
    held = upstream.state()
    for statements in (
        (Insert(0, {"k": 1}),),
        (Insert(0, {"k": 2}), Insert(0, {"k": 3, "w": 1})),
        (Update(0, {"k": 7}, {"n": 1}),),
        (Delete(0, {"k": 7}),),
        (Alter(0, "add unique", unique=Unique("kk", ("n",))),),
    ):
        assert upstream.run(Transaction(1, statements), 2) is None
        assert upstream.state() == held


def test_net_changes_of_a_transaction() -> None:
    """A clustered table tells a swap of keys as two changed rows, one kept by row numbers as two moved ones."""
    for clustered, keys in ((True, {(1, 1), (2, 2)}), (False, {(1, 2), (2, 1)})):
        table = make_table("t", "single key", "int", "utf8mb4_bin", "none", Random(0))
        object.__setattr__(table, "clustered", clustered)
        upstream = Upstream([table], Equality(by_code_point), nets=True)
        upstream.run(Transaction(1, (Insert(0, {"k": 1, "n": 1}), Insert(0, {"k": 2, "n": 2}))), 1)
        step = upstream.run(Transaction(1, (Update(0, {"k": 1}, {"k": 2}), Update(0, {"k": 2}, {"k": 1}))), 2)
        assert step is not None
        assert {(b["k"], a["k"]) for _, b, a in step.changes if b is not None and a is not None} == keys


def test_a_table_is_told_as_two_shards() -> None:
    """A row that goes over is deleted in one shard and inserted in the other; rows of the late shard lack a new column
    until one says more than its default, and then the schema change must come first."""
    table = make_table("t", "single key", "int", "utf8mb4_bin", "none", Random(0))
    shards = Shards("t", Equality(by_code_point), late="m2")
    upstream = Upstream([table], shards.equality, nets=True)
    insert = Transaction(1, (Insert(0, {"k": 1}), Insert(0, {"k": 2})))
    move = Transaction(1, (Update(0, {"k": 1}, {"k": 4}),))
    steps = [upstream.run(one, ts) for ts, one in enumerate((insert, move))]
    inserted, moved = (shards.told(step.changes) for step in steps if step is not None)
    assert {change.table.schema for change in inserted} == {*SHARDS}
    assert [(change.before is None, change.after is None) for change in moved] == [(False, True), (True, False)]
    alter = upstream.run(Transaction(1, (Alter(0, "add column", column=Column("a", "int", default=5)),)), 3)
    assert alter is not None
    assert alter.ddl is not None
    assert [shards.first(alter.ddl)[1].schema, shards.waits and shards.waits[1].schema] == ["m1", "m2"]
    for value, must_come in ((5, False), (6, True)):
        rows = (Insert(0, {"k": value * 10, "a": value}), Insert(0, {"k": value * 10 + 1, "a": value}))
        step = upstream.run(Transaction(1, rows), value)
        assert step is not None
        assert shards.must_come(step) is must_come
        told = shards.told(step.changes)
        assert {change.table.schema: "a" in (change.after or {}) for change in told} == {"m1": True, "m2": False}
    assert "a" in shards.later()[1].names
    assert shards.waits is None


@pytest.mark.parametrize(
    ("decision", "alter", "left"),
    [
        ("skip", Alter(0, "truncate"), [(1, 1), (2, 2)]),
        ("replace unlike", Alter(0, "truncate"), [(1, 1), (2, 2)]),
        ("skip", Alter(0, "drop column", name="s"), [(1, 1), (2, 2)]),
        ("replace unlike", Alter(0, "add column", column=Column("a", "int", default=5)), [(1, 77), (2, 5)]),
    ],
)
def test_a_target_on_which_something_else_ran(decision: str, alter: Alter, left: list[tuple[int, int]]) -> None:
    """Rows stay where nothing ran, and have the other default until they are written anew."""
    table, equality = make_table("t", "single key", "int", "utf8mb4_bin", "none", Random(0)), Equality(by_code_point)
    upstream = Upstream([table], equality, nets=True)
    row = Insert(0, {"k": 2, "n": 2})
    again = (row,) if alter.kind == "truncate" else (Update(0, {"k": 2}, {"n": 3}),)
    transactions = ((Insert(0, {"k": 1, "n": 1}), row), (alter,), again)
    steps = [upstream.run(Transaction(1, one), ts) for ts, one in enumerate(transactions)]
    decided = DecidedTable(table, decision, list, equality, nets=True)
    after = decided.steps([], [step for step in steps if step is not None])[-1].after["t"]
    shown = "a" if alter.kind == "add column" else "k"
    assert [(row["k"], row[shown]) for row in after] == left


def test_a_seed_is_a_run() -> None:
    """One integer gives the same run again, whose values can all meet."""
    equality = Equality(by_code_point)
    for seed in range(50):
        case = make_case(seed, equality)
        assert case == make_case(seed, equality)
        values = list(case.choice.items())
        assert all(possible(one, other) for one in values for other in values if one[0] != other[0])
        assert is_sound(case.choice)


def test_every_value_is_drawn() -> None:
    """No value is kept out by the others."""
    drawn = [draw(Random(seed), {"where": where}) for seed in range(1500) for where in DIMENSIONS["where"]]
    for name, values in DIMENSIONS.items():
        assert {choice[name] for choice in drawn} == set(values)


def test_pairs_that_have_met_are_counted() -> None:
    """A pair counts when one run had both values; what cannot meet is not asked for."""
    coverage = Coverage()
    coverage.add({"protocol": {"ckafka"}, "shape": {"no key"}, "operations": {"insert", "delete"}})
    counts = {(a, b, c, d): count for a, b, c, d, count in coverage.pairs()}
    assert counts["protocol", "ckafka", "shape", "no key"] == 1
    assert counts["protocol", "ckafka", "operations", "delete"] == 1
    assert counts["protocol", "ckafka", "shape", "composite"] == 0
    assert ("shape", "no key", "operations", "swap") not in counts
    assert sum(counts.values()) == 5
    assert f"1 runs; 5 of {len(counts)} possible pairs have met" in coverage.report()
    assert set(ALL) == {*DIMENSIONS, "operations"}


@pytest.mark.parametrize(
    ("is_wrong", "left"),
    [
        (lambda case: any("delete" in one.labels for one in case.transactions), 1),
        (lambda case: len(case.transactions) >= 2, 2),
        (lambda case: case.choice["crash"] != "none", 0),
    ],
)
def test_shrinking_keeps_what_fails(is_wrong: Callable[[Case], bool], left: int) -> None:
    """What does not matter goes, and what is left still fails."""
    equality = Equality(by_code_point)
    case = next(c for seed in range(1000) if is_wrong(c := make_case(seed, equality)) and len(c.transactions) > 3)
    small, why = shrunk(case, Failure("x", ""), lambda one: Failure("x", "again") if is_wrong(one) else None)
    assert is_wrong(small)
    assert len(small.transactions) == left
    assert why.kind == "x"


@pytest.mark.parametrize(
    ("words", "sent", "allowed"),
    [
        ("'7' for key 'uw'", (0, 1, 2, 3, 0), True),
        ("'7' for key 'uw'", (0, 1, 2, 3), False),
        ("'7' for key 'uw'", (0, 1, 2, 3, 2), False),
        ("'8' for key 'uw'", (0, 1, 2, 3, 0), False),
        ("'7' for key 'uu'", (0, 1, 2, 3, 0), False),
        ("'7' for key 'PRIMARY'", (0, 1, 2, 3, 0), False),
    ],
)
@pytest.mark.parametrize("nets", [False, True])
def test_what_is_sent_again_collides_only_with_what_is_newer(
    words: str, sent: tuple[int, ...], allowed: bool, nets: bool
) -> None:
    """A stop is right where two rows held the value that it is about, at one moment of what was sent."""
    table, equality = make_table("t", "unique keys", "int", "utf8mb4_bin", "none", Random(0)), Equality(by_code_point)
    upstream = Upstream([table], equality, nets=nets)
    statements: tuple[Statement, ...] = (
        *(Insert(0, {"k": 1, "w": 7}), Insert(0, {"k": 2})),
        *(Update(0, {"k": 1}, {"w": None}), Update(0, {"k": 2}, {"w": 7})),
    )
    steps = [upstream.run(Transaction(1, (one,)), ts) for ts, one in enumerate(statements)]
    taken = Taken.of(f"the target refused rows of r.x: 1062 (Duplicate entry {words})", {"r.x": "t"})
    assert taken is not None
    log = [step for step in map(steps.__getitem__, sent) if step is not None]
    assert two_rows_hold(taken, log, equality, nets=nets) is allowed


@pytest.mark.parametrize("key", ["uw", "x.uw"])
def test_words_of_each_server(key: str) -> None:
    """MySQL and TiDB say which table's key it is."""
    words = f"the target refused rows of r.x: 1062 (Duplicate entry 'a.b' for key '{key}')"
    assert Taken.of(words, {"r.x": "t"}) == Taken("t", "a.b", "uw")


def test_words_about_something_else() -> None:
    """Are about no unique value."""
    assert Taken.of("the target refused rows of m.t: 1264 (Out of range value for column 'n')", {}) is None
