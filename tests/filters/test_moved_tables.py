"""Tables that changed routes would divide."""

from __future__ import annotations

import pytest

from bridge.filters.moved_tables import moved_tables
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
