"""Rules for row changes, applied to what decoders give."""

from __future__ import annotations

import random

import pyarrow as pa
import pytest

from bridge.events import EVENT_SCHEMA, Event, Kind
from bridge.filters.routes import IgnoredRows, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.protocols.ruled_rows import ruled, ruled_event
from tests.protocols.test_left_out import PROTOCOLS, decoded, message

RULES = RowRules(
    (
        IgnoredRows(TableFilter(("a.*",)), frozenset({Kind.DELETE})),
        IgnoredRows(TableFilter(("*.t", "!b.t")), frozenset({Kind.UPDATE, Kind.INSERT})),
    )
)


def events(count: int, seed: int = 1) -> list[Event]:
    """Events of several tables and all kinds."""
    rng = random.Random(seed)
    return [Event(rng.choice(list(Kind)), n, 0, rng.choice("abcA"), rng.choice("tuT")) for n in range(count)]


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_many_are_ruled_like_one(count: int) -> None:
    """Events that are ruled together come out as each by itself, in their order."""
    given = events(count)
    rows = [dict(zip(EVENT_SCHEMA.names, ("q", 0, n, *event), strict=True)) for n, event in enumerate(given)]
    table = ruled(pa.Table.from_pylist(rows, EVENT_SCHEMA), RULES)
    kept = [(n, event) for n, event in enumerate(given) if ruled_event(event, RULES)]
    assert table["offset"].to_pylist() == [n for n, _ in kept]
    assert table.schema == EVENT_SCHEMA
    assert all(event.kind > Kind.DELETE or not _is_ignored(event) for _, event in kept)


def _is_ignored(event: Event) -> bool:
    schema, table = event.schema.lower(), event.table.lower()
    return (schema == "a" and event.kind is Kind.DELETE) or (
        table == "t" and schema != "b" and event.kind in {Kind.INSERT, Kind.UPDATE}
    )


@pytest.mark.parametrize("protocol", PROTOCOLS)
@pytest.mark.parametrize("count", [3, 1500])
def test_in_every_protocol(protocol: str, count: int) -> None:
    """Both paths of every decoder are ruled."""
    rules = RowRules((IgnoredRows(TableFilter(("shop.*",)), frozenset({Kind.INSERT})),))
    pairs = [message(protocol, ("shop", "bank", "farm")[n % 3], n) for n in range(count)]
    found = decoded(protocol, pairs, row_rules=rules)
    assert {event["schema"] for event in found} == {"bank", "farm"}
    assert sorted(event["offset"] for event in found) == [n for n in range(count) if n % 3]
