"""Compares the target with what the messages say it should hold.  It needs no access to the upstream."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from typing import Final

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

from bridge.config import Settings
from bridge.ddl.parser import Classified, classify
from bridge.errors import StoppedError, UsageError
from bridge.events import Kind
from bridge.model import TableName, topic_begins
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import Journal
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import count_held
from bridge.mysql.state.routes_record import read_rules
from bridge.mysql.table_definition import list_tables, load_definitions
from bridge.sources.kafka.topic_guard import ids_of, refuse_comparison
from bridge.sources.source import Source
from bridge.spark.decoded_batch import event_decoder
from bridge.spark.errors import source_error
from bridge.spark.process_memory import use_small_pages
from bridge.spark.session import checkpoint_folder, driver_folder, start_session
from bridge.verify.compare.bisect import TableComparison, WorkerPool
from bridge.verify.compare.checksums import Fingerprint
from bridge.verify.fix_sql import FixFile
from bridge.verify.log.coverage import Coverage, NameKey, ambiguous, applied_changes, coverage_of, positions_read
from bridge.verify.log.loaded_comparison import (
    UNSURE,
    LoadedTable,
    hash_ranges,
    load,
    log_notes,
    shown_with_position,
    sides,
    table_notes,
)
from bridge.verify.log.log_tables import (
    WHOLE,
    KeyNumbers,
    LoggedTable,
    RowGroup,
    find_cuts,
    join_ranges,
    logged_table,
    ranges_of,
)
from bridge.verify.log.logged_rows import LogPlan
from bridge.verify.log.recompute import Control, Log, literals_of
from bridge.verify.options import ProgressListener, VerifyOptions
from bridge.verify.report import Report, TableResult
from bridge.verify.snapshots import SnapshotReader, Throttle, expected_errors, open_target_snapshot

_NEVER: Final = 1 << 62
"""Later than every commit_ts."""
_MAY_BE_GONE: Final = "the target does not have it, and nothing tells whether it should (--against upstream does)"


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
            snapshot = open_target_snapshot(self._target, self._table, self._options.section.workers, routes)
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
            self._record = read_rules(self._look, self._table.schema, self._table.name)
            self._listener.stage("decoding the messages")
            self._extents, tables = self._source.extents(), self._options.tables
            options = self._settings.decode_options(tables if tables.rules else None)
            decode = event_decoder(self._protocol, replace(options, cut_rows=True, tells_unwanted=True))
            checkpoint = stack.enter_context(checkpoint_folder(driver_folder(spark)))
            log = Log(spark, self._source.everything(self._extents), decode, checkpoint)
            report = Report("log", snapshot.progress.applied_ts, snapshot.held_seconds)
            self._compare(log, snapshot.progress, snapshot.sessions, report)
        if self._fix:
            report.notes.append(self._fix.write(f"{self._target} equal to the messages", report.moment))
        report.seconds = time.monotonic() - began
        return report

    @contextmanager
    def _expected_errors(self) -> Iterator[None]:
        try:
            with expected_errors(self._target):
                yield
        except (PySparkException, Py4JError) as error:
            raise source_error(error) from error

    def _compare(self, log: Log, progress: Progress, sessions: Sequence[Session], report: Report) -> None:
        control = log.control()
        truncated = sorted(where for where, extent in self._extents.items() if extent.low > 0)
        present = list_tables(self._look)
        lost_until = max((control.firsts.get(where, _NEVER) for where in truncated), default=0)
        coverage = self._coverage(control, progress, present, lost_until)
        begins = topic_begins(progress.positions)
        plan = LogPlan((), coverage.tables, progress.applied_ts, positions_read(progress), begins)
        tables, report.tables = self._tables(log.row_groups(plan), present, coverage, plan, self._reader(sessions[0]))
        if truncated and progress.applied_ts > progress.start_ts and not (tables or report.tables):
            raise StoppedError(
                "nothing can be compared: Kafka holds no more messages of the tables that are in the target",
                where=f"pipeline {self._table.name}, applied ts {progress.applied_ts}",
                fix="compare with the source: --against upstream --upstream URL",
            )
        plan = replace(plan, tables=tuple(tables))
        self._listener.plan(sum(table.definition.rows for table in tables))
        results = {t.number: TableResult(t.name, schema=t.findings, notes=table_notes(t)) for t in tables}
        hashable = [table for table in tables if literals_of(table)]
        differ = self._compare_hashes(hashable, partial(log.fingerprints, plan), sessions, results)
        loading = [replace(table, ranges=join_ranges(differ.get(table.number, [WHOLE]))) for table in tables]
        loading = [table for table in loading if table.ranges]
        loaded = [LoadedTable(table, sessions[i % len(sessions)]) for i, table in enumerate(loading)]
        self._listener.stage("recomputing the last state of every key")
        load(self._target, loaded, log.inserts(plan, {table.number: table for table in loading}))
        self._compare_loaded(loaded, sessions, results)
        report.tables += results.values()
        if not report.tables:
            report.notes.append("nothing of the log is in the target yet")
        changes = (classify(change.text, change.schema) for change in control.changes)
        of_changes = (name for change in changes if isinstance(change, Classified) for name in change.tables)
        of_log = {*control.names, *control.left_out, *of_changes}
        extents = [(where, self._extents[where]) for where in truncated]
        report.notes += log_notes(control, extents, of_log, self._options)
        if held_count := sum(count_held(self._look, self._table.schema, self._table.name).values()):
            report.notes.append(f"{held_count:,} in the quarantine: the target lacks these changes")

    def _coverage(self, control: Control, progress: Progress, present: Sequence[TableName], since: int) -> Coverage:
        """Finds which rows are compared.  since: up to this commit_ts (TSO) the log may have lost messages."""
        is_folding = int(self._look.value("SELECT @@lower_case_table_names")) != 0
        # A target that does not tell names apart by the case of their letters has one table for all of them.
        self._ambiguous = set() if is_folding else ambiguous([*present, *control.names])
        journal = Journal(self._table.name, self._table.schema)
        changes = applied_changes(self._look, journal, progress, self._options, control.changes)
        schemas = {name.schema for name in control.names} | {change.schema for change in changes}
        logged_schemas = {schema.lower() for schema in schemas}
        names = [name for name in present if name.schema.lower() in logged_schemas]
        definitions = load_definitions(self._look, names).items()
        primary = {name.folded for name, definition in definitions if definition.table.primary}
        coverage = coverage_of(control.names, changes, since, primary)
        if begin := max(progress.start_ts, *topic_begins(progress.positions).values(), 0):
            for name in [table.name for table in coverage.tables.values()]:
                if any(map(any, self._filters(name))):
                    coverage.begin_filtered(name, begin)
        return coverage

    def _filters(self, name: TableName) -> set[tuple[frozenset[Kind], ...]]:
        """Gives which row changes event filters leave out, of each upstream table of a table of the target: by the
        filters that are given, those of the pipeline, and its former ones."""
        record, sources = self._record, sorted(self._options.row_rules.routes.sources(name))
        rules = [self._options.row_rules, *([record.rules] if record else [])]
        if record and record.former is not None:
            rules.append(record.former)
        return {tuple(row_rules.ignored_kinds(*source) for source in sources) for row_rules in rules}

    def _tables(
        self,
        groups: Collection[RowGroup],
        present: Iterable[TableName],
        coverage: Coverage,
        plan: LogPlan,
        reader: SnapshotReader,
    ) -> tuple[list[LoggedTable], list[TableResult]]:
        """Gives the tables whose rows can be compared, and the results of all others.

        present: the target's tables."""
        coverages = coverage.tables
        self._unclear: dict[NameKey, TableName] = {
            group.table.folded: group.table for group in groups if group.is_unclear
        }
        have_earlier_rows = {group.table.folded for group in groups if not group.is_covered}
        covered: dict[NameKey, list[RowGroup]] = {}
        for group in sorted(group for group in groups if group.is_covered):
            covered.setdefault(group.table.folded, []).append(group)
        dropped = {key for key, of_table in coverages.items() if of_table.is_there is False}
        expected: dict[NameKey, TableName] = {key: name for key, name in self._unclear.items() if key not in dropped}
        expected |= {key: of_table[0].table for key, of_table in covered.items()}
        expected |= {key: of_table.name for key, of_table in coverages.items() if of_table.is_there}
        changed_keys = {key for key, of_table in coverages.items() if of_table.since}
        on_target = {name.folded: name for name in present}
        tables: list[LoggedTable] = []
        results: list[TableResult] = []
        names = [name for name in present if name.folded in expected or name.folded in changed_keys]
        for name, definition in load_definitions(self._look, names).items():
            key, of_log = name.folded, coverage.of(name)
            is_whole = of_log.is_whole(has_earlier_rows=key in have_earlier_rows)
            table = logged_table(
                len(tables),
                self._table.schema,
                definition,
                [] if key in self._ambiguous else covered.get(key, []),
                is_whole=is_whole,
                since="" if is_whole else of_log.since,
                uncovered=self._why_uncovered(name),
                come_in_parts=plan.read is not None,
            )
            if table.shape.actual and not table.uncovered:
                tables.append(table)
            else:
                [(rows,)] = reader.rows(f"SELECT COUNT(*) FROM {table.actual}")
                result = TableResult(table.name, schema=table.findings, notes=table_notes(table))
                result.is_compared = table.is_whole and not table.uncovered  # the log holds no row of it
                result.extra, result.not_covered = (int(rows), 0) if result.is_compared else (0, int(rows))
                results.append(result)
        for name in (name for key, name in expected.items() if key not in on_target):
            if name.folded in covered or coverage.of(name).is_there:
                results.append(TableResult(name, schema=("the table is missing",)))
            else:
                results.append(TableResult(name, is_compared=False, notes=(_MAY_BE_GONE,)))
        leftover = sorted((on_target.keys() - expected.keys() - self._ambiguous) & dropped)
        results += (TableResult(on_target[key], schema=("the table was dropped upstream",)) for key in leftover)
        return tables, results

    def _why_uncovered(self, name: TableName) -> str:
        """Tells why no row of a table is compared, "" where some are."""
        if name.folded in self._ambiguous:
            return "another table has its name but for the case of letters"
        if name.folded in self._unclear:
            return "nothing tells whether rows came before or behind its last schema change"
        if len(self._filters(name)) > 1:
            return "event filters leave out some of its changes, and were others before"
        return ""

    def _compare_hashes(
        self,
        tables: Sequence[LoggedTable],
        fingerprints: Callable[[Mapping[int, tuple[int, ...]]], Mapping[int, Sequence[Fingerprint]]],
        sessions: Sequence[Session],
        results: Mapping[int, TableResult],
    ) -> Mapping[int, Collection[KeyNumbers]]:
        """Compares what can be compared without loading it, while executors compute; gives by table the ranges that may
        differ.

        fingerprints: as `Log.fingerprints` gives them.  results: take what is equal.
        """
        cuts = {table.number: find_cuts(self._look, table.definition, table.key) for table in tables}
        ranges = [
            (table, place, numbers) for table in tables for place, numbers in enumerate(ranges_of(cuts[table.number]))
        ]
        self._listener.stage("recomputing the last state of every key, and comparing hashes")
        readers = [self._reader(session) for session in sessions]
        expected: dict[int, Sequence[Fingerprint]] = {}
        hashed = hash_ranges(ranges, readers, self._throttle(), lambda: expected.update(fingerprints(cuts)))
        differ = {table.number: set(ranges_of(cuts[table.number])) for table in tables}
        for hashed_range in hashed:
            table = hashed_range.table
            result, of_range = results[table.number], expected[table.number][hashed_range.place]
            result.seconds += hashed_range.seconds / self._options.section.workers
            if of_range.is_surely(hashed_range.actual):
                result.rows, result.chunks = result.rows + of_range.rows, result.chunks + 1
                self._listener.done(table.name, of_range.rows)
                differ[table.number].remove(hashed_range.numbers)
        return differ

    def _compare_loaded(
        self, loaded: Sequence[LoadedTable], sessions: Sequence[Session], results: Mapping[int, TableResult]
    ) -> None:
        """Compares tables that are loaded, each in the session that has its temporary table."""
        workers, throttle = WorkerPool[LoadedTable](()), self._throttle()

        def work(session: Session) -> list[None]:
            with workers.at_work():
                for loaded_table in loaded:
                    if loaded_table.session is session:
                        self._compare_rows(loaded_table, throttle, results[loaded_table.table.number])
            return []

        workers.results([partial(work, session) for session in sessions], throttle)

    def _compare_rows(self, loaded_table: LoadedTable, throttle: Throttle, result: TableResult) -> None:
        began, table, section = time.monotonic(), loaded_table.table, self._options.section
        reader = self._reader(loaded_table.session)
        self._listener.stage(str(table.name))
        if loaded_table.refusal:
            result.schema += (f"what the messages say does not fit the table: {loaded_table.refusal}",)
            return
        [(unsure,)] = reader.rows(table.unsure_query())
        table = replace(table, is_whole=table.is_whole and not unsure)  # no row may be extra beside these
        with ThreadPoolExecutor(1) as pool:
            tally = TableComparison(
                table.shape, *sides(table, reader), pool=pool, throttle=throttle, seconds=section.chunk_seconds
            ).run()
        self._listener.done(table.name, tally.rows)
        differences = tally.differences
        result.rows, result.chunks = result.rows + tally.rows, result.chunks + tally.chunks
        result.count(differences)
        if not table.is_whole:
            result.not_covered = int(reader.rows(table.uncovered_query())[0][0])
        result.notes += (UNSURE,) if unsure else ()
        result.first_rows = [shown_with_position(table, reader, row) for row in differences[: section.shown_rows]]
        if self._fix and differences and table.may_lack:
            self._fix.add_impossible(
                f"{table.name}: its rows stay as they are, since no message has all of its columns: put them right by"
                " hand, or compare with the source (--against upstream)"
            )
        elif self._fix and differences:
            self._fix.add_rows(table.table, table.shape, differences)
        result.seconds += time.monotonic() - began

    def _throttle(self) -> Throttle:
        return Throttle(self._options.max_load, {"target": self._look}, self._listener.stage)

    def _reader(self, session: Session) -> SnapshotReader:
        return SnapshotReader(session, is_snapshot=True, place=f"target {self._target}")
