"""Boundaries per partition, and the resolved ts."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.config import SourceSection
from bridge.errors import SourceError, UsageError
from bridge.events import Position
from bridge.model import UNUSED, Entry, PartitionStart
from bridge.pipeline.assembly import unused_partitions
from bridge.pipeline.by_boundaries import Frontier
from bridge.pipeline.order import BadMessage
from bridge.sources.source import Extent

A, B = ("cdc", 0), ("cdc", 1)


def at_zero() -> float:
    return 0.0


def bad(partition: int, offset: int) -> BadMessage:
    """One without a boundary before it."""
    return BadMessage(Entry(Position("cdc", partition, offset), "malformed", "broken"), 0)


OBSERVATIONS = st.lists(st.tuples(st.integers(0, 3), st.integers(0, 50), st.sampled_from(["boundary", "bad", "new"])))


@given(OBSERVATIONS)
def test_resolved_is_never_beyond_any_boundary(observations: list[tuple[int, int, str]]) -> None:
    """The resolved ts is the least of the partitions' highest boundaries; what comes behind a bad message does not
    count, and a partition without a boundary holds everything back."""
    frontier = Frontier([(A, 0), (B, 0)], at_zero)
    highest = {0: 0, 1: 0}
    frozen: set[int] = set()
    for partition, ts, kind in observations:
        highest.setdefault(partition, 0)
        if kind == "boundary":
            frontier.observe(("cdc", partition), ts)
            if partition not in frozen:
                highest[partition] = max(highest[partition], ts)
        elif kind == "bad":
            frontier.freeze(bad(partition, ts))
            frozen.add(partition)
        else:
            frontier.admit(("cdc", partition))
        assert frontier.resolved_ts == min(highest.values())
        assert frontier.boundaries == {("cdc", p): ts for p, ts in highest.items()}


def test_begins_at_the_recorded_boundaries() -> None:
    """After a restart the boundaries of the progress row count until later ones come; a repeated lower one does not."""
    frontier = Frontier([(A, 7), (B, 9)], at_zero)
    assert frontier.resolved_ts == 7
    frontier.observe(A, 5)
    assert frontier.resolved_ts == 7
    frontier.observe(A, 12)
    assert frontier.resolved_ts == 9


def test_without_partitions_nothing_is_resolved() -> None:
    """No partition, no moment that is complete."""
    frontier = Frontier([], at_zero)
    assert frontier.resolved_ts == 0
    assert frontier.waiting_for() == "the source has no partitions"


def test_says_who_holds_it_back() -> None:
    """The reason names the partition, with its topic when there are several, and for how long it has been silent."""
    now = 100.0
    frontier = Frontier([(A, 5), (B, 9)], lambda: now)
    now = 141.0
    assert frontier.waiting_for() == "partition 0 has had no boundary for 41 s"
    frontier.observe(A, 6)
    assert frontier.waiting_for() == "partition 0 has had no boundary for 0 s"
    frontier.freeze(bad(0, 17))
    assert frontier.waiting_for() == "partition 0 is stopped by a bad message at cdc/0/17"
    frontier.admit(("other", 0))
    assert frontier.waiting_for() == "other/0 has had no boundary for 0 s"


def test_a_partition_that_may_be_silent_for_good_is_explained() -> None:
    """While others bring boundaries: one that never had any may lie beyond the changefeed's partition-num, and a topic
    may be that of a table that was dropped."""
    now = 100.0
    frontier = Frontier([(A, 5), (("gone", 0), 4), (B, 0)], lambda: now)
    now = 170.0
    frontier.observe(A, 9)
    assert "partition-num leaves it out, name it in source.unused_partitions: cdc/1" in frontier.waiting_for()
    frontier.observe(B, 9)
    assert frontier.waiting_for() == (
        "gone/0 has had no boundary for 70 s; if the table of this topic was dropped upstream, take it out: bridge"
        " reset --topic gone"
    )


def test_an_unused_partition_holds_nothing_back() -> None:
    """Until a message of it comes, which stops the bridge."""
    frontier = Frontier([(A, 7), (B, UNUSED)], at_zero)
    assert frontier.resolved_ts == 7
    assert list(frontier.boundaries) == [A]
    with pytest.raises(SourceError, match="cdc/1 is said to be unused"):
        frontier.admit(B)


def test_only_a_partition_that_never_had_a_message_is_unused() -> None:
    """Each start looks whether it is still empty; one whose messages are gone by now was used as well."""
    extents, kept = {A: Extent(0, 9), B: Extent(0, 0)}, {A: PartitionStart(9, 7, 9), B: PartitionStart(0, UNUSED, 0)}
    assert unused_partitions([B], {}, extents) == {B}
    assert unused_partitions(None, kept, extents) == {B}
    assert unused_partitions([], kept, extents) == set()
    for extent in (Extent(0, 1), Extent(5, 5)):
        with pytest.raises(SourceError, match="cdc/1 is said to be unused"):
            unused_partitions([B], {}, {B: extent})
        with pytest.raises(SourceError, match="cdc/1 is said to be unused"):
            unused_partitions(None, kept, {B: extent})
    with pytest.raises(UsageError, match="which the source does not have"):
        unused_partitions([B], {}, {A: Extent(0, 9)})


def test_partitions_are_named_with_their_topic() -> None:
    """As errors name them."""
    assert SourceSection(unused_partitions=("a.b/7",)).unused == [("a.b", 7)]
    for name in ("7", "cdc/", "cdc/x", "/3"):
        with pytest.raises(ValueError, match="is not a topic and a partition"):
            SourceSection(unused_partitions=(name,))
