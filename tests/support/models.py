"""What the model checks share: a target held in memory, and a writer that commits to it and crashes."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, cast

import pyarrow as pa
from hypothesis import HealthCheck, settings

from bridge.events import Event
from bridge.filters.routes import Routes
from bridge.model import NO_ENDS, Advance, Column, PartitionId, PartitionStart, SchemaChange, Table, TableName
from bridge.mysql.apply.writer import OnHeld, StatementSource, Writer, no_statements, raise_held
from bridge.mysql.schema_changes.ddl_runner import Unreadable
from bridge.mysql.state.progress import Progress
from bridge.phases import PhaseClock
from bridge.pipeline.applier import TRANSACTION, Applier, ApplierConfig, Counts, IdlePolicy
from bridge.pipeline.assembly import make_applier
from bridge.pipeline.by_partitions.partition_backlog import PartitionBacklog, Step
from bridge.pipeline.by_partitions.repeated_rows import RepeatedRows
from bridge.pipeline.order import Starts
from bridge.rows.gathering import Amount
from bridge.rows.sql.statement import Rendering
from bridge.spark.decoded_batch import DecodedBatch
from tests.support.upstreams import TOPIC, events_table

Streams = list[list[Any]]
"""The messages of each partition."""
FEW = settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.too_slow])
"""The same histories in every run, as of all properties (`tests/conftest.py`)."""


class Crash(Exception):  # noqa: N818  # the end of a process, not an error
    """The process is gone."""


class Clock:
    """Seconds that pass when the test says so."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def _table(name: str, *columns: str, key: tuple[str, ...] = ()) -> Table:
    keys = (key,) if key else ()
    found = {column: Column(column, "bigint", None, generated=False) for column in columns}
    return Table(TableName("m", name), found, keys, keys)


CATALOG = {table.name: table for table in (_table("k", "id"), _table("p", "id", "v", key=("id",)))}


@dataclass(kw_only=True)
class FakeTarget:
    """What survives a crash: the rows of the keyless m.k and of m.p, progress, and the schema changes that ran."""

    applied_ts: int = 0
    positions: dict[tuple[str, int], PartitionStart] = field(default_factory=dict)
    pending: tuple[SchemaChange, ...] = ()
    ids: list[int] = field(default_factory=list)
    values: dict[int, int] = field(default_factory=dict)
    ran: list[SchemaChange] = field(default_factory=list)

    def check_commit(self) -> None:
        """Fails when a transaction has left what the upstream never had: of the keyless rows, none comes twice."""
        assert len(set(self.ids)) == len(self.ids), "a row was applied twice"

    def check_change(self, change: SchemaChange) -> None:
        """Fails when a schema change may not run now."""

    def run_statement(self, sql: str) -> None:
        """What the target would do."""
        if insert := re.fullmatch(r"INSERT INTO `m`\.`k` \(`id`\) VALUES (.*)", sql):
            self.ids += map(int, re.findall(r"\d+", insert[1]))
        elif upsert := re.fullmatch(r"INSERT INTO `m`\.`p` \(`id`,`v`\) VALUES (.*?)( ON DUPLICATE .*)", sql):
            self.values.update((int(k), int(v)) for k, v in re.findall(r"\((\d+),(\d+)\)", upsert[1]))
        elif delete := re.fullmatch(r"DELETE FROM `m`\.`p` WHERE `id` IN \((.*)\)", sql):
            for key in delete[1].split(","):
                self.values.pop(int(key), None)
        else:
            raise AssertionError(sql)


class FakeWriter:
    """Commits to a FakeTarget, has it checked, and crashes at the given step."""

    def __init__(self, target: FakeTarget, crash_at: int | None) -> None:
        self._target, self._steps_left = target, crash_at
        self.phases = PhaseClock()

    def _step(self) -> None:
        if self._steps_left is not None:
            self._steps_left -= 1
            if self._steps_left < 0:
                raise Crash

    def load_tables(self, names: Iterable[TableName], *, cascades_are_lost: bool = False) -> dict[TableName, Table]:
        assert not cascades_are_lost
        return {name: CATALOG[name] for name in names}

    def apply(self, step: Advance, source: StatementSource = no_statements) -> None:
        target = self._target
        self._step()
        assert step.old_ts == target.applied_ts
        assert target.pending == (), "a schema change was skipped"
        for statement in source(Rendering("_bridge")):
            target.run_statement(statement.sql.decode())
        for where, start in target.positions.items():
            assert step.positions[where].offset >= start.offset, "a position went back"
        target.applied_ts, target.positions, target.pending = step.new_ts, dict(step.positions), step.pending
        target.check_commit()
        self._step()

    def run_next(self, pending: tuple[SchemaChange, ...], on_held: OnHeld = raise_held) -> None:  # noqa: ARG002
        target = self._target
        assert pending == target.pending
        change = pending[0]
        self._step()
        ids = {one.id for one in self.changes_between(change.commit_ts, change.commit_ts + 1)}
        assert change.id not in ids, "two runs under one number"
        target.check_change(change)
        target.ran.append(change)
        target.pending = target.pending[1:]
        self._step()

    def unreadable(self) -> Unreadable:
        """Nothing that cannot be read was decided about."""
        return Unreadable({}, ())

    def note_unreadable(self, change: SchemaChange, again: SchemaChange, reason: str) -> str:
        """Nobody reads it."""
        del again, reason
        return change.id

    def changes_between(self, low: int, high: int) -> list[SchemaChange]:
        """What ran, in this order."""
        return [change for change in self._target.ran if low <= change.commit_ts < high]


def give(
    applier: Applier, events: pa.Table, ends: Mapping[PartitionId, int] = NO_ENDS, *, is_cut: bool = False
) -> None:
    """Hands an applier one micro-batch of events, in the form of its order."""
    applier.take(DecodedBatch.of(events, ends, is_cut=is_cut))


class Bench:
    """An applier on a target held in memory, whose clock the test moves.

    ends: what Kafka says of its partitions; None while it does not answer.  config: of `ApplierConfig`.
    """

    def __init__(
        self, partitions: Iterable[PartitionId], target: FakeTarget | None = None, *, by_partition: bool, **config: Any
    ) -> None:
        self.clock, self.target = Clock(), target or FakeTarget()
        self.clock.now = 100.0
        self.ends: Mapping[PartitionId, int] | None = {}
        idle = IdlePolicy(10, lambda _: self.ends, row_seconds=10)
        self._config = ApplierConfig(clock=self.clock, idle=idle, **config)
        self._lows, self._by_partition = dict.fromkeys(partitions, 0), by_partition
        self.applier = self.started()

    def started(self) -> Applier:
        """The applier of a new process."""
        target, writer = self.target, cast("Writer", FakeWriter(self.target, None))
        progress = Progress("bridge", 1, target.applied_ts, 0, target.positions, target.pending)
        return make_applier(writer, progress, self._lows, self._config, Counts(), by_partition=self._by_partition)

    def take(self, *placed: tuple[int, int, Event], topic: str = TOPIC, is_cut: bool = False) -> None:
        """One micro-batch: partition, offset and event of each."""
        give(self.applier, events_table(placed, topic), is_cut=is_cut)

    def wait(self, seconds: float) -> None:
        """Time passes, and the applier looks around."""
        self.clock.now += seconds
        self.applier.tick()

    @property
    def ran(self) -> list[str]:
        """The schema changes that have run."""
        return [found.text for found in self.target.ran]

    @property
    def offsets(self) -> list[int]:
        """Where a restart would begin."""
        return [start.offset for start in self.target.positions.values()]


def partition_backlog(starts: Starts, applied_ts: int = 0, *, start_ts: int = 0, **config: Any) -> PartitionBacklog:
    """The queues of partitions, where no schema change has run.  config: of `ApplierConfig`."""
    progress = Progress("bridge", 1, applied_ts, start_ts, {}, ())
    made = ApplierConfig(clock=lambda: 0.0, **config)
    return PartitionBacklog(progress, starts, RepeatedRows(lambda _low, _high: [], Routes()), made)


def prefixes(partitions: int, *placed: tuple[int, int, Event], **config: Any) -> PartitionBacklog:
    """The queues of so many partitions from their beginnings, which have read these events."""
    held = partition_backlog({(TOPIC, p): PartitionStart(0, 0, 0, 0) for p in range(partitions)}, **config)
    take_in(held, *placed)
    return held


def take_in(held: PartitionBacklog, *placed: tuple[int, int, Event], now: float = 0.0) -> None:
    """Has queues read events: partition, offset and event of each."""
    read = {(TOPIC, p): max(offset for q, offset, _ in placed if q == p) + 1 for p in {p for p, _, _ in placed}}
    held.take_in(events_table(placed), read, now)


def run_it(found: SchemaChange, by_time: bool) -> SchemaChange:  # noqa: ARG001
    """Every schema change runs as it is."""
    return found


def steps_of(held: PartitionBacklog, most: Amount = TRANSACTION, *, at_end: bool = False) -> list[Step]:
    """Everything that may be applied now.  at_end: nothing more will be read."""
    if at_end:
        held.end()
    found = []
    while step := held.next_step(run_it, most):
        held.release()
        found.append(step)
    return found
