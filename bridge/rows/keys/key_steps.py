"""Turns row changes into steps of keys, in order (see `net_changes`)."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.model import Column, Table
from bridge.rows.grouping import Bools, Longs, numbered
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
    steps.  key: literals joined by SEP.  number: equal for equal keys of one table.
    """

    row: Longs
    is_image: Bools
    moves: Bools
    key: pa.Array
    number: Longs

    @property
    def is_known(self) -> Bools:
        """Whether the row change holds the row of this key as it was before, or there was none."""
        known: Bools = ~(self.is_image & self.moves)
        return known

    @classmethod
    def of(cls, shapes: Sequence[RowShape], shape_of: Longs, changes: pa.Table, before: Cells, after: Cells) -> Steps:
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
        row, is_image = row[order], is_image[order]
        number = key.dictionary_encode().indices.to_numpy()[order].astype(np.int64)
        places = {name: i for i, name in enumerate(dict.fromkeys(shape.table.name for shape in shapes))}
        if len(places) > 1:
            place = np.array([places[shape.table.name] for shape in shapes])[shape_of]
            number = number * len(places) + place[row]
        return cls(row, is_image, moves[row], key.take(pa.array(order)), numbered(number))


def _order_of(changes: pa.Table) -> Longs:
    """Gives numbers that ascend with the row changes.  They are equal for changes of one commit_ts, which have no order
    among themselves; a change by event time has its own."""
    ts: Longs = changes["commit_ts"].to_numpy()
    if not pc.any(changes["by_time"]).as_py():
        return ts
    return np.where(changes["by_time"].to_numpy(), np.arange(len(ts)), np.searchsorted(ts, ts))


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
) -> Bools:
    """Tells where another unique value changes, or cannot be compared because the old row or the column is not known.

    shape_of, is_known, first, last: for each key, the shape of its last image, whether its old row is known, and its
    first and last row change.  by_time: whether old rows may have been completed from the present ones.
    """
    others = [
        [compared(shape, unique, by_time=by_time) for unique in other_uniques(shape.table, shape.key)]
        for shape in shapes
    ]
    found = np.zeros(len(shape_of), np.bool_)
    for i in range(max(map(len, others))):
        positions = [one[i] if i < len(one) else [] for one in others]
        was, now = before.joined(positions).take(pa.array(first)), after.joined(positions).take(pa.array(last))
        same = to_numpy(pc.fill_null(pc.equal(was, now), False)) & is_known
        found |= np.array([i < len(one) for one in others])[shape_of] & ~same
    return found


def compared(shape: RowShape, unique: Sequence[str], *, by_time: bool) -> list[int]:
    """Gives the positions of the columns of a unique value; [] when the columns do not tell the value."""
    if not set(unique) <= set(shape.names):
        return []
    if by_time and any(is_long(shape.table.columns[name]) for name in unique):
        return []
    return shape.at(unique)
