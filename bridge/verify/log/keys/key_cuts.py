"""Cuts a large table by its key, so that several sessions load and compare a part of it each.

Both sides of a part are the rows whose first key column is in the part's range, as the target sees it.  So every row
counts in one part, whichever parts it was loaded into.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.mysql.table_definition import Definition, ValueClass
from bridge.quoting import quote_name
from bridge.rows.arrow_images import parts_of
from bridge.rows.grouping import Bools, Longs
from bridge.verify.compare.dense_keys import dense_key
from bridge.verify.compare.key_sql import between, boundary_query, in_key_order, key_parts

if TYPE_CHECKING:
    from bridge.mysql.connection.session import Session  # brings the driver, which executors do without

_PART_ROWS: Final = 50_000
"""A part has about this many rows at least."""
_PLAIN: Final = "^-?[0-9]{1,18}$"
"""Literals that any integer column takes as the number that they are."""
_CUT: Final = range(-(10**18), 10**18)
KeyNumbers = tuple[int | None, int | None]
"""A range of the first key column: above the first number, and not above the second.  None means that there is no
bound."""
WHOLE: Final[KeyNumbers] = (None, None)


def find_cuts(session: Session, definition: Definition, key: Sequence[str], most: int | None = None) -> tuple[int, ...]:
    """Gives the values up to which each part but the last reaches, for parts of about 50,000 rows, or for at most
    `most` larger ones; () for a table that is small or whose key does not begin with an integer."""
    if definition.rows < 2 * _PART_ROWS or not can_be_cut(definition, key):
        return ()
    size = max(_PART_ROWS, -(-definition.rows // most)) if most else _PART_ROWS
    dense = dense_key(session.rows, definition, key)
    if dense and dense.first in _CUT and dense.last in _CUT:
        return tuple(dense.ends(-(-size * dense.numbers // definition.rows)))
    column = [definition.columns[key[0]]]
    [part] = key_parts(column, column)
    table, cuts = quote_name(*definition.name) + in_key_order(definition, [part]), list[int]()
    while most is None or len(cuts) + 1 < most:
        behind = between([part], (str(cuts[-1]).encode(),) if cuts else None, None)
        found = session.rows(boundary_query([part], f"FROM {table} WHERE {behind}", size - 1))
        cut = int(bytes.fromhex(found[0][0])) if found else _CUT.stop
        if cut not in _CUT:
            break
        cuts.append(cut)
    return tuple(cuts)


def can_be_cut(definition: Definition, key: Sequence[str]) -> bool:
    """Tells whether the place of a row can be told from its key: whether the key begins with an integer."""
    return bool(key) and definition.columns[key[0]].value_class is ValueClass.INTEGER


def ranges_of(cuts: Sequence[int]) -> tuple[KeyNumbers, ...]:
    """Gives the ranges between cuts."""
    return tuple(pairwise([None, *cuts, None]))


def is_within(numbers: KeyNumbers, ranges: Iterable[KeyNumbers]) -> bool:
    """Tells whether one of some ranges holds this one."""
    low, high = numbers
    return any(
        (above is None or (low is not None and low >= above)) and (end is None or (high is not None and high <= end))
        for above, end in ranges
    )


def divided(rows: pa.Table, ranges: Sequence[KeyNumbers]) -> Iterator[pa.Table]:
    """Gives the folded steps of each range of their table, in the order of the key.  A row whose place only the target
    can tell is in every range."""
    if list(ranges) == [WHOLE]:
        yield rows
        return
    numbers, is_anywhere = numbers_of(rows)
    order = np.argsort(numbers, kind="stable")
    numbers, is_anywhere = numbers[order], is_anywhere[order]
    for low, high in ranges:
        is_above = True if low is None else numbers > low
        is_below = True if high is None else numbers <= high
        yield rows.take(pa.array(order[is_anywhere | (is_above & is_below)]))


def numbers_of(rows: pa.Table) -> tuple[Longs, Bools]:
    """Gives the first key column of folded steps, and whether only the target can tell it."""
    [first] = parts_of(rows["key"].combine_chunks(), [0])
    is_plain = pc.match_substring_regex(first, _PLAIN)
    numbers = pc.if_else(is_plain, first, "0").cast(pa.int64()).to_numpy()
    return numbers, ~is_plain.to_numpy(zero_copy_only=False)
