"""Finds row changes that the producer has sent again from before a schema change that ran.

They must not be applied again, as rows sent again are otherwise: the schema change does not run again behind them, so
that they would stay in a table that it emptied, dropped or put in another's place, or have columns that it took away.
A row is such a one when its partition has shown its time before, and it is older than the last schema change of its
table.  By its place it is older, where both tell theirs in one binlog, otherwise by its commit ts or event time.

Where messages tell files and positions (Debezium's connector), every row that is sent again shows it, but for those of
the last event before: its place is before one that its partition has shown.  None of these is applied again.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.ddl.parser import Refused, classify
from bridge.filters.routes import Routes
from bridge.model import SchemaChange
from bridge.pipeline.by_partitions.merge import Longs, Rows
from bridge.protocols.values.event_time import FILE
from bridge.rows.moments import Places, coordinates_of
from bridge.tso import TSO_LOGICAL_BITS, ms_tso, tso_ms

ChangesBetween = Callable[[int, int], Sequence[SchemaChange]]
"""Gives the schema changes on record with low <= commit_ts < high (TSO), in the order in which they came."""
Bools = npt.NDArray[np.bool_]
_SECOND_MS: Final = 1000
_END: Final = (1 << 63) - 1
_ALL_TABLES: Final = ""
_ANY_DATABASE: Final = ""

log = structlog.get_logger()


def copies_by_place(rows: Rows, mark: str, seen: Callable[[], Longs]) -> Bools | None:
    """Tells which rows of a partition are sent again, by file and position in the binlog; None when none is.

    mark: the last place in the target, "" for none.  seen: gives for each row the highest time (TSO) that its partition
    had shown before its message.  A binlog's files may begin anew (RESET MASTER), so what has a later time is no copy.
    """
    places = rows.table["place"]
    told = places.drop_null().combine_chunks()
    if not len(told):
        return None
    ascends = pc.all(pc.greater_equal(told[1:], told[:-1])).as_py() is not False
    if ascends and told[0].as_py() >= mark:
        return None
    before = seen()
    found = np.zeros(len(rows.times), np.bool_)
    marks = coordinates_of(mark) if mark else {}
    for name, numbers in Places.of(places).numbers.items():
        if name.startswith(FILE):
            here = np.flatnonzero(numbers >= 0)
            found[here] = _are_below(numbers[here], rows.times[here] <= before[here], marks.get(name, -1))
    return found if found.any() else None


def _are_below(numbers: Longs, may_be_copies: Bools, highest: int) -> Bools:
    """Tells which numbers are below the highest one before them; one that cannot be a copy begins anew."""
    found = np.zeros(len(numbers), np.bool_)
    start = 0
    while True:
        before = np.maximum.accumulate(np.concatenate([[highest], numbers[start:-1]]))[: len(numbers) - start]
        below = numbers[start:] < before
        anew = np.flatnonzero(below & ~may_be_copies[start:])
        end = int(anew[0]) if len(anew) else len(below)
        found[start : start + end] = below[:end]
        if not len(anew):
            return found
        start, highest = start + end, -1


class _RowsOf(NamedTuple):
    """Whose rows: the names that events have.  schema: "" where the statement does not tell the database, so that it
    may be any.  table: "" for all of a database.  shard: the upstream's name of a table
    that is merged with others, "" for one that is not."""

    schema: str
    table: str
    shard: str = ""


class RepeatedRows:
    """Knows the schema changes that ran, as far back as rows come.

    changes_between: gives them.  routes: what tables are called on the target.
    """

    def __init__(self, changes_between: ChangesBetween, routes: Routes) -> None:
        self._changes_between, self._routes = changes_between, routes
        self._since: int | None = None
        self._newest = 0
        self._last: dict[_RowsOf, SchemaChange] = {}
        self._named: set[str] = set()

    def note_change(self) -> None:
        """Notes that a schema change is about to run, which is on record before the next rows are asked about."""
        self._since = None

    def among(self, rows: pa.Table, times: Longs, seen: Callable[[], Longs]) -> Bools | None:
        """Tells which rows are sent again from before a schema change; None when none is.

        rows: row changes (EVENT_SCHEMA), at least one.  times: their commit ts or event times (TSO), whatever stands in
        the table.  seen: gives for each row the highest time that its partition had shown before its message.
        """
        lowest = int(times.min())
        self._look_back_to(ms_tso(tso_ms(lowest) // _SECOND_MS * _SECOND_MS))
        if lowest > self._newest:
            return None
        early = np.flatnonzero(times <= self._newest)
        some = rows.take(pa.array(early)).combine_chunks()
        found = np.zeros(rows.num_rows, np.bool_)
        of_last = self._older(some, times[early], seen()[early])
        if not of_last.any():
            return None
        found[early] = of_last
        return found

    def _older(self, rows: pa.Table, times: Longs, seen: Longs) -> Bools:
        found = np.zeros(rows.num_rows, np.bool_)
        for name, numbers in _by_table(rows):
            for change in self._changes_of(name):
                older = is_older(rows.take(pa.array(numbers)), times[numbers], seen[numbers], change)
                if older.any():
                    self._tell(name, change)
                found[numbers] |= older
        return found

    def _changes_of(self, name: _RowsOf) -> Iterable[SchemaChange]:
        whose = (name, name._replace(table=_ALL_TABLES, shard=""), name._replace(schema=_ANY_DATABASE, shard=""))
        return (change for one in whose if (change := self._last.get(_folded(one))) is not None)

    def _tell(self, name: _RowsOf, change: SchemaChange) -> None:
        if change.id not in self._named:
            self._named.add(change.id)
            log.warning(
                "rows_sent_again", table=f"{name.schema}.{name.table}", older_than=change.text[:200], id=change.id
            )

    def _look_back_to(self, since: int) -> None:
        if self._since is not None and self._since <= since:
            return
        self._since, self._last = since, {}
        for change in self._changes_between(since, _END):
            for name in self._rows_of(change):
                self._last[_folded(name)] = change
        self._newest = max((change.commit_ts for change in self._last.values()), default=0)

    def _rows_of(self, change: SchemaChange) -> Iterable[_RowsOf]:
        """Gives the names by which events call the rows of the tables that a schema change touches."""
        found = classify(change.text, change.schema)
        known = found.known if isinstance(found, Refused) else found
        if known is None:
            return
        if known.database and not self._routes.merges_database(known.database):
            yield _RowsOf(self._routes.whole_database(known.database) or known.database, _ALL_TABLES)
        for name in known.tables:
            target = self._routes.target(name) if name.schema else name
            yield _RowsOf(*target, str(name) if self._routes.merges(name) else "")


def is_older(rows: pa.Table, times: Longs, seen: Longs, change: SchemaChange) -> Bools:
    """Tells which rows are sent again from before a schema change that ran.

    rows: with `by_time` and `place` of EVENT_SCHEMA.  times: their commit ts or event times (TSO).
    seen: for each row, the highest time that its partition had shown before it; what is later is no repetition.
    Where time alone tells, rows of the millisecond of the schema change, which may be a whole second, count as older
    only if their partition had shown a later time: before that, they may come for the first time.  The same holds where
    the place tells that a row of a later time is older: its binlog may be a new one, after RESET MASTER.
    """
    millis, at = times >> TSO_LOGICAL_BITS, tso_ms(change.commit_ts)
    by_time = rows["by_time"].to_numpy(zero_copy_only=False)
    older = np.where(by_time, millis <= at, times <= change.commit_ts)
    is_clear = np.where(by_time, millis < at, older)
    if change.place and rows["place"].null_count < rows.num_rows:
        is_comparable, behind = Places.of(rows["place"]).compared(change.place, times < change.commit_ts)
        is_clear |= is_comparable & (millis == at)
        older = np.where(is_comparable, ~behind, older)
    found: Bools = older & np.where(is_clear, times <= seen, times < seen)
    return found


def _folded(name: _RowsOf) -> _RowsOf:
    """Statements may spell a name in another case than rows do, on a server that does not tell cases apart."""
    return _RowsOf(*(part.lower() for part in name))


def _by_table(rows: pa.Table) -> Iterable[tuple[_RowsOf, npt.NDArray[np.int64]]]:
    """Gives each table's name and the numbers of its rows."""
    codes = np.zeros(rows.num_rows, np.int64)
    columns = [rows[name].combine_chunks().dictionary_encode() for name in ("schema", "table", "text")]
    for column in columns:
        codes = codes * (len(column.dictionary) + 1) + column.indices.fill_null(len(column.dictionary)).to_numpy()
    _, firsts, groups = np.unique(codes, return_index=True, return_inverse=True)
    for number, first in enumerate(firsts.tolist()):
        schema, table, text = (rows[name][first].as_py() for name in ("schema", "table", "text"))
        yield _RowsOf(schema, table, text or ""), np.flatnonzero(groups == number)
