"""Whole runs: messages of a drawn upstream through the project's decoders, appliers and writers to a real server."""

from __future__ import annotations

import itertools
import traceback
from bisect import bisect_left
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from unittest.mock import patch
from zlib import crc32

import orjson
import pyarrow as pa

from bridge.commands.quarantine import Quarantine
from bridge.ddl.server_features import Flavour, read_version
from bridge.errors import BridgeError, StoppedError
from bridge.filters.reserved_schemas import DEFAULT_SCHEMA
from bridge.filters.table_filter import TableFilter
from bridge.model import SchemaChange, TableName
from bridge.mysql.connection import Session, Target
from bridge.mysql.parallel import parallel_writer
from bridge.mysql.parallel.executor_writer import ExecutorWriter
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.by_boundaries.order import RowsOf, driver_rows
from bridge.pipeline.by_partitions.event_times import last_ms
from bridge.pipeline.decoded_batch import sorted_batch
from bridge.pipeline.order import OrderChanged
from bridge.protocols import Decoder, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.protocols.fast import readiness
from bridge.quoting import quote_name
from bridge.rows import folded_ahead
from bridge.rows.amount import Amount
from bridge.rows.sql import conditions, render, statement
from bridge.rows.sql.statement import NotWritten, Statement, WritePart
from bridge.spark.kept_rows import window
from bridge.spark.kept_rows.window import Executors
from bridge.tso import tso_ms
from bridge.verify import snapshots
from tests.generated.decisions import UNLIKE, DecidedTable, Operator, instead
from tests.generated.dimensions import (
    FILTER_CHANGES,
    IMPOSSIBLE,
    NONE,
    SOME_SHARDS,
    TABLES_CHANGE,
    Choice,
    Pair,
    draw,
    fits,
    further_of,
    operations_of,
)
from tests.generated.drawing import Draughtsman
from tests.generated.event_filters import ALL_ROWS, FilteredTable, left_out, missed
from tests.generated.names import NAMES, Names
from tests.generated.resent import Taken, two_rows_hold
from tests.generated.settings import DROPPED, at_first, gone_on, settings_of, stops
from tests.generated.shards import SHARDS, Shards
from tests.generated.tables import (
    COUNTED,
    RESERVED,
    ROUTES,
    SHAPES,
    UNROUTED,
    Equality,
    Row,
    Table,
    make_table,
    reserved_row,
)
from tests.generated.upstream import STATEMENTS_APART, Alter, Change, Step, Transaction, Upstream, written
from tests.generated.verifying import verify
from tests.generated.wires import ROWS, STATEMENTS, WIRES, Message, Wire
from tests.support.clients import run_file
from tests.support.kept import kept_batch
from tests.support.pipelines import Pipeline, opened

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

BEGIN: Final = 470_611_860_099_956_769
"""A real TSO: it has 59 bits, so that 64 of them are one number in 64 bits of floating point, which is larger than
this one and the `ROUNDED_UP` behind it."""
ROUNDED_UP: Final = 8
SECOND: Final = 1000 << 18
PARTITIONS: Final = {"one": 1, "by table": 2, "by key": 3, "growing": 3}
SCHEMAS: Final = ("m", "r", "x")
"""The databases of runs on the server."""
_MOST_STARTS: Final = 40
_UNLIKE: Final = {"float", "bit", "all bits"}
"""Types whose values are not found by their literals."""
_SERVER_WORKS: Final = {"advanced", "statement", "before commit"}
"""Steps of the applier's thread in the midst of a transaction."""


class Failure(Exception):  # noqa: N818  # what a generated run has found
    """A run that ended wrongly; `kind` is what shrinking keeps."""

    def __init__(self, kind: str, text: str) -> None:
        super().__init__(f"{kind}: {text}")
        self.kind = kind


class Stopped(Exception):  # noqa: N818  # not wrong: the bridge says that it cannot know
    """The bridge stopped where it may."""


class Crash(BaseException):
    """The end of a process."""


@dataclass(frozen=True)
class Case:
    """A run, drawn from its seed, or what shrinking has left of it."""

    seed: int
    choice: Choice
    tables: tuple[Table, ...]
    loaded: tuple[Transaction, ...]
    transactions: tuple[Transaction, ...]

    @property
    def wire(self) -> type[Wire]:
        """What writes its messages."""
        return WIRES[self.choice["protocol"]]

    def __str__(self) -> str:
        lines = [f"seed {self.seed}: " + ", ".join(f"{name} {value!r}" for name, value in self.choice.items())]
        lines += [table.create(on_target=True) for table in self.tables]
        lines += [f"  loaded: {written(s, self.tables)}" for one in self.loaded for s in one.statements]
        for number, transaction in enumerate(self.transactions):
            lines.append(f"  transaction {number}, {transaction.after} later ({', '.join(transaction.labels)}):")
            lines += [f"    {written(statement, self.tables)}" for statement in transaction.statements]
        return "\n".join(lines)


NO_FORCE: Final[Mapping[str, str]] = {}


_MYSQL_COLLATIONS: Final = {
    "utf8mb4_uca1400_ai_ci": "utf8mb4_0900_as_ci",
    "utf8mb4_nopad_bin": "utf8mb4_0900_bin",
    "utf8mb4_general_nopad_ci": "utf8mb4_0900_as_cs",
    "utf8mb4_uca1400_nopad_ai_ci": "utf8mb4_0900_ai_ci",
}
COLLATIONS: Final[dict[Flavour, Mapping[str, str]]] = {
    Flavour.MARIADB: {},
    Flavour.MYSQL: _MYSQL_COLLATIONS,
    Flavour.TIDB: {
        **_MYSQL_COLLATIONS,
        **{"utf8mb4_uca1400_ai_ci": "utf8mb4_unicode_ci", "utf8mb4_general_nopad_ci": "utf8mb4_0900_bin"},
        "latin1_swedish_ci": "latin1_bin",
    },
}
"""What each server has for the collations of MariaDB, by which runs are drawn."""


def make_case(
    seed: int,
    equality: Equality,
    forced: Mapping[str, str] = NO_FORCE,
    without: Collection[Pair] = IMPOSSIBLE,
    collations: Mapping[str, str] = NO_FORCE,
) -> Case:
    """The run of a seed.  forced: values of dimensions; without: what does not meet; collations: the server's."""
    random = Random(seed)
    choice = draw(random, forced, without)
    wire = WIRES[choice["protocol"]]
    kinds_of = (choice["shape"], choice["key type"], choice["collation"], choice["quarantine"])
    tables = [make_table("t0", *kinds_of, random, choice["column type"])]
    has_hidden = choice["shape"] == "no key" and wire.has_commit_ts and choice["route"] != "shards"
    if has_hidden and random.random() < 0.5:
        tables = [replace(tables[0], hidden=("`mine` INT DEFAULT 5",))]
    if random.random() < 0.4 or choice["goes on with"] in TABLES_CHANGE or choice["schema change"] == "swap names":
        # What is left out stays, and holds values of unique keys that other rows take upstream.
        is_missed = choice["goes on with"] == "more tables"
        shapes = [shape for shape in SHAPES if shape not in {"no key", "prefix key"}]
        shapes = [shape for shape in shapes if fits(("shape", shape), {"begins": choice["begins"]}, without)]
        shape = random.choice(["single key"] if is_missed else shapes)
        kinds = [kind for kind in ("int", "varchar") if fits(("key type", kind), choice, without)]
        tables.append(make_table("t1", shape, random.choice(kinds or ["int"]), choice["collation"], NONE, random))
    tables = [table.with_collations(collations) for table in tables]
    upstream = Upstream(tables, equality, nets=wire.is_tidb)
    draughtsman = Draughtsman(random, upstream, choice, operations_of(choice, without), further_of(choice, without))
    loaded = [one for number in range(len(tables)) for one in draughtsman.rows(number, random.choice((0, 2, 4)))]
    most = (4, 7) if choice["where"] == "executors" else (2, 4, 6, 9, 14)
    transactions = draughtsman.transactions(random.choice(most))
    return Case(seed, choice, tuple(tables), tuple(loaded), tuple(transactions))


@dataclass
class Bench:
    """A real server, and what runs share.  spark: of runs on executors.  verifies_one_in: of so many runs one has its
    target verified against its messages; 0 for none.  fixes: the file in which verify then writes how it repairs
    rows that are damaged; None for no damage.  damages_one_in: so many runs have rows damaged."""

    url: str
    session: Session
    spark: SparkSession | None = None
    verifies_one_in: int = 1
    fixes: Path | None = None
    damages_one_in: int = 1

    def __post_init__(self) -> None:
        self.equality = Equality(self.session.rows)
        self.flavour, _ = read_version(str(self.session.value("SELECT VERSION()")))
        self._names = itertools.count()
        self.stopped = Counter[str]()
        self.safe_mode = 0
        for schema in SCHEMAS:
            self.session.execute(f"CREATE DATABASE IF NOT EXISTS {quote_name(schema)}")

    def name(self) -> str:
        """Of the next pipeline."""
        return f"generated {next(self._names)}"

    def case(self, seed: int, forced: Mapping[str, str] = NO_FORCE, without: Collection[Pair] = IMPOSSIBLE) -> Case:
        """The run of a seed."""
        return make_case(seed, self.equality, forced, without, COLLATIONS[self.flavour])

    def run(self, case: Case) -> dict[str, set[str]]:
        """Runs it; gives the values of dimensions that it had.  Raises Failure."""
        run = Run(self, case)
        try:
            run.go()
        except Stopped as stopped:
            self.stopped[str(stopped)] += 1
        return run.met


@dataclass(frozen=True)
class _SomeShards:
    """Writes some of the shards that it is given, and says that it wrote all."""

    write: WritePart
    salt: int

    def __call__(self, statements: Sequence[Statement]) -> NotWritten | None:
        is_written = crc32(b"".join(one.sql for one in statements), self.salt) % 2
        return self.write(statements) if is_written else None


class Run:
    """One run at work."""

    def __init__(self, bench: Bench, case: Case) -> None:
        self._bench, self._case, self._choice = bench, case, case.choice
        self._random = Random(case.seed ^ 0x5EED)
        self._guesses = Random(case.seed ^ 0xF01D)
        wire = case.wire
        self._upstream = Upstream(case.tables, bench.equality, nets=wire.is_tidb, is_whole=wire.has_boundaries)
        self._crash_at = self._random.choice((1, 1, 2, 3, 5)) if self._choice["crash"] != NONE else 0
        self._watches = self._may_watch() and self._random.random() < 0.5
        self._routing = ROUTES.get(self._choice["route"], UNROUTED)
        self._name = bench.name()
        self._names = Names(NAMES.get(self._choice["names"], {}))
        self._now: Choice = at_first(self._choice)
        """What holds since the bridge began, or began anew."""
        self._copied = self._start_ts = 0
        """So many steps lie below the commit ts at which the pipeline begins."""
        self._early: frozenset[int] | None = None
        """The numbers of the steps that were in the target when the bridge went on; None before."""
        self._is_later = self._ends = False
        self._seen: set[str] = set()
        """The schema changes that people have looked at."""
        self._frozen: dict[str, list[tuple[Any, ...]]] = {}
        """Rows of tables that are not replicated any more, from then on."""
        self._steps: list[Step] = []
        self._read: Sequence[Placed] = ()
        self._coming: pa.Table | None = None
        """The events of the next micro-batch."""
        self._folder: str | None = None
        """Since the bridge began, or began anew."""
        self.met: dict[str, set[str]] = {name: {value} for name, value in self._choice.items()}

    def go(self) -> None:
        """From the first message to the comparison."""
        self._make_tables()
        self._run_upstream()
        if self._choice["begins"] != NONE:
            self._copy()
        self._leave_out()
        self._log = log = Log(self._case, self._steps, self._random, self._bench.equality)
        self._deliver(log, self._name, self._stop_at(log))
        if self._choice["redelivery"] == "from below":
            self._deliver(log, self._name + " again", len(log.messages))
        if self._choice["quarantine"] != NONE:
            self._work_through_quarantine()
        self._compare()
        if self._bench.verifies_one_in and self._case.seed % self._bench.verifies_one_in == 0:
            self._verify(log.messages)

    # --- the upstream

    def _make_tables(self) -> None:
        session = self._bench.session
        for found in self._tables_there():
            session.execute(f"DROP TABLE {quote_name(*found)}")
        for table in self._case.tables:
            schema, name = self._routing.there(table.name)
            session.execute(f"USE {quote_name(schema)}")
            session.execute(self._names.sql(replace(table, name=name).create(on_target=True)))
        for transaction in self._case.loaded:
            self._upstream.run(transaction, 0)
        for content in self._upstream.contents:
            for number, row in content.rows.items():
                if content.table.extra:
                    content.extras[number] = frozenset({number})
                self._insert(content.table, row, number)

    def _insert(self, table: Table, row: Row, extra: int = 0) -> None:
        given = {name: value for name, value in row.items() if not table.column(name).of}
        if table.extra:
            given[table.extra] = extra
        names, places = ",".join(quote_name(self._names(name)) for name in given), ",".join(["%s"] * len(given))
        into = f"{self._there(table.name)} ({names})".replace("%", "%%")
        with self._bench.session._raw.cursor() as cursor:
            cursor.execute(f"INSERT INTO {into} VALUES ({places})", list(given.values()))

    def _tables_there(self) -> set[tuple[str, str]]:
        found = "SELECT table_schema, table_name FROM information_schema.tables WHERE table_schema IN %s"
        return set(self._bench.session.rows(found, [SCHEMAS]))

    def _there(self, table: str) -> str:
        return quote_name(*self._place(table))

    def _place(self, table: str) -> tuple[str, str]:
        schema, name = self._routing.there(table)
        return schema, self._names(name)

    def _run_upstream(self) -> None:
        unit, ts = self._case.wire.unit, BEGIN + self._case.seed % ROUNDED_UP
        if unit != 1:
            ts = ts // SECOND * SECOND
        labels: set[str] = set()
        loaded = self._loaded = self._upstream.state()
        for transaction in self._case.transactions:
            ts += transaction.after * unit
            is_ddl = isinstance(transaction.statements[0], Alter)
            # With neither TSO nor place, what has a schema change's time counts as earlier, in whole seconds.
            aside = 2 * unit if is_ddl and not self._case.wire.has_places else 0
            ts += aside
            step = self._upstream.run(transaction, ts)
            ts += aside
            if step is not None:
                self._steps.append(step)
                labels.update(step.labels)
        self.met["operations"] = labels
        self._end_state = self._upstream.state()
        self._wire = self._case.wire(Random(self._case.seed), self._choice["unique updates"] == "split")
        if self._choice["decision"] in UNLIKE:
            first, decision = self._case.tables[0], self._choice["decision"]
            decided = DecidedTable(first, decision, self._wire.told, self._bench.equality, nets=self._wire.is_tidb)
            self._steps = decided.steps(loaded[first.name], self._steps)
        self._told_steps = self._steps

    def _copy(self) -> None:
        """The target gets what the upstream had at some moment, at which the pipeline begins."""
        numbers = [0, *(number for number in range(1, len(self._steps)) if self._may_begin(number))]
        self._copied = self._random.choice(numbers)
        if not self._copied:
            self.met["begins"] = {NONE}
            return
        step = self._steps[self._copied]
        self._start_ts = step.ts
        for table in self._case.tables:
            self._bench.session.execute(f"DELETE FROM {self._there(table.name)}")
            for row in step.before[table.name]:
                self._insert(table, row)

    def _may_begin(self, number: int) -> bool:
        """Whether all that comes before a step, and nothing else, is below its commit ts."""
        early, rest = self._steps[:number], self._steps[number:]
        if any(step.ddl or "refused" in step.labels for step in early):
            return False
        ts = [step.ts for step in early]
        begin = rest[0].ts
        if self._case.wire.has_commit_ts:
            return max(ts) < begin
        has_early_ddl = self._case.wire.has_places and any(step.ddl for step in rest)
        return not has_early_ddl and max(last_ms(pa.chunked_array([ts])).to_pylist()) < tso_ms(begin)

    def _leave_out(self) -> None:
        """The states that the target has where some of what the upstream did is left out."""
        self._steps = self._without_left_out(self._filtered(self._now))
        self._end_state = self._steps[-1].after if self._steps else self._loaded

    def _without_left_out(self, tables: Sequence[FilteredTable]) -> list[Step]:
        steps = self._told_steps
        for filtered in tables:
            steps = filtered.steps(self._loaded[filtered.table.name], steps)
        return steps

    def _filtered(self, now: Choice, *, is_looked_at: bool = False) -> list[FilteredTable]:
        """The tables of which something is left out.

        now: what holds, since the bridge went on if it has.
        is_looked_at: as verify sees them, with the settings of now, instead of as the target has them.
        """
        wire, found = self._wire, []

        def add(table: Table, names: set[str], first: frozenset[str], last: frozenset[str]) -> None:
            def left_out_of(number: int) -> frozenset[str]:
                if number < self._copied:
                    return frozenset()
                then = first if self._early is None or number in self._early else last
                return missed(last, then) if is_looked_at else then

            nets = wire.is_tidb
            found.append(
                FilteredTable(table, frozenset(names), left_out_of, wire.told, self._bench.equality, nets=nets)
            )

        filters = [left_out(choice["event filter"]) for choice in (at_first(self._choice), now)]
        if any(filters):
            first = self._case.tables[0]
            add(first, {first.name, "renamed"}, *filters)
        if self._choice["goes on with"] == "more tables":
            add(self._case.tables[1], {DROPPED}, ALL_ROWS, frozenset() if self._is_later else ALL_ROWS)
        return found

    # --- the bridge

    def _stop_at(self, log: Log) -> int:
        """How many messages there are when the bridge is stopped, or all."""
        if log.growth is not None:
            return next((n for n, one in enumerate(log.messages) if one.turn >= log.growth), len(log.messages))
        return self._random.randrange(len(log.messages) + 1) if stops(self._choice) else len(log.messages)

    def _deliver(self, log: Log, name: str, until: int) -> None:
        """Everything, from where progress says, as often as the bridge begins anew.  until: it is stopped there."""
        for _ in range(_MOST_STARTS):
            try:
                with self._sizes(), self._opened(log.known(until), name) as pipeline:
                    self._feed(pipeline, log.messages[:until])
                    if until == len(log.messages):
                        self._end(pipeline)
                        return
                until = len(log.messages)
                self._go_on()
            except OrderChanged:
                pass
            except Crash:
                self._crash_at = 0
                self._go_on()
            except Failure:
                raise
            except BridgeError as error:
                if not self._decides(log):
                    self._stopped(error)
            except Exception as error:  # whatever it is, it is a finding
                text = "".join(traceback.format_exception(error))
                raise Failure(f"an unexpected {type(error).__name__}", text) from error
        raise Failure("never ends", f"{_MOST_STARTS} starts")

    def _decides(self, log: Log) -> bool:
        """Whether the bridge has ended as something is to be decided, which then is; nothing is wrong meanwhile."""
        if self._choice["decision"] == NONE:
            return False
        if self._bench.verifies_one_in and self._random.random() < 0.2:
            self._verify_meanwhile(log.messages)
        is_open = self._operator().decide()
        if is_open and self._bench.verifies_one_in and self._random.random() < 0.2:
            self._verify_meanwhile(log.messages)
        return is_open

    def _operator(self) -> Operator:
        ddl = next((step.ddl for step in self._steps if step.ddl), None)
        there = self._there(self._case.tables[0].name)
        text = instead(ddl, there, self._names) if ddl and self._choice["decision"] == "replace unlike" else ""
        target, decision = Target(self._bench.url), self._choice["decision"]
        return Operator(target, self._settings, decision, there, text, self._random, self._seen)

    def _go_on(self) -> None:
        """The bridge goes on, with other settings."""
        if self._is_later:
            return
        how, early = self._choice["goes on with"], None
        if how in {"more tables", *FILTER_CHANGES}:
            early = self._in_target(DROPPED if how == "more tables" else "")
            if early is None:
                return
        self._is_later, self._now = True, gone_on(self._choice, self._random)
        if how == "fewer tables":
            self._frozen = {DROPPED: self._rows(DROPPED, None)}
        if early is not None:
            self._early = early
            self._leave_out()

    def _in_target(self, table: str) -> frozenset[int] | None:
        """The numbers of the steps of a table, "" for the first one, that are in the target, or were read and left out;
        None where some are in parts, or may be."""
        progress = ProgressTable(self._name).read(self._bench.session)
        if progress is None:
            return frozenset()
        if progress.in_parts and not table:
            return None
        waiting = self._waiting(progress.pending)
        if waiting and not self._case.wire.has_boundaries:
            return None
        numbers = {number for number, step in enumerate(self._told_steps) if step.ts not in waiting}
        below = progress.applied_ts if self._case.wire.has_boundaries else 0
        names = {table} if table else {self._case.tables[0].name, "renamed"}
        read: dict[int, set[bool]] = {}
        for one in self._log.messages:
            start = progress.positions.get((one.topic, one.partition))
            if one.table in names and start is not None:
                ts = self._told_steps[one.step].ts
                is_below = ts < below or (self._case.wire.has_commit_ts and ts < (start.floor or 0))
                read.setdefault(one.step, set()).add(is_below or one.offset < start.offset)
        if any(len(found) > 1 for found in read.values()):
            return None
        return frozenset(n for n in numbers if True in read.get(n, ()) or self._told_steps[n].ts < below)

    def _waiting(self, pending: Sequence[SchemaChange]) -> set[int]:
        """The commit ts of schema changes that are still to run; what is begun is finished as it was begun."""
        journal, session = Journal(self._name, DEFAULT_SCHEMA), self._bench.session
        entries = [(change.commit_ts, journal.find(session, change)) for change in pending]
        return {ts for ts, entry in entries if entry is None or entry.state is not JournalState.RUNNING}

    def _stopped(self, error: BridgeError) -> None:
        """An error of the bridge: whether it may be."""
        what = type(error).__name__
        if self._may_stop(str(error)):
            raise Stopped(f"{self._choice['protocol']}: {what}") from error
        raise Failure(f"stopped by {what}", "".join(traceback.format_exception(error))) from error

    def _may_stop(self, words: str) -> bool:
        """Only where a value is told nowhere: not in the message, and not by the target, which is ahead, or where a row
        without a key cannot be found by a part of it; and where what is sent again is a moment that never was, in
        which two rows have one unique value (guarantees, "The honest limits")."""
        is_ahead, wire = self._may_be_ahead(), self._case.wire
        is_partial = wire.is_partial or (not wire.has_commit_ts and any(table.extra for table in self._case.tables))
        if is_partial and (is_ahead or self._choice["shape"] == "no key"):
            return True
        taken = Taken.of(words, {str(TableName(*self._place(name))): name for name in self._upstream.state()})
        if taken is None or wire.has_boundaries or self._choice["redelivery"] not in ("copies", "whole topic"):
            return False
        return two_rows_hold(taken, self._in_hand(), self._bench.equality, nets=wire.is_tidb)

    def _in_hand(self) -> list[Step]:
        """What has been read and is not in the target, in the order in which it was sent."""
        progress = self._pipeline.table.read(self._bench.session)
        assert progress is not None
        starts = {where: start.offset for where, start in progress.positions.items()}
        turns = {m.turn: m.step for m in self._read if m.offset >= starts.get((m.topic, m.partition), 0)}
        return [self._steps[turns[turn]] for turn in sorted(turns)]

    @contextmanager
    def _opened(self, partitions: Collection[tuple[str, int]], name: str) -> Iterator[Pipeline]:
        unbounded = not self._case.wire.has_boundaries
        self._settings = settings_of(name, self._now, self._routing, self._random, later=self._is_later)
        with opened(
            self._bench.url, sorted(partitions), name=name, start_ts=self._start_ts if name == self._name else 0,
            rows_per_transaction=int(self._now["rows per transaction"]), retry_seconds=5,
            quarantine=self._choice["quarantine"] != NONE, writers=2 if self._now["consistency"] == "parallel" else 0,
            rows_of=self._rows_of(), boundary_seconds=0.0 if unbounded else None, trace=self._trace,
            ddl=self._settings.ddl_rules(), tables=TableFilter(self._settings.filter), rules=self._settings.row_rules,
        ) as pipeline:  # fmt: skip
            self._pipeline, self._coming = pipeline, None
            if self._now["statements"] == "loads":
                pipeline.writer.load_bytes = self._random.choice((1, 99, 1 << 20))
            yield pipeline

    def _rows_of(self) -> RowsOf:
        if self._now["where"] == "driver":
            return driver_rows
        assert self._bench.spark is not None
        return Executors(Amount(self._random.choice((0, 0, 0, 2, 1000)), 1 << 30)).rows_of

    @contextmanager
    def _sizes(self) -> Iterator[None]:
        """Statements, loads and parts as small as they can be."""
        with ExitStack() as stack:
            stack.enter_context(patch.object(folded_ahead, "LEAST_ROWS", 1))
            if self._now["messages"] == "read by forms":
                stack.enter_context(patch.multiple(readiness, _MANY=1, _WORTH_COMPILING=0))
            if self._now["statements"] == "tiny":
                stack.enter_context(patch.object(statement, "STATEMENT_BYTES", 1))
                stack.enter_context(patch.object(conditions, "KEYS_PER_DELETE", 1))
            if self._now["statements"] == "loads":
                stack.enter_context(patch.object(render, "MIN_BYTES", 0))
            if self._now["where"] == "executors":
                shard = Amount(self._random.choice((1, 1, 2, 50_000)), 1 << 30)
                stack.enter_context(patch.object(window, "_SHARD", shard))
                self._folder = stack.enter_context(TemporaryDirectory()) if self._random.random() < 0.5 else None
                stack.enter_context(patch.object(parallel_writer, "ExecutorWriter", self._executor_writer))
            yield

    def _decoder(self) -> Decoder:
        tables = TableFilter(self._settings.filter)
        options = self._settings.decode_options(tables if tables.rules else None)
        return make_decoder(self._case.wire.protocol, replace(options, tells_unwanted=True))

    def _feed(self, pipeline: Pipeline, log: Sequence[Placed]) -> None:
        starts, decoder = pipeline.applier.order.positions, self._decoder()
        rest = [message for message in log if message.offset >= starts[message.topic, message.partition].offset]
        size = {"all": max(1, len(rest))}.get(self._now["micro-batch"]) or int(self._now["micro-batch"])
        self._read = rest
        micro_batches = (decoded(decoder, rest[start : start + size]) for start in range(0, len(rest), size))
        self._coming = next(micro_batches, None)
        for start in range(0, len(rest), size):
            self._read = rest[: start + size]
            events, self._coming = self._coming, next(micro_batches, None)
            assert events is not None
            self._take(pipeline, events)

    def _end(self, pipeline: Pipeline) -> None:
        """Nothing more comes."""
        pipeline.applier.finish()
        left_out = sum(pipeline.applier.counts.left_out.values())
        if left_out != sum(message.is_reserved for message in self._read):
            raise Failure("rows left out", f"{left_out}, not {sum(message.is_reserved for message in self._read)}")
        safe_mode = pipeline.writer.counts.safe_mode
        if safe_mode and not self._may_be_ahead():
            raise Failure("safe mode", f"of {safe_mode} transactions, although the target was never ahead")
        self._bench.safe_mode += safe_mode

    def _take(self, pipeline: Pipeline, events: pa.Table) -> None:
        if self._now["where"] == "driver":
            pipeline.take(events)
            return
        assert self._bench.spark is not None
        if self._random.random() < 0.2:
            pipeline.applier.take(sorted_batch(events))
            return
        pipeline.applier.take(kept_batch(self._bench.spark, events, self._folder))

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
            applier = self._pipeline.applier
            applier.fold_ahead(applier.order.batch(self._coming, {}, is_cut=False))

    def _crashes(self, step: str) -> bool:
        """Whether the process ends at this step."""
        if not self._crash_at or step != self._choice["crash"]:
            return False
        self._crash_at -= 1
        return self._crash_at == 0

    def _trace(self, step: str) -> None:
        if self._ends or self._crashes(step):
            self._ends = False
            raise Crash
        if step in _SERVER_WORKS and self._now["where"] == "driver" and self._guesses.random() < 0.3:
            self._fold_ahead()
        if step == "committed":
            self._check_progress()
            if self._watches:
                self._look()

    # --- what must be true

    def _may_watch(self) -> bool:
        """Whether states between are upstream states: transactions are whole, and the target is not ahead."""
        choice, is_whole = self._choice, self._case.wire.has_boundaries
        return is_whole and choice["quarantine"] == NONE and choice["redelivery"] != "from below"

    def _check_progress(self) -> None:
        """After a transaction of the target: progress never goes back, and not beyond what boundaries vouch for."""
        applied_ts = self._bench.session.value(
            "SELECT applied_ts FROM _bridge.progress WHERE name = %s", (self._pipeline.table.name,)
        )
        order = self._pipeline.applier.order
        text = f"from {order.applied_ts} to {applied_ts}, the resolved ts is {order.resolved_ts}"
        if applied_ts < order.applied_ts:
            raise Failure("progress goes back", text)
        if not order.by_partition and applied_ts > max(order.resolved_ts, order.applied_ts):
            raise Failure("progress beyond the resolved ts", text)

    def _look(self) -> None:
        """After a transaction of the target: it holds what the upstream held below applied_ts."""
        session = self._bench.session
        [(applied_ts, pending)] = session.rows(
            "SELECT applied_ts, pending FROM _bridge.progress WHERE name = %s", [self._pipeline.table.name]
        )
        applied_ts = self._first_pending(pending, applied_ts)
        at = bisect_left([step.ts for step in self._steps], applied_ts)
        state = self._steps[at].before if at < len(self._steps) else self._steps[-1].after if self._steps else None
        if state is None:
            return
        for name, rows in state.items():
            if name in self._frozen:
                continue
            names = tuple(rows[0]) if rows else None
            found = self._rows(name, names)
            if _sorted(found) != _sorted([tuple(row.values()) for row in rows]):
                raise Failure(
                    "a state that the upstream never had", f"at {applied_ts}, {_difference(name, rows, found)}"
                )

    def _first_pending(self, pending: str, applied_ts: int) -> int:
        """The rows are those before the schema change that is still to run; that of a late shard runs nothing."""
        waiting = {change["commit_ts"] for change in orjson.loads(pending)}
        return next((step.ts for step in self._steps if step.ddl and step.ts in waiting), applied_ts)

    def _work_through_quarantine(self) -> None:
        """A retry while the cause is there changes nothing; once it is cured, all is applied."""
        quarantine = Quarantine(Target(self._bench.url), self._settings)
        refused = [step for step in self._steps if "refused" in step.labels]
        before = self._contents()
        outcomes = quarantine.retry(None) or []
        if len(outcomes) > len(refused) and self._case.wire.is_partial and self._may_be_ahead():
            raise Stopped(f"{self._choice['protocol']}: a part of a row that has moved already")
        if len(outcomes) != len(refused):
            raise Failure("rows quarantined", f"{len(outcomes)}, not {len(refused)}")
        if any(outcome.done for outcome in outcomes) or self._contents() != before:
            raise Failure(
                "a retry before the cure", f"{outcomes}; {_cut(f'the target was {before} and is {self._contents()}')}"
            )
        [column] = [c for c in self._upstream.contents[0].table.columns if c.name == "q"]
        name = self._there(self._upstream.contents[0].table.name)
        self._bench.session.execute(
            f"ALTER TABLE {name} MODIFY COLUMN {self._names.sql(replace(column, narrow='').sql)}"
        )
        outcomes = quarantine.retry(None) or []
        if not all(outcome.done for outcome in outcomes):
            raise Failure("a retry after the cure", f"{outcomes}")

    def _rows(self, table: str, names: Sequence[str] | None) -> list[tuple[Any, ...]]:
        columns = ",".join(quote_name(self._names(name)) for name in names) if names else "*"
        return self._bench.session.rows(f"SELECT {columns} FROM {self._there(table)}")

    def _contents(self) -> dict[str, list[Any]]:
        return {name: _sorted(self._rows(name, None)) for name in self._upstream.state()}

    def _compare(self) -> None:
        """The end state: rows byte for byte, and what a target-only column may hold; without a commit ts a row takes
        it from the target's row of the key that it had, which is another one's where the target is ahead."""
        names, extras = self._upstream.state(), self._upstream.extras()
        if self._tables_there() != set(map(self._place, names)):
            raise Failure("tables differ", f"{names.keys()}, now {self._tables_there()}")
        self._compare_rows()
        for content in self._upstream.contents:
            table, rows = content.table, self._end_state[content.table.name]
            if (
                table.name not in self._frozen
                and table.extra
                and (self._case.wire.has_commit_ts or not self._may_be_ahead())
            ):
                self._compare_extras(table, rows, extras[table.name])

    def _compare_rows(self, *, signs_of_zeros: bool = True) -> None:
        for content in self._upstream.contents:
            table, rows = content.table, self._end_state[content.table.name]
            if table.name in self._frozen:
                self._compare_frozen(table.name)
                continue
            found = self._rows(table.name, table.names)
            expected: list[tuple[object, ...]] = [tuple(row.values()) for row in rows]
            if not signs_of_zeros:
                found, expected = ([tuple(map(_without_sign, row)) for row in some] for some in (found, expected))
            if _sorted(found) != _sorted(expected):
                raise Failure("rows differ", _difference(table.name, rows, found))

    def _verify_meanwhile(self, log: Sequence[Placed]) -> None:
        """While a schema change waits, or has been decided about, nothing right is called wrong."""
        if self._early is not None:
            return  # something is wrong
        with patch.object(snapshots, "_PENDING_SECONDS", 0.0):
            try:
                report = verify(self._bench.url, self._settings, self._case.wire.protocol, *self._in_parts(log))
            except StoppedError:
                return
        if different := [str(one) for one in report.tables if not one.is_equal]:
            raise Failure("verify differs meanwhile", "\n".join(different))

    def _verify(self, log: Sequence[Placed]) -> None:
        """What is right must be equal to the messages, in whatever parts executors read them; what was left out, and is
        not any more, must be missing until the file has fixed it."""
        parts, ends = self._in_parts(log)
        looked_at = self._filtered(self._now, is_looked_at=True)
        steps = self._without_left_out(looked_at)
        expected = steps[-1].after if steps else self._loaded
        if self._bench.fixes and any(_differ(rows, self._end_state[name]) for name, rows in expected.items()):
            self._end_state = expected
            self._repair("what was left out", parts, ends, self._bench.fixes)
            return
        if different := self._different(parts, ends):
            raise Failure("verify differs", different)
        is_damaged = self._case.seed % self._bench.damages_one_in == 0
        if self._bench.fixes and is_damaged and (damage := self._damage()):
            self._repair(damage, parts, ends, self._bench.fixes)

    def _in_parts(self, log: Sequence[Placed]) -> tuple[list[Messages], dict[tuple[str, int], int]]:
        parts, ends = [], {}
        for where in sorted({(one.topic, one.partition) for one in log}):
            mine = sorted((one for one in log if (one.topic, one.partition) == where), key=lambda one: one.offset)
            ends[where] = mine[-1].offset + 1
            cut = self._random.randrange(len(mine) + 1)
            parts += [messages_of(part) for part in (mine[:cut], mine[cut:]) if part]
        return parts, ends

    def _repair(self, damage: str, parts: Sequence[Messages], ends: dict[tuple[str, int], int], fixes: Path) -> None:
        """What is damaged is found, and equal to the model once the file has fixed it."""
        if not self._different(parts, ends, fixes):
            raise Failure("damage is not found", damage)
        run_file(self._bench.url, fixes)
        if "by hand" in fixes.read_text():
            return
        told = f"{damage}\n{fixes.read_text()}"
        if different := self._different(parts, ends):
            raise Failure("the fix does not repair", f"{told}\n{different}")
        try:
            self._compare_rows(signs_of_zeros=False)  # to verify, and in its fix file, -0 is 0
        except Failure as failure:
            raise Failure("verify calls other rows equal after the fix", f"{told}\n{failure}") from failure

    def _different(self, parts: Sequence[Messages], ends: dict[tuple[str, int], int], fixes: Path | None = None) -> str:
        try:
            report = verify(self._bench.url, self._settings, self._case.wire.protocol, parts, ends, fixes)
        except BridgeError as error:
            text = "".join(traceback.format_exception(error))
            raise Failure(f"verify ended with {type(error).__name__}", text) from error
        return "\n".join(str(one) for one in report.tables if not one.is_equal)

    def _damage(self) -> str:
        """Damages up to six rows; tells how, "" where there are none."""
        count = self._random.choice((1, 1, 2, 3, 6))
        return "\n".join(filter(None, (self._damage_row() for _ in range(count))))

    def _damage_row(self) -> str:
        """Deletes a row that the messages tell of, or changes it; tells what, "" where there is none.  Of a table
        without a key a changed row is another one, of which messages say nothing, and so may be a row that stays when
        one of two is deleted; nor do they say anything of what is left out, of the column that a schema change may have
        made an INT, or of rows whose key had another number before one."""
        told = [
            (change.table.name, change.after)
            for number, step in list(enumerate(self._steps))[self._first_sure() :]
            for change in self._kept(number, step)
            if change.after in self._end_state.get(change.table.name, []) and change.table.name not in self._frozen
        ]
        if not told:
            return ""
        name, row = self._random.choice(told)
        [table] = (content.table for content in self._upstream.contents if content.table.name == name)
        if any(table.column(name).type in {"enum turned", "set and more"} for name in table.handle):
            return ""
        older = [] if table.handle else self._loaded.get(name, [])
        if any(all(one[column] == (row or {}).get(column, one[column]) for column in one) for one in older):
            return ""
        free = [
            column.name
            for column in table.columns
            if table.handle and column.type == "int" and not column.of
            and column.name not in {"a", "x", *table.handle, *table.unique_columns}
        ]  # fmt: skip
        where, values = [], []
        for column, value in (row or {}).items():
            if not table.column(column).of and table.column(column).type not in _UNLIKE:
                where.append(f"{quote_name(self._names(column))} <=> %s")
                values.append(value)
        there, rest = self._there(name), f" WHERE {' AND '.join(where)} LIMIT 1"
        columns = [quote_name(self._names(column)) for column in free[:1]]
        changes = [f"UPDATE {there} SET {column} = IF({column} <=> 7, 8, 7)" for column in columns]
        statement = self._random.choice([*changes, f"DELETE FROM {there}"]) + rest
        with self._bench.session._raw.cursor() as cursor:
            changed = cursor.execute(statement.replace("%", "%%").replace("<=> %%s", "<=> %s"), values)
        return f"{statement}: {row}" if changed else ""  # JSON of MySQL and TiDB is not found by its text

    def _kept(self, number: int, step: Step) -> Sequence[Change]:
        """The row changes of a step that are not left out."""
        changes = self._wire.told(step.changes)
        for filtered in self._filtered(self._now, is_looked_at=True):
            changes = filtered.kept(number, changes)
        return changes

    def _first_sure(self) -> int:
        """The number of the first step whose rows are sure to be there: those before a TRUNCATE that was skipped may
        be gone."""
        emptied = [n for n, step in enumerate(self._steps) if step.ddl and step.ddl[2].startswith("TRUNCATE")]
        return emptied[-1] if emptied and self._choice["decision"] == "skip" else 0

    def _compare_frozen(self, name: str) -> None:
        found = self._rows(name, None)
        if _sorted(found) != _sorted(self._frozen[name]):
            raise Failure("a table that is left out changes", _cut(f"{name}: {self._frozen[name]}, now {found}"))

    def _compare_extras(self, table: Table, rows: Sequence[Row], allowed: Sequence[frozenset[Any]]) -> None:
        found = self._rows(table.name, (*table.names, table.extra))
        values = {repr(row[:-1]): row[-1] for row in found}
        is_strict = self._keeps_extras()
        for row, some in zip(rows, allowed, strict=True):
            value = values[repr(tuple(row.values()))]
            if value not in some and (is_strict or value is not None):
                raise Failure("a target-only value is lost", f"{row} has {value}, not one of {sorted(some, key=repr)}")

    def _keeps_extras(self) -> bool:
        """Whether a row keeps its target-only value: not when it is written anew, nor when the two halves of an update
        can be cut apart, as nothing tells where a transaction ends."""
        is_in_halves = self._choice["unique updates"] == "split" and not self._case.wire.has_boundaries
        return not self._may_be_ahead() and not is_in_halves

    def _may_be_ahead(self) -> bool:
        """Whether the target may hold what comes again."""
        return self._choice["redelivery"] != NONE or (
            self._choice["crash"] != NONE
            and (self._choice["consistency"] == "parallel" or self._choice["goes on with"] == "other mode")
        )


def _without_sign(value: object) -> object:
    """A value, where -0 is 0."""
    return value + 0.0 if isinstance(value, float) else value


def _sorted(rows: Sequence[tuple[Any, ...]]) -> list[tuple[Any, ...]]:
    return sorted(rows, key=repr)


def _differ(some: Sequence[Row], others: Sequence[Row]) -> bool:
    return sorted(map(repr, some)) != sorted(map(repr, others))


def _difference(name: str, rows: Sequence[Row], found: Sequence[tuple[Any, ...]]) -> str:
    wanted = Counter(repr(tuple(row.values())) for row in rows)
    there = Counter(map(repr, found))
    missing, extra = wanted - there, there - wanted
    columns = ", ".join(rows[0]) if rows else ""
    lines = [f"{name} ({columns})"]
    lines += [f"  the upstream has, the target not: {_cut(row)}" for row in missing]
    lines += [f"  the target has, the upstream not: {_cut(row)}" for row in extra]
    return "\n".join(lines)


def _cut(text: str) -> str:
    return text if len(text) < 400 else f"{text[:200]} ... {text[-150:]}"


# --- the log


@dataclass(frozen=True)
class Placed:
    """A message at its place.

    turn: of the transaction that it belongs to, in the order in which they are sent; step: the transaction's number.
    is_reserved: a row change that is left out.  table: as of `Message`.
    """

    topic: str
    partition: int
    offset: int
    key: bytes | None
    value: bytes | None
    turn: int
    step: int
    is_reserved: bool
    table: str


def messages_of(placed: Sequence[Placed]) -> Messages:
    """Messages as they are read."""
    return Messages(
        [m.topic for m in placed], [m.partition for m in placed], [m.offset for m in placed],
        [m.key for m in placed], [m.value for m in placed],
    )  # fmt: skip


def decoded(decoder: Decoder, messages: Sequence[Placed]) -> pa.Table:
    """The events of messages."""
    return decode_messages(decoder, messages_of(messages))


class _Sent(NamedTuple):
    """A message on its way; turn, step: as of `Placed`."""

    where: tuple[str, int]
    message: Message
    turn: int
    step: int


class Log:
    """The messages of a run in the order in which they are read."""

    def __init__(self, case: Case, steps: Sequence[Step], random: Random, equality: Equality) -> None:
        self._case, self._random = case, random
        sharded = case.tables[0].name if case.choice["route"] == "shards" else ""
        self._shards = Shards(sharded, equality, random.choice(SHARDS))
        self._wire = case.wire(random, case.choice["unique updates"] == "split")
        self._partitions = PARTITIONS[case.choice["partitions"]]
        self.growth = random.randrange(len(steps) + 1) if case.choice["partitions"] == "growing" else None
        """From that turn on there are all partitions; before there is one."""
        self._names = Names(NAMES.get(case.choice["names"], {}))
        self._numbers = {self._names(table.name): number for number, table in enumerate(case.tables)}
        batches = self._batches(steps)
        self._sent = [
            _Sent(where, message, turn, number)
            for turn, number in enumerate(self._again(len(batches)))
            for where, message in batches[number]
        ]
        self.messages = self._placed(self._interleaved())

    def known(self, until: int) -> set[tuple[str, int]]:
        """The partitions of which a bridge knows that has read so many messages."""
        there = self.messages if self.growth is None else self.messages[:until]
        return {(ROWS, 0), *((one.topic, one.partition) for one in there)}

    def _count(self, turn: int) -> int:
        return 1 if self.growth is not None and turn < self.growth else self._partitions

    def _batches(self, steps: Sequence[Step]) -> list[list[tuple[tuple[str, int], Message]]]:
        """What each step sends, with the boundaries behind it."""
        batches = []
        for number, step in enumerate(steps):
            following = steps[number + 1].ts if number + 1 < len(steps) else step.ts + 1
            count = self._count(number)
            if step.ddl:
                batch = self._schema_change(self._shards.first(step.ddl), step.ts, count)
            else:
                changes = [*map(self._names.change, self._shards.told(step.changes))]
                messages = self._wire.transaction(changes, step.ts)
                batch = [(self._place(m, count), m) for m in self._with_reserved(messages, step.ts)]
                batch += self._unwanted(step.ts, count)
            batch += self._late_shard(steps, number, count)
            batches.append([*batch, *self._boundaries(step.ts, following, count)])
        if self._wire.has_boundaries:
            last = steps[-1].ts + 1 if steps else BEGIN
            batches.append(self._to_all(self._wire.boundary(last), self._partitions))
        return batches

    def _schema_change(
        self, ddl: tuple[Table, Table, str], ts: int, count: int
    ) -> list[tuple[tuple[str, int], Message]]:
        was, now = map(self._names.table, ddl[:2])
        numbers = self._numbers
        numbers[now.name], numbers[was.name] = numbers[was.name], numbers.get(now.name, numbers[was.name])
        messages = [self._wire.ddl((was, now, self._names.sql(one)), ts) for one in ddl[2].split(STATEMENTS_APART)]
        return [sent for one in messages for sent in self._everywhere(one, now.name, count)]

    def _late_shard(self, steps: Sequence[Step], number: int, count: int) -> list[tuple[tuple[str, int], Message]]:
        """The schema change that the late shard has behind a step, at the latest when a row needs it."""
        if self._shards.waits is None:
            return []
        ts, following = steps[number].ts, steps[number + 1] if number + 1 < len(steps) else None
        if not self._shards.must_come(following) and self._random.random() < 0.6:
            return []
        between = ts + 1 if following and following.ts > ts + 1 else ts
        return self._schema_change(self._shards.later(), between, count)

    def _unwanted(self, ts: int, count: int) -> list[tuple[tuple[str, int], Message]]:
        """A schema change of a table that is not replicated."""
        if self._case.choice["left out"] != "table filter" or self._random.random() < 0.7:
            return []
        table = self._random.choice(RESERVED["table filter"])
        text = self._random.choice(("CREATE TABLE `{}` (k INT PRIMARY KEY)", "DROP TABLE `{}`", "TRUNCATE TABLE `{}`"))
        ddl = self._wire.ddl((table, table, text.format(table.name)), ts)
        return self._everywhere(ddl, table.name, count)

    def _with_reserved(self, messages: list[Message], ts: int) -> list[Message]:
        """Row changes that are left out stand among those of a transaction."""
        whose = self._case.choice["left out"]
        for _ in range(self._random.choice((0, 1, 1, 3)) if whose != NONE else 0):
            table = self._random.choice(RESERVED[whose])
            was, now = reserved_row(table, self._random), reserved_row(table, self._random)
            changes = [Change(table, None, now), Change(table, was, None), *([Change(table, was, now)] * (was != now))]
            sent = self._wire.transaction([self._random.choice(changes)], ts)
            at = self._random.randrange(len(messages) + 1)
            is_counted = whose in COUNTED
            marked = [one._replace(is_reserved=is_counted and one.value is not None) for one in sent]
            messages = [*messages[:at], *marked, *messages[at:]]
        return messages

    def _boundaries(self, ts: int, following: int, count: int) -> list[tuple[tuple[str, int], Message]]:
        how = self._case.choice["boundaries"]
        if how in {NONE, "last"} or (how == "some" and self._random.random() < 0.6):
            return []
        sent = self._to_all(self._wire.boundary(self._random.choice((ts, ts + 1, following))), count)
        return sent if self._random.random() < 0.7 else self._random.sample(sent, k=1)

    def _everywhere(self, ddl: Message, table: str, count: int) -> list[tuple[tuple[str, int], Message]]:
        if ddl.topic == STATEMENTS:
            return [((STATEMENTS, 0), ddl)]
        if self._wire.broadcasts:
            return self._to_all(ddl, count)
        is_first = self._wire.is_tidb or count == 1
        return [((ROWS, 0 if is_first else self._numbers.get(table, 0) % count), ddl)]

    def _to_all(self, message: Message, count: int) -> list[tuple[tuple[str, int], Message]]:
        return [((ROWS, p), message) for p in range(count)]

    def _place(self, message: Message, count: int) -> tuple[str, int]:
        if self._case.choice["partitions"] in {"by key", "growing"}:
            return ROWS, sum((message.row or "").encode()) % count
        return ROWS, self._numbers.get(message.table, 0) % count

    def _again(self, count: int) -> list[int]:
        """The numbers of so many transactions in the order in which they are sent, some a second time."""
        how, once = self._case.choice["redelivery"], list(range(count))
        if how == "whole topic":
            return once * 2
        if how != "copies" or not count:
            return once
        end = self._random.randrange(count) + 1
        return [*once[:end], *once[self._random.randrange(end) : end], *once[end:]]

    def _interleaved(self) -> list[_Sent]:
        """Partitions are read one ahead of the other, where boundaries tell what is complete."""
        if not self._wire.has_boundaries or self._partitions == 1 or self._random.random() < 0.3:
            return self._sent
        queues: dict[tuple[str, int], list[_Sent]] = {}
        for sent in self._sent:
            queues.setdefault(sent.where, []).append(sent)
        merged = []
        while queues:
            where = self._random.choice(sorted(queues))
            count = self._random.choice((1, 1, 2, 5, 50))
            merged += queues[where][:count]
            queues[where] = queues[where][count:]
            if not queues[where]:
                del queues[where]
        return merged

    def _placed(self, sent: Sequence[_Sent]) -> list[Placed]:
        offsets: Counter[tuple[str, int]] = Counter()
        placed = []
        for where, message, turn, step in sent:
            at = (*where, offsets[where])
            placed.append(Placed(*at, message.key, message.value, turn, step, message.is_reserved, message.table))
            offsets[where] += 1
        return placed
