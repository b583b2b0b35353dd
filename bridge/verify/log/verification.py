"""Compares the target with what the messages say it should hold.  It needs no access to the upstream."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from math import inf
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bridge.config import Settings
from bridge.errors import StoppedError, UsageError, counted
from bridge.events import Kind
from bridge.filters.row_rules import RowRules
from bridge.model import PartitionId, TableName, topic_begins
from bridge.mysql.catalog import load_tables
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import Journal
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import count_held
from bridge.mysql.state.routes_record import read_filters
from bridge.mysql.table_definition import list_tables, list_views, load_definitions
from bridge.protocols import MAY_HIDE_UPDATES
from bridge.protocols.values.timezones import is_utc_or_unset
from bridge.sources.kafka.topic_guard import ids_of, refuse_comparison
from bridge.sources.source import Extent, Source
from bridge.spark.errors import source_error
from bridge.spark.event_transfer import transfer_folder
from bridge.spark.process_memory import use_small_pages
from bridge.spark.session import checkpoint_folder, driver_folder, start_session
from bridge.spark.worker_decoder import event_decoder
from bridge.verify.checkpoint import Checkpoint
from bridge.verify.driver_errors import expected_errors
from bridge.verify.fix_sql import FixFile
from bridge.verify.load_throttle import Throttle
from bridge.verify.log.changes.applied_changes import AppliedChanges, positions_read
from bridge.verify.log.changes.lineage import Lineage, NameIdentity, trace
from bridge.verify.log.filter_eras import FilterHistory, ruled_by_history
from bridge.verify.log.hashes.hash_comparison import (
    HashComparison,
    HashedRange,
    HashedResult,
    Recomputed,
    spans,
)
from bridge.verify.log.keys.key_cuts import KeyNumbers, find_cuts, is_within, ranges_of
from bridge.verify.log.loaded.loaded_comparison import LoadedComparison, load
from bridge.verify.log.loaded.loading import LoadedPart, parts_in
from bridge.verify.log.log_tables import LoggedTable, logged_table
from bridge.verify.log.logged_shapes import LoggedShape
from bridge.verify.log.notes import again_note, bad_notes, cut_notes, era_notes, left_out_notes, table_notes
from bridge.verify.log.recompute import Control, FoldedLog, Log
from bridge.verify.log.row_groups import LogPlan
from bridge.verify.options import ProgressListener, VerifyOptions
from bridge.verify.report import Report, TableResult
from bridge.verify.snapshot_reader import SnapshotReader
from bridge.verify.snapshots import open_target_snapshot

_NEVER: Final = 1 << 62
"""Later than every commit_ts."""


@dataclass(frozen=True)
class _Reading:
    """One way to read the messages.

    filters: which of them event filters left out.
    only: the tables that are compared; None for all.
    fix: takes the statements that would fix what differs.
    """

    log: Log
    filters: FilterHistory
    only: frozenset[TableName] | None = None
    fix: FixFile | None = None

    def is_compared(self, name: TableName) -> bool:
        """Tells whether a table is compared."""
        return self.only is None or name in self.only


class LogVerification:
    """One verification of a target against the messages."""

    def __init__(
        self,
        settings: Settings,
        target: Target,
        source: Source,
        protocol: str,
        table: ProgressTable,
        options: VerifyOptions,
        listener: ProgressListener,
    ) -> None:
        self._settings, self._target, self._source, self._protocol = settings, target, source, protocol
        self._table, self._options, self._listener = table, options, listener
        self._fix = FixFile(options.fix_file) if options.fix_file else None

    def run(self) -> Report:
        """Compares every table of the log; raises StoppedError when a server or Spark fails."""
        began = time.monotonic()
        self._listener.stage("starting Spark")
        use_small_pages()  # at each step workers free memory and take it: a tenth of their time with large pages
        spark = start_session(self._settings.spark, log_level=self._settings.log.spark)
        with self._expected_errors(), ExitStack() as stack:
            routes = self._options.row_rules.routes
            snapshot = open_target_snapshot(self._target, self._table, self._options.workers, routes)
            for session in snapshot.sessions:
                stack.callback(session.close)
            if snapshot.progress is None:
                raise UsageError(
                    f"the target knows no pipeline {self._table.name!r}, so verify cannot tell how far it should be",
                    fix="check --name and --target, or compare with the source: --against upstream --upstream URL",
                )
            refuse_comparison(snapshot.progress, ids_of(self._source.topics()))
            self._look = self._target.connect(autocommit=True)
            stack.callback(self._look.close)
            record = read_filters(self._look, self._table.schema, self._table.name)
            filters = FilterHistory.of(snapshot.progress, record, self._options.row_rules)
            folder = transfer_folder(spark, stack.enter_context(checkpoint_folder(driver_folder(spark))))
            reading = _Reading(self._log(spark, folder, filters), filters, fix=self._fix)
            stack.callback(reading.log.close)
            report = Report("log", snapshot.progress.applied_ts, snapshot.held_seconds)
            self._compare(reading, snapshot.progress, snapshot.sessions, report)
            if again := self._set_again(report, filters):
                filters = replace(filters, came_between=True)
                reading = _Reading(self._log(spark, folder, filters), filters, frozenset(again))
                stack.callback(reading.log.close)
                second = Report("log", report.moment, 0)
                self._compare(reading, snapshot.progress, snapshot.sessions, second)
                self._take_equal(again, second, report)
        if self._fix:
            heading = f"makes {self._target} equal to the messages, at applied_ts {report.moment}"
            report.notes.append(f"{counted(self._fix.write(heading), 'statement')} in {self._options.fix_file}")
        report.seconds = time.monotonic() - began
        return report

    def _set_again(self, report: Report, filters: FilterHistory) -> dict[TableName, frozenset[Kind]]:
        """Gives the tables that differ, and of which a filter that was taken away leaves out row changes again."""
        routes = self._options.row_rules.routes
        return {
            table.name: kinds
            for table in report.tables
            if not (table.is_equal or table.schema)
            if (kinds := frozenset[Kind]().union(*map(filters.set_again, routes.sources(table.name))))
        }

    def _take_equal(self, again: Mapping[TableName, frozenset[Kind]], second: Report, report: Report) -> None:
        """Takes tables for right that are equal by the second reading of the messages."""
        equal = {table.name: table for table in second.tables if table.is_equal and table.name in again}
        report.tables = [equal.get(table.name, table) for table in report.tables]
        for table in report.tables:
            if table.name in again:
                table.notes += (again_note(again[table.name], is_equal=table.name in equal),)
        if self._fix:
            self._fix.forget_rows(equal)

    @contextmanager
    def _expected_errors(self) -> Iterator[None]:
        try:
            with expected_errors(self._target):
                yield
        except (PySparkException, Py4JError) as error:
            raise source_error(error) from error

    def _log(self, spark: SparkSession, folder: str | None, filters: FilterHistory) -> Log:
        self._listener.stage("decoding the messages")
        tables = self._options.tables
        given = self._settings.decode_options(tables if tables.rules else None)
        options = replace(given, cut_rows=True, tells_unwanted=True)
        if given.row_rules.ignored:
            decode = event_decoder(self._protocol, replace(options, row_rules=RowRules()))
            decode = ruled_by_history(decode, given.row_rules, filters)
        else:
            decode = event_decoder(self._protocol, options)
        self._extents = self._source.extents(lambda: spark)
        count = sum(extent.high - extent.low for extent in self._extents.values())
        return Log(spark, self._source.everything(self._extents), decode, folder, count)

    def _compare(self, reading: _Reading, progress: Progress, sessions: Sequence[Session], report: Report) -> None:
        log, control = reading.log, reading.log.control()
        cut = _cut_partitions(self._extents, control)
        there = list_tables(self._look)
        journal = Journal(self._table.name, self._table.schema)
        lineage = trace(
            control.names,
            AppliedChanges(self._look, journal, progress, self._options).of(control.changes),
            max(cut.values(), default=0),
            self._identity([*there, *control.names]),
        )
        plan = LogPlan(
            (), lineage.histories, progress.applied_ts, positions_read(progress), control.boundaries,
            begins=topic_begins(progress.positions), identity=lineage.identity,
            hides_updates=self._protocol in MAY_HIDE_UPDATES,
        )  # fmt: skip
        tables, report.tables = self._tables(log.shapes(plan), there, lineage, reading)
        if cut and progress.applied_ts > progress.start_ts and not (tables or report.tables):
            raise StoppedError(
                "nothing can be compared: Kafka holds no more messages of the tables that are in the target",
                where=f"pipeline {self._table.name}, applied ts {progress.applied_ts}",
                fix="compare with the source: --against upstream --upstream URL",
            )
        folded = log.fold(
            replace(plan, tables=tuple(table.replicated for table in tables)), control.events, control.size
        )
        self._state = Checkpoint(
            {
                "target": str(self._target),
                "source": str(self._source),
                "pipeline": self._table.name,
                "read as": self._read_as(reading.filters),
                "shards": self._options.shards,
            },
            resume=self._options.resume,
        )
        self._listener.plan(sum(table.definition.rows for table in tables))
        hashed = self._hashed([table for table in tables if table.literals], folded, sessions)
        parts = parts_in(list(self._divided(tables, hashed, len(sessions))), sessions, self._settings.ddl.source)
        self._listener.stage("recomputing the last state of every key")
        load(self._target, parts, folded.inserts({part.table.number: part.table.expected_table for part in parts}))
        loaded = LoadedComparison(
            self._target, self._options, self._listener, self._throttle(), self._state, reading.fix
        ).results(parts, sessions)
        for part in parts:
            part.drop()
        report.tables += self._results(hashed, parts, loaded)
        if not (tables or report.tables):
            report.notes.append("nothing of the log is in the target yet")
        report.notes += cut_notes(cut, self._extents)
        report.notes += bad_notes(control)
        report.notes += left_out_notes(control, self._options)
        report.notes += era_notes(reading.filters)
        if held := sum(count_held(self._look, self._table.schema, self._table.name).values()):
            report.notes.append(f"{held:,} in the quarantine: the target lacks these changes")
        self._state.forget()

    def _read_as(self, filters: FilterHistory) -> str:
        """Writes the settings that decide what the messages say."""
        given = self._settings
        told = given.timezone, given.ckafka, given.debezium, given.event_filters, given.route, given.routes
        return repr((self._protocol, *told, filters.identity))

    def _identity(self, names: Iterable[TableName]) -> NameIdentity:
        """Tells which of these names, of the target and of the log, mean one table.  A target that does not tell names
        apart by the case of their letters has one table for all of them."""
        is_folding = int(self._look.value("SELECT @@lower_case_table_names")) != 0
        return NameIdentity() if is_folding else NameIdentity.among(names)

    def _tables(
        self, shapes: set[LoggedShape], present: Iterable[TableName], lineage: Lineage, reading: _Reading
    ) -> tuple[list[LoggedTable], list[TableResult]]:
        """Gives the tables that can be compared, and results for those that cannot.  present: the target's tables."""
        key_of = lineage.key_of
        wanted = {key_of(name): name for name in (TableName(*shape[:2]) for shape in shapes)} | lineage.made
        there = {key_of(name): name for name in present}
        names = [there[key] for key in sorted(wanted) if key in there and reading.is_compared(there[key])]
        catalog, definitions = load_tables(self._look, names), load_definitions(self._look, names)
        shapes_of: dict[tuple[str, str], list[LoggedShape]] = {}
        for shape in sorted(shapes):
            shapes_of.setdefault(key_of(TableName(*shape[:2])), []).append(shape)
        tables: list[LoggedTable] = []
        for name in names:
            mine = shapes_of.get(key_of(name), [])
            tables.append(
                logged_table(
                    len(tables),
                    self._table.schema,
                    catalog[name],
                    definitions[name],
                    mine,
                    lineage,
                    hides_updates=self._protocol in MAY_HIDE_UPDATES,
                    is_utc=is_utc_or_unset(self._settings.ddl_rules().timezone),
                )
            )
        missing = wanted.keys() - there.keys()
        if missing:
            missing -= {key_of(name) for name in list_views(self._look)} - shapes_of.keys() - lineage.whole
        lost = [TableResult(wanted[key], schema=("the table is missing",)) for key in missing]
        left = [
            TableResult(there[key], schema=("the table was dropped upstream",))
            for key in lineage.dropped.keys() & there.keys() - wanted.keys()
        ]
        return tables, [*lost, *left]

    def _hashed(
        self, tables: Sequence[LoggedTable], folded: FoldedLog, sessions: Sequence[Session]
    ) -> list[HashedResult]:
        """Compares what can be compared without loading it."""
        cuts = {table.number: find_cuts(self._look, table.definition, table.replicated.key) for table in tables}
        recomputed = Recomputed()
        ranges = [
            HashedRange(table, numbers, place, recomputed)
            for table in tables
            for place, numbers in enumerate(ranges_of(cuts[table.number]))
        ]
        self._listener.stage("recomputing the last state of every key, and comparing hashes")
        comparison = HashComparison(
            self._throttle(),
            self._options.chunk_seconds,
            self._state,
            lambda one, rows: self._listener.done(one.table.name, rows),
        )
        readers = [self._reader(session) for session in sessions]
        return comparison.results(ranges, readers, recomputed, partial(folded.fingerprints, cuts))

    def _divided(
        self, tables: Sequence[LoggedTable], hashed: Sequence[HashedResult], count: int
    ) -> Iterator[LoggedTable]:
        """Gives the tables that have to be loaded, in parts for `count` sessions."""
        differ: dict[int, list[KeyNumbers]] = {one.range.table.number: [] for one in hashed}
        for one in hashed:
            differ[one.range.table.number] += [one.range.numbers] * (one.tally is None)
        for table in tables:
            if table.number not in differ:
                key = table.replicated.key if table.shape.actual else ()
                yield table.divided(ranges_of(find_cuts(self._look, table.definition, key, count)))
            elif found := differ[table.number]:
                yield table.divided(spans(sorted(found, key=lambda one: -inf if one[0] is None else one[0]), count))

    def _throttle(self) -> Throttle:
        return Throttle(self._options.max_load, {"target": self._look}, self._listener.stage)

    def _reader(self, session: Session) -> SnapshotReader:
        return SnapshotReader(session, is_snapshot=True, place=f"target {self._target}")

    def _results(
        self, hashed: Iterable[HashedResult], parts: Iterable[LoadedPart], loaded: dict[int, list[TableResult]]
    ) -> list[TableResult]:
        """Gives the result of each table.  Its ranges that are equal were compared one by one in each session; rows of
        those that lie in a part are counted there."""
        ranges = {part.table.number: part.table.expected_table.ranges for part in parts}
        equal: dict[int, TableResult] = {}
        for one in hashed:
            table = one.range.table
            result = equal.setdefault(table.number, TableResult(table.name, notes=table_notes(table)))
            result.seconds += one.seconds / self._options.workers
            if one.tally and not is_within(one.range.numbers, ranges.get(table.number, ())):
                result.rows, result.chunks = result.rows + one.tally.rows, result.chunks + one.tally.chunks
        for number, result in equal.items():
            loaded.setdefault(number, []).append(result)
        return [TableResult.of_parts(some, self._options.shown_rows) for _, some in sorted(loaded.items())]


def _cut_partitions(extents: Mapping[PartitionId, Extent], control: Control) -> dict[PartitionId, int]:
    """Finds the partitions whose first messages Kafka no longer holds; gives for each the commit_ts (TSO) up to which
    the lost messages may reach."""
    return {where: control.firsts.get(where, _NEVER) for where, extent in sorted(extents.items()) if extent.low > 0}
