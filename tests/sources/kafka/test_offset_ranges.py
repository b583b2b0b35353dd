"""Ranges of offsets are divided without a loss."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.sources.kafka.offset_ranges import OffsetRange, shares, split_ranges

RANGES = st.lists(
    st.builds(
        lambda partition, start, size: OffsetRange("t", partition, start, start + size),
        st.integers(0, 5), st.integers(0, 1000), st.integers(0, 500),
    ),
    max_size=6,
)  # fmt: skip


def _offsets(ranges: list[OffsetRange]) -> list[tuple[int, int]]:
    return [(r.partition, offset) for r in ranges for offset in range(r.start, r.end)]


@given(RANGES, st.integers(1, 8))
def test_shares_hold_every_offset_once_in_order_and_are_nearly_equal(ranges: list[OffsetRange], count: int) -> None:
    """No message is read twice or left out, and no task has more than its part."""
    cut = shares(ranges, count)
    assert len(cut) <= count
    assert [offset for share in cut for offset in _offsets(share)] == _offsets(ranges)
    total = len(_offsets(ranges))
    assert all(0 < len(_offsets(share)) <= -(-total // count) for share in cut)


@given(RANGES, st.integers(1, 8))
def test_ranges_cut_hold_every_offset_once_in_order(ranges: list[OffsetRange], count: int) -> None:
    """What is read by parts is read whole, each partition by as much at a time."""
    ranges = list({r.partition: r for r in ranges}.values())
    first, rest = split_ranges(ranges, count)
    read = _offsets(first) + _offsets(rest)
    assert sorted(read) == sorted(_offsets(ranges))
    assert all(r.size for r in (*first, *rest))
    assert count > 1 or not rest
    for whole in ranges:
        assert [o for p, o in read if p == whole.partition] == list(range(whole.start, whole.end))
        assert sum(r.size for r in first if r.partition == whole.partition) == -(-whole.size // count)
