"""Where the literals of large images are."""

from __future__ import annotations

import numpy as np
import pyarrow as pa
import pytest

from bridge.events import SEP
from bridge.rows import literal_offsets
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
