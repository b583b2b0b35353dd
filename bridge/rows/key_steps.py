"""Turns row changes into steps of keys, in order (see `net_changes`), and refuses keys that two shards have, or that
messages do not name.  Divides rows by numbers that are the same for a key in every process."""

from __future__ import annotations

import re
import zlib
from collections.abc import Iterable, Sequence
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import ApplyError
from bridge.events import NO_KEY, NO_PRIMARY_KEY, SEP, Kind, key_names
from bridge.model import Table, TableName
from bridge.protocols.fast.readiness import Readiness
from bridge.rows.gathering import Bools, Longs, numbered, position_of
from bridge.rows.literal_offsets import TEXT, Cells, buffers_of, to_numpy, whole

_readiness: Final = Readiness()
_IMAGES: Final = ("before", "after")


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


class ShapedRows(NamedTuple):
    """Row changes with the shapes of their images.

    shapes: tables with column lists.  shape_of: the number of that of each row change.  changes: EVENT_SCHEMA, in the
    order in which they are folded.  before, after: their images.
    """

    shapes: Sequence[RowShape]
    shape_of: Longs
    changes: pa.Table
    before: Cells
    after: Cells

    @classmethod
    def of(cls, shapes: Sequence[RowShape], shape_of: Longs, changes: pa.Table) -> ShapedRows:
        """Reads the images of row changes."""
        widths = [len(shape.names) for shape in shapes]
        return cls(shapes, shape_of, changes, *(Cells(whole(changes[image]), shape_of, widths) for image in _IMAGES))

    @property
    def by_table(self) -> dict[TableName, list[int]]:
        """The numbers of the shapes of each table."""
        numbers: dict[TableName, list[int]] = {}
        for number, shape in enumerate(self.shapes):
            numbers.setdefault(shape.table.name, []).append(number)
        return numbers

    def of_shapes(self, numbers: Sequence[int]) -> pa.Table:
        """Gives the row changes of some shapes."""
        return self.changes.filter(pa.array(np.isin(self.shape_of, numbers)))

    def keys(self) -> tuple[pa.Array, pa.Array, Bools]:
        """Gives the keys of the rows before and after each change (literals joined by SEP, null where there is no row),
        and whether the change moves its row to another key."""
        positions = [shape.at(shape.key) for shape in self.shapes]
        old, new = self.before.joined(positions), self.after.joined(positions)
        return old, new, to_numpy(pc.fill_null(pc.not_equal(old, new), False))


class Steps(NamedTuple):
    """What row changes do to keys, in order: one step each, or two when a change moves its row to another key.

    row: the number of the row change.  is_image: whether the key has a row afterwards.  moves: whether it is one of two
    steps.  key: literals joined by SEP.  number: equal for equal keys of one table.
    """

    row: Longs
    is_image: Bools
    moves: Bools
    key: pa.Array
    number: Longs

    @property
    def has_old_row(self) -> Bools:
        """Whether the row change holds the row of this key as it was before, or there was none."""
        has_old_row: Bools = ~(self.is_image & self.moves)
        return has_old_row

    @classmethod
    def of(cls, rows: ShapedRows) -> Steps:
        """Makes the steps of row changes, in the order of `_order_of`.  Where steps are equal in that order, images
        come after deletes, and win over them."""
        shapes, (old, new, moves) = rows.shapes, rows.keys()
        goes = np.flatnonzero(to_numpy(old.is_valid()) & (moves | ~rows.after.is_image))
        comes = np.flatnonzero(to_numpy(new.is_valid()))
        row, is_image = np.concatenate([goes, comes]), np.arange(len(goes) + len(comes)) >= len(goes)
        key = pa.concat_arrays([old.take(pa.array(goes)), new.take(pa.array(comes))])
        order = np.argsort(_order_of(rows.changes)[row], kind="stable")
        row, is_image = row[order], is_image[order]
        number = key.dictionary_encode().indices.to_numpy()[order].astype(np.int64)
        places = {name: i for i, name in enumerate(dict.fromkeys(shape.table.name for shape in shapes))}
        if len(places) > 1:
            place = np.array([places[shape.table.name] for shape in shapes])[rows.shape_of]
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


_LONG: Final = re.compile(r"(?:tiny|medium|long)?(?:text|blob)|json|geom|point|line|poly|multi")
"""Types of columns that binlog_row_image=NOBLOB leaves out of the old row, even when the column changes."""


def freed(rows: ShapedRows, has_old_row: Bools, first: Longs, last: Longs) -> Bools:
    """Tells where another unique value changes, or cannot be compared because the old row or the column is not known.

    has_old_row, first, last: for each key, whether its old row is known, and its first and last row change.
    """
    by_time = bool(pc.any(rows.changes["by_time"]).as_py())  # old rows may have been completed from the present ones
    uniques = [
        [compared(shape, unique, by_time=by_time) for unique in other_uniques(shape.table, shape.key)]
        for shape in rows.shapes
    ]
    shape_of, is_freed = rows.shape_of[last], np.zeros(len(last), np.bool_)
    for i in range(max(map(len, uniques))):
        positions = [columns[i] if i < len(columns) else [] for columns in uniques]
        old = rows.before.joined(positions).take(pa.array(first))
        new = rows.after.joined(positions).take(pa.array(last))
        is_same = to_numpy(pc.fill_null(pc.equal(old, new), False)) & has_old_row
        is_freed |= np.array([i < len(columns) for columns in uniques])[shape_of] & ~is_same
    return is_freed


def compared(shape: RowShape, unique: Sequence[str], *, by_time: bool) -> list[int]:
    """Gives the positions of the columns of a unique value; [] when the columns do not tell the value."""
    if not set(unique) <= set(shape.names):
        return []
    if by_time and any(_LONG.match(shape.table.columns[name].type) for name in unique):
        return []
    return shape.at(unique)


_FIX = (
    "rows of shards that are merged must never have one key: leave one of the two tables out with --filter, or route it"
    " to a table of its own, and copy the merged table anew"
)


def refuse_meeting_shards(rows: ShapedRows, steps: Steps) -> None:
    """Raises ApplyError for a key that rows of two shards have."""
    changes, shards = rows.changes, rows.changes["text"]
    if shards.null_count == len(shards):
        return
    codes = shards.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()[steps.row]
    order = np.argsort(steps.number, kind="stable")
    before, after = order[:-1], order[1:]
    meets = (steps.number[before] == steps.number[after]) & (codes[before] != codes[after])
    if not meets.any():
        return
    by_time = changes["by_time"].to_numpy(zero_copy_only=False)[steps.row]
    is_insert = (changes["kind"].to_numpy() == Kind.INSERT)[steps.row] | steps.moves
    goes_over = ~steps.is_image[before] & steps.is_image[after] & is_insert[after] & ~by_time[before] & ~by_time[after]
    clashes = np.flatnonzero(meets & ~goes_over)
    if len(clashes):
        _refuse(rows, steps, int(before[clashes[0]]), int(after[clashes[0]]))


def _refuse(rows: ShapedRows, steps: Steps, before: int, after: int) -> None:
    shape = rows.shapes[int(rows.shape_of[steps.row[after]])]
    values = str(steps.key[after]).split(SEP)
    key = ", ".join(f"{name} = {value}" for name, value in zip(shape.key, values, strict=True))
    pair = [rows.changes.slice(int(steps.row[step]), 1).to_pylist()[0] for step in (before, after)]
    first, second = (f"{row['text']} (commit ts {row['commit_ts']})" for row in pair)
    raise ApplyError(
        f"two shards of {shape.table.name} have a row with the same key ({key}): {first} and {second}",
        where=f"{shape.table.name}, commit ts {pair[1]['commit_ts']}",
        fix=_FIX,
    )


def refuse_parts_of_keyless(table: TableName, shapes: Sequence[RowShape], changes: pa.Table) -> None:
    """Raises ApplyError for changes of a merged keyless table that may mean another shard's row: columns differ."""
    shards = changes["text"]
    if shards.null_count == len(shards) or not any(shape.lacks for shape in shapes):
        return
    incomplete = {shape.columns for shape in shapes if shape.lacks}
    rows = (changes[name].to_pylist() for name in ("text", "columns", "before", "commit_ts"))
    for shard, columns, before, ts in zip(*rows, strict=True):
        if before is not None and columns in incomplete:
            raise ApplyError(
                f"{table} has no key, and a change of {shard} lacks columns that it has, so that a row of another shard"
                " may be meant",
                where=f"{table}, commit ts {ts}",
                fix="give the shards and the merged table a primary key, or alter the shards so that all have the same"
                " columns before rows of them change",
            )


_KEY_FIX: Final = (
    "give the target's table the keys that the upstream's has at this point (ALTER TABLE ... DROP PRIMARY KEY, ADD"
    " PRIMARY KEY), and start the bridge again; bridge ddl list shows a schema change that was left out. Where a"
    " setting of the sender chose the key of the messages (Debezium's message.key.columns, or a transform), take it"
    " back for this table; where official Canal names the columns of a dropped key as well, give the table that key"
)


def key_conflict(table: Table, columns: str, key: str) -> str:
    """Says why rows that differ upstream may be one row in `table`; "" when the message does not show it.

    That is so where the target identifies rows by columns of the message among which there is no key of the upstream: a
    message names the upstream's key, or says that there is none (`RowChange.key`).  Names that the row does not have
    are not the upstream's key: Debezium's transforms may add some.
    """
    present = set(columns.lower().split(SEP))
    usable = [candidate for candidate in table.keys if present.issuperset(candidate)]
    primary = table.primary if table.primary in usable else ()
    if not key or not usable or (key == NO_PRIMARY_KEY and not primary):
        return ""
    judged_keys = [primary] if primary else usable
    if key in {NO_KEY, NO_PRIMARY_KEY}:
        upstream_key = "has no primary key" if key == NO_PRIMARY_KEY else "has no key"
    else:
        message_key = set(key_names(key.lower()))
        if not message_key <= present or any(message_key.issubset(candidate) for candidate in judged_keys):
            return ""
        upstream_key = f"has the key ({', '.join(key_names(key))})"
    kind = "primary key" if primary else "unique key"
    target_key = f"the {kind} ({', '.join(judged_keys[0])})"
    return f"by its message, the upstream's table {upstream_key}, but the target's has {target_key}"


def require_key(table: Table, columns: str, key: str, changes: pa.Table, first: int) -> None:
    """Raises ApplyError when rows of a message may overwrite others (`key_conflict`).

    columns, key: what the message names.  first: the number, among `changes`, of its first row change.
    """
    if why := key_conflict(table, columns, key):
        raise ApplyError(
            f"rows that differ upstream would overwrite each other: {why}",
            where=f"{position_of(changes, first)}, {table.name}, commit ts {changes['commit_ts'][first]}",
            fix=_KEY_FIX,
        )


def key_sums(keys: pa.Array, start: int = 0) -> Longs:
    """Gives the CRC-32 of each key (texts, none of them null), which goes on from `start`.

    A compiled function takes 0.01 us for a short key, Python's `zlib` 0.1 (measured).
    """
    if not _readiness.pays(len(keys)):
        return np.fromiter((zlib.crc32(key, start) for key in keys.cast(pa.large_binary()).to_pylist()), np.int64)
    from bridge.protocols.fast.compiled.functions import sum_texts

    offsets, data = buffers_of(keys.cast(TEXT))
    sums = np.empty(len(keys), np.int64)
    sum_texts(np.frombuffer(data, np.uint8), offsets, len(keys), start, sums)
    return sums
