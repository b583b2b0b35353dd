"""Copies of texts are what Arrow's own would be."""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module

import numpy as np
import pyarrow as pa
import pytest

from bridge.rows.gathering import lines, one_piece, take_texts
from bridge.rows.literal_offsets import TEXT

ROWS = 3_000
"""Enough for the compiled function."""


@pytest.fixture(autouse=True)
def compiled() -> None:
    """Has the compiled function copy what is enough for it."""
    import_module("bridge.protocols.fast.compiled.functions")


def _column(seed: int, kind: pa.DataType, *, nulls: bool) -> pa.ChunkedArray:
    """Makes a column of several pieces, some of which are slices, and one is empty."""
    rng = np.random.default_rng(seed)
    pieces = []
    for size in (0, 1_000, 1, 2_500):
        words = ["é" * int(length) for length in rng.integers(0, 60, size)]
        found: list[str | None] = [None if nulls and rng.integers(4) == 0 else word for word in words]
        pieces.append(pa.array(found, kind)[rng.integers(3) :])
    return pa.chunked_array(pieces, kind)


@pytest.mark.parametrize("kind", [pa.string(), TEXT])
@pytest.mark.parametrize("nulls", [False, True])
@pytest.mark.parametrize("seed", range(5))
def test_texts_are_taken_as_arrow_takes_them(seed: int, kind: pa.DataType, nulls: bool) -> None:
    column = _column(seed, kind, nulls=nulls)
    for texts in (column, column.combine_chunks()):
        numbers = np.random.default_rng(seed).integers(0, len(texts), ROWS)
        found = take_texts(texts, numbers)
        found.validate(full=True)
        wanted = texts.take(pa.array(numbers))
        assert found.equals(wanted.combine_chunks() if isinstance(wanted, pa.ChunkedArray) else wanted)


@pytest.mark.parametrize("kind", [pa.string(), TEXT])
@pytest.mark.parametrize("nulls", [False, True])
def test_pieces_become_one(kind: pa.DataType, nulls: bool) -> None:
    column = _column(7, pa.string(), nulls=nulls)
    for texts in (column, column.slice(900, 200), column.slice(0, 0), pa.chunked_array([], pa.string())):
        found = one_piece(texts, kind)
        found.validate(full=True)
        assert found.equals(texts.cast(kind).combine_chunks())


@pytest.mark.parametrize("make", [lambda texts: texts, lambda texts: texts[17:], lambda texts: texts[5:40]])
def test_lines_end_with_a_line_feed(make: Callable[[pa.Array], pa.Array]) -> None:
    texts = make(_column(3, TEXT, nulls=False).combine_chunks())
    assert lines(texts).to_pybytes() == "".join(f"{text}\n" for text in texts.to_pylist()).encode()
