"""Puts rows together, however long their texts are: one piece of a text column holds at most 2 GiB, and Arrow's `take`
makes one piece of a column."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.rows.text_copies import one_piece, taken_texts

Longs = npt.NDArray[np.int64]

PIECE_BYTES: Final = 1 << 30
"""The most bytes of rows that are put into one piece."""
_REACH: Final = (1 << 31) - 1
"""The most bytes that offsets of 32 bits reach."""
_ROWS_PER_SLICE: Final = 200
"""Making a slice costs as much as copying so many row changes."""
_ROW_BYTES: Final = 64
"""About how many bytes a row takes besides its texts."""


def taken(rows: pa.Table, numbers: Longs) -> pa.Table:
    """Gives the rows of these numbers, in that order; in one piece, or in several where they are large."""
    if rows.nbytes <= PIECE_BYTES:
        return _in_one_piece(rows, numbers)
    sizes = row_bytes(rows)[numbers]
    return pa.concat_tables([rows.slice(0, 0), *(_some_of(rows, numbers[a:b]) for a, b in _runs(sizes))])


def masked(rows: pa.Table, mask: npt.NDArray[np.bool_]) -> pa.Table:
    """Gives the rows that a mask names; copies nothing where they are few runs of many rows: texts are large."""
    if mask.all():
        return rows
    bounds = np.flatnonzero(np.diff(mask, prepend=False, append=False)).reshape(-1, 2)
    if len(bounds) * _ROWS_PER_SLICE > rows.num_rows:
        return rows.filter(pa.array(mask))
    return pa.concat_tables([rows.slice(0, 0), *(rows.slice(start, end - start) for start, end in bounds.tolist())])


def whole_texts(column: pa.ChunkedArray) -> pa.Array:
    """Gives a column of texts in one piece, with offsets of 64 bits where those of 32 do not reach."""
    if column.num_chunks == 1:
        return column.chunk(0)
    return one_piece(column, pa.large_string() if column.nbytes > PIECE_BYTES else column.type)


def row_bytes(rows: pa.Table) -> Longs:
    """Estimates the bytes that each row takes."""
    sizes = np.full(rows.num_rows, _ROW_BYTES, np.int64)
    for column in rows.columns:
        if pa.types.is_string(column.type):
            sizes += pc.fill_null(pc.binary_length(column), 0).to_numpy()
    return sizes


def _some_of(rows: pa.Table, numbers: Longs) -> pa.Table:
    """Takes few rows out of many.  It leaves out other rows first, without a copy where the few rows are near each
    other."""
    first = int(numbers.min())
    near = rows.slice(first, int(numbers.max()) + 1 - first)
    if near.nbytes <= _REACH:
        return _in_one_piece(near, numbers - first)
    is_wanted = np.zeros(rows.num_rows, np.bool_)
    is_wanted[numbers] = True
    places = np.cumsum(is_wanted) - 1
    return _in_one_piece(rows.filter(pa.array(is_wanted)), places[numbers])


def _in_one_piece(rows: pa.Table, numbers: Longs) -> pa.Table:
    chosen = pa.array(numbers, pa.int64())
    columns = [
        taken_texts(column, numbers) if pa.types.is_string(column.type) else column.take(chosen).combine_chunks()
        for column in rows.columns
    ]
    return pa.table(columns, rows.schema)


def _runs(sizes: Longs) -> Iterator[tuple[int, int]]:
    """Cuts rows of these sizes into runs of about `PIECE_BYTES` at most."""
    ends = np.cumsum(sizes)
    cuts = [0]
    while cuts[-1] < len(sizes):
        before = ends[cuts[-1] - 1] if cuts[-1] else 0
        cuts.append(max(cuts[-1] + 1, int(np.searchsorted(ends, before + PIECE_BYTES, "right"))))
    return pairwise(cuts)
