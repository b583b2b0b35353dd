"""Loads what the target's tables should hold into temporary tables, over several sessions at once, and compares.
Tables are compared by the hashes of their rows' literals first, so that only ranges that differ have to be loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from functools import partial
from typing import Final

from pymysql.err import MySQLError

from bridge.ddl.parser import Classified, classify
from bridge.errors import StoppedError, counted
from bridge.filters.routes import unmatched_rules
from bridge.model import PartitionId, TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import (
    NO_ROOM,
    REFUSED_VALUE,
    TooLargeError,
    error_code,
    limit_fix,
    server_words,
)
from bridge.sources.source import Extent
from bridge.verify.compare.bisect import Side, TableComparison, WorkerPool
from bridge.verify.compare.checksums import Fingerprint, any_of, fingerprint_of, in_key_order, key_parts
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.compare.row_diff import Difference
from bridge.verify.fix_sql import FixFile
from bridge.verify.log.coverage import LoggedChange
from bridge.verify.log.log_tables import ACTUAL, COMMIT_TS, EXPECTED, PLACE, KeyNumbers, LoggedTable
from bridge.verify.log.recompute import Control, literals_of, literals_query
from bridge.verify.options import ProgressListener, VerifyOptions
from bridge.verify.report import ShownRow, TableResult, shown_row
from bridge.verify.snapshots import SnapshotReader, Throttle

Fingerprints = Mapping[int, Sequence[Fingerprint]]
"""What the ranges of each table should hold, by the tables' numbers."""
_UNSURE: Final = (
    "rows whose key messages spell in several ways, or of which several partitions have changes, are not covered"
)
_SHOWN_BAD: Final = 3


def actual_side(table: LoggedTable, reader: SnapshotReader, ranges: Sequence[KeyNumbers]) -> Side:
    """Gives the target's rows in some ranges of the first key column."""
    shape = table.shape
    key = [shape.actual[i] for i in shape.key]
    parts = key_parts(key, key, ACTUAL)
    rows = table.actual + in_key_order(table.definition, parts)
    return Side(reader, rows, shape.actual, parts, table.within(ranges), ACTUAL)


def sides(table: LoggedTable, reader: SnapshotReader) -> tuple[Side, Side]:
    """Gives the expected side and the actual side of what is loaded."""
    shape = table.shape
    key = [shape.expected[i] for i in shape.key]
    parts = key_parts(key, key, EXPECTED)
    expected = Side(
        reader, f"{table.expected} {EXPECTED}", shape.expected, parts, condition=table.are_rows, alias=EXPECTED
    )
    actual = actual_side(table, reader, table.ranges)
    return expected, actual if table.is_whole else replace(actual, rows=table.matched)


@dataclass
class HashedRange:
    """A range of a table.

    numbers: of the first key column.  place: its number among the table's ranges.
    actual: the fingerprint of what it holds; None where it surely differs.  seconds: how long that took.
    """

    table: LoggedTable
    numbers: KeyNumbers
    place: int
    actual: Fingerprint | None = None
    seconds: float = 0.0

    def hash(self, reader: SnapshotReader, expected: Fingerprints) -> None:
        """Hashes what it holds.  Where the log may lack rows, they are counted before any is hashed."""
        began = time.monotonic()
        side = actual_side(self.table, reader, [self.numbers])
        if self.table.is_whole or reader.rows(side.query("COUNT(*)"))[0][0] == self._of(expected).rows:
            self.actual = fingerprint_of(reader.rows(literals_query(literals_of(self.table), side.source()))[0])
        self.seconds = time.monotonic() - began

    def is_equal(self, expected: Fingerprints) -> bool:
        """Tells whether it holds what it should."""
        return self.actual == self._of(expected) and self._of(expected).is_whole

    def _of(self, expected: Fingerprints) -> Fingerprint:
        return expected[self.table.number][self.place]


def hash_ranges(
    ranges: Iterable[HashedRange],
    readers: Sequence[SnapshotReader],
    throttle: Throttle,
    expected: Fingerprints,
    meanwhile: Callable[[], object] = lambda: None,
) -> None:
    """Hashes ranges on the target, each by one query, with all readers at once.  meanwhile: runs beside that."""
    pool = WorkerPool(ranges)

    def work(reader: SnapshotReader) -> list[None]:
        with pool.at_work():
            for one in pool.own_tables():
                throttle.wait()
                one.hash(reader, expected)
        return []

    pool.results([partial(work, reader) for reader in readers], throttle, meanwhile)


@dataclass
class LoadedTable:
    """A table, or some ranges of it, whose expected rows are in a session.

    refused: what the target said when it refused a value, "" when it took them all.
    """

    table: LoggedTable
    session: Session
    refused: str = ""

    def run(self, sql: str) -> None:
        """Runs a statement of this table, unless the target has refused a value before.  Raises any other error."""
        if self.refused:
            return
        try:
            self.session.execute(sql)
        except MySQLError as error:
            if error_code(error) not in REFUSED_VALUE:
                raise
            self.refused = server_words(error)


def load(target: Target, tables: Sequence[LoadedTable], inserts: Iterator[tuple[int, str]]) -> None:
    """Makes and fills the temporary tables; raises StoppedError when the target has no room for them.

    inserts: each with the number of its table.
    """
    numbered = {one.table.number: one for one in tables}
    try:
        for one in tables:
            one.run(one.table.create())
        for number, insert in inserts:
            numbered[number].run(insert)
    except MySQLError as error:
        if not (isinstance(error, TooLargeError) or error_code(error) in NO_ROOM):
            raise
        raise StoppedError(
            f"the target has no room for the rows that its tables should hold: {server_words(error)}",
            where=str(target),
            fix=f"{limit_fix(error)}; or compare fewer tables at a time (--filter), or with the source (--against"
            " upstream)",
        ) from error


@dataclass(frozen=True)
class LoadedComparison:
    """Compares tables that are loaded, each in the session that has its temporary table.

    fix: takes the statements that would fix what differs.
    """

    target: Target
    options: VerifyOptions
    listener: ProgressListener
    throttle: Throttle
    fix: FixFile | None

    def results(self, tables: Sequence[LoadedTable], sessions: Sequence[Session]) -> dict[int, TableResult]:
        """Gives the results by the numbers of the tables."""
        workers = WorkerPool[LoadedTable](())

        def work(session: Session) -> list[tuple[int, TableResult]]:
            with workers.at_work():
                reader = SnapshotReader(session, is_snapshot=True, place=f"target {self.target}")
                own = [one for one in tables if one.session is session]
                return [(one.table.number, self._result(one, reader)) for one in own]

        return dict(workers.results([partial(work, session) for session in sessions], self.throttle))

    def _result(self, one: LoadedTable, reader: SnapshotReader) -> TableResult:
        began, table = time.monotonic(), one.table
        self.listener.stage(str(table.name))
        result = TableResult(table.name, schema=table.schema_findings)
        if one.refused:
            result.schema += (f"what the messages say does not fit the table: {one.refused}",)
        else:
            self._compare_rows(table, reader, result)
        result.seconds = time.monotonic() - began
        return result

    def _compare_rows(self, table: LoggedTable, reader: SnapshotReader, result: TableResult) -> None:
        [(unsure,)] = reader.rows(table.unsure_query())
        table = replace(table, is_whole=table.is_whole and not unsure)  # no row may be extra beside these
        with ThreadPoolExecutor(1) as pool:
            comparison = TableComparison(
                table.shape,
                *sides(table, reader),
                pool=pool,
                throttle=self.throttle,
                seconds=self.options.section.chunk_seconds,
            )
            tally = comparison.run(Tally())
        self.listener.done(table.name, tally.rows)
        differences = tally.differences
        result.rows, result.chunks = tally.rows, tally.chunks
        result.count(differences)
        if not table.is_whole:
            result.not_covered = int(reader.rows(table.uncovered_query())[0][0])
        result.notes = (*table_notes(table), *([_UNSURE] if unsure else []))
        result.shown = [_shown(table, reader, d) for d in differences[: self.options.section.shown_rows]]
        if self.fix and differences and table.may_lack:
            self.fix.add_impossible(
                f"{table.name}: its rows stay as they are, since no message has all of its columns: put them right by"
                " hand, or compare with the source (--against upstream)"
            )
        elif self.fix and differences:
            self.fix.add_rows(table.table, table.shape, differences)


def _shown(table: LoggedTable, reader: SnapshotReader, difference: Difference) -> ShownRow:
    """Gives a differing row with the position of its last change, which the expected rows hold."""
    columns = [table.shape.actual[i] for i in table.shape.key]
    commit_ts, place = map(table.own, (COMMIT_TS, PLACE))
    rows = reader.rows(
        f"SELECT {commit_ts},HEX({place}) FROM {table.expected}"
        f" WHERE {any_of(key_parts(columns, columns), [difference.key])}"
    )
    if not rows:
        return shown_row(table.shape, difference)
    [(ts, place_hex)] = rows[:1]
    return shown_row(table.shape, difference, ts, bytes.fromhex(place_hex).decode())


def table_notes(table: LoggedTable) -> tuple[str, ...]:
    """Notes what of a table is not compared, or not with certainty."""
    seen = {column.name.lower() for column in table.shape.actual}
    unseen = [c.name for name, c in table.definition.columns.items() if name not in seen and not c.generated]
    notes = [f"no message has the column {name}: its values are not covered" for name in unseen if seen]
    if table.uncovered:
        notes.append(
            f"{table.uncovered}: none of its rows are covered; compare it with the source (--against upstream)"
        )
    elif table.since:
        notes.append(
            f"{table.since}: rows that no later message mentions are not covered; compare the table with the source"
            " (--against upstream)"
        )
    return tuple(notes)


def cut_notes(cut: Iterable[PartitionId], extents: Mapping[PartitionId, Extent]) -> Iterator[str]:
    """Notes the partitions whose first messages Kafka no longer holds."""
    for topic, partition in cut:
        yield (
            f"{topic}/{partition} begins at offset {extents[topic, partition].low:,}: of tables made before its"
            " first message, rows that no message mentions are not covered"
        )


def bad_notes(control: Control) -> Iterator[str]:
    """Notes the messages that could not be decoded."""
    if control.bad:
        yield f"{counted(len(control.bad), 'message')} could not be decoded, so that changes are not covered"
    for position, reason in control.bad[:_SHOWN_BAD]:
        yield f"{position}: {reason}"


def left_out_notes(control: Control, options: VerifyOptions) -> Iterator[str]:
    """Notes the filter rules that match no table of the log."""
    left_out = {TableName(row.schema, row.table) for row, *_ in control.left_out}
    names = control.names | left_out | {name for change in control.changes for name in _tables_of(change)}
    for rule in unmatched_rules(options.tables, names, options.row_rules.routes) if names else ():
        yield f"the filter rule {rule!r} matches no table of the log"


def _tables_of(change: LoggedChange) -> tuple[TableName, ...]:
    classified = classify(change.text, change.schema)
    return classified.tables if isinstance(classified, Classified) else ()
