r"""Converts values to SQL literals, for a connection with utf8mb4 and without NO_BACKSLASH_ESCAPES.

Nothing from the wire reaches a literal unchecked: numbers are matched as a whole and written in one canonical form,
dates are matched as a whole, text is escaped.  No literal ever holds a real NUL (`events.SEP` depends on it).

Converters take a value as JSON gave it, and must *fail* when it has another JSON type.  So they build strings by ``+``
and ``join``, and never by f-strings, which would accept anything.  ``value.join(("'", "'"))`` quotes with one copy, in
half the time of ``+``.
"""

from __future__ import annotations

import re
import struct
from collections.abc import Callable
from decimal import Decimal
from math import isfinite
from typing import Any, Final

from bridge.protocols.decoder import DecodeError, excerpt

Converter = Callable[[Any], str]
"""Makes the literal of a value that is not null, as JSON gave it; raises DecodeError, or any of `FAILURES`."""

NULL: Final = "NULL"
MIN_INTEGER: Final = -(1 << 63)
MAX_INTEGER: Final = (1 << 64) - 1
MAX_DECIMAL_DIGITS: Final = 65
"""The largest precision of DECIMAL in MySQL, MariaDB and TiDB.  MariaDB cuts longer bare numbers."""
MAX_NUMBER_LENGTH: Final = 2000
"""A double in plain notation needs at most 343 characters in its shortest form, and about 1,080 in its exact form."""

_LONGEST_BINARY: Final = 255

_INTEGER: Final = re.compile(r"-?[0-9]+")
_DECIMAL: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?")
_REAL: Final = re.compile(r"-?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]{1,4})?")

DATE_PATTERN: Final = r"[0-9]{4}-(?:0[0-9]|1[0-2])-(?:[0-2][0-9]|3[01])"
_CLOCK_PART: Final = r"[0-5][0-9]:[0-5][0-9](?:\.[0-9]{1,6})?"
DATETIME_PATTERN: Final = DATE_PATTERN + " (?:[01][0-9]|2[0-3]):" + _CLOCK_PART
TIME_PATTERN: Final = "-?(?:[0-7]?[0-9]{2}|8[0-2][0-9]|83[0-8]):" + _CLOCK_PART
_DATE: Final = re.compile(DATE_PATTERN)
_DATETIME: Final = re.compile(DATETIME_PATTERN)
_TIME: Final = re.compile(TIME_PATTERN)

_FLOAT32: Final = struct.Struct("f")


def text(value: str) -> str:
    r"""Quotes text: '...' with \ ' and NUL escaped."""
    if "\\" in value or "'" in value or "\0" in value:
        value = value.replace("\\", "\\\\").replace("'", "\\'").replace("\0", "\\0")
    return value.join(("'", "'"))


def binary(value: bytes) -> str:
    """Writes bytes as x'...', the only form that no character set can change, or as '' when there are none."""
    return "x'" + value.hex() + "'" if value else "''"


def latin1(value: str) -> str:
    """Converts bytes that were written as one ISO-8859-1 character each."""
    try:
        return binary(value.encode("latin-1"))
    except UnicodeEncodeError:
        raise DecodeError("a binary value holds characters beyond ISO-8859-1") from None


def zero_padded(length: int, convert: Converter) -> Converter:
    """Makes a converter that completes the values of a BINARY of so many bytes.  MySQL's log leaves out the zero bytes
    at their ends, which a server adds to what it stores, but not to what it compares."""
    if length > _LONGEST_BINARY:
        return convert

    def padded(value: str) -> str:
        literal = convert(value)
        return "x'" + literal.lstrip("x")[1:-1].ljust(2 * length, "0") + "'"

    return padded


def integer(value: str) -> str:
    """Converts digits to an integer without leading zeros, within signed or unsigned 64 bits."""
    if value.isdecimal() and value.isascii() and (value[0] != "0" or value == "0") and len(value) < 19:
        return value
    if not _INTEGER.fullmatch(value):
        raise DecodeError(f"{excerpt(value)} is not an integer")
    digits = value.lstrip("-").lstrip("0") or "0"
    if len(digits) > 20:
        raise DecodeError(f"{excerpt(value)} is beyond 64 bits")
    return integer_number(-int(digits) if value[0] == "-" else int(digits))


def integer_number(value: int) -> str:
    """Does what `integer` does for a JSON number.  A number beyond 64 bits has become a float in parsing, and to Python
    a bool is an int: both are refused."""
    if type(value) is not int:
        raise DecodeError(f"{excerpt(value)} is not an integer")
    if MIN_INTEGER <= value <= MAX_INTEGER:
        return str(value)
    raise DecodeError(f"{excerpt(value)} is beyond 64 bits")


def unsigned(value: str) -> str:
    """Converts BIT, ENUM (index) and SET (bit mask) to numbers, which every SQL mode and character set reads alike."""
    return _not_negative(integer(value))


def unsigned_number(value: int) -> str:
    """Does what `unsigned` does for a JSON number."""
    return _not_negative(integer_number(value))


def _wrapping(bits: int) -> Converter:
    """Makes the converter of unsigned numbers of this many bits that may have been printed as signed numbers."""

    def convert(value: str) -> str:
        literal = integer(value)
        if literal[0] != "-":
            return literal
        number = int(literal) + (1 << bits)
        if number < 1 << (bits - 1):
            raise DecodeError(f"{literal} is below what {bits} bits can hold")
        return str(number)

    return convert


UNSIGNED: Final[dict[int, Converter]] = {bits: _wrapping(bits) for bits in (8, 16, 24, 32, 64)}
"""Converters of unsigned integers by their width in bits."""


def _not_negative(literal: str) -> str:
    if literal[0] == "-":
        raise DecodeError(f"{literal} is negative")
    return literal


def year(value: str) -> str:
    """Converts a YEAR to a number: the string '0' would be stored as 2000, one or two digits as 19xx or 20xx."""
    return _year(integer(value))


def year_number(value: int) -> str:
    """Does what `year` does for a JSON number."""
    return _year(integer_number(value))


def _year(literal: str) -> str:
    if literal == "0" or 1901 <= int(literal) <= 2155:
        return literal
    raise DecodeError(f"{literal} is not a YEAR")


def decimal(value: str) -> str:
    """Converts a DECIMAL; it keeps its text, and so its scale."""
    if not _DECIMAL.fullmatch(value):
        raise DecodeError(f"{excerpt(value)} is not a decimal number")
    if len(value) > MAX_DECIMAL_DIGITS and len(value) - value.count("-") - value.count(".") > MAX_DECIMAL_DIGITS:
        raise DecodeError(f"{excerpt(value)} has more than {MAX_DECIMAL_DIGITS} digits")
    return value


def java_decimal(value: str) -> str:
    """Does what `decimal` does for text that Java's BigDecimal may have printed in scientific notation (0E-10), as
    connectors of Debezium before 1.9 let it (DBZ-4730)."""
    if _DECIMAL.fullmatch(value) or len(value) > MAX_NUMBER_LENGTH or not _REAL.fullmatch(value):
        return decimal(value)
    number = Decimal(value)
    if abs(number.adjusted()) > MAX_DECIMAL_DIGITS:
        raise DecodeError(f"{excerpt(value)} has more than {MAX_DECIMAL_DIGITS} digits")
    return decimal(f"{number:f}")


def double(value: str) -> str:
    """Converts a DOUBLE given as text, in plain or exponent notation."""
    return double_number(_real(value))


def double_number(value: float) -> str:
    """Writes a DOUBLE, always in exponent form: MariaDB cuts a bare number at 65 digits without an error."""
    if type(value) is not float and type(value) is not int:
        raise DecodeError(f"{excerpt(value)} is not a number")
    literal = repr(float(value))
    if "e" in literal:
        return literal
    if isfinite(value):
        return literal + "e0"
    raise DecodeError("the number is beyond DOUBLE")


def float32(value: str) -> str:
    """Converts a FLOAT given as text."""
    return float32_number(_real(value))


def float32_number(value: float) -> str:
    """Writes a FLOAT as the double of the float32: the shortest form of the largest float overflows a strict column."""
    if type(value) is not float and type(value) is not int:
        raise DecodeError(f"{excerpt(value)} is not a number")
    try:
        return double_number(_FLOAT32.unpack(_FLOAT32.pack(value))[0])
    except OverflowError:
        raise DecodeError("the number is beyond FLOAT") from None


def _real(value: str) -> float:
    if len(value) > MAX_NUMBER_LENGTH or not _REAL.fullmatch(value):
        raise DecodeError(f"{excerpt(value)} is not a number")
    return float(value)


def date(value: str) -> str:
    """Converts a DATE; zero dates and zero parts (2024-00-10) are legal."""
    if _DATE.fullmatch(value):
        return value.join(("'", "'"))
    raise DecodeError(f"{excerpt(value)} is not a date")


def time(value: str) -> str:
    """Converts a TIME from -838:59:59.999999 to 838:59:59.999999."""
    if _TIME.fullmatch(value):
        return value.join(("'", "'"))
    raise DecodeError(f"{excerpt(value)} is not a time")


def datetime(value: str) -> str:
    """Converts a DATETIME, which has no zone; zero dates and zero parts are legal."""
    if _DATETIME.fullmatch(value):
        return value.join(("'", "'"))
    raise DecodeError(f"{excerpt(value)} is not a date and time")
