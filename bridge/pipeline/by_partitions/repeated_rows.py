"""Finds row changes that the producer has sent again from before a schema change that ran.

They must not be applied again, since the schema change does not run again behind them.  Such a row is older than the
last schema change of its table, and its partition has shown it before.  Its place tells its age, or else its time.  An
older row that comes for the first time stops the bridge.

Where messages tell files and positions (Debezium's connector) or GTIDs (official Canal), whatever is not behind the
last row of its partition in the target was sent again, and is left out.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import product
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.ddl.classes import ChangeClass
from bridge.ddl.parser import Refused
from bridge.errors import SourceError
from bridge.events import NO_PRIMARY_KEY
from bridge.filters.routes import Routes
from bridge.model import SchemaChange, TableName
from bridge.pipeline.by_partitions.merge import Rows
from bridge.pipeline.by_partitions.partition_queue import NO_ROW, AppliedRow, PartitionQueue
from bridge.pipeline.by_partitions.row_schemas import classify_cached
from bridge.protocols.values.event_time import BATCH_BITS, FILE, GTID, POSITION_BITS, SENT
from bridge.rows.gathering import Bools, Longs, distinct, position_of
from bridge.rows.moments import Places, coordinates_of, is_of_sending, is_of_snapshot, latest_beside, names_of
from bridge.tso import TSO_LOGICAL_BITS, ms_tso, tso_ms

ChangesBetween = Callable[[int, int], Sequence[SchemaChange]]
"""Gives the schema changes on record with low <= commit_ts < high (TSO), in the order in which they came."""
_SECOND_MS: Final = 1000
_LONGEST_WAIT: Final = ms_tso(60_000)
"""How much later than a schema change, which has the time of its start, rows may be dated that are before it."""
_END: Final = (1 << 63) - 1
_ALL_TABLES: Final = ""
_ANY_DATABASE: Final = ""
_MARK: Final = 1
_ANEW: Final = "begin again behind a new snapshot with a pipeline of another --name"
_UNCOMPRESSED: Final = f"set it OFF upstream, or read the topic of transactions; take no blocking snapshots; {_ANEW}"

log = structlog.get_logger()


def follow_binlog(rows: Rows, applied: AppliedRow, highs: Callable[[], Longs]) -> tuple[Bools, Bools, AppliedRow]:
    """Follows rows of a partition through the binlog, behind the last one in the target.

    Gives the copies by their places, those of them that are left out, and the last row with a place that is no copy.
    highs: gives for each row the highest time (TSO) of its partition before its message.
    """
    places, no_rows = rows.table["place"], np.zeros(len(rows.times), np.bool_)
    if places.null_count == len(no_rows):
        return no_rows, no_rows, applied
    if not is_of_sending(applied.place) and not _go_on(rows, applied):
        copies, drops, last = _follow_row_by_row(rows, applied, highs())
        if copies.any():
            return copies, drops, last
    at = int(np.flatnonzero(places.is_valid().to_numpy())[-1])
    place, ts = places[at].as_py(), int(rows.times[at])
    if is_of_sending(place):
        return no_rows, no_rows, AppliedRow(ts, place, again=int(come_after_restart(rows, applied, highs())[at]))
    index = rows.table["index"][at].as_py() if FILE in place else 0
    count = index or pc.sum(pc.equal(places, place)).as_py() + (applied.rows if place == applied.place else 0)
    return no_rows, no_rows, AppliedRow(ts, place, count)


def _go_on(rows: Rows, applied: AppliedRow) -> bool:
    """Tells whether each row of a partition surely follows the one before it, the first the last in the target."""
    placed_rows = rows.table.filter(rows.table["place"].is_valid()) if rows.table["place"].null_count else rows.table
    places, indexes = placed_rows["place"].combine_chunks(), placed_rows["index"].to_numpy()
    rises = np.asarray(pc.greater(places[1:], places[:-1])) | (
        np.asarray(pc.equal(places[1:], places[:-1])) & ((indexes[1:] > indexes[:-1]) | (indexes[1:] == 0))
    )
    first = places[0].as_py()
    is_next = first > applied.place or (first == applied.place and not 0 < indexes[0] <= applied.rows)
    is_alike = not applied.place or names_of(first) == names_of(applied.place)
    return bool(rises.all()) and is_next and is_alike and not applied.again


NO_VERDICT: Final = -1
"""A row of which its place does not tell whether it comes for the first time."""
REPEATED: Final = -2
MAY_UNDO: Final = -4
"""A copy that is applied all the same: it follows a row of another server that may be a copy."""
OF_LAST: Final = -3
"""A row of the last transaction in the target: a copy if a schema change that ran is behind it."""


def place_verdicts(rows: Rows, queue: PartitionQueue, copies: Bools, drops: Bools) -> Longs:
    """Tells by its place whether each row of a partition comes for the first time.

    0 if it does; where the binlog began anew (RESET MASTER), the time (TSO) of the last row instead.  Else REPEATED,
    MAY_UNDO, OF_LAST or NO_VERDICT.
    queue: what was taken out before.  copies, drops: as `follow_binlog` gives them.
    """
    applied, since = queue.applied, queue.applied.ts if queue.began_anew else 0
    verdicts = np.full(len(rows.times), NO_VERDICT if queue.shown else 0)
    if applied.place and not is_of_sending(applied.place):
        _, behind = Places.of(rows.table["place"]).compared(applied.place, rows.times < applied.ts)
        is_same = pc.fill_null(pc.equal(rows.table["place"], applied.place), False).to_numpy()
        index = rows.table["index"].to_numpy()
        is_more = np.where(index > 0, index, np.cumsum(is_same)) > applied.rows
        verdicts[is_same & ~is_more] = OF_LAST
        verdicts[behind | (is_same & is_more & (applied.rows > 0))] = since
    verdicts[copies] = np.where(drops, REPEATED, MAY_UNDO)[copies]
    return verdicts


def highs_before(rows: Rows, shown: int) -> Longs:
    """Gives for each row the highest time of its partition before the row's message.  shown: before all of them."""
    rising = np.maximum.accumulate(np.concatenate([[shown], rows.times]))
    highs: Longs = rising[np.searchsorted(rows.offsets, rows.offsets, "left")]
    return highs


def come_after_restart(rows: Rows, before: AppliedRow, highs: Longs) -> Bools:
    """Tells which rows of a partition come behind a restart of Canal, and may be sent again.

    At a restart the numbers of batches begin anew.  The first row with a new highest time ends the doubt.
    before: the last row before them; its `again` is 1 where it was such a row.  highs: as in `follow_binlog`.
    """
    numbers = Places.of(rows.table["place"]).numbers.get(SENT)
    if numbers is None:
        return np.zeros(len(rows.times), np.bool_)
    batches, at = numbers & ((1 << BATCH_BITS) - 1), np.arange(1, len(numbers) + 1)
    first = coordinates_of(before.place)[SENT] & ((1 << BATCH_BITS) - 1) if is_of_sending(before.place) else batches[0]
    is_anew = batches < np.concatenate([[first], batches[:-1]])
    anew = np.maximum.accumulate(np.where(is_anew, at, before.again - 1))
    newer = np.maximum.accumulate(np.where(rows.times > highs, at, -1))
    may_repeat: Bools = anew > newer
    return may_repeat


def _follow_row_by_row(rows: Rows, applied: AppliedRow, highs: Longs) -> tuple[Bools, Bools, AppliedRow]:
    """Does what `follow_binlog` says, row by row.

    A row at a lower place than the last is a copy, unless its time is later, or GTIDs put it behind all before it.
    Rows of one place are of one event, or of one transaction.  Where messages number the rows of an event, the number
    decides; otherwise as many are copies as were there, and only behind a row of a lower place.
    Copies are left out.  Behind a failover, they are applied, as they may undo what another server's rows have done;
    rows without a key are left out there, too.
    """
    copies = np.zeros(len(rows.times), np.bool_)
    marks = coordinates_of(applied.place) if applied.place else {}
    places, indexes = rows.table["place"], rows.table["index"].to_numpy()
    content = rows.table.select(["kind", "schema", "table", "before", "after"])
    last_row, last, coordinates = -1, applied, Places.of(places)
    may_be_copies = (rows.times <= highs) & (_sides(coordinates, marks, GTID) < 1)
    by_name = {name: numbers for name, numbers in coordinates.numbers.items() if name.startswith(FILE)}
    if not by_name and (coordinates.numbers or marks):
        by_name = {"": _gtid_ranks(coordinates.numbers, marks, may_be_copies)}
        marks = {"": _MARK} if marks else {}
    for name, numbers in by_name.items():
        highest, own, newest = marks.get(name, -1), applied if name in marks else NO_ROW, -1
        of_place = dict[int, int]()  # the first row of each index at the highest place; of rows in the target, a copy
        for row in np.flatnonzero(numbers >= 0).tolist():
            number, may_be_copy = int(numbers[row]), bool(may_be_copies[row])
            index = int(indexes[row]) if name.startswith(FILE) else 0
            if may_be_copy and number < highest:
                copies[row] = True
                own = own._replace(again=own.rows)
            elif may_be_copy and number == highest and index:
                copies[row], first = index <= own.rows, of_place.setdefault(index, row)
                is_new = number != marks.get(name) if first == row else content.slice(first, 1) != content.slice(row, 1)
                if copies[row] and is_new:
                    what = "this row has another one's place in the binlog, as with binlog_transaction_compression=ON"
                    raise SourceError(what, where=str(position_of(rows.table, row)), fix=_UNCOMPRESSED)
                own = own if copies[row] else AppliedRow(int(rows.times[row]), places[row].as_py(), index)
                newest = newest if copies[row] else row
            elif may_be_copy and number == highest and own.again:
                copies[row] = True
                own = own._replace(again=own.again - 1)
            else:
                count = index or (own.rows if number == highest else 0) + 1
                highest, newest, of_place = number, row, {index: row}
                own = AppliedRow(int(rows.times[row]), places[row].as_py(), count)
        if newest > last_row or (last_row < 0 and name in marks):
            last_row, last = newest, own
    is_keyless = pc.fill_null(pc.equal(rows.table["key"], NO_PRIMARY_KEY), False).to_numpy()
    drops = copies & (is_keyless | ~np.logical_or.accumulate(are_of_other_server(rows, applied, highs)))
    return copies, drops, last


def are_of_other_server(rows: Rows, applied: AppliedRow, highs: Longs) -> Bools:
    """Tells which rows that their partition may have shown are of another server's binlog than the row before them.
    That is the last row in the target, or a later one that is surely new.  highs: as in `follow_binlog`."""
    marks, places = coordinates_of(applied.place) if applied.place else {}, Places.of(rows.table["place"])
    gtids, files = _sides(places, marks, GTID), _sides(places, marks, FILE)
    is_other: Bools = (gtids * files == -1) | (gtids == 0) & (abs(_sides(places, marks, FILE, POSITION_BITS)) == 1)
    readers = {name.partition("/")[0] for name in marks if name.startswith(FILE) and not is_of_snapshot(name)}
    for name, numbers in places.numbers.items():
        is_its, is_last = numbers >= 0, np.logical_or.accumulate((numbers >= 0) & (rows.times > highs))
        is_other |= is_its & ~is_last & (name not in marks) & (name.partition("/")[0] in readers)
    is_other &= rows.times <= highs
    return is_other


def _sides(places: Places, marks: Mapping[str, int], kind: str, bits: int = 0) -> Longs:
    """Compares each row with the highest coordinate of the same name before it: -1 lower, 0 equal, 1 higher, -2 none.
    Looks only at coordinates of a kind, without their last bits.  marks: of the row before them."""
    sides = np.full(places.count, -2)
    for name, numbers in places.numbers.items():
        before = np.maximum.accumulate(np.append(marks.get(name, -1), numbers[:-1]))
        both = (numbers >= 0) & (before >= 0) & name.startswith(kind)
        sides[both] = np.sign((numbers >> bits) - (before >> bits))[both]
    return sides


def _gtid_ranks(numbers: Mapping[str, Longs], marks: Mapping[str, int], may_be_copies: Bools) -> Longs:
    """Gives numbers that ascend with the sets of GTIDs of a partition's rows; -1 where nothing tells.  The set in the
    target (marks) is _MARK.  A part of the last set has a lower number."""
    names = sorted(numbers.keys() | marks.keys())
    count, rank, last = len(may_be_copies), _MARK, tuple(marks.get(name, -1) for name in names)
    ranks = np.full(count, -1)
    sets = zip(*(numbers[name].tolist() if name in numbers else [-1] * count for name in names), strict=True)
    for row, gtids in enumerate(() if SENT in names else sets):
        if max(gtids) >= 0:
            is_part = all(number <= highest for number, highest in zip(gtids, last, strict=True))
            if gtids != last and not (is_part and may_be_copies[row]):
                last, rank = gtids, rank + 2
            ranks[row] = rank - (gtids != last)
    return ranks


class _RowsOf(NamedTuple):
    """Whose rows: the names that events have.  schema: "" for any.  table: "" for all of a database.  shard: the
    upstream's name of a table that is merged with others, else ""."""

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
        self._last: dict[tuple[_RowsOf, bool], SchemaChange] = {}
        """The last schema change of each table; by True, the last that may have taken rows or values away."""
        self._warned_ids: set[str] = set()

    def note_change(self) -> None:
        """Notes that a schema change is about to run, which is on record before the next rows are asked about."""
        self._since = None

    def among(
        self, rows: pa.Table, times: Longs, highs: Callable[[], Longs], verdicts: Callable[[], Longs]
    ) -> Bools | None:
        """Tells which rows are sent again from before a schema change; None when none can be.

        Raises SourceError at a row that comes for the first time from before one that may take rows or values away.
        rows: row changes (EVENT_SCHEMA), at least one.  times: their commit ts or event times (TSO), whatever stands in
        the table.  highs: gives for each row the highest time of its partition when the last schema change ran.
        verdicts: gives `place_verdicts`.
        """
        lowest = int(times.min()) - _LONGEST_WAIT
        self._look_back_to(ms_tso(tso_ms(lowest) // _SECOND_MS * _SECOND_MS))
        early = np.flatnonzero(times <= self._newest + _LONGEST_WAIT)
        if not self._newest or not len(early):
            return None
        early_rows, is_repeated = rows.take(pa.array(early)).combine_chunks(), np.zeros(rows.num_rows, np.bool_)
        is_repeated[early] = self._older(early_rows, times[early], highs()[early], verdicts()[early])
        return is_repeated

    def _older(self, rows: pa.Table, times: Longs, highs: Longs, verdicts: Longs) -> Bools:
        is_repeated = np.zeros(rows.num_rows, np.bool_)
        for name, numbers in _by_table(rows):
            for change, takes in self._changes_of(name):
                table_rows = rows.take(pa.array(numbers))
                older, first = is_older(table_rows, times[numbers], highs[numbers], verdicts[numbers], change)
                if takes and first.any():
                    at = int(numbers[first.argmax()])
                    raise before_change(str(position_of(rows, at)), change.text)
                if older.any():
                    self._warn(name, change)
                is_repeated[numbers] |= older
        return is_repeated

    def _changes_of(self, name: _RowsOf) -> Iterable[tuple[SchemaChange, bool]]:
        owners = (name, name._replace(table=_ALL_TABLES, shard=""), name._replace(schema=_ANY_DATABASE, shard=""))
        for owner, takes in product(map(_folded, owners), (False, True)):
            if (change := self._last.get((owner, takes))) is not None:
                yield change, takes

    def _warn(self, name: _RowsOf, change: SchemaChange) -> None:
        if change.id not in self._warned_ids:
            self._warned_ids.add(change.id)
            log.warning(
                "rows_sent_again", table=f"{name.schema}.{name.table}", older_than=change.text[:200], id=change.id
            )

    def _look_back_to(self, since: int) -> None:
        if self._since is not None and self._since <= since:
            return
        self._since, self._last = since, {}
        for change in self._changes_between(since, _END):
            is_in_order = change.place and not is_of_sending(change.place)  # else a copy may come behind later ones
            for name in self._rows_of(change):
                last = self._last.setdefault((_folded(name), _may_take(change)), change)
                if is_in_order or change.commit_ts > last.commit_ts:
                    self._last[_folded(name), _may_take(change)] = change
        self._newest = max((change.commit_ts for change in self._last.values()), default=0)

    def tables_of(self, change: SchemaChange) -> set[tuple[str, str]] | None:
        """Gives the tables whose rows a schema change touches, in lower case, as the target calls them; None where
        these may be any."""
        names = {_folded(name)[:2] for name in self._rows_of(change)}
        return names if names and all(map(all, names)) else None

    def target(self, table: TableName) -> TableName:
        """Gives the target's name of a table, in lower case; of one that is merged with others its own."""
        return table if self._routes.merges(table) else self._routes.target(table).folded

    def _rows_of(self, change: SchemaChange) -> Iterable[_RowsOf]:
        """Gives the names by which events call the rows of the tables that a schema change touches."""
        classification = classify_cached(change.text, change.schema)
        statement = classification.classified if isinstance(classification, Refused) else classification
        if statement is None:
            return
        if statement.database and not self._routes.merges_database(statement.database):
            yield _RowsOf(self._routes.whole_database(statement.database) or statement.database, _ALL_TABLES)
        for name in statement.tables:
            target = self._routes.target(name) if name.schema else name
            yield _RowsOf(*target, str(name) if self._routes.merges(name) else "")


def before_change(where: str, text: str = "") -> SourceError:
    """The error of a row from before a schema change that ran, which comes for the first time, or may."""
    return SourceError(
        f"this row is from before a schema change that has run already{text and f' ({text[:200]})'}, or may be: the"
        " sender was killed before it had sent it, and away for longer than stream.idle_seconds; or it was sent again"
        " behind a failover of the upstream",
        where=where,
        fix=f"{_ANEW}; a larger stream.idle_seconds waits longer for a sender, and GTIDs tell more behind a failover",
    )


_TAKES_NOTHING: Final = frozenset({ChangeClass.ADD_COLUMN, ChangeClass.ADD_INDEX, ChangeClass.NOTHING})


def _may_take(change: SchemaChange) -> bool:
    """Whether a row from before a schema change may not be applied behind it."""
    statement = classify_cached(change.text, change.schema)
    return isinstance(statement, Refused) or not _TAKES_NOTHING.issuperset(statement.classes)


def is_older(rows: pa.Table, times: Longs, highs: Longs, verdicts: Longs, change: SchemaChange) -> tuple[Bools, Bools]:
    """Tells which rows are copies from before a schema change; and which older ones are new, or may be on either side.

    The parameters are those of `RepeatedRows.among`.  Two kinds count as copies only if the schema change may take
    something: rows of its own millisecond, or second, whose partition had shown a later time; and rows of a later time
    whose place is before it, if their partition had shown that time.
    """
    millis, at = times >> TSO_LOGICAL_BITS, tso_ms(change.commit_ts)
    by_time = rows["by_time"].to_numpy(zero_copy_only=False)
    latest = latest_beside(millis, at)
    older = np.where(by_time, latest <= at, times <= change.commit_ts)
    is_clear, by_place = np.where(by_time, latest < at, older), np.zeros(len(times), np.bool_)
    if change.place and not is_of_sending(change.place) and rows["place"].null_count < rows.num_rows:
        places = Places.of(rows["place"])
        by_place, behind = places.compared(change.place, times < change.commit_ts, of_change=True)
        is_clear |= by_place & (millis == at)
        older = np.where(by_place, ~behind, older)
    shown = np.where(by_time, highs >> TSO_LOGICAL_BITS, highs)
    latest_ts = np.where(by_time, latest_beside(millis, shown), times)
    is_first = np.where(
        by_place & (verdicts >= 0), is_clear | (verdicts <= change.commit_ts), is_clear & (latest_ts > shown)
    )
    is_again = (verdicts == REPEATED) | (verdicts == MAY_UNDO) | (by_place & (verdicts == OF_LAST))
    is_unclear = (verdicts == MAY_UNDO) & ~is_clear & ~by_place
    is_first = older & np.where(is_again, is_unclear, is_first)
    takes = _may_take(change)
    was_shown = np.where(is_clear | (by_place & takes), latest_ts <= shown, (latest_ts < shown) & takes)
    is_repeated: Bools = older & ~is_first & (is_again | was_shown)
    return is_repeated, is_first


def _folded(name: _RowsOf) -> _RowsOf:
    """Statements may spell a name in another case than rows do, on a server that does not tell cases apart."""
    return _RowsOf(*(part.lower() for part in name))


def _by_table(rows: pa.Table) -> Iterable[tuple[_RowsOf, Longs]]:
    """Gives each table's name and the numbers of its rows."""
    names, groups = distinct(rows, ("schema", "table", "text"))
    for number, (schema, table, text) in enumerate(names):
        yield _RowsOf(schema, table, text or ""), np.flatnonzero(groups == number)
