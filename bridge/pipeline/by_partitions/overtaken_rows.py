"""Finds rows that come too late: rows of another partition, which are in the target, have touched their keys since.

A sender that chooses the partition by values of the row (official Canal, `$pk$` or columns) gives a row to another
partition when these change: then rows of one key are in two partitions, of which one may be read later than the other.
Where rows tell their places in one binlog, what a late row does to a key counts only if no row of another partition
that stands behind it has touched that key.
"""

from __future__ import annotations

from collections import Counter, defaultdict, deque
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import structlog

from bridge.events import RAW, SEP, Kind, key_names
from bridge.pipeline.by_partitions.partition_queue import AppliedRow
from bridge.protocols.values.event_time import SENT
from bridge.rows.gathering import Bools, Longs, distinct, take_rows, with_column
from bridge.rows.literal_offsets import Cells, to_numpy, whole
from bridge.rows.moments import Places, coordinates_of

OF_KEYS: Final = ("kind", "schema", "table", "columns", "key", "before", "after")
"""The columns of events that tell the keys of rows."""
Key = tuple[str, str, str]
"""Database, table, and the literals of the key."""
Row = dict[str, Any]
"""A row change (OF_KEYS)."""
Keys = tuple[Key | None, Key | None]
"""Before and after a row change; None where there is no row, or the message names no key."""
Lost = defaultdict[int, set[Key]]
"""For rows, by number, the keys to which they do nothing any more."""


def passed(rows: pa.Table, ties: Longs, partitions: Longs, is_spread: Bools, moves: Longs) -> Lost:
    """Finds the rows that are sorted to the other side of a changed key of another partition than they were upstream.

    rows: row changes (OF_KEYS of EVENT_SCHEMA), in order.  ties: equal for those of which only the rows themselves tell
    which came first.  partitions: the number of each row's partition.  is_spread: which rows are of a table that lies
    in several partitions.  moves: those of them that change their key.
    """
    lost: Lost = defaultdict(set)
    if not len(moves):
        return lost
    tied = np.flatnonzero(np.isin(ties, ties[moves]) & is_spread)
    told = dict(zip(tied.tolist(), rows.select(OF_KEYS).take(pa.array(tied)).to_pylist(), strict=True))
    keys = {number: _keys_of(row) for number, row in told.items()}
    touching: dict[tuple[int, Key | None], list[int]] = defaultdict(list)
    for number in tied.tolist():
        for key in {*keys[number]}:
            touching[int(ties[number]), key].append(number)
    count: Counter[tuple[int, Key]] = Counter()
    for move in moves.tolist():
        old, tie = keys[move][0], int(ties[move])
        assert old is not None  # it has another key than after
        others = [n for n in touching[tie, old] if partitions[n] != partitions[move]]
        before = _before(told[move], [(told[n], keys[n]) for n in others], old, count[tie, old])
        count[tie, old] += 1
        for number in others[:before]:
            if number > move and keys[number][1] == old:
                lost[number].add(old)
        if any(number < move and keys[number][1] == old for number in others[before:]):
            lost[move].add(old)
    return lost


def _before(move: Row, others: Sequence[tuple[Row, Keys]], old: Key, nth: int) -> int:
    """Tells how many of the other rows of a key, in order, come before its `nth` change (from 0).

    Where a row makes the key although it was there, the change comes before that row.  Otherwise it comes behind all of
    them, unless the first one makes the key and the last one left another row than the one that is changed.
    """
    makes = [now == old != was for _, (was, now) in others]
    again = [n for n in range(1, len(others)) if makes[n] and others[n - 1][1][1] == old]
    if nth < len(again):
        return again[nth]
    is_first = not again and bool(others) and makes[0] and others[-1][0]["after"] != move["before"]
    return 0 if is_first else len(others)


def _keys_of(row: Row) -> Keys:
    names = (row["columns"] or "").partition(RAW)[0].split(SEP)
    at = [names.index(name) for name in key_names(row["key"] or "") if name in names]
    return _key(row, "before", at), _key(row, "after", at)


def _key(row: Row, image: str, at: list[int]) -> Key | None:
    if not at or row[image] is None:
        return None
    literals = row[image].split(SEP)
    return row["schema"], row["table"], SEP.join(literals[position] for position in at)


def _moves(rows: pa.Table, among: Bools) -> Longs:
    """Gives those of some rows that change their key."""
    is_update = (rows["kind"].to_numpy() == Kind.UPDATE) & to_numpy(rows["before"].is_valid().combine_chunks())
    numbers = np.flatnonzero(among & is_update)
    if not len(numbers):
        return numbers
    some = rows.take(pa.array(numbers))
    shapes, shape_of = distinct(some, ("columns", "key"))
    names = [(columns or "").partition(RAW)[0].split(SEP) for columns, _ in shapes]
    at = [
        [mine.index(name) for name in key_names(key or "") if name in mine]
        for mine, (_, key) in zip(names, shapes, strict=True)
    ]
    before, after = (
        Cells(whole(some[image]), shape_of, [len(mine) for mine in names]).joined(at) for image in ("before", "after")
    )
    return numbers[to_numpy(pc.fill_null(pc.not_equal(before, after), False))]


def each_keys(rows: pa.Table) -> Iterator[Keys]:
    """Gives the keys of each row change (OF_KEYS)."""
    return map(_keys_of, rows.select(OF_KEYS).to_pylist())


KEPT_ROWS: Final = 50_000
"""How many of the last rows are kept, with which late rows are compared."""
_FIX: Final = "a key that changed its partition then may have an earlier row: bridge verify --against upstream shows it"
log = structlog.get_logger()


class _Kept(NamedTuple):
    """Rows that were taken out, in the order of their places.  partitions: the number of each row's partition."""

    rows: pa.Table
    ranks: Longs
    partitions: Longs


class OvertakenRows:
    """Keeps the last rows of all partitions of an upstream, as far as they tell their places in one binlog.

    They are kept in memory.  What comes behind a restart, or later than so many other rows, is applied; for each table
    that lies in several partitions the log says once that an earlier row may have come back.
    """

    def __init__(self, most: int = KEPT_ROWS) -> None:
        self._most = most
        self._binlog: tuple[int, tuple[str, ...]] = (0, ())
        self._kept: deque[_Kept] = deque()
        self._unseen = -1
        """The highest rank of the rows that were taken out and are not kept."""
        self._unclear: set[tuple[str, ...]] = set()
        """Tables with late rows that could not be compared."""
        self._named: set[tuple[str, ...]] = set()
        self._partitions: dict[str, set[int]] = defaultdict(set)
        """By a table's name the numbers of the partitions in which its rows came."""
        self._moved: dict[tuple[str, str], tuple[int, int]] = {}
        """By table, where messages tell no places in a binlog: when a row changed its key last (TSO), and where."""

    def without(
        self, rows: pa.Table, places: Places, times: Longs, partitions: Longs, applied: Sequence[AppliedRow], since: int
    ) -> tuple[pa.Table, Bools | None]:
        """Takes from late rows what was overtaken, and keeps them all.

        rows: those that are taken out now (EVENT_SCHEMA, merged).  places, times: their places and event times (TSO).
        partitions: the number of each row's partition; partitions keep their numbers.
        applied: by number of a partition, the last row taken out before.
        since: when the binlog began (TSO): places of before are not compared.

        Gives the rows, of which a changed key may have become an INSERT or a DELETE; and which of them do nothing any
        more, None for none.
        """
        ranks = places.ranks()
        if ranks is None:
            is_canals = SENT in places.numbers  # a swap of TiDB has two such changes of keys in one transaction
            return _without_lost(rows, self._passed_by_time(rows, times, partitions)) if is_canals else (rows, None)
        highest = self._highest((since, tuple(sorted(places.numbers))), applied)
        others = np.array([np.delete(highest, one).max(initial=-1) for one in range(len(highest))])
        of_binlog = times >= since
        late = np.flatnonzero((ranks < others[partitions]) & of_binlog)
        lost = self._passed(rows, ranks, partitions)
        if len(late):
            unseen = rows.take(pa.array(late[ranks[late] < self._unseen]))
            self._unclear.update(distinct(unseen, ("schema", "table"))[0])
            touched = self._touched(rows["table"], late, partitions, int(ranks[late].min()))
            _add_overtaken(lost, rows, late, ranks, partitions, touched)
        self._keep(_Kept(rows.select(OF_KEYS).filter(pa.array(of_binlog)), ranks[of_binlog], partitions[of_binlog]))
        self._tell({name for name in self._unclear if len(self._partitions[name[1]]) > 1})
        return _without_lost(rows, lost)

    def _passed_by_time(self, rows: pa.Table, times: Longs, partitions: Longs) -> Lost:
        """Gives what the rows of one second tell of each other, and names tables with rows that came later than the
        change of a key, which may have been theirs."""
        is_spread = self._are_spread(rows, partitions)
        moves = _moves(rows, is_spread)
        for name, (ts, where) in self._moved.items():
            late = _of_table(rows, name) & (times <= ts) & (partitions != where)
            self._tell({name} if late.any() else set())
        columns = (rows["schema"].take(moves), rows["table"].take(moves))
        for schema, table, number in zip(*(column.to_pylist() for column in columns), moves.tolist(), strict=True):
            self._moved[schema, table] = int(times[number]), int(partitions[number])
        return passed(rows, times, partitions, is_spread, moves)

    def _are_spread(self, rows: pa.Table, partitions: Longs) -> Bools:
        """Tells which rows are of a table that lies in several partitions."""
        tables = rows["table"].combine_chunks().dictionary_encode()
        are_there = np.zeros((len(tables.dictionary), int(partitions.max(initial=0)) + 1), np.bool_)
        codes = tables.indices.to_numpy()
        are_there[codes, partitions] = True
        for name, where in zip(tables.dictionary.to_pylist(), are_there, strict=True):
            self._partitions[name].update(np.flatnonzero(where).tolist())
        spread = np.array([len(self._partitions[name]) > 1 for name in tables.dictionary.to_pylist()], np.bool_)
        found: Bools = spread[codes]
        return found

    def _passed(self, rows: pa.Table, ranks: Longs, partitions: Longs) -> Lost:
        """Gives what the rows of one transaction tell of each other, those that were taken out before included."""
        tied = [(kept, np.isin(kept.ranks, ranks)) for kept in self._kept if kept.ranks.max() >= ranks.min()]
        tables = [kept.rows.filter(pa.array(is_tied)) for kept, is_tied in tied]
        start = sum(table.num_rows for table in tables)
        beside = pa.concat_tables([*tables, rows.select(OF_KEYS)])
        ties = np.concatenate([*(kept.ranks[is_tied] for kept, is_tied in tied), ranks])
        where = np.concatenate([*(kept.partitions[is_tied] for kept, is_tied in tied), partitions])
        is_spread = self._are_spread(beside, where)
        lost = passed(beside, ties, where, is_spread, _moves(beside, is_spread))
        return defaultdict(set, {number - start: keys for number, keys in lost.items() if number >= start})

    def _highest(self, binlog: tuple[int, tuple[str, ...]], applied: Sequence[AppliedRow]) -> Longs:
        """Gives the rank up to which each partition was taken out, -1 where its place is of another binlog."""
        found = np.full(len(applied), -1, np.int64)
        since, names = binlog
        same = [
            number
            for number, last in enumerate(applied)
            if last.place and last.ts >= since and tuple(sorted(coordinates_of(last.place))) == names
        ]
        ranks = Places.of(pa.array([applied[n].place for n in same], pa.string())).ranks()
        if ranks is not None:
            found[same] = ranks
        if binlog != self._binlog:
            self._binlog, self._unseen = binlog, int(found.max(initial=-1))
            self._kept.clear()
        return found

    def _keep(self, kept: _Kept) -> None:
        if len(kept.ranks) > self._most:
            last = np.argsort(kept.ranks, kind="stable")
            self._unseen = max(self._unseen, int(kept.ranks[last[-self._most - 1]]))
            last = last[-self._most :]
            kept = _Kept(take_rows(kept.rows, last), kept.ranks[last], kept.partitions[last])
        if len(kept.ranks):
            self._kept.append(kept)
        while sum(len(one.ranks) for one in self._kept) > self._most:
            self._unseen = max(self._unseen, int(self._kept.popleft().ranks.max()))

    def _touched(
        self, tables: pa.ChunkedArray, late: Longs, partitions: Longs, lowest: int
    ) -> dict[Key, dict[int, int]]:
        """Gives by key and partition the highest rank of the kept rows that may have overtaken late ones: those of the
        same tables in other partitions.  tables: those of all rows."""
        of_late = tables.take(pa.array(late)).combine_chunks().dictionary_encode()
        count = int(partitions.max()) + 1
        is_late = np.zeros((len(of_late.dictionary) + 1, count), np.bool_)  # the last one is of no table
        is_late[of_late.indices.to_numpy(), partitions[late]] = True
        touched: dict[Key, dict[int, int]] = {}
        for kept in self._kept:
            codes = pc.fill_null(
                pc.index_in(kept.rows["table"], of_late.dictionary), len(of_late.dictionary)
            ).to_numpy()
            own = (kept.partitions < count) & is_late[codes, np.minimum(kept.partitions, count - 1)]
            behind = np.flatnonzero((is_late.sum(axis=1)[codes] > own) & (kept.ranks > lowest))
            for number, keys in zip(behind.tolist(), each_keys(kept.rows.take(pa.array(behind))), strict=True):
                for key in keys:
                    if key is not None:
                        ranks = touched.setdefault(key, {})
                        where = int(kept.partitions[number])
                        ranks[where] = max(ranks.get(where, -1), int(kept.ranks[number]))
        return touched

    def _tell(self, names: set[tuple[str, ...]]) -> None:
        """Says once of tables that lie in several partitions that their late rows could not be compared."""
        for name in sorted(names - self._named):
            log.warning("late_rows", table=".".join(name), fix=_FIX)
        self._named |= names


def _of_table(rows: pa.Table, name: tuple[str, str]) -> Bools:
    found: Bools = pc.and_(pc.equal(rows["schema"], name[0]), pc.equal(rows["table"], name[1])).to_numpy()
    return found


def _add_overtaken(
    lost: Lost, rows: pa.Table, late: Longs, ranks: Longs, partitions: Longs, touched: Mapping[Key, Mapping[int, int]]
) -> None:
    """Adds the keys of late rows that were touched behind them."""
    for number, keys in zip(
        late.tolist(), each_keys(rows.take(pa.array(late))) if touched else (), strict=bool(touched)
    ):
        rank, where = int(ranks[number]), int(partitions[number])
        for key in keys:
            if key is not None and any(r > rank for w, r in touched.get(key, {}).items() if w != where):
                lost[number].add(key)


def _without_lost(rows: pa.Table, lost: Lost) -> tuple[pa.Table, Bools | None]:
    """Takes from rows what they do to keys; also tells which do nothing any more."""
    if not lost:
        return rows, None
    stays, comes, overtaken = np.zeros((3, rows.num_rows), np.bool_)
    numbers = sorted(lost)
    for number, (old, new) in zip(numbers, each_keys(rows.take(pa.array(numbers))), strict=True):
        overtaken[number] = lost[number] >= {old, new} - {None}
        stays[number] = not overtaken[number] and old in lost[number]
        comes[number] = not overtaken[number] and new in lost[number]
    if stays.any() or comes.any():
        kinds = np.where(stays, int(Kind.INSERT), np.where(comes, int(Kind.DELETE), rows["kind"].to_numpy()))
        rows = with_column(rows, "kind", pa.array(kinds, pa.int8()))
        for name, gone in (("before", stays), ("after", comes)):
            rows = with_column(rows, name, rows[name].take(pa.array(np.arange(rows.num_rows), mask=gone)))
    return rows, overtaken
