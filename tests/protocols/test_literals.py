"""Values to literals: tables of what each converter makes, and of what it refuses."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from bridge.protocols import DecodeError
from bridge.protocols.values import literals
from bridge.protocols.values.event_time import timestamp_converter
from tests.support.wire import SAFE_LITERAL

MADE: list[tuple[Callable[[Any], str], Any, str]] = [
    *((literals.text, "", "''"), (literals.text, "it's", r"'it\'s'"), (literals.text, "\\", r"'\\'")),
    *((literals.text, "\\'", r"'\\\''"), (literals.text, "\0", r"'\0'"), (literals.text, "\\0", r"'\\0'")),
    (literals.text, '漢字 😀 " ` \n \x1a %_', "'漢字 😀 \" ` \n \x1a %_'"),
    (literals.binary, b"", "''"),
    (literals.binary, b"\x00'\\\xff", "x'00275cff'"),
    *((literals.latin1, "Ã©\0", "x'c3a900'"), (literals.integer, "0", "0"), (literals.integer, "-0", "0")),
    *((literals.integer, "007", "7"), (literals.integer, "-007", "-7"), (literals.integer, "0" * 1000 + "5", "5")),
    (literals.integer, "18446744073709551615", "18446744073709551615"),
    (literals.integer, "-9223372036854775808", "-9223372036854775808"),
    (literals.integer_number, -1, "-1"),
    (literals.integer_number, (1 << 64) - 1, "18446744073709551615"),
    (literals.unsigned, "9223372036854775809", "9223372036854775809"),
    *((literals.year, "0000", "0"), (literals.year, "2155", "2155"), (literals.year_number, 1901, "1901")),
    *((literals.decimal, "1.50", "1.50"), (literals.decimal, "-0.00", "-0.00")),
    (literals.decimal, "-" + "9" * 35 + "." + "9" * 30, "-" + "9" * 35 + "." + "9" * 30),
    (literals.double, "1", "1.0e0"),
    (literals.double, "1e21", "1e+21"),
    (literals.double, "-1E-7", "-1e-07"),
    (literals.double, "17976931348623157" + "0" * 292, "1.7976931348623157e+308"),
    (literals.double_number, 0.1, "0.1e0"),
    (literals.double_number, 0, "0.0e0"),
    (literals.double_number, 1 << 63, "9.223372036854776e+18"),
    (literals.float32, "340282350000000000000000000000000000000", "3.4028234663852886e+38"),
    (literals.float32, "0.1", "0.10000000149011612e0"),
    (literals.float32_number, 16777216, "16777216.0e0"),
    (literals.date, "0000-00-00", "'0000-00-00'"),
    (literals.date, "2024-00-10", "'2024-00-10'"),
    (literals.date, "9999-12-31", "'9999-12-31'"),
    (literals.time, "-838:59:59.999999", "'-838:59:59.999999'"),
    (literals.time, "00:00:00", "'00:00:00'"),
    (literals.datetime, "2024-01-00 00:00:00", "'2024-01-00 00:00:00'"),
    (literals.datetime, "2024-02-29 23:59:59.123456", "'2024-02-29 23:59:59.123456'"),
]


@pytest.mark.parametrize(("convert", "value", "literal"), MADE)
def test_made(convert: Callable[[Any], str], value: Any, literal: str) -> None:
    """Literals are canonical: what MariaDB and MySQL read back as the value, digit by digit and byte by byte."""
    assert convert(value) == literal
    assert SAFE_LITERAL.fullmatch(literal)


REFUSED: list[tuple[Callable[[Any], str], Any]] = [
    *((literals.latin1, "Ā"), (literals.integer, "18446744073709551616"), (literals.integer, "-9223372036854775809")),
    *((literals.integer, "9" * 1_000_000), (literals.integer, "1.0"), (literals.integer, "1e3")),
    *((literals.integer_number, 1 << 64), (literals.integer_number, 1.0), (literals.integer_number, True)),
    *((literals.integer_number, "1"), (literals.unsigned, "-1"), (literals.unsigned_number, -1)),
    *((literals.unsigned, "a"), (literals.year, "24"), (literals.year, "2156"), (literals.year_number, 1)),
    *((literals.decimal, "1e5"), (literals.decimal, ".5"), (literals.decimal, "9" * 66)),
    *((literals.decimal, "0." + "9" * 65), (literals.double, "inf"), (literals.double, "nan")),
    *((literals.double, "1e309"), (literals.double, "0x10"), (literals.double, "1_000")),
    *((literals.double, "1" * 1_000_000), (literals.double_number, float("inf"))),
    *((literals.double_number, float("nan")), (literals.double_number, True), (literals.double_number, "1")),
    *((literals.float32, "3.5e38"), (literals.float32_number, float("inf")), (literals.float32_number, True)),
    *((literals.float32_number, -1e300), (literals.date, "2024-13-01"), (literals.date, "2024-12-32")),
    *((literals.date, "24-12-31"), (literals.time, "839:00:00"), (literals.time, "12:60:00")),
    *((literals.time, "+12:00:00"), (literals.time, "12:00:00.1234567"), (literals.datetime, "2024-01-01")),
    *((literals.datetime, "2024-01-01T00:00:00"), (literals.datetime, "2024-01-01 24:00:00")),
]


@pytest.mark.parametrize(("convert", "value"), REFUSED)
def test_refused(convert: Callable[[Any], str], value: Any) -> None:
    """What is not a value of the type is refused, with a short reason."""
    with pytest.raises(DecodeError) as refusal:
        convert(value)
    assert 0 < len(str(refusal.value)) < 200


CHECKED = [
    literals.integer, literals.unsigned, literals.year, literals.decimal, literals.double, literals.float32,
    literals.date, literals.time, literals.datetime, timestamp_converter("+08:00"),
]  # fmt: skip

INJECTIONS = [
    "1 OR 1=1", "1;DROP TABLE t", "1--", "1/*", "1'", "1\0", "1\n", "\n1", " 1", "1 ", "", "-", "+1", "--1", "NULL",
    "(SELECT 1)", "1,2", "١٢٣", "１２", "²", "1\u0661", "0x31", "2024-01-01'", "2024-01-01 00:00:00'); DROP TABLE t-- ",
    "2024-01-01\n", "12:00:00\n", "2024-01-01 00:00:00\n", "2024-01-0١", "1.5e1'", "1e1;", "1.١", "12:00:00.١",
]  # fmt: skip


@pytest.mark.parametrize("convert", CHECKED)
def test_injections(convert: Callable[[Any], str]) -> None:
    """Nothing but a whole value of the type comes through a type that is written without escaping."""
    for injection in INJECTIONS:
        with pytest.raises(DecodeError):
            pytest.fail(f"{injection!r} became {convert(injection)}")


@pytest.mark.parametrize("convert", [*CHECKED, literals.text, literals.latin1])
def test_text_converters_fail_on_other_json(convert: Callable[[Any], str]) -> None:
    """A converter of text makes nothing of another JSON type (the image maps the failure to a reason)."""
    for value in (1, 1.5, True, [], {}, ["x"], {"x": 1}, [["'"]]):
        with pytest.raises((DecodeError, TypeError, AttributeError)):
            pytest.fail(f"{value!r} became {convert(value)}")
