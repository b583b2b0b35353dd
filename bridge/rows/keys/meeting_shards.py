"""Finds keys that rows of two shards of a merged table have: one row would be lost in silence.

Only what one transaction holds is looked at.  A row may go over from one shard to another: it is deleted in the first
and, not earlier, inserted in the second.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa

from bridge.errors import ApplyError
from bridge.events import SEP, Kind
from bridge.model import TableName
from bridge.rows.grouping import Longs
from bridge.rows.keys.key_steps import RowShape, Steps

_FIX = (
    "rows of shards that are merged must never have one key: leave one of the two tables out with --filter, or route it"
    " to a table of its own, and copy the merged table anew"
)


def refuse_meeting_shards(shapes: Sequence[RowShape], shape_of: Longs, changes: pa.Table, steps: Steps) -> None:
    """Raises ApplyError for a key that rows of two shards have."""
    shards = changes["text"]
    if shards.null_count == len(shards):
        return
    codes = shards.combine_chunks().dictionary_encode(null_encoding="encode").indices.to_numpy()[steps.row]
    order = np.argsort(steps.number, kind="stable")
    one, other = order[:-1], order[1:]
    meets = (steps.number[one] == steps.number[other]) & (codes[one] != codes[other])
    if not meets.any():
        return
    by_time = changes["by_time"].to_numpy(zero_copy_only=False)[steps.row]
    is_insert = (changes["kind"].to_numpy() == Kind.INSERT)[steps.row] | steps.moves
    goes_over = ~steps.is_image[one] & steps.is_image[other] & is_insert[other] & ~by_time[one] & ~by_time[other]
    found = np.flatnonzero(meets & ~goes_over)
    if len(found):
        _refuse(shapes, shape_of, changes, steps, int(one[found[0]]), int(other[found[0]]))


def _refuse(shapes: Sequence[RowShape], shape_of: Longs, changes: pa.Table, steps: Steps, one: int, other: int) -> None:
    shape = shapes[int(shape_of[steps.row[other]])]
    values = str(steps.key[other]).split(SEP)
    key = ", ".join(f"{name} = {value}" for name, value in zip(shape.key, values, strict=True))
    rows = [changes.slice(int(steps.row[step]), 1).to_pylist()[0] for step in (one, other)]
    first, second = (f"{row['text']} (commit ts {row['commit_ts']})" for row in rows)
    raise ApplyError(
        f"two shards of {shape.table.name} have a row with the same key ({key}): {first} and {second}",
        where=f"{shape.table.name}, commit ts {rows[1]['commit_ts']}",
        fix=_FIX,
    )


def refuse_parts_of_keyless(table: TableName, shapes: Sequence[RowShape], changes: pa.Table) -> None:
    """Raises ApplyError for changes that may mean a row of another shard: of a merged table without a key, whose shards
    have different columns."""
    shards = changes["text"]
    if shards.null_count == len(shards) or not any(shape.lacks for shape in shapes):
        return
    lacking = {shape.columns for shape in shapes if shape.lacks}
    rows = (changes[name].to_pylist() for name in ("text", "columns", "before", "commit_ts"))
    for shard, columns, before, ts in zip(*rows, strict=True):
        if before is not None and columns in lacking:
            raise ApplyError(
                f"{table} has no key, and a change of {shard} lacks columns that it has, so that a row of another shard"
                " may be meant",
                where=f"{table}, commit ts {ts}",
                fix="give the shards and the merged table a primary key, or alter the shards so that all have the same"
                " columns before rows of them change",
            )
