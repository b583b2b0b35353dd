"""Tells what comes before a changed key and what behind it, among rows of other partitions of the same moment.  Pure.

Official Canal's topics by `$pk$` have a change of a key in the partition of the new key, and all else of the old key in
another one.  The rows of one transaction have one GTID, and without GTIDs those of one second have one time, so that
neither tells which came first.  The rows themselves do: the change has the row as it was before, which is what the last
row change before it left.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import RAW, SEP, Kind, key_names
from bridge.rows.grouping import Bools, Longs, distinct
from bridge.rows.literal_offsets import Cells, to_numpy, whole

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


def passed(rows: pa.Table, ties: Longs, partitions: Longs) -> Lost:
    """Finds the rows that are sorted to the other side of a changed key of another partition than they were upstream.

    rows: row changes (OF_KEYS of EVENT_SCHEMA), in order.  ties: equal for those of which only the rows themselves tell
    which came first.  partitions: the number of each row's partition.
    """
    lost: Lost = defaultdict(set)
    is_spread = _are_spread(rows, partitions)
    moves = np.flatnonzero(_are_moves(rows, is_spread))
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


def _are_spread(rows: pa.Table, partitions: Longs) -> Bools:
    """Tells which rows are of a table that lies in several partitions."""
    tables = rows["table"].combine_chunks().dictionary_encode()
    are_there = np.zeros((len(tables.dictionary), int(partitions.max(initial=0)) + 1), np.bool_)
    codes = tables.indices.to_numpy()
    are_there[codes, partitions] = True
    spread: Bools = (are_there.sum(axis=1) > 1)[codes]
    return spread


def _are_moves(rows: pa.Table, among: Bools) -> Bools:
    """Tells which of some rows change their key."""
    moves = np.zeros(rows.num_rows, np.bool_)
    is_update = (rows["kind"].to_numpy() == Kind.UPDATE) & to_numpy(rows["before"].is_valid().combine_chunks())
    numbers = np.flatnonzero(among & is_update)
    if not len(numbers):
        return moves
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
    moves[numbers] = to_numpy(pc.fill_null(pc.not_equal(before, after), False))
    return moves


def each_keys(rows: pa.Table) -> Iterator[Keys]:
    """Gives the keys of each row change (OF_KEYS)."""
    return map(_keys_of, rows.select(OF_KEYS).to_pylist())
