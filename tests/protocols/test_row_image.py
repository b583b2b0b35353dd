"""Row images: every value by its column's converter, or a reason that names the column."""

from __future__ import annotations

import random
import struct
from collections.abc import Callable, Sequence
from decimal import Decimal
from functools import partial
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.debezium.columns import document, raw_literal
from bridge.protocols.decoder import FAILURES, DecodeError
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import Column
from bridge.protocols.values.literals import NULL, Converter
from bridge.protocols.values.row_image import image_of, make_layout
from tests.support.pipelines import admin
from tests.support.wire import canal, decode

CONVERTERS = [
    literals.text, literals.integer, literals.unsigned, *literals.UNSIGNED.values(), literals.integer_number,
    literals.decimal, literals.latin1, literals.date, literals.double_number,
]  # fmt: skip
VALUES = (
    st.none()
    | st.text("0123456789-'\\\0a٣é", max_size=22)
    | st.integers(-(1 << 65), 1 << 65).map(str)
    | st.integers(-(1 << 65), 1 << 65)
    | st.sampled_from([True, False, 1.5, [], {}, ["'"], {"'": 1}, "0", "00", "-0", "2024-01-01", ""])
)


def image_by(converters: Sequence[Converter]) -> Callable[[dict[str, Any]], str]:
    """The function that makes the image of a row with so many columns."""
    columns = {f"c{at}": Column("any", one) for at, one in enumerate(converters)}
    return partial(image_of, make_layout(None, None, columns))


def outcome(convert: Converter, value: Any) -> str | None:
    try:
        return convert(value)
    except (*FAILURES, DecodeError):
        return None


@settings(max_examples=400)
@given(st.lists(st.tuples(st.sampled_from(CONVERTERS), VALUES), min_size=1, max_size=5))
@example([(literals.text, ["'"])])
@example([(literals.integer, "9" * 19), (literals.text, "a\0b")])
def test_same_image(columns: list[tuple[Converter, Any]]) -> None:
    """It gives the same image as the converters one by one, and fails whenever one of them does."""
    parts = [NULL if value is None else outcome(convert, value) for convert, value in columns]
    image = image_by([convert for convert, _ in columns])
    expected = None if None in parts else "\0".join(part for part in parts if part is not None)
    assert outcome(image, {f"c{at}": value for at, (_, value) in enumerate(columns)}) == expected


@settings(max_examples=200)
@given(st.lists(VALUES | st.text("'\\\0a", max_size=3), min_size=1, max_size=4))
@example(["'\0'", "a"])
def test_rows_of_texts(values: list[Any]) -> None:
    """So it is with rows of texts only."""
    parts = [NULL if value is None else outcome(literals.text, value) for value in values]
    expected = None if None in parts else "\0".join(part for part in parts if part is not None)
    image = image_by([literals.text] * len(values))
    assert outcome(image, {f"c{at}": value for at, value in enumerate(values)}) == expected


def test_reasons_stay() -> None:
    """A decoder that has seen many rows of a table says of the next what one that has seen none says."""
    decoder = make_decoder("canal-json", DecodeOptions("UTC"))
    values = ["1", "-1", "0", None, "007", "x", 5, [], "9" * 30, "1"]
    for value in values * 10:
        row = canal("UPDATE", {"id": ("int", "1"), "v": ("int", value)}, old=[{"v": value}])
        assert decode_message(decoder, b"", row) == decode("canal-json", b"", row)


def test_wide_rows() -> None:
    """A table of 4,096 columns, the most that MySQL has."""
    image = image_by([literals.integer] * 4096)
    assert image({f"c{at}": "1" for at in range(4096)}) == "\0".join(["1"] * 4096)


@pytest.mark.parametrize(
    "values",
    [
        (1, "x", None, 1.5, True), (-1, "it's", None, "\0", "\\"), ([1], "{}", "{v0}", "", (1 << 64) - 1),
        (None, None, None, None, None), ({"scale": 1, "value": "Dw=="}, "a", 1, "b", -(1 << 63)),
    ],
)  # fmt: skip
def test_rows_of_raw_values(values: tuple[object, ...]) -> None:
    """Values of any JSON types become what each of them becomes alone."""
    image = image_by([raw_literal] * len(values))
    expected = "\0".join("NULL" if value is None else raw_literal(value) for value in values)
    assert image({f"c{at}": value for at, value in enumerate(values)}) == expected


def plain(double: float) -> str:
    """As the connector writes it: all digits of its binary value."""
    return format(Decimal(double), "f")


@pytest.mark.parametrize(
    ("came", "written"),
    [
        (f'{{"a": {plain(1e100)}}}', '{"a": 1e100}'),
        (f"[{plain(-1e100)}, {plain(1e22)}]", "[-1e100, 1e22]"),
        (f"{plain(1e-05)}", "1e-5"),
        ("[18446744073709551615, -9223372036854775808]", "[18446744073709551615, -9223372036854775808]"),
        ("18446744073709551617", "18446744073709551617"),
        ("1234567890123456789012345678.5", "1234567890123456789012345678.5"),
        ("0.30000000000000004", "0.30000000000000004"),
        (f'{{"{10**30}": "{10**30}"}}', f'{{"{10**30}": "{10**30}"}}'),
        *((f'"\\\\\\"{10**30}"', f'"\\\\\\"{10**30}"'), (f"1{'0' * 400}", f"1{'0' * 400}")),
        *((f"1{'0' * 9000}", f"1{'0' * 9000}"), (f"{plain(1e30)}e5", f"{plain(1e30)}e5")),
    ],
)
def test_what_is_written(came: str, written: str) -> None:
    """Only a number that is exactly a double, with more digits than it needs; nothing within strings and keys, no
    integer of 64 bits, no DECIMAL that a double would round."""
    assert document(came) == "'" + written.replace("\\", "\\\\") + "'"


def test_mysql_reads_the_same_double(mysql_target: str) -> None:
    """Nearly every one; as the connector writes them, it reads every second one otherwise."""
    bits = random.Random(11)
    drawn = (struct.unpack("<d", struct.pack("<Q", bits.getrandbits(64)))[0] for _ in range(400))
    doubles = [1e100, 1e22, 2.0**64, 1e-5, *(one for one in drawn if 1e-300 < abs(one) < 1e308)]
    with admin(mysql_target) as session:
        session.execute("CREATE DATABASE d")
        session.execute("CREATE TABLE d.t (id INT PRIMARY KEY, j JSON)")
        rows = ",".join(f"({number}, {document(plain(one))})" for number, one in enumerate(doubles))
        session.execute(f"INSERT INTO d.t VALUES {rows}")
        read = [float(text) for (text,) in session.rows("SELECT CAST(j AS CHAR) FROM d.t ORDER BY id")]
    assert read[:4] == doubles[:4]
    assert sum(one != other for one, other in zip(read, doubles, strict=True)) <= len(doubles) // 100
