"""Rows put together, whatever their size."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.rows import gathering
from bridge.rows.gathering import distinct, masked, take_rows, whole_texts

TEXTS = st.lists(st.lists(st.one_of(st.none(), st.text(max_size=5)), max_size=5), max_size=4)


@given(chunks=TEXTS, reach=st.sampled_from([0, 50, 1000]), data=st.data())
def test_large_rows_are_taken_like_others(chunks: list[list[str | None]], reach: int, data: st.DataObject) -> None:
    """In whatever order, some of them or all, near each other or not."""
    texts = pa.chunked_array([pa.array(chunk, pa.string()) for chunk in chunks], pa.string())
    rows = pa.table({"text": texts, "number": pa.array(range(len(texts)))})
    numbers = data.draw(st.lists(st.integers(0, len(texts) - 1)) if len(texts) else st.just([]))
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(gathering, "PIECE_BYTES", 0)
        patch.setattr(gathering, "_REACH", reach)
        found = take_rows(rows, np.array(numbers, np.int64))
    assert found.to_pylist() == [rows.slice(number, 1).to_pylist()[0] for number in numbers]


@given(runs=st.lists(st.tuples(st.booleans(), st.integers(1, 400)), max_size=5))
def test_rows_of_a_mask(runs: list[tuple[bool, int]]) -> None:
    """In long runs, short ones, or all of them."""
    mask = np.array([one for one, size in runs for _ in range(size)], np.bool_)
    rows = pa.table({"text": pa.array(map(str, range(len(mask))), pa.string())})
    assert masked(rows, mask).to_pylist() == rows.filter(pa.array(mask)).to_pylist()


def test_rows_are_cut_to_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    """Of about equal size, none of them empty."""
    monkeypatch.setattr(gathering, "PIECE_BYTES", 1000)
    rows = pa.table({"text": ["x" * size for size in (300, 300, 300, 2000, 10, 10)]})
    found = take_rows(rows, np.arange(5, -1, -1))
    assert [len(batch) for batch in found.to_batches() if len(batch)] == [2, 1, 2, 1]
    assert found["text"].to_pylist() == rows["text"].to_pylist()[::-1]


def test_texts_beyond_32_bits_have_numbers(monkeypatch: pytest.MonkeyPatch) -> None:
    """The names of wide tables' columns, beside every row."""
    monkeypatch.setattr(gathering, "PIECE_BYTES", 100)
    column = pa.chunked_array([["a" * 50, "a" * 50, "b"], ["a" * 50]])
    assert pa.types.is_large_string(whole_texts(column).type)
    found, numbers = distinct(pa.table({"columns": column}), ("columns",))
    assert (found, numbers.tolist()) == ([("a" * 50,), ("b",)], [0, 0, 1, 0])
