"""Turns row changes into steps of keys, in order (see `net_changes`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from itertools import groupby
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP, Kind
from bridge.model import Column, Table
from bridge.rows.grouping import Bools, Longs, ends, numbered
from bridge.rows.keys.key_spellings import SameKeys, is_exact, respelled, spellings
from bridge.rows.literal_offsets import Cells, to_numpy


class RowShape(NamedTuple):
    """A table and a column list of its messages.

    names: the columns in lower case.  key: the key that identifies rows, () when there is none.
    lacks: whether the table has columns that are not generated and that the list does not name.
    """

    table: Table
    columns: str
    names: tuple[str, ...]
    key: tuple[str, ...]
    lacks: bool

    @classmethod
    def of(cls, table: Table, columns: str, key: tuple[str, ...]) -> RowShape:
        """Reads a column list as messages have it."""
        names = tuple(columns.lower().split(SEP))
        lacks = not table.written_names.issubset(names)
        return cls(table, columns, names, key, lacks)

    def at(self, names: Iterable[str]) -> list[int]:
        """Gives the positions of columns."""
        return [self.names.index(name) for name in names]


class Steps(NamedTuple):
    """What row changes do to keys, in order: a row change is one step, or two steps when it moves its row to another
    key.

    row: the number of the row change.  is_image: whether the key has a row afterwards.  moves: whether it is one of two
    steps.  key: literals joined by SEP.  number: equal for keys of one table that the server takes for one.
    varies: for each number, whether its steps spell the key in several ways; None where none does, or where that is
        right (`Table.guards_spelling`).
    """

    row: Longs
    is_image: Bools
    moves: Bools
    key: pa.Array
    number: Longs
    varies: Bools | None = None

    def varies_by_number(self) -> Bools:
        """Gives `varies` for each number, also where none does."""
        return np.zeros(int(self.number.max(initial=-1)) + 1, np.bool_) if self.varies is None else self.varies

    @property
    def is_known(self) -> Bools:
        """Whether the row change holds the row of this key as it was before, or there was none."""
        known: Bools = ~(self.is_image & self.moves)
        return known

    def respelled(self, shapes: Sequence[RowShape], shape_of: Longs) -> tuple[Longs, Longs]:
        """Finds the steps by which rows went away under another spelling of their key than its last step has, and
        gives them with these last steps.  It does so where the server finds a row by one spelling only: where the key
        holds only the beginnings of values, but a condition compares whole values."""
        is_prefix = np.array([shape.key in shape.table.prefixes for shape in shapes], np.bool_)
        if not is_prefix.any():
            return np.empty(0, np.int64), np.empty(0, np.int64)
        went = np.flatnonzero(is_prefix[shape_of[self.row]] & ~self.is_image)
        last = ends(self.number)[1][self.number[went]]
        differs = to_numpy(pc.not_equal(self.key.take(pa.array(went)), self.key.take(pa.array(last))))
        return went[differs], last[differs]

    @classmethod
    def of(
        cls,
        shapes: Sequence[RowShape],
        shape_of: Longs,
        changes: pa.Table,
        before: Cells,
        after: Cells,
        same_keys: SameKeys,
    ) -> Steps:
        """Makes the steps of row changes, in the order of `_order_of`.  Where steps are equal in that order, images
        come after deletes, and win over them."""
        positions = [shape.at(shape.key) for shape in shapes]
        old, new = before.joined(positions), after.joined(positions)
        moves = to_numpy(pc.fill_null(pc.not_equal(old, new), False))
        goes = np.flatnonzero(to_numpy(old.is_valid()) & (moves | ~after.is_image))
        comes = np.flatnonzero(to_numpy(new.is_valid()))
        row, is_image = np.concatenate([goes, comes]), np.arange(len(goes) + len(comes)) >= len(goes)
        key = pa.concat_arrays([old.take(pa.array(goes)), new.take(pa.array(comes))])
        order = np.argsort(_order_of(changes)[row], kind="stable")
        lacks_old = (changes["kind"].to_numpy() == Kind.UPDATE) & ~before.is_image
        spelled = _one_spelling(shapes, shape_of[row], key, ~is_image | lacks_old[row], same_keys)
        row, is_image = row[order], is_image[order]
        number = spelled.dictionary_encode().indices.to_numpy()[order].astype(np.int64)
        places = {name: i for i, name in enumerate(dict.fromkeys(shape.table.name for shape in shapes))}
        if len(places) > 1:
            place = np.array([places[shape.table.name] for shape in shapes])[shape_of]
            number = number * len(places) + place[row]
        spelled_once = spelled is key or not any(shape.table.guards_spelling for shape in shapes)
        key, number = key.take(pa.array(order)), numbered(number)
        return cls(row, is_image, moves[row], key, number, None if spelled_once else _varies(key, number))


def _varies(key: pa.Array, number: Longs) -> Bools:
    """Tells for each number whether its keys differ."""
    found = np.zeros(int(number.max(initial=-1)) + 1, np.bool_)
    first, _ = ends(number)
    found[number[to_numpy(pc.not_equal(key, key.take(pa.array(first[number]))))]] = True
    return found


def _order_of(changes: pa.Table) -> Longs:
    """Gives numbers that ascend with the row changes.  They are equal for changes of one commit_ts, which have no order
    among themselves; a change by event time has its own."""
    ts: Longs = changes["commit_ts"].to_numpy()
    if not pc.any(changes["by_time"]).as_py():
        return ts
    return np.where(changes["by_time"].to_numpy(), np.arange(len(ts)), np.searchsorted(ts, ts))


def _one_spelling(
    shapes: Sequence[RowShape], shape_of: Longs, keys: pa.Array, goes: Bools, same_keys: SameKeys
) -> pa.Array:
    """Gives the keys, each in the spelling that represents all that the server takes for one key.  goes: whether the
    row of the key went away, or may have gone under another spelling."""
    inexact = [number for number, shape in enumerate(shapes) if shape.key and not is_exact(shape.table, shape.key)]
    for _, numbers in groupby(sorted(inexact, key=lambda n: shapes[n].table.name), lambda n: shapes[n].table.name):
        of_table = list(numbers)
        shape, mine = shapes[of_table[0]], np.isin(shape_of, of_table)
        same = spellings(shape.table, shape.key, keys.filter(pa.array(mine)), goes[mine], same_keys)
        if same:
            keys = pc.replace_with_mask(keys, pa.array(mine), respelled(keys.filter(pa.array(mine)), same))
    return keys


def other_uniques(table: Table, key: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Gives the unique keys besides the one that identifies rows."""
    return [unique for unique in table.uniques if frozenset(unique) != frozenset(key)]


def is_long(column: Column) -> bool:
    """Tells whether binlog_row_image=NOBLOB leaves a column out of the old row, even when the column changes."""
    return _LONG.match(column.type) is not None


_LONG: Final = re.compile(r"(?:tiny|medium|long)?(?:text|blob)|json|geom|point|line|poly|multi")


def freed(
    shapes: Sequence[RowShape],
    shape_of: Longs,
    is_known: Bools,
    before: Cells,
    after: Cells,
    first: Longs,
    last: Longs,
    *,
    by_time: bool,
    parts: bool = False,
) -> Bools:
    """Tells where another unique value changes, or cannot be compared because the old row or the column is not known.

    shape_of, is_known, first, last: for each key, the shape of its last image, whether its old row is known, and its
    first and last row change.  by_time: whether old rows may have been completed from the present ones.  parts: whether
    an absent column kept its value.
    """
    others = [
        [_compared(shape, unique, by_time=by_time, parts=parts) for unique in other_uniques(shape.table, shape.key)]
        for shape in shapes
    ]
    found = np.zeros(len(shape_of), np.bool_)
    for i in range(max(map(len, others))):
        positions = [(one[i] if i < len(one) else None) or [] for one in others]
        was, now = before.joined(positions).take(pa.array(first)), after.joined(positions).take(pa.array(last))
        same = to_numpy(pc.fill_null(pc.equal(was, now), False)) & is_known
        found |= np.array([i < len(one) and one[i] is not None for one in others])[shape_of] & ~same
    return found


def _compared(shape: RowShape, unique: Sequence[str], *, by_time: bool, parts: bool) -> list[int] | None:
    """Gives the positions of the columns of a unique value; [] when the columns do not tell the value, None when the
    value stays."""
    present = [name for name in unique if name in shape.names]
    if (len(present) < len(unique) and not parts) or "" in unique:
        return []
    if by_time and any(is_long(shape.table.columns[name]) for name in present):
        return []
    return shape.at(present) if present else None
