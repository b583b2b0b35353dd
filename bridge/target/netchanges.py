"""Net changes: of all changes of a key only the last image counts (design, decision 4).

Pure rules over Arrow columns: row changes in commit order and the target's table go in, what the rows must be
afterwards comes out.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import ApplyError
from bridge.events import SEP, Kind, tso_ms
from bridge.target.catalog import Table, TableName
from bridge.target.drift import check_needs
from bridge.target.images import TEXT, joined, parts_of

CHANGE_COLUMNS: Final = ("commit_ts", "kind", "columns", "key", "before", "after")
"""What `fold` reads of row changes (EVENT_SCHEMA)."""


@dataclass(frozen=True)
class WrittenRows:
    """Rows that must be as `images` afterwards; all have the same columns.

    keys, images: literals joined by SEP.
    freed: the row goes before it is written, as it may hold unique values that others need now.
    """

    columns: str
    keys: pa.Array
    images: pa.Array
    freed: pa.Array


@dataclass(frozen=True)
class KeyedChanges:
    """Net changes of a table with a key.  `key`: lower-case column names; `absent`: keys that must not be there."""

    table: Table
    key: tuple[str, ...]
    absent: pa.Array
    written: tuple[WrittenRows, ...]


class Image(NamedTuple):
    """A row of a table without a key: names and literals joined by SEP."""

    columns: str
    literals: str


@dataclass(frozen=True)
class KeylessChanges:
    """Net changes of a table without a key: how many copies of each image come (> 0) or go (< 0)."""

    table: Table
    copies: dict[Image, int]


NetChanges = KeyedChanges | KeylessChanges


def choose_key(table: Table, columns: str, key: str) -> tuple[str, ...]:
    """The key that identifies rows of `table`: the message's handle key where the target has it, else the target's
    primary key, else its first unique key of NOT NULL columns, each only when the message holds all its columns.
    ``()`` when there is none.
    """
    present = set(columns.lower().split(SEP))
    named = frozenset(key.lower().split(SEP)) if key else frozenset()
    usable = [candidate for candidate in table.keys if present.issuperset(candidate)]
    for candidate in usable:
        if frozenset(candidate) == named:
            return candidate
    return usable[0] if usable else ()


def other_uniques(table: Table, key: tuple[str, ...]) -> list[tuple[str, ...]]:
    """Unique keys besides the one that identifies rows."""
    return [unique for unique in table.uniques if frozenset(unique) != frozenset(key)]


def fold(table: Table, changes: pa.Table) -> NetChanges:
    """The net changes of one table's row changes (CHANGE_COLUMNS), at least one, in the order
    (commit_ts, topic, partition, offset, index).

    Raises ApplyError for a change that does not identify its row, or that needs what the target's table has not.
    """
    shapes = changes.select(["columns", "key"]).group_by(["columns", "key"]).aggregate([]).to_pylist()
    check_needs(table, changes, sorted({shape["columns"] for shape in shapes}))
    keys = {choose_key(table, shape["columns"], shape["key"]) for shape in shapes}
    if len(keys) != 1:
        raise ApplyError(
            "changes of one table name different keys between two schema changes",
            where=f"{table.name}, commit ts {changes['commit_ts'][0]}",
            mend="the target's keys differ from the upstream's; make them equal",
        )
    key = keys.pop()
    if not key:
        return _fold_keyless(table, changes)
    return _fold_keyed(table, key, changes, sorted({shape["columns"] for shape in shapes}))


def _fold_keyed(table: Table, key: tuple[str, ...], changes: pa.Table, shapes: list[str]) -> KeyedChanges:
    steps = pa.concat_tables([_steps(changes, shape, i, key) for i, shape in enumerate(shapes)]).combine_chunks()
    first_at, last_at = _first_and_last(steps)
    last = steps.take(pa.array(last_at))
    first = steps.take(pa.array(first_at))
    is_absent = pc.is_null(last["after"])
    others = other_uniques(table, key)
    written = tuple(
        rows for i, shape in enumerate(shapes) if (rows := _written(last, first, shape, i, others)) is not None
    )
    return KeyedChanges(table, key, last["key"].filter(is_absent).combine_chunks(), written)


def _steps(changes: pa.Table, shape: str, shape_id: int, key: tuple[str, ...]) -> pa.Table:
    """What the changes of one shape do to keys: a row change is one step, one that moves its key is two.

    Columns: key, commit_ts, is_after (after-images win over deletes of the same commit_ts), seq, shape, before (the
    row as it was, null when unknown), after (null for a delete).
    """
    mine = pc.equal(changes["columns"], shape)
    seq = pa.array(np.flatnonzero(mine.combine_chunks().to_numpy(zero_copy_only=False)))
    if len(seq) < changes.num_rows:
        changes = changes.filter(mine)
    commit_ts, before, after = (changes[name].combine_chunks() for name in ("commit_ts", "before", "after"))
    before, after = before.cast(TEXT), after.cast(TEXT)
    names = shape.lower().split(SEP)
    positions = [names.index(part) for part in key]
    old_key, new_key = joined(parts_of(before, positions)), joined(parts_of(after, positions))
    stays = pc.fill_null(pc.equal(old_key, new_key), False)
    nothing = pa.nulls(len(seq), TEXT)
    gone = pc.and_(pc.is_valid(old_key), pc.invert(stays))
    known = pc.if_else(stays, before, nothing)
    deletes = _step_table(old_key, commit_ts, False, seq, shape_id, before, nothing).filter(gone)
    images = _step_table(new_key, commit_ts, True, seq, shape_id, known, after).filter(pc.is_valid(new_key))
    return pa.concat_tables([deletes, images])


def _step_table(
    key: pa.Array, commit_ts: pa.Array, is_after: bool, seq: pa.Array, shape_id: int, before: pa.Array, after: pa.Array
) -> pa.Table:
    size = len(seq)
    return pa.table(
        {
            "key": key,
            "commit_ts": commit_ts,
            "is_after": pa.repeat(is_after, size),
            "seq": seq,
            "shape": pa.repeat(shape_id, size),
            "before": before,
            "after": after,
        }
    )


def _first_and_last(steps: pa.Table) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int64]]:
    """Row numbers of the first and the last step of each key."""
    columns = (steps[name].to_numpy() for name in ("seq", "is_after", "commit_ts"))
    order = np.lexsort(tuple(columns))
    encoded = steps["key"].combine_chunks().dictionary_encode()
    codes = encoded.indices.to_numpy()[order]
    first = np.empty(len(encoded.dictionary), dtype=np.int64)
    last = np.empty_like(first)
    last[codes] = order  # of repeated indices the last one assigned stays (NumPy, Assigning values to indexed arrays)
    first[codes[::-1]] = order[::-1]
    return first, last


def _written(
    last: pa.Table, first: pa.Table, shape: str, shape_id: int, others: list[tuple[str, ...]]
) -> WrittenRows | None:
    mine = pc.and_(pc.equal(last["shape"], shape_id), pc.is_valid(last["after"]))
    rows, firsts = last.filter(mine), first.filter(mine)
    if rows.num_rows == 0:
        return None
    images = rows["after"].combine_chunks()
    freed = pa.repeat(False, rows.num_rows)
    if others:
        same_shape = pc.equal(firsts["shape"], shape_id).combine_chunks()
        was = pc.if_else(same_shape, firsts["before"].combine_chunks(), pa.scalar(None, TEXT))
        for unique in others:
            freed = pc.or_(freed, _changes(was, images, shape, unique))
    return WrittenRows(shape, rows["key"].combine_chunks(), images, freed)


def _changes(was: pa.Array, images: pa.Array, shape: str, unique: tuple[str, ...]) -> pa.Array:
    """Where a unique value changes, or cannot be compared because the row as it was, or the column, is unknown."""
    names = shape.lower().split(SEP)
    if not set(unique) <= set(names):
        return pa.repeat(True, len(images))
    positions = [names.index(part) for part in unique]
    same = pc.equal(joined(parts_of(was, positions)), joined(parts_of(images, positions)))
    return pc.invert(pc.fill_null(same, False))


def _fold_keyless(table: Table, changes: pa.Table) -> KeylessChanges:
    copies: Counter[Image] = Counter()
    names = ("commit_ts", "kind", "columns", "before", "after")
    for commit_ts, kind, columns, before, after in zip(*(changes[n].to_pylist() for n in names), strict=True):
        if before is None and kind != Kind.INSERT:
            raise ApplyError(
                "a change of a table without a key lacks the old row, so that its row cannot be found",
                where=f"{table.name}, commit ts {commit_ts}",
                mend="give the table a primary key upstream and on the target, or let the changefeed send old values",
            )
        if before is not None:
            copies[Image(columns, before)] -= 1
        if after is not None:
            copies[Image(columns, after)] += 1
    return KeylessChanges(table, dict(copies))


def missing_table(name: TableName, commit_ts: int) -> ApplyError:
    """The error for rows of a table that the target does not have."""
    return ApplyError(
        f"the target has no table {name}",
        where=f"commit ts {commit_ts} ({tso_ms(commit_ts)} ms)",
        mend="create it as it is upstream, leave it out with --filter, or begin where it was created (--from)",
    )
