"""Compares the target with the upstream itself: checksums inside both servers, down to rows where they differ."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from bridge.ddl.classes import ChangeClass
from bridge.errors import UsageError
from bridge.filters.routes import with_sources
from bridge.filters.table_filter import ReservedSchemas
from bridge.model import TableName, goes_by_partition, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import probe
from bridge.mysql.state.ddl_journal import Journal
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.table_definition import Definition, list_tables, load_definitions
from bridge.pipeline.order import clash_error
from bridge.verify.compare.bisect import Side, TableComparison, WorkerPool
from bridge.verify.compare.checksums import in_key_order, key_parts
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.compare.row_diff import Difference, as_multisets, by_key
from bridge.verify.fix_sql import FixFile
from bridge.verify.options import ProgressListener, VerifyOptions
from bridge.verify.report import Report, TableResult, shown_row
from bridge.verify.snapshots import (
    SnapshotReader,
    Throttle,
    enter_source_snapshot,
    expected_errors,
    open_source,
    open_target_snapshot,
)
from bridge.verify.source.recheck import InFlight, read_motion, settle
from bridge.verify.source.schema_diff import (
    ColumnPlan,
    SchemaFindings,
    StatementTranslator,
    as_one,
    column_plan,
    column_statements,
    compare_schemas,
    create_statements,
    findings_of,
    index_statements,
    opening_statements,
)

_GOES: Final = {ChangeClass.DROP_TABLE, ChangeClass.RENAME_TABLE}
_ELSEWHERE: Final = (
    "the source has no {}, whose rows are in this table too: it is not compared, as verify reads one server only;"
    " --against log knows all shards; leave a shard that is gone for good out with --filter"
)


@dataclass(frozen=True)
class _SourceTable:
    """A table as both servers have it.  target: None when the table is missing there.  target_name: its name there.

    shards: the tables of the source that are merged there; the only one, mostly.
    """

    source: Definition
    target: Definition | None
    target_name: TableName
    schema: SchemaFindings
    plan: ColumnPlan
    shards: tuple[TableName, ...]

    @property
    def name(self) -> TableName:
        """Its name on the source, or the target's name for several shards."""
        return self.target_name if len(self.shards) > 1 else self.source.name


class _Readers(NamedTuple):
    """The readers of one worker."""

    source: SnapshotReader
    target: SnapshotReader


class SourceVerification:
    """One verification of a target against its upstream."""

    def __init__(
        self, target: Target, source: Target, table: ProgressTable, options: VerifyOptions, listener: ProgressListener
    ) -> None:
        self._target, self._source, self._table = target, source, table
        self._options, self._listener = options, listener
        self._fix = FixFile(options.fix_file) if options.fix_file else None
        self._pool = ThreadPoolExecutor(2 * options.section.workers, thread_name_prefix="verify")

    def run(self) -> Report:
        """Compares every table; raises StoppedError when a server fails or a table is altered meanwhile."""
        began = time.monotonic()
        with expected_errors(self._source, self._target), ExitStack() as stack:
            stack.callback(self._pool.shutdown)
            sources = open_source(self._source, self._options.section.workers + 1)
            for session in sources:
                stack.callback(session.close)
            snapshot = open_target_snapshot(
                self._target,
                self._table,
                self._options.section.workers,
                self._options.row_rules.routes,
                beside=lambda progress: self._enter(sources, progress),
            )
            for session in snapshot.sessions:
                stack.callback(session.close)
            self._look = self._target.connect(autocommit=True)
            stack.callback(self._look.close)
            self._is_folding = bool(int(self._look.value("SELECT @@lower_case_table_names")))
            self._source_look = sources[-1]
            self._translator = StatementTranslator(probe(sources[-1]), probe(self._look), self._options.ddl)
            self._progress, self._stuck = snapshot.progress, list[str]()
            report = Report("source", snapshot.progress.applied_ts if snapshot.progress else 0, snapshot.held_seconds)
            report.tables = self._all_tables(sources, snapshot.sessions)
            report.notes += (f"the filter rule {rule!r} matches no table of either side" for rule in self._unmatched)
            report.notes += self._stuck
            report.notes += (
                f"{name} is not compared: an event filter leaves some of its row changes out; compare it with the"
                " messages (--against log)"
                for name in self._partial
            )
            report.seconds = time.monotonic() - began
        if self._fix:
            report.notes.append(self._fix.write(f"{self._target} equal to {self._source}", report.moment))
        return report

    def _enter(self, sources: Sequence[Session], progress: Progress | None) -> None:
        if sources[0].is_tidb and progress is None:
            raise UsageError(
                f"the target knows no pipeline {self._table.name!r}, so verify cannot tell at which moment to read the"
                " source",
                fix="check --name and --target",
            )
        enter_source_snapshot(sources, progress)

    def _all_tables(self, sources: Sequence[Session], targets: Sequence[Session]) -> list[TableResult]:
        self._listener.stage("comparing schemas")
        tables, results = self._plan()
        self._listener.plan(sum(table.source.rows for table in tables))
        watched = {"target": self._look, "source": self._source_look}
        self._throttle = Throttle(self._options.max_load, watched, self._listener.stage)
        self._workers = WorkerPool(sorted(tables, key=lambda table: -table.source.rows))

        def work(source: Session, target: Session) -> list[TableResult]:
            with self._workers.at_work():
                readers = _Readers(
                    SnapshotReader(source, is_snapshot=not source.is_tidb, place=f"source {self._source}"),
                    SnapshotReader(target, is_snapshot=True, place=f"target {self._target}"),
                )
                results_of_worker = [self._one_table(table, readers) for table in self._workers.own_tables()]
                for comparison, walk in self._workers.unfinished_tables():
                    comparison.work(walk, readers.source, readers.target)
                return results_of_worker

        pairs = zip(sources, targets, strict=False)
        return [*results, *self._workers.results([partial(work, *pair) for pair in pairs], self._throttle)]

    def _plan(self) -> tuple[list[_SourceTable], list[TableResult]]:
        """Gives the tables to compare, and the results of those that only the target has."""
        on_source, on_target = list_tables(self._source_look), list_tables(self._look)
        names = with_sources((*on_source, *on_target), self._options.row_rules.routes)
        self._unmatched = self._options.tables.unmatched(names)
        source_names = [name for name in on_source if self._is_wanted(name)]
        self._partial = [name for name in source_names if self._options.row_rules.ignored_kinds(*name)]
        routes = self._options.row_rules.routes
        for name in source_names:
            if why := routes.conflict(name):
                raise clash_error(why, str(self._source))
        elsewhere = self._elsewhere(source_names)
        partial_keys = {self._key(routes.target(name)) for name in self._partial} | elsewhere.keys()
        keys = {name: self._key(routes.target(name)) for name in source_names}
        key_of = {name: key for name, key in keys.items() if key not in partial_keys}
        on_target_by_key = {self._key(name): name for name in on_target if self._is_wanted_there(name)}
        on_target_by_key = {key: name for key, name in on_target_by_key.items() if key not in partial_keys}
        if not self._options.tables.rules:  # only the source tells which databases are meant
            schemas = {key.schema for key in key_of.values()}
            on_target_by_key = {key: name for key, name in on_target_by_key.items() if key.schema in schemas}
        sources = load_definitions(self._source_look, key_of)
        targets = load_definitions(
            self._look, (on_target_by_key[key] for key in key_of.values() if key in on_target_by_key)
        )
        compare = self._schema_comparison()
        shards: dict[TableName, list[Definition]] = {}
        for name, definition in sorted(sources.items()):
            shards.setdefault(key_of[name], []).append(definition)
        tables = []
        for key, definitions in shards.items():
            source, notes = as_one(definitions)
            target = targets.get(on_target_by_key.get(key, key))
            schema = (
                findings_of(source, definitions, target, compare)
                if target
                else SchemaFindings(("the table is missing",))
            )
            plan = column_plan(source, target)
            plan = replace(plan, notes=(*notes, *plan.notes))
            merged = tuple(definition.name for definition in definitions)
            tables.append(_SourceTable(source, target, routes.target(source.name), schema, plan, merged))
        target_only = sorted(on_target_by_key[key] for key in on_target_by_key.keys() - set(key_of.values()))
        unknown = (TableResult(name, schema=("the source has no such table",)) for name in target_only)
        return tables, [*elsewhere.values(), *unknown]

    def _elsewhere(self, on_source: Collection[TableName]) -> dict[TableName, TableResult]:
        """Gives the merged tables with shards that the source lacks, as those of another server: their rows would count
        as extra, and be deleted by the fix.  Known are shards that have had a schema change."""
        journal, routes = Journal(self._table.name, self._table.schema), self._options.row_rules.routes
        changes = journal.of_shards(self._look, routes) if self._progress else ()
        last_changes = {change.shard.folded: change for change, _ in changes if self._options.tables(*change.shard)}
        source_keys, targets = {name.folded for name in on_source}, {routes.target(name) for name in on_source}
        return {
            self._key(change.target): TableResult(change.target, schema=(_ELSEWHERE.format(change.shard),))
            for name, change in last_changes.items()
            if name not in source_keys and change.target in targets and not _GOES & set(change.classes)
        }

    def _key(self, name: TableName) -> TableName:
        """Gives the name of a table on both servers: in lower case where the target stores names in lower case."""
        return name.folded if self._is_folding else name

    def _schema_comparison(self) -> Callable[[Definition, Definition], SchemaFindings]:
        names = self._look.rows("SELECT collation_name FROM information_schema.collations")
        is_one_flavour = self._translator.source.flavour is self._translator.target.flavour
        collations = {str(row[0]) for row in names}
        becomes = self._translator.collation
        return partial(compare_schemas, collations=collations, becomes=becomes, is_one_flavour=is_one_flavour)

    def _is_wanted(self, name: TableName) -> bool:
        return not ReservedSchemas(self._table.schema).why(name.schema) and self._options.tables(*name)

    def _is_wanted_there(self, name: TableName) -> bool:
        is_reserved = ReservedSchemas(self._table.schema).why(name.schema)
        return not is_reserved and self._options.row_rules.routes.accepts_target(*name)

    def _one_table(self, table: _SourceTable, readers: _Readers) -> TableResult:
        began = time.monotonic()
        name = table.name
        renamed = [f"on the target: {table.target_name}"] if table.target_name != name else []
        notes = (*table.schema.notes, *table.plan.notes, *renamed)
        result = TableResult(name, schema=table.schema.differences, notes=notes)
        self._listener.stage(str(name))
        tally = self._compare_rows(table, readers)
        differences = self._settle(table, tally.differences)
        result.rows, result.chunks = tally.rows, tally.chunks
        result.count(differences)
        if table.target is None:
            result.missing = tally.rows
        shape = table.plan.shape
        first_differences = differences[: self._options.section.shown_rows]
        result.first_rows = [shown_row(shape, difference) for difference in first_differences]
        if self._fix:
            self._write_fix(self._fix, table, differences, readers.source)
        result.seconds = time.monotonic() - began
        return result

    def _compare_rows(self, table: _SourceTable, readers: _Readers) -> Tally:
        if not table.plan.shape.actual:
            return Tally()
        if table.target is None:
            counts = (readers.source.rows(f"SELECT COUNT(*) FROM {quote_name(*shard)}")[0][0] for shard in table.shards)
            tally, shape = Tally(rows=sum(map(int, counts)), chunks=1), table.plan.shape
            if self._fix:
                rows = _expected(table, readers.source).fetch("1=1")
                tally.differences = (by_key if shape.key else as_multisets)(shape, rows, [])
            return tally
        comparison = self._comparison(table, readers, lambda rows: self._listener.done(table.name, rows))
        if not comparison.has_ranges:
            return comparison.run()
        walk = comparison.walk()
        with self._workers.shared(comparison, walk):
            comparison.work(walk)
            return comparison.result(walk)

    def _comparison(
        self, table: _SourceTable, readers: _Readers, on_chunk: Callable[[int], None] = lambda _: None
    ) -> TableComparison:
        shape, target = table.plan.shape, table.target
        assert target is not None
        source_key, target_key = ([columns[i] for i in shape.key] for columns in (shape.expected, shape.actual))
        parts = key_parts(target_key, source_key)
        rows = quote_name(*target.name) + in_key_order(target, parts)
        actual = Side(readers.target, rows, shape.actual, parts)
        return TableComparison(
            shape, _expected(table, readers.source), actual, pool=self._pool, throttle=self._throttle,
            seconds=self._options.section.chunk_seconds, on_chunk=on_chunk,
        )  # fmt: skip

    def _settle(self, table: _SourceTable, differences: list[Difference]) -> list[Difference]:
        """Tells what still differs on a moving target after a change has had the time to arrive.

        Nothing is on its way where both sides show one moment, and where no bridge moves the target.
        """
        if not (differences and table.target and self._progress) or self._source_look.is_tidb:
            return differences
        by_partition = goes_by_partition(self._progress.positions)
        with self._now() as readers, closing(self._target.connect(autocommit=True)) as session:
            look = partial(read_motion, session, self._table, by_partition=by_partition)
            if look() is None:
                return differences
            on_its_way = InFlight(
                look, self._options.section.grace_seconds, lambda words: self._listener.stage(f"{table.name}: {words}")
            )
            comparison = self._comparison(table, readers)
            remaining = settle(table.plan.shape, differences, comparison.compare_again, on_its_way.seconds_left)
            if remaining and on_its_way.stuck:
                self._stuck.append(f"{table.name}: what differs may still be on its way: {on_its_way.stuck}")
            return remaining

    @contextmanager
    def _now(self) -> Iterator[_Readers]:
        """Gives readers that see each row as it is at the moment of the query."""
        with ExitStack() as stack:
            sessions = [place.connect(autocommit=True) for place in (self._source, self._target)]
            for session in sessions:
                stack.callback(session.close)
            source, target = (SnapshotReader(session, is_snapshot=False, place="either") for session in sessions)
            yield _Readers(source, target)

    def _write_fix(
        self, fix: FixFile, table: _SourceTable, differences: Sequence[Difference], reader: SnapshotReader
    ) -> None:
        if not differences and not table.schema.differences:
            return
        schema, name = table.schema, table.target.name if table.target else table.target_name
        source, are_alike = replace(table.source, name=name), not (schema.missing_columns or schema.changed_columns)
        create = reader.text(f"SHOW CREATE TABLE {quote_name(*table.source.name)}", 1)
        if table.target is None:
            self._add_schema(fix, name, create_statements(table.source, create, name))
        else:
            self._add_schema(
                fix,
                name,
                column_statements(source, create, schema.missing_columns, schema.changed_columns),
                index_statements(source, create, schema.missing_indexes, table.target.indexes) if are_alike else (),
            )
            fix.add_schema(opening_statements(table.target, schema.barring_columns))
        if not are_alike:
            fix.add_impossible(f"{name}: once its columns are alike, have verify write a new file")
        elif differences:
            fix.add_rows((table.target or source).table, table.plan.shape, differences)

    def _add_schema(self, fix: FixFile, name: TableName, before: Sequence[str], after: Sequence[str] = ()) -> None:
        """Adds the statements of the schema to the file of fixes, in the target's words."""
        translated: list[list[str]] = [[], []]
        for statements, texts in ((before, translated[0]), (after, translated[1])):
            for statement in statements:
                text, why = self._translator.translate(statement, name.schema)
                if text is None:
                    fix.add_impossible(f"The target cannot be given what the source has: {why}: {statement}")
                else:
                    texts.append(text)
        fix.add_schema(*translated)


def _expected(table: _SourceTable, reader: SnapshotReader) -> Side:
    shape = table.plan.shape
    source_key, target_key = ([columns[i] for i in shape.key] for columns in (shape.expected, shape.actual))
    parts = key_parts(source_key, target_key)
    first, *more_rows = (quote_name(*name) + in_key_order(table.source, parts) for name in table.shards)
    return Side(reader, first, shape.expected, parts, more_rows=tuple(more_rows))
