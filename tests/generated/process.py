"""The bridge of a run at work, from one start to the next."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from importlib import import_module
from random import Random
from tempfile import TemporaryDirectory
from typing import Any, Final
from unittest.mock import patch
from zlib import crc32

import pyarrow as pa

from bridge.config import Settings
from bridge.filters.table_filter import TableFilter
from bridge.model import PartitionId
from bridge.mysql import parallel
from bridge.mysql.parallel import ExecutorWriter
from bridge.pipeline import applier
from bridge.protocols import Decoder, make_decoder
from bridge.protocols.fast import readiness
from bridge.rows import grains
from bridge.rows.gathering import Amount
from bridge.rows.order_and_slices import RowChanges
from bridge.rows.sql import render, statement
from bridge.rows.sql.statement import NotWritten, Statement, WritePart
from bridge.spark import shards as kept_executors
from bridge.spark.decoded_batch import DecodedBatch
from bridge.spark.shards import Executors, Home
from tests.generated.bench import Bench
from tests.generated.cases import Case
from tests.generated.dimensions import NONE, SOME_SHARDS
from tests.generated.failures import Crash, Failure
from tests.generated.history import History
from tests.generated.message_log import Log, Placed, decoded
from tests.generated.settings import settings_of
from tests.generated.target_tables import TargetTables
from tests.support.kept import kept_batch
from tests.support.pipelines import Pipeline, opened

GRAIN_FORCED_ONE_IN: Final = int(os.environ.get("GENERATED_GRAIN_ONE_IN", "3"))
"""In one of so many runs every table goes by transaction (`bridge.rows.grains`)."""
_SERVER_WORKS: Final = {"advanced", "statement", "before commit"}
"""Steps of the applier's thread in the midst of a transaction."""


@dataclass(frozen=True)
class _SomeShards:
    """Writes some of the shards that it is given, and says that it wrote all."""

    write: WritePart
    salt: int

    def __call__(self, statements: Sequence[Statement]) -> NotWritten | None:
        is_written = crc32(b"".join(one.sql for one in statements), self.salt) % 2
        return self.write(statements) if is_written else None


class Process:
    """A bridge, which may be stopped, or crash, and is then opened again.

    crash_at: how often its step comes until it crashes; 0 for never.  committed: is called after each transaction of
    the target.  settings, pipeline, read: those since it was opened, and the messages that it has read since then.
    may_be_ahead: whether the target may hold what comes again.
    """

    settings: Settings
    pipeline: Pipeline
    read: Sequence[Placed] = ()

    def __init__(
        self,
        bench: Bench,
        case: Case,
        target: TargetTables,
        random: Random,
        history: History,
        crash_at: int,
        committed: Callable[[Pipeline], None],
        *,
        may_be_ahead: bool,
    ) -> None:
        self._bench, self._case, self._target, self._random, self._history = bench, case, target, random, history
        self._guesses = Random(case.seed ^ 0xF01D)
        self._committed, self._may_be_ahead = committed, may_be_ahead
        self.crash_at, self._ends = crash_at, False
        self._coming: pa.Table | None = None
        """The events of the next micro-batch."""
        self._folder: str | None = None

    @contextmanager
    def open(self, log: Log, partitions: Collection[PartitionId], name: str, start_ts: int) -> Iterator[None]:
        """It begins, or begins anew, as the pipeline of this name, with the partitions of a log that it knows."""
        self._log, now = log, self._history.now
        with self._sizes():
            unbounded = not self._case.wire.has_boundaries
            self.settings = settings_of(name, now, self._target.routing, self._random, later=self._history.is_later)
            executors = self._executors()
            with opened(
                self._bench.url, sorted(partitions), name=name, start_ts=start_ts,
                rows_per_transaction=int(now["rows per transaction"]), retry_seconds=5,
                quarantine=now["quarantine"] != NONE, writers=2 if now["consistency"] == "parallel" else 0,
                rows_of=executors.rows_of if executors else RowChanges.joined, executors=executors,
                boundary_seconds=0.0 if unbounded else None, trace=self._trace,
                ddl=self.settings.ddl_rules(), tables=TableFilter(self.settings.filter), rules=self.settings.row_rules,
            ) as pipeline:  # fmt: skip
                self.pipeline, self._coming = pipeline, None
                if now["statements"] == "loads":
                    pipeline.writer.load_bytes = self._random.choice((1, 99, 1 << 20))
                yield

    def feed(self, log: Sequence[Placed]) -> None:
        """It reads what it has not read of these messages."""
        starts, decoder = self.pipeline.applier.order.positions, self._decoder()
        rest = [message for message in log if message.offset >= starts[message.topic, message.partition].offset]
        how = self._history.now["micro-batch"]
        size = {"all": max(1, len(rest))}.get(how) or int(how)
        self.read = rest
        micro_batches = (decoded(decoder, rest[start : start + size]) for start in range(0, len(rest), size))
        self._coming = next(micro_batches, None)
        for start in range(0, len(rest), size):
            self.read = rest[: start + size]
            events, self._coming = self._coming, next(micro_batches, None)
            assert events is not None
            self._take(events)

    def end(self) -> None:
        """Nothing more comes."""
        self.pipeline.applier.finish()
        left_out = sum(self.pipeline.applier.counts.left_out.values())
        if left_out != sum(message.is_reserved for message in self.read):
            raise Failure("rows left out", f"{left_out}, not {sum(message.is_reserved for message in self.read)}")
        safe_mode = self.pipeline.writer.counts.safe_mode
        if safe_mode and not self._may_be_ahead:
            raise Failure("safe mode", f"of {safe_mode} transactions, although the target was never ahead")
        self._bench.safe_mode += safe_mode

    def _executors(self) -> Executors | None:
        if self._history.now["where"] == "driver":
            return None
        assert self._bench.spark is not None
        shard = Amount(self._random.choice((1, 1, 2, 50_000)), 1 << 30)
        executors = Executors(Amount(self._random.choice((0, 0, 0, 2, 1000)), 1 << 30), shard)
        executors.home = Home(self._bench.spark.sparkContext, self._folder)
        return executors

    @contextmanager
    def _sizes(self) -> Iterator[None]:
        """Statements, loads and parts as small as they can be."""
        now = self._history.now
        with ExitStack() as stack:
            stack.enter_context(patch.object(applier, "LEAST_ROWS", 1))
            if self._case.seed % GRAIN_FORCED_ONE_IN == 0:
                stack.enter_context(patch.object(grains, "FORCED", "transaction"))
            if now["messages"] == "read by forms":
                import_module("bridge.protocols.fast.compiled.functions")
                stack.enter_context(patch.multiple(readiness, _MANY=1))
            if now["statements"] == "tiny":
                stack.enter_context(patch.object(statement, "STATEMENT_BYTES", 1))
                stack.enter_context(patch.object(statement, "KEYS_PER_DELETE", 1))
            if now["statements"] == "loads":
                stack.enter_context(patch.object(render, "MIN_BYTES", 0))
            if now["where"] == "executors":
                shard = Amount(self._random.choice((1, 1, 2, 50_000)), 1 << 30)
                stack.enter_context(patch.object(kept_executors, "_SHARD", shard))
                self._folder = stack.enter_context(TemporaryDirectory()) if self._random.random() < 0.5 else None
                stack.enter_context(patch.object(parallel, "ExecutorWriter", self._executor_writer))
            yield

    def _decoder(self) -> Decoder:
        tables = TableFilter(self.settings.filter)
        options = self.settings.decode_options(tables if tables.rules else None)
        return make_decoder(self._case.wire.protocol, replace(options, tells_unwanted=True))

    def _take(self, events: pa.Table) -> None:
        if self._history.now["where"] == "driver":
            self.pipeline.take(events)
            return
        assert self._bench.spark is not None
        if self._random.random() < 0.2:
            self.pipeline.applier.take(DecodedBatch.of(events))
            return
        self.pipeline.applier.take(kept_batch(self._bench.spark, events, self._folder))

    def _executor_writer(self, *fields: Any) -> WritePart:
        """What executors write with; if the driver is to end meanwhile, only some of the shards are written."""
        write = ExecutorWriter(*fields)
        if not self._crashes(SOME_SHARDS):
            return write
        self._ends = True
        return _SomeShards(write, self._random.randrange(1 << 32))

    def _fold_ahead(self) -> None:
        """What the intake does while the server works, if the next micro-batch is there by then."""
        if self._coming is not None:
            applier = self.pipeline.applier
            applier.fold_ahead(DecodedBatch.of(self._coming))

    def _crashes(self, step: str) -> bool:
        """Whether the process ends at this step."""
        if not self.crash_at or step != self._case.choice["crash"]:
            return False
        self.crash_at -= 1
        return self.crash_at == 0

    def _trace(self, step: str) -> None:
        if self._ends or self._crashes(step):
            self._ends = False
            raise Crash
        if step in _SERVER_WORKS and self._history.now["where"] == "driver" and self._guesses.random() < 0.3:
            self._fold_ahead()
        if step == "committed":
            self._committed(self.pipeline)
