"""Where the literals of large images are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.events import SEP
from bridge.rows import literal_offsets
from bridge.rows.grouping import distinct
from bridge.rows.literal_offsets import Cells


@pytest.mark.parametrize("block", [1, 2, 3, 7, 64])
@pytest.mark.parametrize("first", [0, 1, 2])
def test_separators_lie_anywhere_in_blocks(monkeypatch: pytest.MonkeyPatch, block: int, first: int) -> None:
    """They are looked for block by block: at the first and the last byte of one, and in none at all."""
    monkeypatch.setattr(literal_offsets, "_BLOCK", block)
    rows = [["1", "", "'a'"], None, ["", "", ""], ["'long enough for several'", "2", "3"], ["4", "5", "6"]]
    images = pa.array([row and SEP.join(row) for row in rows], pa.large_string()).slice(first)
    cells = Cells(images, np.zeros(len(images), np.int64), [3])
    for position in range(3):
        expected = [row and row[position] for row in rows[first:]]
        assert cells.joined([[position]]).to_pylist() == expected


@pytest.mark.parametrize("seed", range(20))
def test_a_compiled_function_finds_the_same_separators(monkeypatch: pytest.MonkeyPatch, seed: int) -> None:
    """Of images that begin and end anywhere in words of eight bytes; one too many or too few is an error."""
    rng = np.random.default_rng(seed)
    characters = rng.choice(np.array([0, 1, 0x7F, 0x80, 0xFF], np.uint8), 5_000)
    offsets = np.sort(rng.integers(0, 5_000, 3))
    expected = np.flatnonzero(characters[offsets[0] : offsets[-1]] == 0) + offsets[0]
    for pays in (False, True):
        monkeypatch.setattr(literal_offsets, "_readiness", Certain(pays))
        assert literal_offsets.separators(characters, offsets, len(expected)).tolist() == expected.tolist()
        for wrong in (len(expected) - 1, len(expected) + 1):
            with pytest.raises(ValueError, match="a literal for each of their columns"):
                literal_offsets.separators(characters, offsets, max(0, wrong) if len(expected) else 1)


class Certain:
    """Says that compiled functions always pay, or never."""

    def __init__(self, pays: bool) -> None:
        self._pays = pays

    def pays(self, size: int) -> bool:
        del size
        return self._pays


TEXTS = st.lists(st.sampled_from(["", "a", "b", "aa", "ab", "é", None]), max_size=6)


@given(TEXTS, TEXTS, st.integers(0, 3))
def test_values_are_numbered_as_they_come(first: list[str | None], second: list[str | None], start: int) -> None:
    """One value in all rows, several, none, null: each combination has a number, from 0 in the order it comes first."""
    rows = list(zip(first, second, strict=False))
    table = pa.table(
        {"x": pa.array([x for x, _ in rows], pa.string()), "y": pa.array([y for _, y in rows], pa.string())}
    )
    values, codes = distinct(table.slice(start), ("x", "y"))
    assert values == list(dict.fromkeys(rows[start:]))
    assert [values[code] for code in codes] == rows[start:]
