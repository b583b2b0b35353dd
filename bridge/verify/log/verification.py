"""Compares the target with what the messages say it should hold.  It needs no access to the upstream."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from functools import partial
from math import inf
from operator import itemgetter
from typing import Final

from py4j.protocol import Py4JError
from pymysql.err import MySQLError
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession

from bridge.config import Settings
from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.parser import Classified, classify
from bridge.errors import StoppedError, UsageError, counted
from bridge.filters.routes import unmatched_rules
from bridge.filters.row_rules import RowRules
from bridge.model import PartitionId, PartitionStart, SchemaChange, TableName, goes_by_partition, topic_begins
from bridge.mysql.catalog import load_tables
from bridge.mysql.connection import Session, Target
from bridge.mysql.server_errors import (
    NO_ROOM,
    LostConnectionError,
    TooLargeError,
    error_code,
    limit_fix,
    server_words,
)
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import count_held
from bridge.mysql.state.routes_record import read_filters
from bridge.mysql.table_definition import list_tables, load_definitions
from bridge.pipeline.control_events import clash_error
from bridge.protocols import MAY_HIDE_UPDATES
from bridge.quoting import quote_name
from bridge.sources.source import Extent, Source
from bridge.sources.topic_guard import ids_of, refuse_comparison
from bridge.spark.errors import source_error
from bridge.spark.event_transfer import transfer_folder
from bridge.spark.process_memory import use_small_pages
from bridge.spark.session import checkpoint_folder, driver_folder, start_session
from bridge.spark.worker_decoder import event_decoder
from bridge.verify.checkpoint import Checkpoint, comparison_digest
from bridge.verify.compare.bisect import TableComparison
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.compare.key_sql import any_of, key_parts
from bridge.verify.compare.row_diff import Difference, DifferenceKind
from bridge.verify.compare.worker_pool import WorkerPool
from bridge.verify.driver_errors import expected_errors
from bridge.verify.fix_sql import FixFile
from bridge.verify.load_throttle import Throttle
from bridge.verify.log.expected_tables import COMMIT_TS, OFFSET, PARTITION, TOPIC, Insert
from bridge.verify.log.filter_eras import FilterHistory, ruled_by_history
from bridge.verify.log.hashes.hash_comparison import HashComparison, HashedRange, HashedResult, spans
from bridge.verify.log.keys.key_cuts import KeyNumbers, find_cuts, is_within, ranges_of
from bridge.verify.log.lineage import Lineage, LoggedChange, NameIdentity, trace
from bridge.verify.log.loading import LoadedPart, load_parts, parts_in
from bridge.verify.log.log_tables import LoggedTable, logged_table
from bridge.verify.log.recompute import Control, FoldedLog, Log
from bridge.verify.log.row_groups import LogPlan
from bridge.verify.log.row_steps import LoggedShape
from bridge.verify.options import ProgressListener, VerifyOptions
from bridge.verify.report import Report, ShownRow, TableResult, shown_row
from bridge.verify.snapshot_reader import SnapshotReader
from bridge.verify.snapshots import open_target_snapshot

_SHOWN_BAD: Final = 3
_NEVER: Final = 1 << 62
"""Later than every commit_ts."""
_LEFT_OUT: Final = frozenset({JournalState.IGNORED, JournalState.CONFIRMED})


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
            self._filters = FilterHistory.of(snapshot.progress, record, self._options.row_rules)
            folder = transfer_folder(spark, stack.enter_context(checkpoint_folder(driver_folder(spark))))
            log = self._log(spark, folder)
            stack.callback(log.close)
            report = Report("log", snapshot.progress.applied_ts, snapshot.held_seconds)
            self._compare(log, snapshot.progress, snapshot.sessions, report)
        if self._fix:
            heading = f"makes {self._target} equal to the messages, at applied_ts {report.moment}"
            report.notes.append(f"{counted(self._fix.write(heading), 'statement')} in {self._options.fix_file}")
        report.seconds = time.monotonic() - began
        return report

    @contextmanager
    def _expected_errors(self) -> Iterator[None]:
        try:
            with expected_errors(self._target):
                yield
        except (PySparkException, Py4JError) as error:
            raise source_error(error) from error

    def _log(self, spark: SparkSession, folder: str | None) -> Log:
        self._listener.stage("decoding the messages")
        tables = self._options.tables
        given = self._settings.decode_options(tables if tables.rules else None)
        options = replace(given, cut_rows=True, tells_unwanted=True)
        if given.row_rules.ignored:
            decode = event_decoder(self._protocol, replace(options, row_rules=RowRules()))
            decode = ruled_by_history(decode, given.row_rules, self._filters)
        else:
            decode = event_decoder(self._protocol, options)
        self._extents = self._source.extents(lambda: spark)
        count = sum(extent.high - extent.low for extent in self._extents.values())
        return Log(self._source.everything(spark, self._extents), decode, folder, count)

    def _compare(self, log: Log, progress: Progress, sessions: Sequence[Session], report: Report) -> None:
        control = log.control()
        cut = _cut_partitions(self._extents, control)
        there = list_tables(self._look)
        lineage = trace(
            control.names,
            self._applied(control.changes, progress),
            max(cut.values(), default=0),
            self._identity([*there, *control.names]),
        )
        plan = LogPlan(
            (), lineage.histories, progress.applied_ts, _read(progress), control.boundaries,
            begins=topic_begins(progress.positions), identity=lineage.identity,
            hides_updates=self._protocol in MAY_HIDE_UPDATES,
        )  # fmt: skip
        tables, report.tables = self._tables(log.shapes(plan), there, lineage)
        folded = log.fold(
            replace(plan, tables=tuple(table.replicated for table in tables)), control.events, control.size
        )
        self._state = Checkpoint(
            {
                "target": str(self._target),
                "source": str(self._source),
                "pipeline": self._table.name,
                "read as": self._read_as(),
                "shards": self._options.shards,
            },
            resume=self._options.resume,
        )
        self._listener.plan(sum(table.definition.rows for table in tables))
        hashed = self._hashed([table for table in tables if table.literals], folded, sessions)
        parts = parts_in(list(self._divided(tables, hashed, len(sessions))), sessions, self._settings.ddl.source)
        self._load(parts, folded.inserts({part.table.number: part.table.expected_table for part in parts}))
        report.tables += self._results(hashed, parts, self._all_parts(parts, sessions))
        if not (tables or report.tables):
            report.notes.append("nothing of the log is in the target yet")
        report.notes += (
            f"{topic}/{partition} begins at offset {self._extents[topic, partition].low:,}: of tables made before its"
            " first message, rows that no message mentions are not covered"
            for topic, partition in cut
        )
        report.notes += _bad_notes(control)
        report.notes += self._left_out_notes(control)
        if self._filters.eras:
            report.notes.append(_era_note(self._filters))
        if held := sum(count_held(self._look, self._table.schema, self._table.name).values()):
            report.notes.append(f"{held:,} in the quarantine: the target lacks these changes")
        self._state.forget()

    def _read_as(self) -> str:
        """Writes the settings that decide what the messages say."""
        given = self._settings
        told = given.timezone, given.ckafka, given.debezium, given.event_filters, given.route, given.routes
        return repr((self._protocol, *told, self._filters.identity))

    def _identity(self, names: Iterable[TableName]) -> NameIdentity:
        """Tells which of these names, of the target and of the log, mean one table.  A target that does not tell names
        apart by the case of their letters has one table for all of them."""
        is_folding = int(self._look.value("SELECT @@lower_case_table_names")) != 0
        return NameIdentity() if is_folding else NameIdentity.among(names)

    def _applied(self, changes: Sequence[LoggedChange], progress: Progress) -> list[LoggedChange]:
        """Gives the schema changes that have run on the target, with the operator's text where one was replaced, and
        those that the operator has skipped."""
        pending = {_identity(change) for change in progress.pending}
        read, journal = _read(progress), Journal(self._table.name, self._table.schema)
        applied: list[LoggedChange] = []
        for change in changes:
            identity = change.commit_ts, change.schema, change.text
            if identity in pending or not (self._is_wanted(change) and _has_run(change, progress.applied_ts, read)):
                continue
            entry = journal.find(self._look, SchemaChange(change.commit_ts, change.schema, "", change.text, ""))
            if entry is not None and entry.state is JournalState.SKIPPED:
                applied += self._as_run(replace(change, is_skipped=True))
            elif entry is None or entry.state not in _LEFT_OUT:
                applied += self._as_run(change, entry.ran_instead if entry else "")
        return applied

    def _as_run(self, change: LoggedChange, replacement: str = "") -> Iterator[LoggedChange]:
        """Gives a schema change with the names of the target."""
        if replacement:
            yield replace(change, text=replacement)
        elif routed := target_statement(change.text, change.schema, self._options.row_rules.routes):
            yield replace(change, text=routed[0], schema=routed[1])

    def _is_wanted(self, change: LoggedChange) -> bool:
        classified = classify(change.text, change.schema)
        if not isinstance(classified, Classified):
            return False
        if classified.database:
            return self._options.tables.accepts_schema(classified.database)
        return any(self._options.tables(*name) for name in classified.tables)

    def _left_out_notes(self, control: Control) -> Iterator[str]:
        """Notes the tables of the log that are never written, and the filter rules that match no table of the log."""
        never = Counter[TableName]()
        for found in control.left_out:
            if found.is_clash:
                raise clash_error(found.why, str(found.position))
            never[TableName(found.schema, found.table)] += found.rows if found.why else 0
        met = control.names | never.keys() | {name for change in control.changes for name in _tables_of(change)}
        for name, count in never.items():
            if count:
                yield f"{count:,} row changes of {name} are left out: nothing is written to that database"
        routes = self._options.row_rules.routes
        for rule in unmatched_rules(self._options.tables, met, routes) if met else ():
            yield f"the filter rule {rule!r} matches no table of the log"

    def _tables(
        self, shapes: set[LoggedShape], present: Iterable[TableName], lineage: Lineage
    ) -> tuple[list[LoggedTable], list[TableResult]]:
        """Gives the tables that can be compared, and results for those that cannot.  present: the target's tables."""
        key_of = lineage.key_of
        wanted = {key_of(name): name for name in (TableName(*shape[:2]) for shape in shapes)} | lineage.made
        there = {key_of(name): name for name in present}
        names = [there[key] for key in sorted(wanted) if key in there]
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
                )
            )
        missing = [TableResult(wanted[key], schema=("the table is missing",)) for key in wanted.keys() - there.keys()]
        left = [
            TableResult(there[key], schema=("the table was dropped upstream",))
            for key in lineage.dropped.keys() & there.keys() - wanted.keys()
        ]
        return tables, [*missing, *left]

    def _hashed(
        self, tables: Sequence[LoggedTable], folded: FoldedLog, sessions: Sequence[Session]
    ) -> list[HashedResult]:
        """Compares what can be compared without loading it."""
        cuts = {table.number: find_cuts(self._look, table.definition, table.replicated.key) for table in tables}
        self._listener.stage("recomputing the last state of every key")
        expected = folded.fingerprints(cuts)
        ranges = WorkerPool(
            HashedRange(table, numbers, fingerprint)
            for table in tables
            for numbers, fingerprint in zip(ranges_of(cuts[table.number]), expected[table.number], strict=True)
        )
        self._listener.stage("comparing hashes")
        throttle = self._throttle()
        comparison = HashComparison(
            throttle,
            self._options.chunk_seconds,
            self._state,
            lambda one, rows: self._listener.done(one.table.name, rows),
        )

        def work(session: Session) -> list[HashedResult]:
            with ranges.at_work():
                reader = self._reader(session)
                return [comparison.result(one, reader) for one in ranges.own_tables()]

        return ranges.results([partial(work, session) for session in sessions], throttle)

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

    def _load(self, parts: Sequence[LoadedPart], inserts: Iterator[tuple[int, int, Insert]]) -> None:
        self._listener.stage("recomputing the last state of every key")
        try:
            load_parts(parts, inserts)
        except LostConnectionError as error:
            raise StoppedError(
                f"the connection to the target was lost: {server_words(error)}",
                where=str(self._target),
                fix="run verify again",
            ) from error
        except MySQLError as error:
            if not (isinstance(error, TooLargeError) or error_code(error) in NO_ROOM):
                raise
            raise StoppedError(
                f"the target has no room for the rows that its tables should hold: {server_words(error)}",
                where=str(self._target),
                fix=f"{limit_fix(error)}; or compare fewer tables at a time (--filter), or with the source (--against"
                " upstream)",
            ) from error

    def _throttle(self) -> Throttle:
        return Throttle(self._options.max_load, {"target": self._look}, self._listener.stage)

    def _reader(self, session: Session) -> SnapshotReader:
        return SnapshotReader(session, is_snapshot=True, place=f"target {self._target}")

    def _all_parts(self, parts: Sequence[LoadedPart], sessions: Sequence[Session]) -> dict[int, list[TableResult]]:
        """Gives the results of the parts that are loaded, by the numbers of their tables."""
        throttle, workers = self._throttle(), WorkerPool[LoadedPart](())

        def work(session: Session) -> list[tuple[int, int, TableResult]]:
            with workers.at_work():
                reader = self._reader(session)
                mine = [part for part in parts if part.session is session]
                return [(part.table.number, part.number, self._one_part(part, reader, throttle)) for part in mine]

        found = workers.results([partial(work, session) for session in sessions], throttle)
        results: dict[int, list[TableResult]] = {}
        for number, _, result in sorted(found, key=itemgetter(0, 1)):
            results.setdefault(number, []).append(result)
        return results

    def _results(
        self, hashed: Iterable[HashedResult], parts: Iterable[LoadedPart], loaded: dict[int, list[TableResult]]
    ) -> list[TableResult]:
        """Gives the result of each table.  Its ranges that are equal were compared one by one in each session; rows of
        those that lie in a part are counted there."""
        ranges = {part.table.number: part.table.expected_table.ranges for part in parts}
        equal: dict[int, TableResult] = {}
        for one in hashed:
            table = one.range.table
            result = equal.setdefault(table.number, TableResult(table.name, notes=_notes(table)))
            result.seconds += one.seconds / self._options.workers
            if one.tally and not is_within(one.range.numbers, ranges.get(table.number, ())):
                result.rows, result.chunks = result.rows + one.tally.rows, result.chunks + one.tally.chunks
        for number, result in equal.items():
            loaded.setdefault(number, []).append(result)
        return [TableResult.of_parts(some, self._options.shown_rows) for _, some in sorted(loaded.items())]

    def _one_part(self, part: LoadedPart, reader: SnapshotReader, throttle: Throttle) -> TableResult:
        began = time.monotonic()
        table = part.table
        self._listener.stage(str(table.name))
        result = TableResult(table.name, schema=tuple(f"column {name} is missing" for name in table.missing))
        if part.refused:
            result.schema += (f"what the messages say does not fit the table: {part.refused}",)
        elif table.lost:
            result.schema += (table.lost,)
        else:
            self._compare_rows(part, reader, throttle, result)
        result.seconds = time.monotonic() - began
        return result

    def _compare_rows(self, part: LoadedPart, reader: SnapshotReader, throttle: Throttle, result: TableResult) -> None:
        table = part.table
        if not table.shape.actual:
            self._compare_unseen(table, reader, result)
            return
        part, tally = self._tally(part, reader, throttle)
        table = part.table
        differences = tally.differences
        if not table.replicated.key and not table.is_whole:
            differences = [d for d in differences if d.finding is not DifferenceKind.EXTRA]
        result.rows, result.chunks = tally.rows, tally.chunks
        result.count(differences)
        if not table.is_whole:
            result.not_covered = self._not_covered(part, reader, result)
        result.notes = _notes(table)
        result.shown = [self._shown(table, reader, d) for d in differences[: self._options.shown_rows]]
        if self._fix and differences:
            self._fix.add_rows(table.replicated.table, table.shape, differences)

    def _tally(self, part: LoadedPart, reader: SnapshotReader, throttle: Throttle) -> tuple[LoadedPart, Tally]:
        """Compares a part; gives it as it was compared.

        Rows that the log does not mention are told from others by matching all rows.  Where the target has as many
        rows as it should have, there are mostly none of them, and the part is compared as if the log held every row.
        If then no row is missing or extra, there were none indeed.
        """
        if part.table.is_matched:
            closed = replace(part, table=replace(part.table, is_whole=True))
            expected, actual = (
                reader.rows(side.query("COUNT(*)"))[0][0] for side in closed.table.sides(reader, part.number)
            )
            if expected == actual:
                tally = self._compared(closed, reader, throttle)
                if all(one.finding is DifferenceKind.DIFFERENT for one in tally.differences):
                    return closed, tally
        return part, self._compared(part, reader, throttle)

    def _compare_unseen(self, table: LoggedTable, reader: SnapshotReader, result: TableResult) -> None:
        """Compares a table of which no message has a row."""
        count = int(reader.rows(f"SELECT COUNT(*) FROM {quote_name(*table.name)}")[0][0])
        if table.is_whole:
            result.extra = count
        else:
            result.not_covered = count

    def _compared(self, part: LoadedPart, reader: SnapshotReader, throttle: Throttle) -> Tally:
        table = part.table
        expected, actual = table.sides(reader, part.number)
        digest = comparison_digest(table.shape, table.order, table.ranges[part.number])
        tally = self._state.tally(table.name, digest)
        if tally.is_done:
            return tally
        told = 0

        def on_chunk(tally: Tally) -> None:
            nonlocal told
            self._listener.done(table.name, tally.rows - told)
            told = tally.rows
            self._state.keep(table.name, digest, tally)

        with ThreadPoolExecutor(1) as pool:
            tally = TableComparison(
                table.shape,
                expected,
                actual,
                pool=pool,
                throttle=throttle,
                seconds=self._options.chunk_seconds,
                on_chunk=on_chunk,
            ).run(tally)
        self._state.keep(table.name, digest, tally)
        return tally

    def _not_covered(self, part: LoadedPart, reader: SnapshotReader, result: TableResult) -> int:
        table, within = part.table, part.table.within(part.number)
        rows = int(reader.rows(f"SELECT COUNT(*) FROM {table.actual} WHERE {within}")[0][0])
        if not table.replicated.key:
            return max(0, rows - result.rows + result.missing)
        return rows - int(reader.rows(f"SELECT COUNT(*) FROM {table.matched} WHERE {within}")[0][0])

    def _shown(self, table: LoggedTable, reader: SnapshotReader, difference: Difference) -> ShownRow:
        """Gives a differing row with the position of its last change, which the expected rows hold."""
        if not table.replicated.key:
            return shown_row(table.shape, difference)
        columns = [table.shape.actual[i] for i in table.shape.key]
        found = reader.rows(
            f"SELECT {quote_name(COMMIT_TS)},CONVERT({quote_name(TOPIC)} USING utf8mb4),"
            f"CONCAT({quote_name(PARTITION)},'/',{quote_name(OFFSET)})"
            f" FROM {table.expected_table.name}"
            f" WHERE {any_of(key_parts(columns, columns), [difference.key])}"
        )
        if not found:
            return shown_row(table.shape, difference)
        commit_ts, topic, place = found[0]
        return shown_row(table.shape, difference, commit_ts, f"{topic}/{place}")


def _tables_of(change: LoggedChange) -> tuple[TableName, ...]:
    classified = classify(change.text, change.schema)
    return classified.tables if isinstance(classified, Classified) else ()


def _cut_partitions(extents: Mapping[PartitionId, Extent], control: Control) -> dict[PartitionId, int]:
    """Finds the partitions whose first messages Kafka no longer holds; gives for each the commit_ts (TSO) up to which
    the lost messages may reach."""
    return {where: control.firsts.get(where, _NEVER) for where, extent in sorted(extents.items()) if extent.low > 0}


def _read(progress: Progress) -> Mapping[PartitionId, PartitionStart] | None:
    """Tells how far each partition is, where the pipeline goes by their order; None where it goes by commit ts."""
    return progress.positions if goes_by_partition(progress.positions) else None


def _identity(change: SchemaChange) -> tuple[int, str, str]:
    return change.commit_ts, change.schema, change.text


def _has_run(change: LoggedChange, applied_ts: int, read: Mapping[PartitionId, PartitionStart] | None) -> bool:
    if read is None:
        return change.commit_ts < applied_ts
    starts = [(offset, read[where]) for where, offset in change.offsets.items() if where in read]
    is_below = not change.by_time and any(change.commit_ts < (start.floor or 0) for _, start in starts)
    return is_below or any(offset < start.offset for offset, start in starts)


def _notes(table: LoggedTable) -> tuple[str, ...]:
    seen = {column.name.lower() for column in table.shape.actual}
    unseen = [c.name for name, c in table.definition.columns.items() if name not in seen and not c.generated]
    notes = [f"no message has the column {name}: its values are not covered" for name in unseen]
    if not table.replicated.key:
        notes.append("it has no key: rows are counted, not matched")
    if table.may_hide_updates:
        notes.append(
            "none of its messages is an update: if the changefeed leaves out old values, updates come as inserts, and"
            " the rows that they changed are still here; compare it with the source (--against upstream)"
        )
    return tuple(notes)


def _era_note(filters: FilterHistory) -> str:
    return (
        f"the event filters were changed at applied_ts {', '.join(str(era.applied_ts) for era in filters.eras)}: a row"
        " change counts as left out where it is left out now and was when it came"
    )


def _bad_notes(control: Control) -> Iterator[str]:
    if control.bad:
        yield f"{counted(len(control.bad), 'message')} could not be decoded, so that changes are not covered"
    for position, reason in control.bad[:_SHOWN_BAD]:
        yield f"{position}: {reason}"
