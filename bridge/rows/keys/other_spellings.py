"""Finds rows that would overwrite a row whose key is spelled otherwise: the sign of an upstream that compares bytes.

TiDB clusters that were first started before 6.0 compare texts byte by byte, whatever the collation is called
(new_collations_enabled_on_first_bootstrap; TiDB manual, "Character Set and Collation").  There 'a' and 'A', or 'b' and
'b ', are two rows; to a target's collation they are one.  An upstream that compares as the target does has to delete,
or move, the row under the first spelling before one with the second can come.  So a row that comes under another
spelling, with no such change between, stops the bridge.  Within a window the row changes show that; the row on the
target is compared by the statements that write (`rows.sql.render`).

Only tables are looked at whose key holds such a text; merged tables, and those where rows may stay that are gone
upstream, are not (`Table.guards_spelling`).
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

import numpy as np
import pyarrow as pa

from bridge.errors import ApplyError
from bridge.events import Kind
from bridge.model import Table, TableName
from bridge.rows.grouping import Longs, ends
from bridge.rows.keys.key_spellings import is_text
from bridge.rows.keys.key_steps import RowShape, Steps
from bridge.rows.literal_offsets import Cells

_COMPARES_BYTES: Final = re.compile(r"utf8mb4_0900_bin|.*_nopad_bin|binary")
FIX: Final = (
    'if mysql.tidb of the upstream says that new_collation_enabled is False, set ddl.source = "tidb-old-collations",'
    " copy the table into one whose columns have a collation that compares bytes (utf8mb4_0900_bin, or MariaDB's"
    " utf8mb4_nopad_bin), and start the bridge again; otherwise give the row on the target the key that the message"
    " has, and start again"
)


def spelled_texts(table: Table, unique: Sequence[str]) -> tuple[str, ...]:
    """Gives the columns of a unique key in which the target may take two spellings for one value."""
    columns = [(name, table.columns[name]) for name in unique if name]
    return tuple(
        name
        for name, column in columns
        if is_text(column) and not _COMPARES_BYTES.fullmatch((column.collation or "").lower())
    )


def is_guarded(table: Table, key: Sequence[str]) -> bool:
    """Tells whether rows of a table may only overwrite rows whose key is spelled the same."""
    return table.guards_spelling and bool(spelled_texts(table, key))


def expected_keys(
    shapes: Sequence[RowShape], shape_of: Longs, changes: pa.Table, before: Cells, steps: Steps
) -> Mapping[TableName, pa.Array]:
    """Gives, for guarded tables, the keys that a row of the target must have as they are spelled, if it is there at
    all: those that were not deleted first.  A table is left out if its updates do not tell the old key."""
    guarded = np.array([bool(shape.key) and is_guarded(shape.table, shape.key) for shape in shapes], np.bool_)
    if not guarded.any():
        return {}
    untold = (changes["kind"].to_numpy() == Kind.UPDATE) & ~before.is_image
    names = [shape.table.name for shape in shapes]
    hidden = {names[number] for number in np.unique(shape_of[untold])}
    first, _ = ends(steps.number)
    first = first[steps.is_image[first]]
    found: dict[TableName, pa.Array] = {}
    for name in dict.fromkeys(name for name, is_one in zip(names, guarded, strict=True) if is_one):
        if name not in hidden:
            numbers = [number for number, other in enumerate(names) if other == name]
            mine = first[np.isin(shape_of[steps.row[first]], numbers)]
            found[name] = steps.key.take(pa.array(mine))
    return found


def other_spelling(table: TableName, what: str, where: str) -> ApplyError:
    """Makes the error of a row that would overwrite one whose key is spelled otherwise.  what: which rows these are."""
    return ApplyError(
        f"two rows of {table} are one to the target, as their keys differ only in the case of letters, in accents or in"
        f" blanks at the end: {what}; the upstream seems to compare bytes, as a TiDB does that was first started before"
        " version 6.0",
        where=where,
        fix=FIX,
    )
