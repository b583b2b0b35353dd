"""Loads what the target's tables should hold into temporary tables, over several sessions at once, and compares.
Tables are compared by the hashes of their rows' literals first, so that only ranges that differ have to be loaded."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Final, NamedTuple

from pymysql.err import MySQLError

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
from bridge.verify.compare.bisect import Side, WorkerPool
from bridge.verify.compare.checksums import (
    Fingerprint,
    any_of,
    fingerprint_of,
    fingerprint_query,
    in_key_order,
    key_parts,
)
from bridge.verify.compare.row_diff import Difference
from bridge.verify.log.log_tables import ACTUAL, COMMIT_TS, EXPECTED, PLACE, KeyNumbers, LoggedTable
from bridge.verify.log.recompute import SEPARATOR, Control, literals_of
from bridge.verify.options import VerifyOptions
from bridge.verify.report import ShownRow, shown_row
from bridge.verify.snapshots import SnapshotReader, Throttle

UNSURE: Final = (
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


class HashedRange(NamedTuple):
    """A range of the first key column of a table.

    place: its number among the table's ranges.
    actual: the fingerprint of what the target holds there.  seconds: how long that took.
    """

    table: LoggedTable
    place: int
    numbers: KeyNumbers
    actual: Fingerprint
    seconds: float


def hash_ranges(
    ranges: Iterable[tuple[LoggedTable, int, KeyNumbers]],
    readers: Sequence[SnapshotReader],
    throttle: Throttle,
    meanwhile: Callable[[], object],
) -> list[HashedRange]:
    """Hashes ranges on the target, each by one query, with all readers at once.  meanwhile: runs beside that."""
    pool = WorkerPool(ranges)

    def hash_range(table: LoggedTable, place: int, numbers: KeyNumbers, reader: SnapshotReader) -> HashedRange:
        throttle.wait()
        began = time.monotonic()
        rows = actual_side(table, reader, [numbers]).source()
        answer = reader.rows(fingerprint_query(literals_of(table), rows, separator=SEPARATOR))
        return HashedRange(table, place, numbers, fingerprint_of(answer[0]), time.monotonic() - began)

    def work(reader: SnapshotReader) -> list[HashedRange]:
        with pool.at_work():
            return [hash_range(*parts, reader) for parts in pool.own_tables()]

    return pool.results([partial(work, reader) for reader in readers], throttle, meanwhile)


@dataclass
class LoadedTable:
    """A table, or some ranges of it, whose expected rows are in a session.

    refusal: what the target said when it refused a value, "" when it took them all.
    """

    table: LoggedTable
    session: Session
    refusal: str = ""

    def run(self, sql: str) -> None:
        """Runs a statement of this table, unless the target has refused a value before.  Raises any other error."""
        if self.refusal:
            return
        try:
            self.session.execute(sql)
        except MySQLError as error:
            if error_code(error) not in REFUSED_VALUE:
                raise
            self.refusal = server_words(error)


def load(target: Target, tables: Sequence[LoadedTable], inserts: Iterator[tuple[int, str]]) -> None:
    """Makes and fills the temporary tables; raises StoppedError when the target has no room for them.

    inserts: each with the number of its table.
    """
    by_number = {table.table.number: table for table in tables}
    try:
        for table in tables:
            table.run(table.table.create())
        for number, insert in inserts:
            by_number[number].run(insert)
    except MySQLError as error:
        if not (isinstance(error, TooLargeError) or error_code(error) in NO_ROOM):
            raise
        raise StoppedError(
            f"the target has no room for the rows that its tables should hold: {server_words(error)}",
            where=str(target),
            fix=f"{limit_fix(error)}; or compare fewer tables at a time (--filter), or with the source (--against"
            " upstream)",
        ) from error


def shown_with_position(table: LoggedTable, reader: SnapshotReader, difference: Difference) -> ShownRow:
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
    compared = {column.name.lower() for column in table.shape.actual}
    uncompared = [c.name for name, c in table.definition.columns.items() if name not in compared and not c.generated]
    notes = [f"no message has the column {name}: its values are not covered" for name in uncompared if compared]
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


def log_notes(
    control: Control, gaps: Iterable[tuple[PartitionId, Extent]], names: Collection[TableName], options: VerifyOptions
) -> Iterator[str]:
    """Notes what of the log is not compared.

    gaps: partitions whose first messages Kafka no longer holds.  names: the tables of the log.
    """
    for (topic, partition), extent in gaps:
        yield (
            f"{topic}/{partition} begins at offset {extent.low:,}: of tables made before its first message, rows that"
            " no message mentions are not covered"
        )
    if control.bad:
        yield f"{counted(len(control.bad), 'message')} could not be decoded, so that changes are not covered"
    yield from (f"{position}: {reason}" for position, reason in control.bad[:_SHOWN_BAD])
    for rule in unmatched_rules(options.tables, names, options.row_rules.routes) if names else ():
        yield f"the filter rule {rule!r} matches no table of the log"
