"""Tells by which grain the row changes of a table go: `window`, or `transaction`.

By *window*, only the last image of each key counts, and all of a table are written together (`net_changes`).  That is
quick, and right only where the bridge itself can tell which rows are one, and what they hold.  By *transaction*, the
changes become statements one upstream transaction after the other, in order (`sql.in_order`), and the server tells:
every statement finds the rows as the upstream left them.  Both are in the one target transaction that moves progress,
and leave the same rows.

A table goes by window when all of this holds; otherwise by transaction:

* it has a key; or all changes are inserts, which look for no row;
* equal keys have equal literals: the key's types compare byte by byte, or all literals are such that no collation
  takes two of them for one (lower case, digits and signs of ASCII, no blank at the end); or no row goes away, and the
  one that comes last may overwrite the others (not of TiDB);
* messages hold whole rows; or they lack only what only the target has, while no row goes away and no further unique
  value could make one go;
* values can be written over others by ON DUPLICATE KEY UPDATE (`Table.writes_anew`), and none is an ENUM's error value
  on TiDB;
* the target has neither refused rows of it, nor a unique value that is about to be written (safe mode).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import Kind
from bridge.model import Table, TableName
from bridge.rows.gathering import Bools
from bridge.rows.key_spellings import are_plain, is_exact, is_guarded
from bridge.rows.key_steps import RowShape, ShapedRows, other_uniques
from bridge.rows.literal_offsets import to_numpy
from bridge.rows.sql.members import with_zeros
from bridge.rows.sql.statement import PLAIN, Rendering

FORCED: str = ""
"""Tests set it to "transaction", by which every table goes then."""


class Facts(NamedTuple):
    """What the changes of one table hold, as far as the grain depends on it.

    key: the columns that identify rows, () without a key.
    lists: the column lists of images.  lacks: whether one of them lacks a column.
    parts: whether such an image is a part of a row: one of an update without a commit ts.
    goes: whether a row may go away; without a key, whether any change is not an insert.
    is_plain: whether all literals of the key are such that no two of them are one, where rows go away or must not be
        overwritten under another spelling.
    zeros: whether images hold error values of an ENUM that TiDB copies from a column.
    """

    key: tuple[str, ...]
    lists: frozenset[str]
    lacks: bool
    parts: bool
    goes: bool
    is_plain: bool
    zeros: bool = False


def may_decide(rendering: Rendering, name: TableName) -> bool:
    """Tells whether what the writer wants may decide about a table."""
    return rendering.safe_mode or name in rendering.in_order or bool(FORCED)


def why_by_transaction(table: Table, facts: Facts, rendering: Rendering = PLAIN) -> str:
    """Says why the changes of a table go by transaction; "" where they go by window."""
    key = facts.key
    if FORCED:
        return "a test wants it"
    if table.name in rendering.in_order:
        return "the target has refused rows of it"
    if facts.zeros:
        return "TiDB takes the error value of an ENUM from another column alone"
    if not key:
        return "it has no key, so that its rows are found by all their values" if facts.goes else ""
    has_further_uniques = bool(other_uniques(table, key))
    if rendering.safe_mode and (has_further_uniques or key in table.prefixes):
        return "a unique value is taken on the target"
    if table.writes_anew:
        return "the target cannot write values of it over those that are there"
    if facts.lacks and (facts.parts or facts.goes or has_further_uniques or len(facts.lists) > 1):
        return "its messages do not hold all columns of its rows"
    if not facts.is_plain:
        return "the target may take keys for one that are spelled otherwise"
    return ""


def facts_of(rows: ShapedRows, rendering: Rendering = PLAIN) -> Mapping[TableName, Facts]:
    """Gives the facts of tables by which the grain has to be found out: not of those with an exact key and whole rows,
    about which the writer wants nothing."""
    shapes, shape_of, changes, before, after = rows
    odd = _odd_tables(rows, rendering)
    if not odd:
        return {}
    positions: list[Sequence[int]] = [()] * len(shapes)
    for number in (number for numbers in odd.values() for number in numbers):
        positions[number] = shapes[number].at(shapes[number].key)
    kinds = changes["kind"].to_numpy()
    is_update = kinds == Kind.UPDATE
    old, new = before.joined(positions), after.joined(positions)
    goes = to_numpy(pc.fill_null(pc.not_equal(old, new), False)) | (kinds == Kind.DELETE)
    goes |= is_update & ~before.is_image

    def shapes_with(mask: Bools) -> frozenset[int]:
        return frozenset(np.unique(shape_of[mask]).tolist())

    going, changing, imaged = shapes_with(goes), shapes_with(kinds != Kind.INSERT), shapes_with(after.is_image)
    timed = shapes_with(changes["by_time"].to_numpy() & is_update & after.is_image)
    facts = {}
    for name, numbers in odd.items():
        table, key = shapes[numbers[0]].table, shapes[numbers[0]].key
        incomplete = imaged.intersection(n for n in numbers if shapes[n].lacks)
        is_going = not (going if key else changing).isdisjoint(numbers) or (bool(key) and table.keeps_gone)
        is_plain = True
        if key and (is_going or is_guarded(table, key)) and not is_exact(table, key):
            of_table = pa.array(np.isin(shape_of, numbers))
            keys = pa.concat_arrays([image_keys.filter(of_table).drop_null() for image_keys in (old, new)])
            is_plain = are_plain(table, key, keys)
        lists = frozenset(shapes[n].columns for n in imaged.intersection(numbers))
        zeros = any(_has_zeros(shapes[n], after.images.filter(pa.array(shape_of == n))) for n in numbers)
        facts[name] = Facts(key, lists, bool(incomplete), not incomplete.isdisjoint(timed), is_going, is_plain, zeros)
    return facts


def _odd_tables(rows: ShapedRows, rendering: Rendering) -> dict[TableName, list[int]]:
    """Gives the tables of which the changes have to be looked at, with the numbers of their shapes."""
    shapes = rows.shapes
    return {
        name: numbers
        for name, numbers in rows.by_table.items()
        if may_decide(rendering, name) or any(is_odd(shapes[i]) or shapes[i].table.copies_zeros for i in numbers)
    }


def _has_zeros(shape: RowShape, images: pa.Array) -> bool:
    if not shape.table.copies_zeros:
        return False
    images = images.drop_null()
    return with_zeros(images, [shape.table.columns[name].type for name in shape.names]) is not images


def is_odd(shape: RowShape) -> bool:
    """Tells whether the grain of a table has to be found out by its changes, if the writer wants nothing."""
    return not shape.key or shape.lacks or shape.table.writes_anew or not is_exact(shape.table, shape.key)
