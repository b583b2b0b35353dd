"""Prefixes of partitions merge into one order, numbered."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from bridge.pipeline.by_partitions.merge import Merged, Rows, merge
from bridge.rows.amount import Amount
from bridge.tso import ms_tso
from tests.support.upstreams import TOPIC, events_table, row_change

Message = tuple[int, bool, int]
"""Time, whether it lacks a TSO, and its number of rows."""


def rows_of(partition: int, messages: list[Message]) -> Rows:
    placed = [
        (
            partition,
            10 + offset,
            row_change(time, "t", ["id"], ["id"], after=[index])._replace(index=index, by_time=lacks),
        )
        for offset, (time, lacks, count) in enumerate(messages)
        for index in range(count)
    ]
    table = events_table(placed)
    return Rows(table, *(table[name].to_numpy() for name in ("commit_ts", "offset", "by_time")))


def merged(partitions: list[list[Message]], first: int = 0, most: int = 1000) -> Merged:
    return merge(
        [((TOPIC, p), rows_of(p, messages)) for p, messages in enumerate(partitions) if messages],
        first,
        Amount(most, 1 << 20),
    )


def listed(found: Merged) -> list[tuple[int, int, int]]:
    """Number, partition and offset of each row."""
    return list(zip(*(found.table[name].to_pylist() for name in ("commit_ts", "partition", "offset")), strict=True))


ONE, TWO = True, False
CASES: list[tuple[list[list[Message]], int, list[tuple[int, int, int]]]] = [
    ([[(5, True, 1)]], 0, [(5, 0, 10)]),
    ([[(5, True, 1)]], 9, [(9, 0, 10)]),
    ([[(5, True, 1), (5, True, 1)]], 0, [(5, 0, 10), (6, 0, 11)]),
    ([[(5, True, 2)]], 0, [(5, 0, 10), (5, 0, 10)]),
    ([[(5, True, 1), (8, True, 1)], [(6, True, 1)]], 0, [(5, 0, 10), (6, 1, 10), (8, 0, 11)]),
    ([[(9, True, 1), (2, True, 1)], [(6, True, 1)]], 0, [(6, 1, 10), (9, 0, 10), (10, 0, 11)]),
    ([[(5, False, 1), (7, False, 1)], [(5, False, 1)]], 0, [(5, 0, 10), (5, 1, 10), (7, 0, 11)]),
    ([[(5, False, 1)], [(5, True, 1)]], 0, [(5, 0, 10), (6, 1, 10)]),
    ([[(5, False, 1), (7, False, 1)], [(5, False, 1)]], 6, [(6, 0, 10), (6, 1, 10), (7, 0, 11)]),
    ([[(7, False, 1), (5, False, 1), (6, False, 1)]], 0, [(7, 0, 10), (8, 0, 11), (9, 0, 12)]),
]  # fmt: skip


def test_order_and_numbers() -> None:
    """By time, each partition in its order; a message without a TSO has a number of its own, a TSO one for all, also
    where it is sent again behind later ones."""
    for partitions, first, expected in CASES:
        assert listed(merged(partitions, first)) == expected, partitions


times = st.one_of(st.integers(1, 12), st.integers(1, 3).map(lambda s: ms_tso(s * 1000)), st.just((1 << 63) - 1))


@given(
    st.lists(st.lists(st.tuples(times, st.booleans(), st.integers(1, 3)), max_size=6), min_size=1, max_size=4),
    st.integers(0, 20),
    st.integers(1, 30),
)
def test_a_merge_is_made_of_prefixes(partitions: list[list[Message]], first: int, most: int) -> None:
    """Whatever the times: a prefix of each partition, whole messages, numbers ascending from `first` on, one number
    for a message; a partition's offsets are where its numbers say."""
    if not any(partitions):
        return
    found = merged(partitions, first, most)
    rows = listed(found)
    numbers = [number for number, _, _ in rows]
    assert numbers == sorted(numbers)
    assert numbers[0] >= first
    assert len(rows) >= min(most, sum(count for messages in partitions for _, _, count in messages))
    for partition, messages in enumerate(partitions):
        mine = [(number, offset) for number, p, offset in rows if p == partition]
        wanted = [10 + offset for offset, (_, _, count) in enumerate(messages) for _ in range(count)]
        assert [offset for _, offset in mine] == wanted[: len(mine)]
        assert not set(wanted[len(mine) :]) & {offset for _, offset in mine}, "a message is cut"
        assert len({(number, offset) for number, offset in mine}) == len({offset for _, offset in mine})
        if messages:
            assert found.taken[TOPIC, partition] == len(mine)
            assert list(zip(*(column.tolist() for column in found.numbers[TOPIC, partition]), strict=True)) == mine
