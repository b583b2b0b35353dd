"""Rules for row changes, applied to what decoders give."""

from __future__ import annotations

import random

import pytest

from bridge.events import (
    EVENT_SCHEMA,
    Boundary,
    DdlStatement,
    Event,
    Kind,
    LeftOut,
    Position,
    RowChange,
    TransactionPart,
    Undecodable,
)
from bridge.filters.routes import IgnoredRows, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.protocols.batch_decode import events_table, ruled, ruled_row
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
    return [_event(rng.choice(list(Kind)), n, rng.choice("abcA"), rng.choice("tuT")) for n in range(count)]


def _event(kind: Kind, ts: int, schema: str, table: str) -> Event:
    match kind:
        case Kind.SCHEMA_CHANGE:
            return DdlStatement(ts, 0, schema, table, "")
        case Kind.BOUNDARY:
            return Boundary(ts)
        case Kind.BAD:
            return Undecodable("", "")
        case Kind.LEFT_OUT:
            return LeftOut(schema, table, None)
        case Kind.TRANSACTION:
            return TransactionPart(ts, None)
    return RowChange(kind, ts, 0, schema, table, "", "", None, None)


@pytest.mark.parametrize("count", [0, 1, 2, 300])
def test_many_are_ruled_like_one(count: int) -> None:
    """Events that are ruled together come out as each by itself, in their order."""
    given = events(count)
    table = ruled(events_table((Position("q", 0, n), event) for n, event in enumerate(given)), RULES)
    kept = [(n, event) for n, event in enumerate(given) if not isinstance(event, RowChange) or ruled_row(event, RULES)]
    assert table["offset"].to_pylist() == [n for n, _ in kept]
    assert table.schema == EVENT_SCHEMA
    assert all(not isinstance(event, RowChange) or not _is_ignored(event) for _, event in kept)


def _is_ignored(event: RowChange) -> bool:
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
