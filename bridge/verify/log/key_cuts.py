"""Cuts a large table by its key, so that several sessions load and compare a part of it each.

Both sides of a part are the rows whose first key column is in the part's range, as the target sees it.  So every row
counts in one part, whichever parts it was loaded into.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.mysql.connection import Session
from bridge.mysql.table_definition import Definition, ValueClass
from bridge.quoting import quote_name
from bridge.rows.arrow_images import parts_of
from bridge.verify.compare.key_sql import boundary_query, key_parts

_PART_ROWS: Final = 50_000
"""A part has about this many rows at least."""
_PLAIN: Final = "^-?[0-9]{1,18}$"
"""Literals that any integer column takes as the number that they are."""
_CUT: Final = range(-(10**18), 10**18)


def find_cuts(session: Session, definition: Definition, key: Sequence[str], count: int) -> tuple[int, ...]:
    """Gives the values up to which each part but the last reaches, for at most `count` parts of about the same size;
    () for a table that is small or whose key does not begin with an integer."""
    count = min(count, definition.rows // _PART_ROWS)
    if count < 2 or not can_be_cut(definition, key):
        return ()
    column = [definition.columns[key[0]]]
    ends = (definition.rows * part // count - 1 for part in range(1, count))
    rows = f"FROM {quote_name(*definition.name)}"
    found = (session.rows(boundary_query(key_parts(column, column), rows, end)) for end in ends)
    cuts = {int(bytes.fromhex(values[0])) for some in found for values in some}
    return tuple(sorted(cut for cut in cuts if cut in _CUT))


def can_be_cut(definition: Definition, key: Sequence[str]) -> bool:
    """Tells whether the place of a row can be told from its key: whether the key begins with an integer."""
    return bool(key) and definition.columns[key[0]].value_class is ValueClass.INTEGER


def divided(rows: pa.Table, cuts: Sequence[int]) -> Iterator[pa.Table]:
    """Divides folded steps into the parts of their table, each in the order of the key.  A row whose place only the
    target can tell is in every part."""
    if not cuts:
        yield rows
        return
    [first] = parts_of(rows["key"].combine_chunks(), [0])
    is_plain = pc.match_substring_regex(first, _PLAIN)
    numbers = pc.if_else(is_plain, first, "0").cast(pa.int64()).to_numpy()
    order = np.argsort(numbers, kind="stable")
    places = np.searchsorted(np.array(cuts), numbers, "left")[order]
    is_anywhere = ~is_plain.to_numpy(zero_copy_only=False)[order]
    for part in range(len(cuts) + 1):
        yield rows.take(pa.array(order[(places == part) | is_anywhere]))
