"""Rows by the values of some columns, numbered."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

Bools = npt.NDArray[np.bool_]
Longs = npt.NDArray[np.int64]


def distinct(rows: pa.Table, names: Sequence[str]) -> tuple[list[tuple[Any, ...]], Longs]:
    """The distinct values of these columns together, in the order in which they come, and of each row their number."""
    encoded = [_encoded(rows[name]) for name in names]
    codes = np.zeros(rows.num_rows, np.int64)
    for one in encoded:
        if len(one.dictionary) > 1:
            codes = numbered(codes * len(one.dictionary) + one.indices.to_numpy())
    first, _ = ends(codes)
    columns = [one.take(pa.array(first)).to_pylist() for one in encoded]
    return list(zip(*columns, strict=True)), codes


def numbered(codes: Longs) -> Longs:
    """Numbers from 0 for equal codes, in the order in which they come."""
    found: Longs = pa.array(codes).dictionary_encode().indices.to_numpy().astype(np.int64)
    return found


def ends(codes: Longs) -> tuple[Longs, Longs]:
    """Row numbers of the first and the last row of each number from 0."""
    rows = np.arange(len(codes))
    first = np.empty(codes.max(initial=-1) + 1, np.int64)
    last = np.empty_like(first)
    last[codes] = rows  # of repeated indices the last one assigned stays (NumPy, Assigning values to indexed arrays)
    first[codes[::-1]] = rows[::-1]
    return first, last


def _encoded(column: pa.ChunkedArray) -> pa.DictionaryArray:
    one = column.chunk(0) if column.num_chunks == 1 else column.combine_chunks()
    return one.dictionary_encode(null_encoding="encode")
