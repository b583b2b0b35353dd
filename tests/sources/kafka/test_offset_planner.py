"""Which offsets a micro-batch holds."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from types import SimpleNamespace
from typing import Any, cast

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from bridge.ends import End
from bridge.errors import SourceError, UnansweredError
from bridge.model import PartitionId
from bridge.sources.kafka import offset_planner
from bridge.sources.kafka.client import OffsetRange, shares
from bridge.sources.kafka.offset_planner import KafkaBatch, OffsetPlanner, planned
from tests.support.models import Clock

EXTENTS = st.dictionaries(
    st.tuples(st.sampled_from("ab"), st.integers(0, 20)), st.tuples(st.integers(0, 50), st.integers(0, 5000))
)


@given(EXTENTS, st.integers(1, 3000))
@example({("a", 0): (0, 1), ("a", 1): (0, 1), ("a", 2): (0, 5000)}, 2000)
def test_a_plan_keeps_to_the_limit_and_leaves_no_partition_behind(
    extents: dict[PartitionId, tuple[int, int]], limit: int
) -> None:
    """Each partition that has messages gets its share, and at least one; more than the limit are planned only of more
    partitions than that."""
    starts = {where: start for where, (start, _) in extents.items()}
    ends = {where: start + size for where, (start, size) in extents.items()}
    found, is_cut = planned(starts, ends, limit)
    assert {(r.topic, r.partition) for r in found} == {where for where, end in ends.items() if end > starts[where]}
    for one in found:
        where = (one.topic, one.partition)
        assert starts[where] == one.start < one.end <= ends[where]
    total = sum(ends.values()) - sum(starts.values())
    assert is_cut == (sum(one.size for one in found) < total)
    assert sum(one.size for one in found) <= max(limit, len(found))
    assert sum(one.size for one in found) >= min(limit, total) - len(found)


def all_of_it() -> int:
    """The wish of those who take micro-batches."""
    return 1 << 40


class Brokers:
    """What Kafka says: where the partitions end, which there are, and whether it answers."""

    def __init__(self, ends: Mapping[PartitionId, int]) -> None:
        self.ends_now, self.is_away, self.is_deleted = dict(ends), 0, False
        self.end = End("source", "kafka:9092", retry_seconds=60)

    def ends(self, partitions: Iterable[PartitionId]) -> dict[PartitionId, int]:
        if self.is_away:
            self.is_away -= 1
            raise UnansweredError("Kafka is away")
        return {where: self.ends_now[where] for where in partitions}

    def partitions(self, _: Callable[[], bool]) -> set[PartitionId]:
        if self.is_deleted:
            raise SourceError("the topic does not exist")
        return set(self.ends_now)


class Waits:
    """Nobody waits any more after so many waits that were not for nothing; a clock that goes on meanwhile."""

    def __init__(self, most: int, clock: Clock) -> None:
        self.left, self._clock = most, clock

    def __call__(self, seconds: float) -> bool:
        if seconds > 0:
            self.left -= 1
            self._clock.now += seconds
        return self.left < 0


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    """The planner's."""
    found = Clock()
    monkeypatch.setattr(offset_planner, "time", SimpleNamespace(monotonic=lambda: found.now))
    return found


def _planner(brokers: Brokers, starts: Mapping[PartitionId, int], *, limit: int = 100, once: bool = False) -> Any:
    return OffsetPlanner(brokers.ends, cast("Any", brokers), starts, limit, 0.2, once=once)


A, B = ("t", 0), ("t", 1)


def test_micro_batches_follow_each_other_without_a_gap(clock: Clock) -> None:
    """Each begins where the one before ended; when there is nothing new, the next question waits."""
    brokers, waits = Brokers({A: 150, B: 50}), Waits(3, clock)
    planner = _planner(brokers, {A: 0, B: 50})
    assert planner.next(waits, all_of_it).ranges == [OffsetRange("t", 0, 0, 100)]
    assert planner.next(waits, all_of_it).ranges == [OffsetRange("t", 0, 100, 150)]
    brokers.ends_now = {A: 151, B: 53}
    assert planner.next(waits, all_of_it).ranges == [OffsetRange("t", 0, 150, 151), OffsetRange("t", 1, 50, 53)]
    assert waits.left == 1
    assert planner.next(waits, all_of_it) is None


def test_a_plan_may_be_smaller_than_the_limit(clock: Clock) -> None:
    """And never larger; it says whether it leaves anything out."""
    planner = _planner(Brokers({A: 150}), {A: 0})
    waits = Waits(5, clock)
    assert planner.next(waits, lambda: 10) == KafkaBatch([OffsetRange("t", 0, 0, 10)], (), True)
    assert planner.next(waits, lambda: 1000) == KafkaBatch([OffsetRange("t", 0, 10, 110)], (), True)
    assert planner.next(waits, all_of_it) == KafkaBatch([OffsetRange("t", 0, 110, 150)], (), False)


def test_kafka_is_never_asked_without_a_pause(clock: Clock) -> None:
    """Not with `stream.trigger_ms` 0 either."""
    brokers, waits = Brokers({A: 1}), Waits(50, clock)
    began = clock.now
    planner = OffsetPlanner(brokers.ends, cast("Any", brokers), {A: 1}, 100, 0.0, once=False)
    assert planner.next(waits, all_of_it) is None
    assert clock.now - began >= 50 * 0.009


def test_kafka_is_asked_sooner_while_messages_come(clock: Clock) -> None:
    """A look that finds nothing is followed by a longer wait."""
    brokers, waits = Brokers({A: 1}), Waits(50, clock)
    planner = _planner(brokers, {A: 0})
    planner.next(waits, all_of_it)
    began = clock.now
    brokers.ends_now = {A: 2}
    planner.next(waits, all_of_it)
    assert clock.now - began == pytest.approx(0.14)
    waits.left = 3
    assert planner.next(waits, all_of_it) is None
    assert clock.now - began == pytest.approx(0.14 + 0.14 + 3 * 0.2)


def test_what_is_there_already_is_not_waited_for(clock: Clock) -> None:
    """A plan that leaves messages out is followed by the next one at once."""
    planner, waits = _planner(Brokers({A: 250}), {A: 0}), Waits(50, clock)
    began = clock.now
    assert [planner.next(waits, all_of_it).is_cut for _ in range(3)] == [True, True, False]
    assert clock.now - began == pytest.approx(2 * 0.01)


def test_a_partition_that_is_added_is_read_from_its_beginning(clock: Clock) -> None:
    """Whatever the first look at it shows."""
    brokers, waits = Brokers({A: 1}), Waits(100, clock)
    planner = _planner(brokers, {A: 0})
    assert planner.next(waits, all_of_it).ranges == [OffsetRange("t", 0, 0, 1)]
    brokers.ends_now = {A: 1, B: 7}
    assert planner.next(waits, all_of_it).ranges == [OffsetRange("t", 1, 0, 7)]


def test_a_replay_ends_where_the_partitions_ended_when_it_began(clock: Clock) -> None:
    """What comes meanwhile is left to the next one."""
    brokers, waits = Brokers({A: 150, B: 0}), Waits(10, clock)
    planner = _planner(brokers, {A: 0, B: 0}, once=True)
    assert planner.next(waits, all_of_it).ranges == [OffsetRange("t", 0, 0, 100)]
    brokers.ends_now = {A: 400, B: 9}
    assert planner.next(waits, all_of_it).ranges == [OffsetRange("t", 0, 100, 150)]
    assert planner.next(waits, all_of_it) is None
    assert waits.left > 0


def test_kafka_that_is_away_is_waited_for(clock: Clock) -> None:
    """And said to be away, as everywhere."""
    brokers, waits = Brokers({A: 1}), Waits(10, clock)
    brokers.is_away = 2
    assert _planner(brokers, {A: 0}).next(waits, all_of_it).ranges == [OffsetRange("t", 0, 0, 1)]
    assert brokers.end.retries == 2
    assert brokers.end.waiting_for == ""


@pytest.mark.usefixtures("clock")
def test_nobody_waits_for_kafka_after_a_stop() -> None:
    """However long it may be away."""
    brokers = Brokers({A: 1})
    brokers.is_away = 1 << 30
    stops = iter([False, False, False])
    assert _planner(brokers, {A: 0}).next(lambda _: next(stops, True), all_of_it) is None


def test_a_topic_that_was_deleted_is_not_waited_for(clock: Clock) -> None:
    """Kafka only says that its partitions have no leaders."""
    brokers = Brokers({A: 1})
    planner = _planner(brokers, {A: 1})
    assert planner.next(Waits(1, clock), all_of_it) is None
    brokers.is_away, brokers.is_deleted = 1 << 30, True
    with pytest.raises(SourceError, match="does not exist"):
        planner.next(Waits(1000, clock), all_of_it)


@pytest.mark.parametrize("once", [False, True])
def test_a_partition_that_ends_too_early_is_waited_for_a_while(clock: Clock, once: bool) -> None:
    """A leader that was just elected may not know its end; one that stays behind has lost what was read."""
    brokers = Brokers({A: 90, B: 5})
    planner = _planner(brokers, {A: 100, B: 5}, once=once)
    assert planner.next(Waits(20, clock), all_of_it) is None
    brokers.ends_now[A] = 101
    assert planner.next(Waits(5, clock), all_of_it).ranges == [OffsetRange("t", 0, 100, 101)]
    planner = _planner(brokers, {A: 200, B: 5}, once=once)
    with pytest.raises(SourceError, match="the partition ends at offset 101, but was read up to offset 200") as lost:
        planner.next(Waits(1000, clock), all_of_it)
    assert "t/0" in str(lost.value)


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


@given(RANGES, st.integers(1, 1000))
def test_parts_of_a_batch_hold_every_offset_once_in_order_and_no_more_than_is_asked(
    ranges: list[OffsetRange], size: int
) -> None:
    """What is read by parts is read whole, each partition by as much at a time."""
    whole = list({r.partition: r for r in ranges if r.size}.values())
    first, rest = KafkaBatch(whole, ()).split(size)
    left = rest.ranges if rest else []
    assert sorted(_offsets(first.ranges) + _offsets(left)) == sorted(_offsets(whole))
    assert all(r.size for r in (*first.ranges, *left))
    assert min(size, len(_offsets(whole))) >= first.messages >= min(1, len(whole))
    assert (first.messages == len(_offsets(whole))) is (rest is None)
    total = sum(r.size for r in whole[:size])
    for r in whole[:size] if total > size else ():
        share = sum(part.size for part in first.ranges if part.partition == r.partition)
        assert abs(share - r.size * size / total) <= len(whole) + 1
    for r in first.ranges:
        assert all(r.end <= other.start for other in left if other.partition == r.partition)
