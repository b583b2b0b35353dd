"""Tables that changed routes would divide."""

from __future__ import annotations

import pytest

from bridge.filters.moved_tables import LeftTable, left_tables, moved_tables, new_place, taken_tables
from bridge.filters.routes import Routes, parse_route
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName

CASES = [
    ("a route that goes", ["m.t -> r.t"], [], ["r.t"], ["m.t went to r.t, and would go to m.t"]),
    ("a route that comes", [], ["m.t -> r.t"], ["m.t"], ["m.t went to m.t, and would go to r.t"]),
    ("another target", ["m.* -> r.*"], ["m.* -> s.*"], ["r.t"], ["m.t went to r.t, and would go to s.t"]),
    ("only one of them", ["m.* -> r.*"], ["m.u -> s.u", "m.* -> r.*"], ["r.t", "r.u"],
     ["m.u went to r.u, and would go to s.u"]),
    ("nothing is there yet", ["m.* -> r.*"], ["m.* -> s.*"], ["s.t", "x.t"], []),
    ("what is there was moved", ["m.t -> r.t"], ["m.t -> s.t"], ["s.t"], []),
    ("the same in other words", ["m.t -> r.t", "m.u -> r.u"], ["m.* -> R.*"], ["r.t", "r.u"], []),
    ("for other tables", [], ["n.* -> r.*"], ["m.t"], []),
    ("shards that are not merged any more", ["m_*.t => r.t"], [], ["r.t"],
     ["shards went to r.t, and would go to tables of their own"]),
]  # fmt: skip


def routes(texts: list[str], *rules: str) -> Routes:
    return Routes(tuple(map(parse_route, texts)), TableFilter(rules))


@pytest.mark.parametrize(("old", "new", "there", "moved"), [case[1:] for case in CASES], ids=[c[0] for c in CASES])
def test_what_would_be_divided(old: list[str], new: list[str], there: list[str], moved: list[str]) -> None:
    """Only what is on the target counts, by the names that both routes give it."""
    names = [TableName(*name.split(".")) for name in there]
    assert [str(one) for one in moved_tables(routes(old), routes(new), names)] == moved


def test_a_table_that_is_not_replicated_does_not_move() -> None:
    """Neither one that was not, nor one that is not any more."""
    there = [TableName("m", "t")]
    for rules in (["*.*", "!m.t"], []), ([], ["*.*", "!m.t"]):
        assert not list(moved_tables(routes([], *rules[0]), routes(["m.t -> r.t"], *rules[1]), there))


TAKEN = [
    ("by a route", ([], "m.a"), (["m.b -> m.a"], "m.b"), ["m.a"],
     ["m.a holds the rows of m.a, which is left out, and m.b would go there"]),
    ("by its own name", (["m.a -> m.b"], "m.a"), ([], "m.b"), ["m.b"],
     ["m.b holds the rows of m.a, which is left out, and m.b would go there"]),
    ("by a database", ([], "m.*"), (["n.* -> m.*"], "n.*"), ["m.a"],
     ["m.a holds the rows of m.a, which is left out, and n.a would go there"]),
    ("by shards", ([], "m.a"), (["s_*.a => m.a"], "s_*.a"), ["m.a"],
     ["m.a holds the rows of m.a, which is left out, and shards would go there"]),
    ("in other letters", ([], "m.a"), (["m.b -> M.A"], "m.b"), ["m.a"],
     ["m.a holds the rows of m.a, which is left out, and m.b would go there"]),
    ("nothing is there", ([], "m.a"), (["m.b -> m.a"], "m.b"), ["m.b"], []),
    ("nobody takes it", ([], "*.*"), ([], "m.b"), ["m.a", "m.b"], []),
    ("it was another's always", (["m.b -> m.a"], "m.b"), (["m.b -> m.a"], "*.b"), ["m.a"], []),
    ("it might have met it before", (["m.* -> r.*"], "*.*"), (["m.* -> r.*"], "n.*"), ["r.a"], []),
    ("one shard less", (["s_*.a => m.a"], "s_*.a"), (["s_*.a => m.a"], "s_2.a"), ["m.a"], []),
    ("it is one of the shards", ([], "m.a"), (["m.a => m.a", "s_*.a => m.a"], "*.a"), ["m.a"], []),
]  # fmt: skip


@pytest.mark.parametrize(("old", "new", "there", "taken"), [case[1:] for case in TAKEN], ids=[c[0] for c in TAKEN])
def test_what_would_mix(
    old: tuple[list[str], str], new: tuple[list[str], str], there: list[str], taken: list[str]
) -> None:
    """Rows of a table that is left out, which are still on the target, and those of another one that goes there."""
    names = [TableName(*name.split(".")) for name in there]
    left = left_tables([], routes(*old), routes(*new), names)
    assert [str(one) for one in taken_tables(left, routes(*old), routes(*new))] == taken


def test_what_was_left_out_is_known_while_it_is_there() -> None:
    """However long ago; no more when it is replicated again, or is gone from the target."""
    a, b = TableName("m", "a"), TableName("m", "b")
    out, within = routes([], "m.*", "!m.a"), routes([], "m.*")
    left = left_tables([], within, out, [a, b])
    assert left == [LeftTable(a, a)]
    assert left_tables(left, out, out, [a]) == left
    assert left_tables(left, out, out, [b]) == left_tables(left, out, within, [a, b]) == []


@pytest.mark.parametrize(
    ("was", "old", "new", "there", "now"),
    [
        ("m.t", [], ["m.t -> r.t"], ["r.t"], "r.t"),
        ("r.t", ["m.* -> r.*"], [], ["m.t"], "m.t"),
        ("r.t", ["m.t -> r.t"], ["m.t -> s.t"], ["s.t"], "s.t"),
        ("m.t", [], ["m.t -> r.t"], ["m.t", "r.t"], ""),
        ("m.t", [], ["m.t -> r.t"], ["r.u"], ""),
        ("m.t", [], ["m.u -> r.u"], ["r.u"], ""),
    ],
)
def test_where_a_table_was_moved(was: str, old: list[str], new: list[str], there: list[str], now: str) -> None:
    """To where the new routes have it, if a table is there, and none in its former place."""
    names = [TableName(*name.split(".")) for name in there]
    found = new_place(TableName(*was.split(".")), routes(old), routes(new), names)
    assert (str(found) if found else "") == now
