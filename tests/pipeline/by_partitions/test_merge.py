"""Prefixes of partitions merge into one order, numbered."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from bridge.pipeline.by_partitions.merge import Merged, Rows, merge
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set
from bridge.rows.gathering import Amount
from bridge.tso import ms_tso
from tests.support.upstreams import TOPIC, events_table, row_change

Message = tuple[int, bool, int]
"""Time, whether it lacks a TSO, and its number of rows."""


def rows_of(partition: int, messages: list[Message], places: Sequence[str | None] = ()) -> Rows:
    placed = [
        (
            partition,
            10 + offset,
            row_change(time, "t", ["id"], ["id"], after=[index])._replace(
                index=index, by_time=lacks, place=places[offset % len(places)] if places else None
            ),
        )
        for offset, (time, lacks, count) in enumerate(messages)
        for index in range(count)
    ]
    table = events_table(placed)
    return Rows(table)


def merged(
    partitions: list[list[Message]], first: int = 0, most: int = 1000, places: Sequence[str | None] = ()
) -> Merged:
    return merge(
        [((TOPIC, p), rows_of(p, messages, places)) for p, messages in enumerate(partitions) if messages],
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


def gtids(last: int, of_other: int = 0) -> str:
    """The place of Canal: all transactions up to the last one."""
    found = place_in_gtid_set(f"{ONE_SERVER}:1-{last}" + (f",{OTHER_SERVER}:1-{of_other}" if of_other else ""))
    assert found is not None
    return found


def file(position: int, server: int = 1, gtid: str | None = None) -> str:
    """The place of Debezium."""
    found = place_in_binlog("up", "binlog.000003", position, server, gtid)
    assert found is not None
    return found


ONE_SERVER, OTHER_SERVER = "3e11fa47-71ca-11e1-9e33-c80aa9429562", "00000000-71ca-11e1-9e33-c80aa9429562"
SECOND = ms_tso(5_000)
PLACED: list[tuple[list[list[tuple[int, str | None]]], list[int]]] = [
    ([[(SECOND, gtids(9))], [(SECOND, gtids(8))]], [1, 0]),
    ([[(SECOND, gtids(8)), (SECOND, gtids(11))], [(SECOND, gtids(9)), (SECOND, gtids(12))]], [0, 1, 0, 1]),
    # A statement that waited for another's lock is dated earlier than what it comes behind.
    ([[(SECOND, gtids(9))], [(2 * SECOND, gtids(8))]], [1, 0]),
    ([[(SECOND, gtids(4, 6))], [(SECOND, gtids(4, 5))]], [1, 0]),
    ([[(SECOND, file(9))], [(SECOND, file(8))]], [1, 0]),
    ([[(SECOND, file(9, gtid=f"{ONE_SERVER}:5"))], [(SECOND, file(8, gtid=f"{ONE_SERVER}:5"))]], [1, 0]),
    # What is sent again stays where it is in its partition.
    ([[(SECOND, gtids(9)), (SECOND, gtids(7))], [(SECOND, gtids(8))]], [1, 0, 0]),
    # Nothing tells, so that time decides, and else the number of the partition.
    ([[(SECOND, gtids(9))], [(SECOND, None)]], [0, 1]),
    ([[(SECOND, gtids(9))], [(SECOND, gtids(8, 1))]], [0, 1]),
    ([[(2 * SECOND, file(9, server=2))], [(SECOND, file(8))]], [1, 0]),
]


def test_places_order_what_times_do_not() -> None:
    """GTIDs of one history, and files and positions of one server, tell which of two partitions comes first."""
    for partitions, expected in PLACED:
        waiting = [
            ((TOPIC, p), rows_of(p, [(ts, True, 1) for ts, _ in told], [place for _, place in told]))
            for p, told in enumerate(partitions)
        ]
        found = merge(waiting, 0, Amount(1000, 1 << 20))
        assert [partition for _, partition, _ in listed(found)] == expected, partitions
        assert found.table["commit_ts"].to_pylist() == sorted(set(found.table["commit_ts"].to_pylist()))


def test_a_binlog_that_begins_anew_comes_behind_the_former() -> None:
    """After RESET MASTER places are low again: those of before and of after are not compared."""
    before, after = SECOND, 2 * SECOND
    waiting = [
        ((TOPIC, p), rows_of(p, [(before, True, 1), (after, True, 1)], [gtids(90 - p), gtids(4 - p)])) for p in (0, 1)
    ]
    found = merge(waiting, 0, Amount(1000, 1 << 20), [(before, after)])
    assert [(p, offset) for _, p, offset in listed(found)] == [(1, 10), (0, 10), (1, 11), (0, 11)]


times = st.one_of(st.integers(1, 12), st.integers(1, 3).map(lambda s: ms_tso(s * 1000)), st.just((1 << 63) - 1))


@given(
    st.lists(st.lists(st.tuples(times, st.booleans(), st.integers(1, 3)), max_size=6), min_size=1, max_size=4),
    st.integers(0, 20),
    st.integers(1, 30),
    st.lists(st.integers(1, 9).map(gtids), max_size=5),
)
def test_a_merge_is_made_of_prefixes(
    partitions: list[list[Message]], first: int, most: int, places: list[str | None]
) -> None:
    """Whatever the times and the places: a prefix of each partition, whole messages, numbers ascending from `first` on,
    one number for a message; each partition's rows are counted."""
    if not any(partitions):
        return
    found = merged(partitions, first, most, places)
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
            assert sum(of.table.num_rows for where, of in found.rows if where == (TOPIC, partition)) == len(mine)
