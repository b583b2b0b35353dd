"""Tells by the columns of rows on which side of a schema change they are, where neither places nor times do.  Pure.

Official Canal without GTIDs dates a schema change by the second in which it began, and sends it to partition 0.  Rows
of other partitions that were written while it ran have later times and are before it; rows of the same second may be
behind it.  A row that has a column which the target lacks is behind the schema change that adds it, whether that has
been read or not.  While a schema change waits that drops or adds a column, rows of its table show by their columns
whether they are before it (`ColumnsTell`).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.ddl.by_table.column_changes import column_changes
from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.parser import Classified, classify
from bridge.events import RAW, SEP, Kind
from bridge.model import SchemaChange, TableName
from bridge.rows.grouping import Bools
from bridge.rows.moments import Moment, is_whole_second

_NEVER: Final = 1 << 62
_classified: Final = lru_cache(maxsize=256)(classify)  # each schema change is asked about for each partition
_OF_NO_COLUMN: Final = frozenset({StatementKind.TRUNCATE_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX})


@dataclass(frozen=True)
class RowsAhead:
    """Rows of a table that wait for a schema change, since the target lacks the table, or columns of theirs.

    table: in lower case.  columns: in lower case; empty where it lacks the table.
    since: time of the clock at which the first of them was due.
    """

    table: TableName
    columns: frozenset[str]
    since: float = 0.0

    def among(self, events: pa.Table) -> Bools:
        """Tells which events (EVENT_SCHEMA) are such rows."""
        rows = rows_of(self.table, events)
        return rows & _have(events, self.columns) if self.columns else rows

    def is_made_by(self, change: SchemaChange) -> bool:
        """Tells whether a schema change makes what the target lacks."""
        known = _classified(change.text, change.schema)
        if not isinstance(known, Classified) or self.table not in map(_lower, known.tables):
            return False
        if not self.columns or known.kind is not StatementKind.ALTER_TABLE:
            return True
        return not self.columns.isdisjoint(column_changes(change.text).come)


@dataclass(frozen=True)
class ColumnsTell:
    """A schema change that takes columns away or makes some: a row shows on which side of it it is.

    table: in lower case.
    gone, come: the columns that it takes away, and those that it makes, in lower case.
    moment: its moment, by which all other rows go.
    until: the time (TSO) from which on a column of such a name may be another one again.
    """

    table: TableName
    gone: frozenset[str]
    come: frozenset[str]
    moment: Moment
    until: int = _NEVER

    @classmethod
    def of(cls, change: SchemaChange, moment: Moment) -> ColumnsTell | None:
        """Gives what columns tell of a schema change; None where they tell nothing, and where its place, or a time that
        is exact, tells what is behind it."""
        known = _classified(change.text, change.schema)
        if (
            (moment.places and not moment.is_by_sending)
            or not is_whole_second(moment.ts)
            or not isinstance(known, Classified)
        ):
            return None
        if known.kind is not StatementKind.ALTER_TABLE:
            return None
        changes = column_changes(change.text)
        come = changes.come - changes.dropped
        return cls(_lower(known.tables[0]), changes.gone, come, moment) if changes.gone or come else None

    def may_be_undone_by(self, change: SchemaChange) -> bool:
        """Tells whether a column of such a name may come or go with a later schema change."""
        known = _classified(change.text, change.schema)
        if not isinstance(known, Classified) or self.table not in map(_lower, known.tables):
            return False
        if known.kind is not StatementKind.ALTER_TABLE or ChangeClass.RENAME_TABLE in known.classes:
            return known.kind not in _OF_NO_COLUMN
        changes = column_changes(change.text)
        return not (self.gone.isdisjoint(changes.come) and self.come.isdisjoint(changes.gone))

    def bounds(self, runs: Iterable[pa.Table]) -> tuple[int, int]:
        """Tells how many events of a partition (EVENT_SCHEMA, in order, in parts) are surely before the schema change,
        and from which one on all are behind it.

        The first row of the table with a column that comes is behind it, and so is the first without one that goes,
        but for those that stand before a row which still has that: they are of before such a column was made.  Rows of
        the table that stand before the first one behind are before it.  Where no row is behind it, those with a column
        that goes are before it.  A delete may hold the key alone, so that what it lacks tells nothing.
        """
        before = of_table = start = 0
        first, first_of_table = _NEVER, 0
        for events in runs:
            rows, times = rows_of(self.table, events), events["commit_ts"].to_numpy()
            has_old, has_new = rows & _have(events, self.gone), rows & _have(events, self.come)
            lacks_old = rows & ~has_old & (events["kind"].to_numpy() < int(Kind.DELETE)) & bool(self.gone)
            new, unsure = _first(has_new), _first(rows & (times >= self.until))
            last = _last(has_old[: min(new, unsure)], start, before)
            if last > before:
                before, first = last, _NEVER
            since = max(0, before - start)
            behind = since + _first(lacks_old[since:new])
            if first == _NEVER and behind < events.num_rows:
                first, first_of_table = start + behind, _last(rows[: min(behind, unsure)], start, of_table)
            if min(new, unsure) < events.num_rows or (first < _NEVER and not self.gone):
                break
            of_table = _last(rows, start, of_table)
            start += events.num_rows
        return (before, _NEVER) if first == _NEVER else (max(before, first_of_table), first)


def _first(found: Bools) -> int:
    return int(found.argmax()) if found.any() else len(found)


def _last(found: Bools, start: int, otherwise: int) -> int:
    places = np.flatnonzero(found)
    return start + int(places[-1]) + 1 if len(places) else otherwise


def rows_of(table: TableName, events: pa.Table) -> Bools:
    """Tells which events (EVENT_SCHEMA) are rows of a table.  table: in lower case."""
    is_row: Bools = events["kind"].to_numpy() <= int(Kind.DELETE)
    for name, wanted in (("schema", table.schema), ("table", table.table)):
        if is_row.any():
            is_row &= pc.equal(pc.utf8_lower(events[name]), wanted).to_numpy()
    return is_row


def _have(events: pa.Table, columns: frozenset[str]) -> Bools:
    """Tells which events name one of the columns."""
    encoded = pc.fill_null(events["columns"], "").combine_chunks().dictionary_encode()
    lists = encoded.dictionary.to_pylist()
    named = [not columns.isdisjoint(text.partition(RAW)[0].lower().split(SEP)) for text in lists]
    have: Bools = np.array(named, np.bool_)[encoded.indices.to_numpy()]
    return have


def _lower(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())
