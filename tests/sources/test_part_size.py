"""How many messages are taken at a time follows what the target makes of them."""

from __future__ import annotations

from bridge.sources.part_size import FIRST_AT_ONCE, LEAST_AT_ONCE, PartSize


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
