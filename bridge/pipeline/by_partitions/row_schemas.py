"""Tells on which side of a schema change rows are, where neither places nor times do.  Pure.

Official Canal without GTIDs dates a schema change by the second in which it began.  Where it drops or adds a column,
rows of its table show by their columns on which side they are (`ColumnEvidence`).  A row with a column that the target
lacks is behind the schema change that adds it (`RowsAhead`).  Otherwise the time at which Canal sent the messages
decides.  What it sent in one millisecond, in one batch to two topics, or again, stays unclear (`UnclearRows`).
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from functools import lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.clauses import column_names_in
from bridge.ddl.parser import Classified, classify
from bridge.events import RAW, SEP, Kind
from bridge.model import SchemaChange, TableName
from bridge.protocols.values.event_time import BATCH_BITS, SENT
from bridge.rows.gathering import Bools, Longs
from bridge.rows.moments import (
    Moment,
    Places,
    are_of_another_server,
    compared_by_sending,
    coordinates_of,
    is_of_sending,
    is_whole_second,
)
from bridge.tso import TSO_LOGICAL_BITS, ms_tso

_NEVER: Final = 1 << 62
classify_cached: Final = lru_cache(maxsize=1024)(classify)  # each schema change is asked about for each partition
_OF_NO_COLUMN: Final = frozenset({StatementKind.TRUNCATE_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX})


@dataclass(frozen=True)
class RowsAhead:
    """Rows of a table that wait for a schema change, since the target lacks the table, or columns of theirs.

    table: in lower case.  columns: in lower case; empty where it lacks the table.
    """

    table: TableName
    columns: frozenset[str]

    def among(self, events: pa.Table) -> Bools:
        """Tells which events (EVENT_SCHEMA) are such rows."""
        rows = rows_of(self.table, events)
        return rows & _have(events, self.columns) if self.columns else rows

    def is_made_by(self, change: SchemaChange) -> bool:
        """Tells whether a schema change of its table makes what the target lacks."""
        statement = classify_cached(change.text, change.schema)
        if not isinstance(statement, Classified) or not self.columns or statement.kind is not StatementKind.ALTER_TABLE:
            return isinstance(statement, Classified)
        return not self.columns.isdisjoint(column_names_in(change.text, statement).given)


@dataclass(frozen=True)
class ColumnEvidence:
    """A schema change that takes columns away or makes some: a row shows on which side of it it is.

    table: in lower case, at first as upstream.
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
    def of(cls, change: SchemaChange, moment: Moment) -> ColumnEvidence | None:
        """Gives what columns tell of a schema change; None where its place or an exact time decides, or they tell
        nothing."""
        statement = classify_cached(change.text, change.schema)
        is_decided = (moment.places and not moment.is_by_sending) or not is_whole_second(moment.ts)
        if is_decided or not isinstance(statement, Classified) or statement.kind is not StatementKind.ALTER_TABLE:
            return None
        names = column_names_in(change.text, statement)
        gone, come = frozenset(names.gone), frozenset(names.given - names.dropped)
        return cls(statement.tables[0].folded, gone, come, moment) if gone or come else None

    def may_be_undone_by(self, change: SchemaChange) -> bool:
        """Tells whether a column of such a name may come or go with a later schema change."""
        statement = classify_cached(change.text, change.schema)
        if not isinstance(statement, Classified) or self.table not in (name.folded for name in statement.tables):
            return False
        if statement.kind is not StatementKind.ALTER_TABLE or ChangeClass.RENAME_TABLE in statement.classes:
            return statement.kind not in _OF_NO_COLUMN
        names = column_names_in(change.text, statement)
        return not (self.gone.isdisjoint(names.given) and self.come.isdisjoint(names.gone))

    def bounds(self, runs: Iterable[pa.Table]) -> tuple[int, int]:
        """Tells how many events of a partition (EVENT_SCHEMA, in order, in parts) are surely before the schema change,
        and from which one on all are behind it.

        The last row with a dropped column is before it.  Behind it are the first row with a new column, and the first
        without a dropped one behind all that have it; a delete may hold the key alone, and tells nothing by its lack.
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


def _first(is_match: Bools) -> int:
    return int(is_match.argmax()) if is_match.any() else len(is_match)


def _last(is_match: Bools, start: int, otherwise: int) -> int:
    places = np.flatnonzero(is_match)
    return start + int(places[-1]) + 1 if len(places) else otherwise


def rows_of(table: TableName, events: pa.Table) -> Bools:
    """Tells which events (EVENT_SCHEMA) are rows of a table.  table: in lower case."""
    is_row: Bools = events["kind"].to_numpy() <= int(Kind.DELETE)
    for name, value in (("schema", table.schema), ("table", table.table)):
        if is_row.any():
            is_row &= pc.equal(pc.utf8_lower(events[name]), value).to_numpy()
    return is_row


def _have(events: pa.Table, columns: frozenset[str]) -> Bools:
    """Tells which events name one of the columns."""
    encoded = pc.fill_null(events["columns"], "").combine_chunks().dictionary_encode()
    lists = encoded.dictionary.to_pylist()
    named = [not columns.isdisjoint(text.partition(RAW)[0].lower().split(SEP)) for text in lists]
    have: Bools = np.array(named, np.bool_)[encoded.indices.to_numpy()]
    return have


_NEAR_MS: Final = 60_000
_NEAR: Final = ms_tso(_NEAR_MS)
_SECOND: Final = ms_tso(1000)
"""Beyond it the clock is taken to tell where the sendings do not."""
_DECIDED_BY_ORDER: Final = frozenset(
    {
        *(ChangeClass.DROP_DATABASE, ChangeClass.DROP_TABLE, ChangeClass.TRUNCATE_TABLE, ChangeClass.RENAME_TABLE),
        *(ChangeClass.DROP_PARTITION, ChangeClass.TRUNCATE_PARTITION, ChangeClass.EXCHANGE_PARTITION),
        *(ChangeClass.DROP_PRIMARY_KEY, ChangeClass.DROP_INDEX, ChangeClass.DROP_CONSTRAINT),
        ChangeClass.TABLE_CHARSET,
    }
)
"""Where no error tells that a row came on the wrong side: rows go, get another name, or may be alike from then on."""
_COMPARES: Final = re.compile(r"\b(?:COLLATE|CHARSET|CHARACTER\s+SET|BINARY)\b", re.IGNORECASE)
"""In the new definition of a column, says that its values, of which a key may consist, are compared otherwise."""
_UNCLEAR: Final = (
    "nothing tells whether rows of {} that were written beside it, by another server or in another partition, come"
    " before or behind it: it is dated by the second in which it began. They would be applied behind it: where they"
    " came before, compare the table with the upstream afterwards. One partition always tells it, and but for a"
    " failover GTIDs do (Canal: canal.instance.gtidon=true)"
)
_ONE_BATCH: Final = (1 << BATCH_BITS) - 1


@dataclass(frozen=True)
class UnclearRows:
    """The rows of the tables of a schema change that may be on either side of it.

    tables: in lower case, as the target calls them; none where these may be any.
    topic: of the schema change.  ts: its time (TSO).
    sent: its coordinate SENT.  place: its place in the binlog.  It has one of the two, or a time in whole seconds.
    is_repeated: whether its batch was sent again, so that what comes later may be of the batch's first half.
    """

    tables: frozenset[TableName]
    topic: str
    ts: int
    sent: int = -1
    place: str = ""
    is_repeated: bool = False

    @classmethod
    def of(
        cls, change: SchemaChange, tables: Collection[tuple[str, str]] | None, *, is_undone: bool
    ) -> UnclearRows | None:
        """Gives those of a schema change of these tables (None: of any); None where its time is in milliseconds, or no
        row depends on it.  is_undone: whether a later one of its second makes a column again that it takes away."""
        statement = classify_cached(change.text, change.schema)
        if not isinstance(statement, Classified) or not (change.place or is_whole_second(change.commit_ts)):
            return None
        if statement.kind is StatementKind.ALTER_TABLE and not is_undone:
            columns = column_names_in(change.text, statement)
            is_undone = not columns.freed.isdisjoint(columns.given)
        compares = ChangeClass.MODIFY_COLUMN in statement.classes and _COMPARES.search(change.text)
        if not is_undone and not compares and _DECIDED_BY_ORDER.isdisjoint(statement.classes):
            return None
        names, topic = frozenset(TableName(*name) for name in tables or ()), change.read_at.topic
        if not is_of_sending(change.place):
            return cls(names, topic, change.commit_ts, place=change.place)
        return cls(names, topic, change.commit_ts, coordinates_of(change.place)[SENT])

    @property
    def reason(self) -> str:
        """Why nothing tells on which side of the schema change they are, for people."""
        return _UNCLEAR.format(", ".join(sorted(map(str, self.tables))) or "any table")

    def among(self, events: pa.Table) -> Bools:
        """Tells which events (EVENT_SCHEMA) are such rows."""
        is_match = np.full(events.num_rows, not self.tables)
        for table in self.tables:
            is_match |= rows_of(table, events)
        if not is_match.any():
            return is_match
        if self.place:
            return is_match & are_of_another_server(events, self.ts, self.place)
        times, is_other = events["commit_ts"].to_numpy(), events["topic"].to_numpy(zero_copy_only=False) != self.topic
        if self.sent >= 0:
            return is_match & self._are_unclear(times, _sendings(events), is_other)
        last = np.where((times >> TSO_LOGICAL_BITS) % 1000 == 0, self.ts + _NEAR, self.ts + _SECOND - 1)
        is_match &= events["by_time"].to_numpy(zero_copy_only=False) & (times >= self.ts) & (times <= last)
        return is_match

    def come_first_among(self, events: pa.Table) -> bool | None:
        """Tells whether one of these rows comes before the first row that was clearly sent later; None for neither.
        events: of a partition, in order."""
        times, numbers = events["commit_ts"].to_numpy(), _sendings(events)
        is_sure, is_later = compared_by_sending(numbers, self.sent)
        is_clear = is_sure & is_later & (times > self.ts + (_NEAR if self.is_repeated else 0)) & (numbers >= 0)
        is_clear &= ~self._are_of_batch(numbers)
        end = int(is_clear.argmax()) if is_clear.any() else events.num_rows
        if self.among(events.slice(0, end)).any():
            return True
        return None if end == events.num_rows else False

    def may_hold(self, topic: str, ts: int, place: str) -> bool:
        """Tells whether a row, of whatever table, may be behind the schema change: its topic, time (TSO) and place."""
        if not is_of_sending(place):
            return False
        numbers, times = np.array([coordinates_of(place)[SENT]]), np.array([ts])
        is_sure, is_later = compared_by_sending(numbers, self.sent)
        is_late = is_sure & is_later & (times >= self.ts)
        return bool((is_late | self._are_unclear(times, numbers, np.array([topic != self.topic])))[0])

    def _are_unclear(self, times: Longs, numbers: Longs, is_other_topic: Bools) -> Bools:
        is_sure, is_later = compared_by_sending(numbers, self.sent)
        is_near = (times >= self.ts) & (times <= self.ts + _NEAR)
        is_untold = ~is_sure | (is_other_topic & self._are_of_batch(numbers)) | (is_later & self.is_repeated)
        is_contrary = is_sure & is_later & (times < self.ts) & (times >= self.ts - _NEAR)
        is_match: Bools = (numbers >= 0) & (is_contrary | (is_untold & is_near))
        return is_match

    def _are_of_batch(self, numbers: Longs) -> Bools:
        """Tells which sendings are of the schema change's batch; another run of Canal may have one of that number."""
        is_beside = abs((numbers >> BATCH_BITS) - (self.sent >> BATCH_BITS)) < _NEAR_MS
        same: Bools = is_beside & ((numbers & _ONE_BATCH) == (self.sent & _ONE_BATCH))
        return same


def _sendings(events: pa.Table) -> Longs:
    """Gives the coordinates SENT of events, -1 where there is none."""
    return Places.of(events["place"]).numbers.get(SENT, np.full(events.num_rows, -1, np.int64))
