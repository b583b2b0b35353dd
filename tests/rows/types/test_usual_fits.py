"""What the compiled function passes, the patterns pass; and what usual messages hold, it passes."""

from __future__ import annotations

from random import Random

import numpy as np
import pyarrow as pa
import pytest

from bridge.events import SEP
from bridge.rows.literal_offsets import Cells
from bridge.rows.type_check import column_fit, unsure
from tests.support.fenced_buffers import fenced_texts

USUAL = {
    "int": ["NULL", "0", "-7", "18446744073709551615"],
    "bit(9)": ["0", "511"],
    "decimal(10,2)": ["NULL", "0.50", "-1234567.25"],
    "double": ["NULL", "0.5", "-7.25", "123456789012345"],
    "year": ["NULL", "2024"],
    "date": ["NULL", "'2024-02-29'"],
    "datetime": ["'2024-02-29 23:59:59'", "'2024-02-29 23:59:59.000'"],
    "datetime(3)": ["NULL", "'2024-02-29 23:59:59.123'", "'2024-02-29 23:59:59.12'", "'2024-02-29 23:59:59.123000'"],
    "timestamp(6)": ["'2024-02-29 23:59:59.123456'"],
    "time": ["'-12:34:56'", "'12:34:56'"],
    "time(1)": ["'12:34:56.7'"],
    "char(9)": ["NULL", "''", "'a'", "' a'", "x'20'"],
    "varchar(9)": ["NULL", "''", "'a '", "x''"],
    "longblob": ["x'00ff'", "'a'"],
    "json": ["'{}'", "anything"],
}
UNUSUAL = [
    "", "N", "NUL", "NULLS", "-", "+1", "1.", "1.0", "1.5", "1e5", "1e-5", "'1'", "0x1", "abc", "9" * 16,
    "'2024'", "24", "20240", "'24'", "'2024-02-29 00:00:00'", "'2024-02-29 01:00:00'", "'2024-02-29T01:00:00'",
    "'2024-2-9'", "'2024-02-29 23:59'", "'2024-02-29 23:59:59.'", "'2024-02-29 23:59:59.1234567'",
    "'2024-02-29 23:59:59.0001'", "'123:34:56'", "'-838:59:59.5'", "'12:34'", "'12:34:56.78'", "' '", "'a '", "x'2 '",
    "-" + "9" * 16, "'", "x'", "'a", "b'1'", "'2024-02-29 23:59:59+01:00'", "'9999-99-99'", "'0000-00-00'",
]  # fmt: skip
TYPES = [*USUAL, "float", "double(9,2)", "enum('a')", "binary(3)", "tinyint(1)", "datetime(6)", "time(6)"]


def passed(column_type: str, literals: list[str]) -> list[str]:
    """The literals that the compiled function passes."""
    images = pa.array(literals, pa.large_string())
    shape_of = np.zeros(len(literals), np.int64)
    left = set(unsure(Cells(images, shape_of, [1]), shape_of, [[column_fit(column_type).usual]]).tolist())
    return [literal for number, literal in enumerate(literals) if number not in left]


@pytest.mark.parametrize("column_type", USUAL)
def test_usual_literals_need_no_closer_look(column_type: str) -> None:
    """Otherwise each literal of the row is looked at, which takes longer."""
    assert passed(column_type, USUAL[column_type]) == USUAL[column_type]


@pytest.mark.parametrize("column_type", TYPES)
def test_what_is_passed_loses_nothing(column_type: str) -> None:
    """By the pattern of the column's type: of literals of every type, right ones and damaged ones."""
    made = Random(7)
    known = [*UNUSUAL, *(literal for some in USUAL.values() for literal in some)]
    literals = [*known, *(_damaged(made, made.choice(known)) for _ in range(20_000))]

    found = passed(column_type, literals)

    keeps = column_fit(column_type).keeps
    assert [literal for literal in found if keeps and not keeps(literal)] == []


def test_floats_are_always_looked_at() -> None:
    """A number that is no 32-bit float would be rounded in silence."""
    assert passed("float", ["NULL", "0.5", "0.1"]) == ["NULL"]


def test_rows_of_several_tables_with_rows_that_are_gone() -> None:
    """Each image is judged by its own shape, column by column."""
    shapes = [("int", "varchar(9)"), ("char(9)",), ("date", "json", "int")]
    rows = [
        *((0, "1", "'a '"), None, (1, "'a '"), (2, "NULL", "x", "7"), (0, "x", "'a'"), (2, "NULL", "x", "7.0")),
        (1, "'a'"),
    ]
    images = pa.array([row and SEP.join(row[1:]) for row in rows], pa.large_string())
    shape_of = np.array([row[0] if row else 0 for row in rows], np.int64)
    for first in (0, 1, 3):
        some, of_some = images.slice(first), shape_of[first:]
        cells = Cells(some, of_some, [len(types) for types in shapes])
        found = unsure(cells, of_some, [[column_fit(one).usual for one in types] for types in shapes])
        assert [number + first for number in found.tolist()] == [number for number in (2, 4, 5) if number >= first]


def _damaged(made: Random, literal: str) -> str:
    at = made.randrange(len(literal) + 1)
    return literal[:at] + made.choice(["", *"0159'-.: exN+"]) + literal[at + made.randrange(3) :]


@pytest.mark.parametrize("column_type", TYPES)
def test_no_byte_behind_the_last_literal_is_read(column_type: str) -> None:
    """Whatever a literal begins like, and whether rows without an image follow."""
    usual = column_fit(column_type).usual
    for literal in {text[:size] for text in ("NULL", "x'00'", "'12:34:56.7'", "'-12:34:56'", "'2024-02-29 23:59:59.1'",
                                             "-1.5") for size in range(len(text) + 1)}:  # fmt: skip
        for images in ([literal], ["1", literal], [literal, None]):
            shape_of = np.zeros(len(images), np.int64)
            unsure(Cells(fenced_texts(images), shape_of, [1]), shape_of, [[usual]])
