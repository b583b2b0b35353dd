"""A topic whose upstream was upgraded, or downgraded, in mid-stream: with the extension boundaries and commit ts begin
to come, without it they end.  Model check, in the manner of `test_model`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from random import Random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.events import Event, Kind
from bridge.model import goes_by_partition
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import Applier, ApplierConfig, Counts, IdlePolicy
from bridge.pipeline.assembly import make_applier
from bridge.pipeline.order import OrderChanged
from bridge.rows.gathering import Amount
from bridge.tso import ms_tso
from tests.support.models import FEW, Clock, Crash, FakeTarget, FakeWriter, Streams, give
from tests.support.upstreams import TOPIC, boundary, events_table, row_change, schema_change

PUT = "p"


@dataclass
class Upstream:
    """Messages, and what they amount to.  histories: the values of each key, in order, None where it is absent."""

    streams: Streams
    histories: dict[int, list[int | None]]
    ids: list[int]
    statements: list[str]


def make_upstream(random: Random, partitions: int, phases: list[bool]) -> Upstream:
    """Phases with (True) and without commit ts and boundaries, one after the other in every partition."""
    upstream = Upstream([[] for _ in range(partitions)], {key: [None] for key in range(4)}, [], [])
    number, ms = itertools.count(), 10_000
    for has_tso in phases:
        for _ in range(random.randint(1, 8)):
            ms += random.choice((1, 1, 300))
            ts = ms_tso(ms) + (random.randrange(5) if has_tso else 0)
            _transaction(random, upstream, ts, number, by_time=not has_tso)
            if has_tso and random.random() < 0.5:
                for stream in upstream.streams:
                    stream.append(boundary(ms_tso(ms + 1)))
        ms += 1
        if has_tso:
            for stream in upstream.streams:
                stream.append(boundary(ms_tso(ms)))
    return upstream


def _transaction(random: Random, upstream: Upstream, ts: int, number: itertools.count[int], *, by_time: bool) -> None:
    streams = upstream.streams
    for _ in range(random.randint(0, 2)):
        upstream.ids.append(next(number))
        event = row_change(ts, "k", ["id"], [], after=[upstream.ids[-1]])
        random.choice(streams).append(event._replace(by_time=by_time))
    for key in random.sample(range(4), random.randint(0, 2)):
        old, new = upstream.histories[key][-1], random.choice((None, next(number), next(number)))
        if old is None and new is None:
            continue
        upstream.histories[key].append(new)
        before, after = ([key, value] if value is not None else None for value in (old, new))
        event = row_change(ts, PUT, ["id", "v"], ["id"], before=before, after=after)
        streams[key % len(streams)].append(event._replace(by_time=by_time))
    if random.random() < 0.2:
        upstream.statements.append(f"ALTER TABLE t ADD COLUMN c{next(number)} int")
        streams[0].append(schema_change(ts, upstream.statements[-1])._replace(by_time=by_time))


@dataclass(kw_only=True)
class Target(FakeTarget):
    """seen: how far each key's history is."""

    upstream: Upstream
    seen: Counter[int] = field(default_factory=Counter)

    def check_commit(self) -> None:
        """No row is there twice, and each key holds a value that it had later, or the same."""
        assert max(Counter(self.ids).values(), default=1) == 1, "a row was applied twice"
        for key, history in self.upstream.histories.items():
            value = self.values.get(key)
            assert value in history[self.seen[key] :], "a key went back, or to what it never was"
            self.seen[key] = history.index(value, self.seen[key])


def life(random: Random, target: Target, crash_at: int | None, orders: list[bool]) -> Applier:
    """One process to the end of the input; the order may change in it.  orders: notes how it went."""
    writer, clock = FakeWriter(target, crash_at), Clock()
    lows = {(TOPIC, p): 0 for p in range(len(target.upstream.streams))}
    config = ApplierConfig(
        transaction=Amount(random.choice((1, 1000)), random.choice((200, 1 << 20))),
        idle=IdlePolicy(5, lambda _: {}),
        most=Amount(random.choice((1, 99)), random.choice((200, 1 << 20))),
        clock=clock,
    )
    while True:
        progress = Progress("bridge", 1, target.applied_ts, 0, target.positions, target.pending)
        by_partition = goes_by_partition(target.positions)
        orders.append(by_partition)
        applier = make_applier(writer, progress, lows, config, Counts(), by_partition=by_partition)  # type: ignore[arg-type]
        applier.finish_pending(progress.pending)
        try:
            for batch in _batches(random, target.upstream.streams, applier):
                clock.now += random.choice((0.1, 0.1, 6))
                give(applier, events_table(batch))
                if random.random() < 0.3:
                    applier.tick()
            applier.finish()
        except OrderChanged:
            continue
        return applier


def _batches(random: Random, streams: Streams, applier: Applier) -> Iterable[list[tuple[int, int, Event]]]:
    offsets = {p: applier.order.positions[TOPIC, p].offset for p in range(len(streams))}
    eager = [random.choice((1, 3, 9)) for _ in streams]
    while any(offsets[p] < len(stream) for p, stream in enumerate(streams)):
        batch = []
        for p, stream in enumerate(streams):
            end = min(len(stream), offsets[p] + random.randint(0, eager[p]))
            batch += [(p, offset, stream[offset]) for offset in range(offsets[p], end)]
            offsets[p] = end
        random.shuffle(batch)
        yield batch


HISTORIES = given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 3),
    phases=st.sampled_from([[False, True], [True, False], [True, False, True], [False, True, False]]),
    crashes=st.lists(st.integers(0, 9), max_size=5),
)


@FEW
@HISTORIES
def test_nothing_is_lost_or_doubled(seed: int, partitions: int, phases: list[bool], crashes: list[int]) -> None:
    """Whenever boundaries begin or end to come, and wherever a process crashes: each row of a keyless table is there
    once, no key goes back, each schema change runs once, and the end is the upstream's."""
    random = Random(seed)
    target = Target(upstream=make_upstream(random, partitions, phases))
    orders: list[bool] = []
    for crash_at in [*crashes, None]:
        try:
            applier = life(random, target, crash_at, orders)
        except Crash:
            continue
    upstream = target.upstream
    assert sorted(target.ids) == sorted(upstream.ids)
    ends = {key: history[-1] for key, history in upstream.histories.items() if history[-1] is not None}
    assert target.values == ends
    assert [change.text for change in target.ran] == upstream.statements
    assert (target.pending, applier.order.waiting.rows, applier.counts.late) == ((), 0, 0)


@pytest.mark.parametrize(
    ("phases", "expected"), [([False, True], [True, False]), ([True, False], [False, True]), ([True], [False])]
)
def test_which_order_a_pipeline_ends_in(phases: list[bool], expected: list[bool]) -> None:
    """Boundaries take over where every partition has them; the first change without a TSO ends their rule."""
    target = Target(upstream=make_upstream(Random(5), 3, phases))
    orders: list[bool] = []
    life(Random(5), target, None, orders)
    assert orders[-len(expected) :] == expected
    assert goes_by_partition(target.positions) == expected[-1]
    assert any(event.kind == Kind.BOUNDARY for event in target.upstream.streams[0])
