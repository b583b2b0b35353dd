"""Model check: whatever the interleaving of partitions and wherever it crashes, every change has its one effect.

At every commit the target, held in memory, is exactly what the upstream was.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass
from random import Random

from hypothesis import given
from hypothesis import strategies as st

from bridge.events import Event, Kind
from bridge.model import PartitionStart, SchemaChange
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import Applier
from bridge.pipeline.applier_factory import ApplierConfig, make_applier
from bridge.pipeline.watching.counts import Counts
from bridge.rows.amount import Amount
from tests.support.models import FEW, Crash, FakeTarget, FakeWriter, Streams, give
from tests.support.upstreams import TOPIC, boundary, events_table, row_change, schema_change


@dataclass(frozen=True)
class Upstream:
    """What happened: unique ids inserted into the keyless m.k, values of keys of m.p, and statements."""

    streams: Streams
    inserts: tuple[tuple[int, int], ...]
    puts: tuple[tuple[int, int, int | None], ...]
    statements: tuple[tuple[int, str], ...]
    repeats: bool

    def ids_below(self, ts: int) -> list[int]:
        return sorted(i for at, i in self.inserts if at < ts)

    def values_below(self, ts: int) -> dict[int, int]:
        values = {key: value for at, key, value in self.puts if at < ts}
        return {key: value for key, value in values.items() if value is not None}

    def statements_below(self, ts: int) -> list[str]:
        return [text for at, text in self.statements if at < ts]


def make_upstream(random: Random, partitions: int, transactions: int, repeats: bool) -> Upstream:
    """A random history and its messages: rows in any order between boundaries, boundaries as late as they like."""
    streams: list[list[tuple[float, int, Event]]] = [[] for _ in range(partitions)]
    inserts, puts, statements = [], [], []
    number = itertools.count()
    values: dict[int, int | None] = {}
    told = range(partitions) if random.random() < 0.7 else range(1)  # Canal-JSON sends DDL to partition 0 only
    ts = 10
    for _ in range(transactions):
        ts += random.choice((1, 1, 2, 5))
        for _ in range(random.randint(0, 3)):
            inserts.append((ts, next(number)))
            event = row_change(ts, "k", ["id"], [], after=[inserts[-1][1]])
            streams[random.randrange(partitions)].append((ts + random.choice((0, 0, 3, 8)), next(number), event))
        for key in random.sample(range(3), random.choice((0, 0, 1, 2))):
            old, new = values.get(key), random.choice((None, next(number), next(number)))
            if old is None and new is None:
                continue
            values[key] = new
            puts.append((ts, key, new))
            event = row_change(
                ts, "p", ["id", "v"], ["id"],
                before=None if old is None else [key, old], after=None if new is None else [key, new],
            )  # fmt: skip
            streams[key % partitions].append((float(ts), next(number), event))
        for _ in range(random.choice((0, 0, 0, 1, 2))):
            text = f"ALTER TABLE t ADD COLUMN c{next(number)} int"
            statements.append((ts, text))
            for partition in told:
                streams[partition].append((float(ts), next(number), schema_change(ts, text)))
    return Upstream(
        [_with_boundaries(random, sorted(s, key=lambda x: x[:2]), ts + 1, repeats) for s in streams],
        tuple(inserts), tuple(puts), tuple(statements), repeats,
    )  # fmt: skip


def _with_boundaries(random: Random, sent: list[tuple[float, int, Event]], end: int, repeats: bool) -> list[Event]:
    placed: list[tuple[float, Event]] = [(float(at), event) for at, (_, _, event) in enumerate(sent)]
    for ts in sorted(random.sample(range(11, end), k=min(end - 11, random.randint(0, 6)))):
        below = (at for at, event in placed if event.kind != Kind.BOUNDARY and event.commit_ts < ts)
        at = min(max(below, default=-1.0) + random.choice((0.1, 0.1, 1.5, 4.5)), len(sent))
        placed.append((at, boundary(ts)))
    if repeats:
        for at, event in random.sample(placed, k=len(placed) // 4):
            if event.table != "k":  # a repeated insert into a keyless table cannot be told (internals, 11)
                placed.append((at + random.choice((0.2, 2.2, 9.2)), event))
    return [event for _, event in sorted(placed, key=lambda x: x[0])] + [boundary(end)]


@dataclass(kw_only=True)
class Target(FakeTarget):
    """vouched: the highest boundary read so far, by partition."""

    upstream: Upstream
    vouched: dict[int, int]

    def check_commit(self) -> None:
        """The target is exactly what the upstream was."""
        assert self.applied_ts <= min(self.vouched.values()), "beyond a boundary"
        self._holds_rows_below(self.applied_ts)
        texts = [*self.texts_run, *(change.text for change in self.pending)]
        assert texts == self.upstream.statements_below(self.applied_ts)

    def check_change(self, change: SchemaChange) -> None:
        """The rows below it are there, and none above it."""
        self._holds_rows_below(change.commit_ts + 1)

    def _holds_rows_below(self, ts: int) -> None:
        assert sorted(self.ids) == self.upstream.ids_below(ts)
        assert self.values == self.upstream.values_below(ts)


def micro_batches(random: Random, streams: Streams, offsets: dict[int, int]) -> Iterator[list[tuple[int, int, Event]]]:
    """The rest of every partition, in micro-batches of random sizes; one partition may be read long before another."""
    eager = [random.choice((0, 1, 3, 9)) for _ in streams]
    while any(offsets[p] < len(stream) for p, stream in enumerate(streams)):
        batch = []
        for p, stream in enumerate(streams):
            end = min(len(stream), offsets[p] + random.randint(0, eager[p] or random.choice((0, 0, 0, 1))))
            batch += [(p, offset, stream[offset]) for offset in range(offsets[p], end)]
            offsets[p] = end
        random.shuffle(batch)
        yield batch


def life(random: Random, target: Target, crash_at: int | None, rows_per_transaction: int) -> Applier:
    """One process from start to crash, or to the end of the input."""
    streams = target.upstream.streams
    starts = {(TOPIC, p): target.positions.get((TOPIC, p), PartitionStart(0, 0, 0)) for p in range(len(streams))}
    progress = Progress("bridge", 1, target.applied_ts, 0, target.positions, target.pending)
    clock = itertools.count()
    applier = make_applier(
        FakeWriter(target, crash_at),  # type: ignore[arg-type]
        progress,
        dict.fromkeys(starts, 0),
        ApplierConfig(transaction=Amount(rows_per_transaction, 1 << 20), clock=lambda: next(clock) * 0.4),
        Counts(),
        by_partition=False,
    )
    applier.finish_pending(progress.pending)
    for batch in micro_batches(random, streams, {p: starts[TOPIC, p].offset for p in range(len(streams))}):
        for p, _, event in batch:
            if event.kind == Kind.BOUNDARY:
                target.vouched[p] = max(target.vouched[p], event.commit_ts)
        give(applier, events_table(sorted(batch, key=lambda x: x[:2]) if len(batch) % 2 else batch))
    applier.finish()
    return applier


HISTORIES = given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 3),
    transactions=st.integers(1, 12),
    repeats=st.booleans(),
    rows_per_transaction=st.sampled_from([1, 2, 1000]),
    crashes=st.lists(st.integers(0, 9), max_size=8),
)


@FEW
@HISTORIES
def test_restart_after_any_crash_loses_and_repeats_nothing(
    seed: int, partitions: int, transactions: int, repeats: bool, rows_per_transaction: int, crashes: list[int]
) -> None:
    """At every commit the target is exactly the upstream below applied_ts, across crashes at any step: restart
    offsets, boundaries and pending schema changes of the progress row are all that is needed to go on."""
    random = Random(seed)
    upstream = make_upstream(random, partitions, transactions, repeats)
    target = Target(upstream=upstream, vouched=dict.fromkeys(range(partitions), 0))
    for crash_at in [*crashes, None]:
        try:
            applier = life(random, target, crash_at, rows_per_transaction)
        except Crash:
            continue
    end = upstream.streams[0][-1].commit_ts
    assert (target.applied_ts, target.pending) == (end, ())
    assert applier.order.rows == 0
    assert sorted(target.ids) == upstream.ids_below(end)
    assert target.texts_run == upstream.statements_below(end)
    if not repeats:
        assert applier.counts.late.total() == 0, "what a restart reads again was counted as late"
