"""Writes dates and times."""

from __future__ import annotations

from typing import Any

from bridge.protocols.fast.compiled.json_text import ZERO
from bridge.protocols.fast.compiled.machine_bytes import Bytes, inner

_APOSTROPHE, _DASH, _DOT, _COLON, _SPACE = (ord(character) for character in "'-.: ")
_SECOND, _DAY_SECONDS = 1_000_000, 86_400
_ERA_DAYS, _ERA_START = 146_097, 719_468
"""The days of 400 years, and those from 0000-03-01 to 1970-01-01."""


@inner
def put_digits(number: Any, size: Any, out: Bytes, to: Any) -> Any:
    """Writes the last digits of a number that is not below 0; gives where they end."""
    for place in range(to + size - 1, to - 1, -1):
        out[place] = ZERO + number % 10
        number //= 10
    return to + size


@inner
def put_date(days: Any, out: Bytes, to: Any) -> Any:
    """Writes the date that is so many days after 1970-01-01 (Howard Hinnant, chrono-compatible low-level date
    algorithms)."""
    days += _ERA_START
    era = days // _ERA_DAYS
    day = days - era * _ERA_DAYS
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month = month + 3 if month < 10 else month - 9
    to = put_digits(400 * era + year + (1 if month <= 2 else 0), 4, out, to)
    out[to] = _DASH
    to = put_digits(month, 2, out, to + 1)
    out[to] = _DASH
    return put_digits(day + 1, 2, out, to + 1)


@inner
def put_datetime(microseconds: Any, out: Bytes, to: Any) -> Any:
    """Writes a DATETIME after 1970-01-01, in quotation marks, with six digits of a fraction or none."""
    seconds, fraction = microseconds // _SECOND, microseconds % _SECOND
    second = seconds % _DAY_SECONDS
    out[to] = _APOSTROPHE
    to = put_date(seconds // _DAY_SECONDS, out, to + 1)
    out[to] = _SPACE
    to = put_digits(second // 3600, 2, out, to + 1)
    out[to] = _COLON
    to = put_digits(second // 60 % 60, 2, out, to + 1)
    out[to] = _COLON
    to = put_digits(second % 60, 2, out, to + 1)
    if fraction:
        out[to] = _DOT
        to = put_digits(fraction, 6, out, to + 1)
    out[to] = _APOSTROPHE
    return to + 1
