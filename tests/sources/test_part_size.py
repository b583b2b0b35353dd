"""How many messages are taken at a time follows what the target makes of them."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.protocols.batch_decode import Messages
from bridge.sources.part_size import FIRST_AT_ONCE, LEAST_AT_ONCE, READ_AT_ONCE, PartSize, joined_lots


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
    assert pace.wanted() == LEAST_AT_ONCE
    pace.had_tables(1_000)
    assert pace.wanted() == 50_000
    pace.had_tables(10_000)
    assert pace.wanted() == 100_000
    pace.note(20_000, 0.1)
    pace.had_tables(1)
    assert pace.wanted() == 100_000


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
