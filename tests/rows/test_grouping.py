"""Rows by the values of some columns."""

from __future__ import annotations

import pyarrow as pa
from hypothesis import given
from hypothesis import strategies as st

from bridge.rows.grouping import distinct

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
