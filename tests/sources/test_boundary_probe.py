"""What a look at a source's messages tells of their order."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import UsageError
from bridge.events import Event, RowChange
from bridge.model import PartitionId
from bridge.protocols import DecodeOptions
from bridge.protocols.batch_decode import Messages
from bridge.sources.part_size import FIRST_AT_ONCE, LEAST_AT_ONCE, READ_AT_ONCE, PartSize, joined_lots
from bridge.sources.source import SILENCE_MS, judge_events, transaction_topic
from bridge.tso import ms_tso
from tests.support.debezium_wire import CUSTOMER, native
from tests.support.upstreams import boundary, row_change, schema_change
from tests.support.wire import compact

NOW = 1_800_000_000_000


def row(ms: int) -> RowChange:
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


MARK = compact({"status": "BEGIN", "id": "1", "event_count": None, "data_collections": None, "ts_ms": 1})
ROW = native("c", CUSTOMER)


def found(
    partitions: list[str | PartitionId], heads: dict[str, bytes], protocol: str = "debezium"
) -> PartitionId | None:
    """What is found among topics, of which some hold a first message."""
    ids = [one if isinstance(one, tuple) else (one, 0) for one in partitions]
    return transaction_topic(
        protocol,
        DecodeOptions(None, transactions=True),
        ids,
        lambda: [(where, [(None, heads[where[0]])]) for where in ids if where[0] in heads],
    )


@pytest.mark.parametrize(
    ("topics", "heads", "right"),
    [
        (["p", "p.transaction", "p.d.t"], {"p.transaction": MARK}, "p.transaction"),
        (["p", "p.transaction", "p.d.t"], {}, "p.transaction"),
        (["p.d.t", "p.d.transaction"], {"p.d.transaction": ROW}, None),
        (["p.d.t", "p.d.transaction"], {}, None),
        (
            ["p.transaction", "p.d.t", "p.d.transaction"],
            {"p.transaction": MARK, "p.d.transaction": ROW},
            "p.transaction",
        ),
        (["p", "p.d.t"], {}, None),
        (["p.transaction"], {}, None),
        (["p.transaction"], {"p.transaction": MARK}, "p.transaction"),
        (["routed", "p.transaction"], {"p.transaction": MARK}, "p.transaction"),
    ],
)
def test_it_is_known_by_its_first_message_or_its_name(
    topics: list[str], heads: dict[str, bytes], right: str | None
) -> None:
    """A table may be called `transaction` too."""
    assert found([*topics], heads) == (None if right is None else (right, 0))


def test_other_protocols_have_none() -> None:
    """Whatever their topics are called."""
    assert found(["p", "p.transaction"], {}, "canal-json") is None


@pytest.mark.parametrize(
    "partitions",
    [["p.transaction", ("p.transaction", 1)], ["p.transaction", "q.transaction"]],
    ids=["two partitions", "two"],
)
def test_one_partition_is_the_order(partitions: list[str | PartitionId]) -> None:
    """Of one connector."""
    with pytest.raises(UsageError):
        found(partitions, {"p.transaction": MARK, "q.transaction": MARK})


def test_the_pace_follows_the_rate() -> None:
    """A slow target is given less at a time, a fast one all that the settings allow; a handful says nothing."""
    pace = PartSize(100_000, 1 << 30)
    assert pace.by_rate == FIRST_AT_ONCE
    pace.note(100_000, 10.0)
    assert pace.by_rate == 20_000
    pace.note(20_000, 100.0)
    assert pace.by_rate == LEAST_AT_ONCE
    pace.note(50, 5.0)
    assert pace.by_rate == LEAST_AT_ONCE
    pace.note(10_000, 0.05)
    assert pace.by_rate == 100_000


def test_many_tables_make_larger_parts() -> None:
    """However slow the target is: a row for each table would cost as many statements as fifty of each."""
    pace = PartSize(100_000, 1 << 30)
    pace.note(20_000, 100.0)
    pace.had_tables(10)
    assert pace.next_size() == LEAST_AT_ONCE
    pace.had_tables(1_000)
    assert pace.next_size() == 50_000
    pace.had_tables(10_000)
    assert pace.next_size() == 100_000
    pace.note(20_000, 0.1)
    pace.had_tables(1)
    assert pace.next_size() == 100_000


def _nobody(messages: int, size: int) -> None:
    """Learns nothing of the sizes."""


@given(st.lists(st.integers(1, READ_AT_ONCE // 3), max_size=12))
def test_messages_of_small_ranges_come_together(sizes: list[int]) -> None:
    """All of them, in order, in lots that are worth decoding."""
    some = [
        Messages(["t"] * size, [n] * size, list(range(size)), [None] * size, [b"x"] * size)
        for n, size in enumerate(sizes)
    ]
    lots = list(joined_lots(some, _nobody))
    places = [place for lot in lots for place in zip(lot.partition, lot.offset, strict=True)]
    assert places == [(n, offset) for n, size in enumerate(sizes) for offset in range(size)]
    assert all(len(lot.value) == len(lot.key) == len(lot.topic) == len(lot.offset) for lot in lots)
    assert all(len(lot.offset) >= READ_AT_ONCE // 2 for lot in lots[:-1])


def test_large_messages_wait_for_no_others() -> None:
    """They would fill the memory."""
    large = Messages(["t"], [0], [0], [None], [bytes(9 << 20)])
    small = Messages(["t"] * 2, [0] * 2, [1, 2], [None] * 2, [b"x", None])
    lots = [small, large, small, small, large, large]
    assert [len(lot.value) for lot in joined_lots(lots, _nobody)] == [3, 5, 1]
