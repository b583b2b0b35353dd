"""Finds rows that come too late: later rows of their keys, from other partitions, are in the target.

Official Canal may choose the partition by values of the row (`$pk$` or columns).  When these change, the key goes on in
another partition, which may be read earlier.  Where rows tell their places in one binlog, a late row does nothing to a
key that a row of another partition, behind it in the binlog, has touched.
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


def passed_keys(rows: pa.Table, ties: Longs, partitions: Longs, is_spread: Bools, moves: Longs) -> Lost:
    """Finds rows that the merge puts on the wrong side of a row of another partition that changes their key.

    rows: row changes (OF_KEYS of EVENT_SCHEMA), in order.  ties: equal for those of which only the rows themselves tell
    which came first.  partitions: the number of each row's partition.  is_spread: which rows are of a table that lies
    in several partitions.  moves: those of them that change their key.
    """
    lost: Lost = defaultdict(set)
    if not len(moves):
        return lost
    tied = np.flatnonzero(np.isin(ties, ties[moves]) & is_spread)
    rows_by_number = dict(zip(tied.tolist(), rows.select(OF_KEYS).take(pa.array(tied)).to_pylist(), strict=True))
    keys = {number: _keys_of(row) for number, row in rows_by_number.items()}
    touching: dict[tuple[int, Key | None], list[int]] = defaultdict(list)
    for number in tied.tolist():
        for key in {*keys[number]}:
            touching[int(ties[number]), key].append(number)
    count: Counter[tuple[int, Key]] = Counter()
    for move in moves.tolist():
        old, tie = keys[move][0], int(ties[move])
        assert old is not None  # it has another key than after
        same_key = [n for n in touching[tie, old] if partitions[n] != partitions[move]]
        before = _before(rows_by_number[move], [(rows_by_number[n], keys[n]) for n in same_key], old, count[tie, old])
        count[tie, old] += 1
        for number in same_key[:before]:
            if number > move and keys[number][1] == old:
                lost[number].add(old)
        if any(number < move and keys[number][1] == old for number in same_key[before:]):
            lost[move].add(old)
    return lost


def _before(move: Row, same_key: Sequence[tuple[Row, Keys]], old: Key, nth: int) -> int:
    """Tells how many of the other rows of a key, in order, come before its `nth` change (from 0).

    All of them; but if one makes the key although it was there, those before that one; and none, if the first one makes
    the key and the last one left another row than the one that is changed.
    """
    makes = [now == old != was for _, (was, now) in same_key]
    repeats = [n for n in range(1, len(same_key)) if makes[n] and same_key[n - 1][1][1] == old]
    if nth < len(repeats):
        return repeats[nth]
    is_first = not repeats and bool(same_key) and makes[0] and same_key[-1][0]["after"] != move["before"]
    return 0 if is_first else len(same_key)


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
    updates = rows.take(pa.array(numbers))
    shapes, shape_of = distinct(updates, ("columns", "key"))
    names = [(columns or "").partition(RAW)[0].split(SEP) for columns, _ in shapes]
    at = [
        [own.index(name) for name in key_names(key or "") if name in own]
        for own, (_, key) in zip(names, shapes, strict=True)
    ]
    before, after = (
        Cells(whole(updates[image]), shape_of, [len(own) for own in names]).joined(at) for image in ("before", "after")
    )
    return numbers[to_numpy(pc.fill_null(pc.not_equal(before, after), False))]


def keys_of_each(rows: pa.Table) -> Iterator[Keys]:
    """Gives the keys of each row change (OF_KEYS)."""
    return map(_keys_of, rows.select(OF_KEYS).to_pylist())


RECENT_ROWS: Final = 50_000
"""How many of the last rows are kept, with which late rows are compared."""
_FIX: Final = "a key that changed its partition then may have an earlier row: bridge verify --against upstream shows it"
log = structlog.get_logger()


class _Recent(NamedTuple):
    """Rows that were taken out, in the order of their places.  partitions: the number of each row's partition."""

    rows: pa.Table
    ranks: Longs
    partitions: Longs


class OvertakenRows:
    """Keeps in memory the last rows of all partitions of an upstream that tell their places in one binlog.  What comes
    behind a restart, or later than so many rows, is applied, and the log warns of the table once."""

    def __init__(self, most: int = RECENT_ROWS) -> None:
        self._most = most
        self._binlog: tuple[int, tuple[str, ...]] = (0, ())
        self._recent: deque[_Recent] = deque()
        self._unseen = -1
        """The highest rank of the rows that are not kept any more."""
        self._unclear: set[tuple[str, ...]] = set()
        """Tables with late rows that could not be compared."""
        self._warned_tables: set[tuple[str, ...]] = set()
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
            return _without_overtaken(rows, self._keys_by_time(rows, times, partitions)) if is_canals else (rows, None)
        highest = self._highest((since, tuple(sorted(places.numbers))), applied)
        highest_elsewhere = np.array([np.delete(highest, number).max(initial=-1) for number in range(len(highest))])
        of_binlog = times >= since
        late = np.flatnonzero((ranks < highest_elsewhere[partitions]) & of_binlog)
        lost = self._passed_keys(rows, ranks, partitions)
        if len(late):
            unseen = rows.take(pa.array(late[ranks[late] < self._unseen]))
            self._unclear.update(distinct(unseen, ("schema", "table"))[0])
            touched = self._touched(rows["table"], late, partitions, int(ranks[late].min()))
            _add_overtaken(lost, rows, late, ranks, partitions, touched)
        self._keep(_Recent(rows.select(OF_KEYS).filter(pa.array(of_binlog)), ranks[of_binlog], partitions[of_binlog]))
        self._warn({name for name in self._unclear if len(self._partitions[name[1]]) > 1})
        return _without_overtaken(rows, lost)

    def _keys_by_time(self, rows: pa.Table, times: Longs, partitions: Longs) -> Lost:
        """Finds such keys among the rows of one second; warns of rows that came later than the change of a key."""
        is_spread = self._are_spread(rows, partitions)
        moves = _moves(rows, is_spread)
        for name, (ts, where) in self._moved.items():
            late = _of_table(rows, name) & (times <= ts) & (partitions != where)
            self._warn({name} if late.any() else set())
        columns = (rows["schema"].take(moves), rows["table"].take(moves))
        for schema, table, number in zip(*(column.to_pylist() for column in columns), moves.tolist(), strict=True):
            self._moved[schema, table] = int(times[number]), int(partitions[number])
        return passed_keys(rows, times, partitions, is_spread, moves)

    def _are_spread(self, rows: pa.Table, partitions: Longs) -> Bools:
        """Tells which rows are of a table that lies in several partitions."""
        tables = rows["table"].combine_chunks().dictionary_encode()
        are_there = np.zeros((len(tables.dictionary), int(partitions.max(initial=0)) + 1), np.bool_)
        codes = tables.indices.to_numpy()
        are_there[codes, partitions] = True
        for name, where in zip(tables.dictionary.to_pylist(), are_there, strict=True):
            self._partitions[name].update(np.flatnonzero(where).tolist())
        spread = np.array([len(self._partitions[name]) > 1 for name in tables.dictionary.to_pylist()], np.bool_)
        are_spread: Bools = spread[codes]
        return are_spread

    def _passed_keys(self, rows: pa.Table, ranks: Longs, partitions: Longs) -> Lost:
        """Finds such keys among the rows of one transaction, those that were kept included."""
        tied = [(recent, np.isin(recent.ranks, ranks)) for recent in self._recent if recent.ranks.max() >= ranks.min()]
        tables = [recent.rows.filter(pa.array(is_tied)) for recent, is_tied in tied]
        start = sum(table.num_rows for table in tables)
        beside = pa.concat_tables([*tables, rows.select(OF_KEYS)])
        ties = np.concatenate([*(recent.ranks[is_tied] for recent, is_tied in tied), ranks])
        where = np.concatenate([*(recent.partitions[is_tied] for recent, is_tied in tied), partitions])
        is_spread = self._are_spread(beside, where)
        lost = passed_keys(beside, ties, where, is_spread, _moves(beside, is_spread))
        return defaultdict(set, {number - start: keys for number, keys in lost.items() if number >= start})

    def _highest(self, binlog: tuple[int, tuple[str, ...]], applied: Sequence[AppliedRow]) -> Longs:
        """Gives the rank up to which each partition was taken out, -1 where its place is of another binlog."""
        highest = np.full(len(applied), -1, np.int64)
        since, names = binlog
        comparable = [
            number
            for number, last in enumerate(applied)
            if last.place and last.ts >= since and tuple(sorted(coordinates_of(last.place))) == names
        ]
        ranks = Places.of(pa.array([applied[n].place for n in comparable], pa.string())).ranks()
        if ranks is not None:
            highest[comparable] = ranks
        if binlog != self._binlog:
            self._binlog, self._unseen = binlog, int(highest.max(initial=-1))
            self._recent.clear()
        return highest

    def _keep(self, recent: _Recent) -> None:
        if len(recent.ranks) > self._most:
            last = np.argsort(recent.ranks, kind="stable")
            self._unseen = max(self._unseen, int(recent.ranks[last[-self._most - 1]]))
            last = last[-self._most :]
            recent = _Recent(take_rows(recent.rows, last), recent.ranks[last], recent.partitions[last])
        if len(recent.ranks):
            self._recent.append(recent)
        while sum(len(run.ranks) for run in self._recent) > self._most:
            self._unseen = max(self._unseen, int(self._recent.popleft().ranks.max()))

    def _touched(
        self, tables: pa.ChunkedArray, late: Longs, partitions: Longs, lowest: int
    ) -> dict[Key, dict[int, int]]:
        """Gives by key and partition the highest rank of the kept rows that may have overtaken late ones.  Those are
        rows of the same tables in other partitions.  tables: those of all rows."""
        of_late = tables.take(pa.array(late)).combine_chunks().dictionary_encode()
        count = int(partitions.max()) + 1
        is_late = np.zeros((len(of_late.dictionary) + 1, count), np.bool_)  # the last one is of no table
        is_late[of_late.indices.to_numpy(), partitions[late]] = True
        touched: dict[Key, dict[int, int]] = {}
        for recent in self._recent:
            codes = pc.fill_null(
                pc.index_in(recent.rows["table"], of_late.dictionary), len(of_late.dictionary)
            ).to_numpy()
            own = (recent.partitions < count) & is_late[codes, np.minimum(recent.partitions, count - 1)]
            behind = np.flatnonzero((is_late.sum(axis=1)[codes] > own) & (recent.ranks > lowest))
            for number, keys in zip(behind.tolist(), keys_of_each(recent.rows.take(pa.array(behind))), strict=True):
                for key in keys:
                    if key is not None:
                        ranks = touched.setdefault(key, {})
                        where = int(recent.partitions[number])
                        ranks[where] = max(ranks.get(where, -1), int(recent.ranks[number]))
        return touched

    def _warn(self, names: set[tuple[str, ...]]) -> None:
        """Warns once of each table that its late rows could not be compared."""
        for name in sorted(names - self._warned_tables):
            log.warning("late_rows", table=".".join(name), fix=_FIX)
        self._warned_tables |= names


def _of_table(rows: pa.Table, name: tuple[str, str]) -> Bools:
    is_of_table: Bools = pc.and_(pc.equal(rows["schema"], name[0]), pc.equal(rows["table"], name[1])).to_numpy()
    return is_of_table


def _add_overtaken(
    lost: Lost, rows: pa.Table, late: Longs, ranks: Longs, partitions: Longs, touched: Mapping[Key, Mapping[int, int]]
) -> None:
    """Adds the keys of late rows that were touched behind them."""
    for number, keys in zip(
        late.tolist(), keys_of_each(rows.take(pa.array(late))) if touched else (), strict=bool(touched)
    ):
        rank, where = int(ranks[number]), int(partitions[number])
        for key in keys:
            if key is not None and any(r > rank for w, r in touched.get(key, {}).items() if w != where):
                lost[number].add(key)


def _without_overtaken(rows: pa.Table, lost: Lost) -> tuple[pa.Table, Bools | None]:
    """Takes from rows what they do to keys; also tells which do nothing any more."""
    if not lost:
        return rows, None
    stays, comes, overtaken = np.zeros((3, rows.num_rows), np.bool_)
    numbers = sorted(lost)
    for number, (old, new) in zip(numbers, keys_of_each(rows.take(pa.array(numbers))), strict=True):
        overtaken[number] = lost[number] >= {old, new} - {None}
        stays[number] = not overtaken[number] and old in lost[number]
        comes[number] = not overtaken[number] and new in lost[number]
    if stays.any() or comes.any():
        kinds = np.where(stays, int(Kind.INSERT), np.where(comes, int(Kind.DELETE), rows["kind"].to_numpy()))
        rows = with_column(rows, "kind", pa.array(kinds, pa.int8()))
        for name, is_null in (("before", stays), ("after", comes)):
            rows = with_column(rows, name, rows[name].take(pa.array(np.arange(rows.num_rows), mask=is_null)))
    return rows, overtaken
