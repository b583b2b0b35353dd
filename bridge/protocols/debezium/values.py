"""Converts single values in Debezium's encodings to literals; sources: "TiCDC Debezium", Data type mapping, and the
Debezium connector for MySQL, Data type mappings."""

from __future__ import annotations

import binascii
import re
from datetime import UTC, date, datetime
from decimal import Decimal
from functools import lru_cache
from math import ulp
from typing import Final

from bridge.protocols.decoder import DecodeError, excerpt
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import OnLoss

EPOCH_DATE: Final = "'1970-01-01'"
EPOCH_DATETIME: Final = "'1970-01-01 00:00:00'"
ZERO_TIMESTAMP: Final = "'0000-00-00 00:00:00'"

_EPOCH_DAY: Final = date(1970, 1, 1).toordinal()
_YEAR_ZERO_DAYS: Final = 366
_DAYS_OF_400_YEARS: Final = 146_097
"""After this many days the calendar repeats.  Python's begins with the year 1, MySQL's with the year 0."""
_DAY_SECONDS: Final = 86_400
_DAYS_KEPT: Final = 4096
_MAX_TIME: Final = 3020400 * 1_000_000
_MAX_BIT_BYTES: Final = 8
_NO_YEAR: Final = 1900
_URL_SAFE: Final = str.maketrans("-_", "+/")
_ZONED: Final = re.compile(r"(\d{4}-\d\d-\d\d)T(\d\d:\d\d:\d\d)(?:\.(\d{1,9}))?(Z|[+-]\d\d:\d\d)", re.ASCII)
_ISO: Final = re.compile(r"(?:(\d{4}-\d\d-\d\d)T?)?(-?\d{2,3}:\d\d:\d\d(?:\.\d{1,9})?)?Z?", re.ASCII)
_POWERS: Final = tuple(10.0**scale for scale in range(literals.MAX_DECIMAL_DIGITS + 1))


def base64_bytes(value: str) -> bytes:
    """Gives the bytes of Base64, in its standard or its URL-safe alphabet; raises DecodeError for other text."""
    try:
        return binascii.a2b_base64(value.translate(_URL_SAFE), strict_mode=True) if value else b""
    except (binascii.Error, ValueError) as failure:
        raise DecodeError(f"{excerpt(value)} is not Base64: {failure}") from failure


def binary(value: str) -> str:
    """Converts bytes in Base64."""
    return literals.binary(base64_bytes(value))


def binary_hex(value: str) -> str:
    """Converts bytes in hexadecimal digits (binary.handling.mode=hex)."""
    try:
        return literals.binary(bytes.fromhex(value))
    except ValueError:
        raise DecodeError(f"{excerpt(value)} is not hexadecimal") from None


def bits(value: str) -> str:
    """Converts a BIT(n) with n > 1, which comes as its bytes, the lowest first, in Base64."""
    content = base64_bytes(value)
    if len(content) > _MAX_BIT_BYTES:
        raise DecodeError(f"{excerpt(value)} holds more than 64 bits")
    return str(int.from_bytes(content, "little"))


def unscaled(value: str, scale: int) -> str:
    """Converts Connect's Decimal: the Base64 of the unscaled number, big-endian, in two's complement."""
    content = base64_bytes(value)
    if len(content) > literals.MAX_DECIMAL_DIGITS or not 0 <= scale <= literals.MAX_DECIMAL_DIGITS:
        raise DecodeError(f"{excerpt(value)} with scale {scale} is beyond DECIMAL")
    number = int.from_bytes(content, "big", signed=True)
    digits = str(abs(number)).rjust(scale + 1, "0")
    text = f"{digits[:-scale]}.{digits[-scale:]}" if scale else digits
    return literals.decimal("-" + text if number < 0 else text)


def decimal_of_double(value: float, precision: int, scale: int, on_loss: OnLoss) -> str:
    """Gives the DECIMAL from which a double was made.

    It is exact where no other decimal of this scale is as near to the double: the decimals of a column are 10^-scale
    apart, the doubles around a value one unit in the last place.  Otherwise it is the decimal with the fewest digits in
    the column's range, and `on_loss` is called.
    """
    if ulp(value) * _POWERS[scale] <= 1:
        literal = f"{value:.{scale}f}"
        if float(literal) != value:
            raise DecodeError(f"{value!r} has more digits than DECIMAL({precision},{scale}), which would cut it")
        return literal
    on_loss(
        f"DECIMAL({precision},{scale}) values come as float64, which cannot tell values beyond 15 digits apart"
        f" ({value!r} is the first seen)"
    )
    largest = Decimal((0, (9,) * precision, -scale))
    nearest = Decimal(repr(value))
    if abs(nearest) > largest and float(largest) == abs(value):
        nearest = largest.copy_sign(nearest)
    return literals.decimal(f"{nearest:.{scale}f}")


def date_days(value: int) -> str:
    """Converts a DATE from days since 1970."""
    return "'" + _day(_integer(value)) + "'"


def datetime_millis(value: int) -> str:
    """Converts a DATETIME from milliseconds since 1970, as if in UTC."""
    seconds, millis = divmod(_integer(value), 1000)
    return _datetime(seconds, 1000 * millis)


def datetime_micros(value: int) -> str:
    """Converts a DATETIME from microseconds since 1970, as if in UTC."""
    return _datetime(*divmod(_integer(value), 1_000_000))


def datetime_nanos(value: int) -> str:
    """Converts a DATETIME from nanoseconds since 1970, as if in UTC."""
    return datetime_micros(_thousandth(value))


def _datetime(seconds: int, micros: int) -> str:
    days, second = divmod(seconds, _DAY_SECONDS)
    text = "'" + _day(days) + " " + _clock(second)
    return text + f".{micros:06}'" if micros else text + "'"


@lru_cache(maxsize=_DAYS_KEPT)
def _day(days: int) -> str:
    if -_YEAR_ZERO_DAYS < _EPOCH_DAY + days <= 0:
        return "0000" + date.fromordinal(_EPOCH_DAY + days + _DAYS_OF_400_YEARS).isoformat()[4:]
    try:
        return date.fromordinal(_EPOCH_DAY + days).isoformat()
    except (OverflowError, ValueError) as failure:
        raise DecodeError(f"{days} days from 1970 are out of range for a date") from failure


@lru_cache(maxsize=_DAY_SECONDS)
def _clock(second: int) -> str:
    minutes, second = divmod(second, 60)
    hour, minute = divmod(minutes, 60)
    return f"{hour:02}:{minute:02}:{second:02}"


def time_millis(value: int) -> str:
    """Converts a TIME from milliseconds, which may be negative."""
    return time_micros(1000 * _integer(value))


def time_micros(value: int) -> str:
    """Converts a TIME from microseconds, which may be negative."""
    size = abs(_integer(value))
    if size >= _MAX_TIME:
        raise DecodeError(f"{value} is beyond TIME")
    seconds, micros = divmod(size, 1_000_000)
    fraction = f".{micros:06}" if micros else ""
    return f"'{'-' if value < 0 else ''}{_clock(seconds)}{fraction}'"


def time_nanos(value: int) -> str:
    """Converts a TIME from nanoseconds, which may be negative."""
    return time_micros(_thousandth(value))


def _thousandth(value: int) -> int:
    whole, nanos = divmod(_integer(value), 1000)
    if nanos:
        raise DecodeError(f"{value} ns is not a whole number of microseconds")
    return whole


def _integer(value: int) -> int:
    if type(value) is not int:
        raise DecodeError(f"{excerpt(value)} is not an integer")
    return value


def year(value: int) -> str:
    """Converts a YEAR.  The native connector adds 1900 to what the binlog holds, and so writes 1900 for 0000 (seen with
    3.0.8 and 3.6.1); no YEAR is 1900."""
    return literals.year_number(0 if type(value) is int and value == _NO_YEAR else value)


def zoned_timestamp(value: str) -> str:
    """Converts a TIMESTAMP in ISO 8601 with its zone.

    1970-01-01T00:00:00Z is the zero timestamp: the range of MySQL's and TiDB's TIMESTAMP begins one second later.
    """
    match = _ZONED.fullmatch(value)
    if not match:
        raise DecodeError(f"{excerpt(value)} is not a timestamp with its zone")
    day, clock, fraction, zone = match.groups()
    local = f"{day} {clock}"
    if zone not in ("Z", "+00:00"):
        local = str(datetime.fromisoformat(f"{local}{zone}").astimezone(UTC).replace(tzinfo=None))
    literal = literals.datetime(local + _fraction(fraction))
    return ZERO_TIMESTAMP if literal == EPOCH_DATETIME else literal


def iso_text(value: str) -> str:
    """Converts a DATE, TIME or DATETIME in ISO 8601 (time.precision.mode=isostring)."""
    match = _ISO.fullmatch(value)
    if not match or not value:
        raise DecodeError(f"{excerpt(value)} is not a date or time in ISO 8601")
    day, clock = match.groups()
    if clock is None:
        return literals.date(day)
    clock, _, fraction = clock.partition(".")
    clock += _fraction(fraction)
    return literals.datetime(f"{day} {clock}") if day else literals.time(clock)


def _fraction(digits: str | None) -> str:
    """Writes a fraction of a second without trailing zeros, so that equal moments have equal literals."""
    significant = (digits or "").rstrip("0")
    return "." + significant if significant else ""
