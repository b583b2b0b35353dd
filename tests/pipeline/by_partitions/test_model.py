"""Model check of formats without boundaries: prefixes of partitions, exact offsets, crashes anywhere.

At every commit the target, held in memory, is exactly what the prefixes make.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Collection
from dataclasses import dataclass
from random import Random
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from bridge.events import DdlStatement, Kind, RowChange
from bridge.model import PartitionId, SchemaChange
from bridge.mysql.apply.writer import OnHeld, raise_held
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import ApplierConfig, Counts, IdlePolicy
from bridge.pipeline.assembly import make_applier
from bridge.pipeline.by_partitions.order import POSITIONS_SECONDS
from bridge.pipeline.order import starts_of
from bridge.rows.gathering import Amount
from bridge.tso import ms_tso
from tests.support.models import FEW, Clock, Crash, FakeTarget, FakeWriter, Streams, give
from tests.support.upstreams import TOPIC, Change, events_table, row_change, schema_change

IDLE_SECONDS = 5.0


def make_streams(random: Random, partitions: int, transactions: int, *, by_time: bool) -> Streams:
    """A random history: unique ids into the keyless m.k anywhere, values of keys of m.p in the key's partition, schema
    changes in partition 0 or everywhere.  Times may be whole seconds, and may go back within a partition.  A statement
    runs twice at one time only where that is a whole second, and nothing of a later one has come."""
    streams: Streams = [[] for _ in range(partitions)]
    number = itertools.count()
    values: dict[int, int | None] = {}
    told = range(1) if random.random() < 0.5 else range(partitions)
    ms = 10_000
    newest, truncated = 0, set[int]()
    for _ in range(transactions):
        ms += random.choice((0, 1, 300, 1500))
        late = random.choice((0, 0, 0, 700)) if by_time else 0
        ts = ms_tso((ms - late) // 1000 * 1000 if by_time and random.random() < 0.3 else ms - late)
        if not by_time:
            ts += next(number)
        newest = max(newest, ts)
        for _ in range(random.randint(0, 3)):
            event = row_change(ts, "k", ["id"], [], after=[next(number)])
            streams[random.randrange(partitions)].append(event)
        for key in random.sample(range(4), random.choice((0, 1, 2))):
            old, new = values.get(key), random.choice((None, next(number), next(number)))
            if old is None and new is None:
                continue
            values[key] = new
            streams[key % partitions].append(
                row_change(
                    ts, "p", ["id", "v"], ["id"],
                    before=None if old is None else [key, old], after=None if new is None else [key, new],
                )
            )  # fmt: skip
        for _ in range(random.choice((0, 0, 0, 1, 2))):
            is_second = (ts >> 18) % 1000 == 0 and newest < ts + ms_tso(1000)
            again = by_time and len(told) == 1 and (is_second or ts not in truncated) and random.random() < 0.3
            truncated |= {ts} if again else set()
            text = "TRUNCATE TABLE t" if again else f"ALTER TABLE t ADD COLUMN c{next(number)} int"
            for partition in told:
                streams[partition].append(schema_change(ts, text))
    return [[event._replace(by_time=by_time) for event in stream] for stream in streams]


@dataclass(kw_only=True)
class PrefixTarget(FakeTarget):
    """What survives a crash."""

    streams: Streams

    def prefix(self, partition: int) -> list[Any]:
        """What of a partition is in the target, by progress."""
        start = self.positions.get((TOPIC, partition))
        return self.streams[partition][: start.offset if start else 0]

    def check_commit(self) -> None:
        """The target is exactly what the prefixes make."""
        events = [event for p in range(len(self.streams)) for event in self.prefix(p)]
        rows = [event for event in events if isinstance(event, RowChange)]
        assert sorted(self.ids) == sorted(int(e.after or "") for e in rows if e.table == "k")
        values: dict[int, int] = {}
        for event in (e for e in rows if e.table == "p"):
            key = int((event.after or event.before or "").split("\0")[0])
            values.pop(key, None)
            if event.after:
                values[key] = int(event.after.split("\0")[1])
        assert self.values == values
        done = sorted(change.text for change in (*self.ran, *self.pending))
        assert done == sorted(self.statements([self.prefix(p) for p in range(len(self.streams))]))

    def statements(self, prefixes: Streams) -> list[str]:
        """Of the schema changes in the prefixes, each once; what one partition has twice happened twice."""
        by_partition = [[e.statement for e in prefix if isinstance(e, DdlStatement)] for prefix in prefixes]
        texts = {text for mine in by_partition for text in mine}
        return [text for text in texts for _ in range(max(mine.count(text) for mine in by_partition))]


class PrefixWriter(FakeWriter):
    """Has somebody look before schema changes run."""

    look: Callable[[], None] = staticmethod(lambda: None)

    def run_next(self, pending: tuple[SchemaChange, ...], on_held: OnHeld = raise_held) -> None:
        self.look()
        super().run_next(pending, on_held)


def not_later(row: Change, change: Change) -> bool:
    """A row's time counts as not later than a schema change's; whole seconds stand for their second."""
    if not change.by_time:
        return row.commit_ts <= change.commit_ts
    ms = change.commit_ts >> 18
    return row.commit_ts >> 18 < ms + (1 if ms % 1000 else 1000)


class Life:
    """One process: reads in any interleaving, with pauses; a partition may stand still while others go on."""

    def __init__(self, random: Random, target: PrefixTarget, crash_at: int | None, rows_per_transaction: int) -> None:
        self.random, self.target, self.clock = random, target, Clock()
        progress = Progress("bridge", 1, target.applied_ts, 0, target.positions, target.pending)
        lows = {(TOPIC, p): 0 for p in range(len(target.streams))}
        starts = starts_of(progress, lows, by_partition=True)
        self.read = {p: starts[TOPIC, p].offset for p in range(len(target.streams))}
        self.produced = dict(self.read)
        self.writer = PrefixWriter(target, crash_at)
        config = ApplierConfig(
            transaction=Amount(rows_per_transaction, 1 << 20),
            idle=IdlePolicy(IDLE_SECONDS, self._ends),
            most=Amount(random.choice((1, 1000)), random.choice((1, 1 << 20))),
            clock=self.clock,
        )
        self.applier = make_applier(self.writer, progress, lows, config, Counts(), by_partition=True)  # type: ignore[arg-type]
        self.ended = self.ticking = False
        self.asked = dict.fromkeys(self.read, 1 << 62)
        self.applier.finish_pending(progress.pending)
        self.writer.look = self._everybody_has_passed

    def run(self, *, to_the_end: bool = True) -> None:
        """Until everything is read; then the input ends, or, as with `bridge run`, only time passes."""
        streams = self.target.streams
        eager = [self.random.choice((0, 1, 3, 9)) for _ in streams]
        while any(self.read[p] < len(stream) for p, stream in enumerate(streams)):
            for p, stream in enumerate(streams):
                self.produced[p] = self.random.randint(self.produced[p], min(len(stream), self.produced[p] + 6))
            batch = []
            for p, stream in enumerate(streams):
                end = min(
                    self.produced[p], self.read[p] + self.random.randint(0, eager[p] or self.random.choice((0, 1)))
                )
                batch += [(p, offset, stream[offset]) for offset in range(self.read[p], end)]
                self.read[p] = end
            self.random.shuffle(batch)
            before = [len(self.target.prefix(p)) for p in range(len(streams))]
            self.known = dict(self.produced)
            read = {(TOPIC, p): end for p, end in self.read.items()}
            give(self.applier, events_table(batch), read, is_cut=True)
            self._nothing_overtook(before)
            if self.random.random() < 0.3:
                self._pause()
        if to_the_end:
            self.ended = True
            self.applier.finish()
        for _ in range(20):
            self._pause()
        self.clock.now += POSITIONS_SECONDS
        self._pause()

    def _ends(self, _partitions: Collection[PartitionId]) -> dict[tuple[str, int], int]:
        self.asked = dict(self.produced) if self.ticking else self.asked
        return {(TOPIC, p): end for p, end in self.produced.items()}

    def _pause(self) -> None:
        self.clock.now += self.random.choice((0.2, 0.2, IDLE_SECONDS + 0.1))
        self.ticking = True
        self.applier.tick()
        self.ticking = False

    def _everybody_has_passed(self) -> None:
        """In every partition a later row comes next, or another schema change, or nothing was left to read."""
        change = self.target.pending[0]
        topic_partition, _, offset = change.position.rpartition("/")
        event = self.target.streams[int(topic_partition.rpartition("/")[2])][int(offset)]
        for p, stream in enumerate(self.target.streams):
            at = len(self.target.prefix(p))
            if at == self.read[p]:
                assert self.ended or self.read[p] >= self.asked[p] or topic_partition == f"{TOPIC}/{p}"
            else:
                assert (
                    stream[at].kind > Kind.DELETE
                    or topic_partition == f"{TOPIC}/{p}"
                    or not not_later(stream[at], event)
                )

    def _nothing_overtook(self, before: list[int]) -> None:
        """No row has overtaken a schema change of another partition that was there to be read, that has not run, and
        whose time is not later, except behind something of that partition with a later time."""
        ran = {change.text for change in self.target.ran}
        for p, stream in enumerate(self.target.streams):
            at = len(self.target.prefix(p))
            waiting = next((e for e in stream[at : self.known[p]] if isinstance(e, DdlStatement)), None)
            if waiting is None or waiting.statement in ran:
                continue
            earlier = stream[: stream.index(waiting)]
            for q, other in enumerate(self.target.streams):
                fresh = other[before[q] : len(self.target.prefix(q))] if q != p else []
                if any(isinstance(e, DdlStatement) and e.statement == waiting.statement for e in other[before[q] :]):
                    continue  # what comes before its copy there is the partition's own order
                for row in (e for e in fresh if isinstance(e, RowChange)):
                    assert any(not_later(row, event) for event in (waiting, *earlier)), "a row overtook"


HISTORIES = given(
    seed=st.integers(0, 2**32),
    partitions=st.integers(1, 3),
    transactions=st.integers(1, 12),
    by_time=st.booleans(),
    rows_per_transaction=st.sampled_from([1, 2, 1000]),
    crashes=st.lists(st.integers(0, 9), max_size=8),
    to_the_end=st.booleans(),
)


@FEW
@HISTORIES
def test_restart_after_any_crash_loses_and_repeats_nothing(
    seed: int,
    partitions: int,
    transactions: int,
    by_time: bool,
    rows_per_transaction: int,
    crashes: list[int],
    to_the_end: bool,
) -> None:
    """At every commit the target is exactly what the prefixes at progress's offsets make, keyless rows too; no row
    overtakes a waiting schema change; each schema change runs once, also when its copies come after a restart."""
    random = Random(seed)
    target = PrefixTarget(streams=make_streams(random, partitions, transactions, by_time=by_time))
    for crash_at in [*crashes, None]:
        try:
            life = Life(random, target, crash_at, rows_per_transaction)
            life.run(to_the_end=to_the_end)
        except Crash:
            continue
    assert target.pending == ()
    assert life.applier.order.waiting.rows == 0
    assert [len(target.prefix(p)) for p in range(partitions)] == [len(stream) for stream in target.streams]
    assert sorted(c.text for c in target.ran) == sorted(target.statements(target.streams))
