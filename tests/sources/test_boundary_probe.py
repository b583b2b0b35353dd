"""What a look at a source's messages tells of their order."""

from __future__ import annotations

import pytest

from bridge.events import Event
from bridge.sources.boundary_probe import SILENCE_MS, judge_events
from bridge.tso import ms_tso
from tests.support.upstreams import boundary, row_change, schema_change

NOW = 1_800_000_000_000


def row(ms: int) -> Event:
    return row_change(ms_tso(ms), "t", ["id"], ["id"], after=[1])


CASES: list[tuple[str, list[Event], list[list[Event]], bool | None]] = [
    ("nothing at all", [], [], None),
    ("a change without a TSO", [row(NOW)._replace(by_time=True)], [], True),
    ("a schema change without a TSO", [schema_change(5, "x")._replace(by_time=True)], [], True),
    ("changes whose boundaries are sure to come", [row(5)], [], None),
    ("a boundary at the beginning", [row(5), boundary(6)], [], False),
    ("a boundary in one partition's end", [row(5)], [[row(5)], [row(6), boundary(6)]], False),
    ("old changes and no boundary", [row(5)], [[row(NOW - SILENCE_MS)], []], True),
    ("new changes and no boundary yet", [row(NOW)], [[row(NOW - 100), row(NOW)]], None),
    ("some new, some old", [row(5)], [[row(5)], [row(NOW)]], None),
    ("changes over a long time", [row(5)], [[row(NOW - SILENCE_MS), row(NOW)]], True),
    ("without at first, with boundaries later", [row(5)._replace(by_time=True)], [[row(NOW), boundary(7)]], True),
    ("schema changes only", [], [[schema_change(ms_tso(5), "x")]], True),
]


@pytest.mark.parametrize(("what", "heads", "tails", "expected"), CASES, ids=[case[0] for case in CASES])
def test_what_the_messages_tell(what: str, heads: list[Event], tails: list[list[Event]], expected: bool | None) -> None:
    """Changes without a TSO, or changes for long and no boundary: the partitions' order; else boundaries, or wait."""
    look = judge_events(heads, tails, NOW)
    assert (look.by_partition, bool(look.why)) == (expected, True), what
