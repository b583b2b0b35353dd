"""Computes the net changes of a table whose messages hold parts of rows: an absent column of an update kept its value.

Parts of rows come in changes that go by event time and lack columns of the target's table: official Canal's under
binlog_row_image=NOBLOB, and Debezium's without values that the binlog did not hold.  (A change with a commit ts is
whole: only the target has the columns that it lacks.)  The image of a row is what all its changes hold together; later
changes win.  Where that is not the whole row, and no insert is among the changes, the target's row holds the rest, at
the key that the row had before all changes.  That row must exist: without it nobody knows the rest.

An insert is a whole row, even if it lacks columns: these have their defaults, or only the target has them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.errors import RefusedRowsError
from bridge.events import SEP, Code, Kind, Position
from bridge.model import Table
from bridge.rows.arrow_images import TEXT
from bridge.rows.grouping import Bools, Longs, ends
from bridge.rows.keys.key_steps import RowShape, Steps, freed, is_long, other_uniques
from bridge.rows.literal_offsets import Cells

_FIX: Final = (
    "the target differs from the upstream, or messages came out of order; copy the row anew, or quarantine such rows"
    " with --on-bad-message quarantine"
)


class PatchedRows(NamedTuple):
    """Rows in parts: `images` hold `columns`; the target's rows at the keys `origins` hold the other columns.

    moves: whether rows are deleted at their origins and written anew; otherwise they are updated in place.
    """

    columns: str
    images: pa.Array
    origins: pa.Array
    moves: bool


class Parts(NamedTuple):
    """Net changes of one table.

    absent: keys without a row.  written: by column list, rows that stay or are new, and rows that are deleted first.
    renews: whether rows of absent keys are also written.  loses: whether rows are deleted while changes hold parts of
    rows.
    """

    absent: pa.Array
    written: list[tuple[str, pa.Array, pa.Array]]
    patched: list[PatchedRows]
    renews: bool
    loses: bool


def holds_parts(shapes: Sequence[RowShape], shape_of: Longs, changes: pa.Table, after: Cells) -> list[int]:
    """Gives the numbers of shapes of tables where images of rows may be parts, or do not all hold the same columns."""
    if not any(shape.lacks for shape in shapes):
        return []
    counts = np.bincount(shape_of[after.is_image], minlength=len(shapes))
    timed = np.bincount(shape_of[_by_time(changes) & after.is_image], minlength=len(shapes))
    tables = {
        shape.table.name
        for number, shape in enumerate(shapes)
        if shape.lacks and counts[number] and (timed[number] or _others(shapes, counts, shape))
    }
    return [number for number, shape in enumerate(shapes) if shape.key and shape.table.name in tables]


def _others(shapes: Sequence[RowShape], counts: Longs, shape: RowShape) -> bool:
    """Tells whether images of the same table have other column lists."""
    return any(counts[i] and one is not shape and one.table is shape.table for i, one in enumerate(shapes))


def _by_time(changes: pa.Table) -> Bools:
    found: Bools = changes["by_time"].to_numpy()
    return found


def lost_rows(changes: pa.Table) -> Bools:
    """Tells which changes of a table without a key could mean any of several rows, if they lack columns."""
    kinds = changes["kind"].to_numpy()
    found: Bools = _by_time(changes) & (kinds != Kind.INSERT)
    return found


def refuse_part(table: Table, change: dict[str, Any], what: str, code: Code) -> RefusedRowsError:
    """Makes the error for a row change that lacks a needed value."""
    position = Position(change["topic"], change["partition"], change["offset"])
    return RefusedRowsError(
        what, table=table.name, code=code, where=f"{position}, table {table.name}", fix=_FIX, is_exact=True
    )


@dataclass(frozen=True)
class PartialFold:
    """Folds the row changes (in order) of one table with a key."""

    shapes: Sequence[RowShape]
    shape_of: Longs
    changes: pa.Table
    before: Cells
    after: Cells
    steps: Steps

    def parts(self) -> Parts:
        """Gives the net changes."""
        first, last = ends(self.steps.number)
        is_walked = self._is_walked(len(last))
        plain = np.flatnonzero(~is_walked)
        found = _Found()
        self._add_plain(found, first[plain], last[plain])
        if is_walked.any():
            _SequentialFold(self, found).run(np.flatnonzero(is_walked[self.steps.number]))
        return found.parts(any_part=bool(self.is_part.any()))

    @property
    def table(self) -> Table:
        """The table of the changes."""
        return self.shapes[0].table

    @property
    def lacks(self) -> Bools:
        """Tells which images lack columns."""
        lacking = np.array([shape.lacks for shape in self.shapes], np.bool_)
        found: Bools = lacking[self.shape_of] & self.after.is_image
        return found

    @property
    def is_part(self) -> Bools:
        """Tells which images are parts of rows."""
        found: Bools = self.lacks & _by_time(self.changes) & (self.changes["kind"].to_numpy() == Kind.UPDATE)
        return found

    def _is_walked(self, keys: int) -> Bools:
        """Tells for which keys the changes must be folded one by one: where an image lacks columns and is not the only
        one, unless all are updates in place that hold the same columns."""
        row, number = self.steps.row, self.steps.number
        lacks, is_part = self.lacks[row] & self.steps.is_image, self.is_part[row] & self.steps.is_image
        shape = self.shape_of[row]
        lowest, highest = np.full(keys, len(self.shapes)), np.full(keys, -1)
        np.minimum.at(lowest, number, shape)
        np.maximum.at(highest, number, shape)
        count = np.bincount(number, minlength=keys)
        alike = (lowest == highest) & (np.bincount(number[is_part], minlength=keys) == count)
        walked = np.bincount(number[lacks], minlength=keys) > 0
        walked &= ~alike & (count > 1)
        walked[number[self.steps.moves & self.lacks[row]]] = True
        found: Bools = walked
        return found

    def _add_plain(self, found: _Found, first: Longs, last: Longs) -> None:
        steps = self.steps
        is_image = steps.is_image[last]
        found.absent.append(steps.key.take(pa.array(last[~is_image])))
        first, last = first[is_image], last[is_image]
        shape, is_part = self.shape_of[steps.row[last]], self.is_part[steps.row[last]]
        whole, parts = (
            freed(
                self.shapes, shape, steps.is_known[first], self.before, self.after, steps.row[first], steps.row[last],
                by_time=bool(_by_time(self.changes).any()), parts=as_parts,
            )
            for as_parts in (False, True)
        )  # fmt: skip
        is_freed = np.where(is_part, parts, whole) | steps.varies_by_number()[steps.number[last]]
        for number, one in enumerate(self.shapes):
            for part in (False, True):
                for anew in (False, True):
                    mine = pa.array(last[(shape == number) & (is_part == part) & (is_freed == anew)])
                    images = self.after.images.take(pa.array(steps.row[mine.to_numpy()]))
                    if len(images):
                        found.add(one.columns, images, steps.key.take(mine) if part else None, anew=anew)


@dataclass
class _Found:
    """Net changes, as they are found."""

    absent: list[pa.Array] = field(default_factory=list)
    written: dict[str, tuple[list[pa.Array], list[pa.Array]]] = field(default_factory=dict)
    patched: dict[tuple[str, bool], tuple[list[pa.Array], list[pa.Array]]] = field(default_factory=dict)
    renews: bool = False

    def add(self, columns: str, images: pa.Array, origins: pa.Array | None, *, anew: bool) -> None:
        """Adds rows.  origins: where the rest of each row is; None when the images are whole."""
        if origins is None:
            self.written.setdefault(columns, ([], []))[anew].append(images)
        else:
            all_images, all_origins = self.patched.setdefault((columns, anew), ([], []))
            all_images.append(images)
            all_origins.append(origins)

    def parts(self, *, any_part: bool) -> Parts:
        """Gives all that was found."""
        absent = _joined(self.absent)
        return Parts(
            absent,
            [(columns, _joined(stays), _joined(anew)) for columns, (stays, anew) in self.written.items()],
            [
                PatchedRows(columns, _joined(images), _joined(origins), moves)
                for (columns, moves), (images, origins) in self.patched.items()
            ],
            self.renews,
            any_part and len(absent) > 0,
        )


def _joined(arrays: Sequence[pa.Array]) -> pa.Array:
    return pa.concat_arrays(arrays) if arrays else pa.array([], TEXT)


@dataclass(frozen=True)
class _PartialRow:
    """The state of a row after its changes so far.

    values: the values that the changes hold, by column.  was: the values before all changes, as far as the changes hold
    them.
    origin: the key and the key's number of the target's row that holds the rest; None when there is no such row.
    is_new: whether another row of its key was deleted before.
    """

    values: dict[str, str]
    was: dict[str, str]
    origin: tuple[str, int] | None
    is_new: bool = False


class _SequentialFold:
    """Folds steps one by one."""

    def __init__(self, fold: PartialFold, found: _Found) -> None:
        self._fold, self._found, self._steps = fold, found, fold.steps
        self._rows: dict[int, _PartialRow | None] = {}
        self._keys: dict[int, str] = {}
        self._in_hand: dict[int, _PartialRow | None] = {}
        self._is_part, self._lacks = fold.is_part, fold.lacks
        self._varies = fold.steps.varies_by_number()
        self._kinds, self._by_time = fold.changes["kind"].to_numpy(), _by_time(fold.changes)

    def run(self, steps: Longs) -> None:
        """Folds these steps in order.  They must be all steps of their keys."""
        keys = self._steps.key.take(pa.array(steps)).to_pylist()
        for step, key in zip(steps.tolist(), keys, strict=True):
            row, number = int(self._steps.row[step]), int(self._steps.number[step])
            self._keys[number] = key
            if self._steps.is_image[step]:
                self._comes(row, number, key, moves=bool(self._steps.moves[step]))
            else:
                if self._steps.moves[step]:
                    self._in_hand[row] = self._row_at(number, key)
                self._rows[number] = None
        for number, one in self._rows.items():
            self._add(number, one)

    def _row_at(self, number: int, key: str) -> _PartialRow | None:
        return self._rows[number] if number in self._rows else _PartialRow({}, {}, (key, number))

    def _comes(self, row: int, number: int, key: str, *, moves: bool) -> None:
        values, was = self._image(self._fold.after, row), self._image(self._fold.before, row)
        is_insert = self._kinds[row] == Kind.INSERT and not moves
        is_new = number in self._rows and self._rows[number] is None and bool(self._by_time[row])
        base = self._in_hand.pop(row, None) if moves else None if is_insert else self._row_at(number, key)
        if self._is_part[row] and base is None:
            raise self._lost(row)
        if base is None or is_insert:
            base = _PartialRow({}, {}, None, is_new and is_insert)
        if self._lacks[row]:
            values = base.values | values
        is_whole = not self._is_part[row] or self._is_all(values)
        origin = None if is_whole else base.origin
        self._rows[number] = _PartialRow(values, was | base.was, origin, base.is_new and not self._is_all(values))

    def _is_all(self, values: Mapping[str, str]) -> bool:
        return self._fold.table.written_names <= values.keys()

    def _image(self, cells: Cells, row: int) -> dict[str, str]:
        image = cells.images[row].as_py()
        names = self._fold.shapes[self._fold.shape_of[row]].names
        return {} if image is None else dict(zip(names, image.split(SEP), strict=True))

    def _add(self, number: int, one: _PartialRow | None) -> None:
        key, others = self._keys[number], other_uniques(self._fold.table, self._fold.shapes[0].key)
        if one is None or one.is_new:
            self._found.absent.append(pa.array([key], TEXT))
        if one is None:
            return
        self._found.renews |= one.is_new
        names = [name for name in self._fold.table.columns if name in one.values]
        columns = SEP.join(self._fold.table.columns[name].name for name in names)
        image = pa.array([SEP.join(one.values[name] for name in names)], TEXT)
        if one.origin is None:
            self._found.add(columns, image, None, anew=bool(others) or bool(self._varies[number]))
        else:
            anew = one.origin[1] != number or any(self._is_changed(one, unique) for unique in others)
            self._found.add(columns, image, pa.array([one.origin[0]], TEXT), anew=anew)

    def _is_changed(self, one: _PartialRow, unique: Sequence[str]) -> bool:
        """Tells whether a unique value may change.  An absent column kept its value; a long one may have been completed
        from the present row."""
        columns = self._fold.table.columns
        return any(
            not name or (name in one.values and (one.was.get(name) != one.values[name] or is_long(columns[name])))
            for name in unique
        )

    def _lost(self, row: int) -> RefusedRowsError:
        return refuse_part(
            self._fold.table,
            self._fold.changes.slice(row, 1).to_pylist()[0],
            f"a change of {self._fold.table.name} holds only a part of its row, which was deleted before, so that"
            " the rest of it is not known",
            Code.ROW_NOT_FOUND,
        )
