"""Writes the places of events (`protocols.values.event_time`), dates and times, and copies the texts of rows."""

from __future__ import annotations

from typing import Any, Final

from bridge.protocols.fast.compiled.codes import PLACE_NUMBERS
from bridge.protocols.fast.compiled.json_text import ZERO
from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    copy_bytes,
    entry,
    inner,
    long_rows_at,
    numbers_at,
    row_at,
    rows_at,
)

_APOSTROPHE, _DASH, _DOT, _COLON, _SPACE = (ord(character) for character in "'-.: ")
_SECOND, _DAY_SECONDS = 1_000_000, 86_400
_ERA_DAYS, _ERA_START = 146_097, 719_468
"""The days of 400 years, and those from 0000-03-01 to 1970-01-01."""
_DIGITS: Final = 19
"""`protocols.values.event_time.NUMBER_DIGITS`."""


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


@entry
def write_places(
    templates_at: Any,
    count: Any,
    firsts_at: Any,
    parts_at: Any,
    consts_at: Any,
    places_at: Any,
    out_at: Any,
    ends_at: Any,
) -> Any:
    """Writes the place of each of `count` events, and gives how many bytes they all have.

    templates: the template of each event.
    firsts, parts: for each template (and behind the last one) its first part; for each part where its name is in the
    constants, how many bytes that has, and which of the numbers follows it.
    places: the numbers of each event's place.
    ends: becomes where the place of each event ends, behind that of the event before.
    """
    templates, firsts, parts, consts = (
        row_at(templates_at),
        row_at(firsts_at),
        rows_at(parts_at, 3),
        bytes_at(consts_at),
    )
    places, out, ends = long_rows_at(places_at, PLACE_NUMBERS), bytes_at(out_at), row_at(ends_at)
    to = 0
    for event in range(count):
        for part in range(firsts[templates[event]], firsts[templates[event] + 1]):
            copy_bytes(consts, parts[part, 0], parts[part, 1], out, to)
            to += parts[part, 1]
            to = put_digits(places[event, parts[part, 2]], _DIGITS, out, to)
        ends[event] = to
    return to


_LINE_FEED: Final = ord("\n")


@entry
def copy_texts(addresses_at: Any, sizes_at: Any, count: Any, are_lines: Any, out_at: Any) -> Any:
    """Copies texts one behind the other; gives how many bytes are written.

    addresses, sizes: where each text is in memory, and how many bytes it has.
    are_lines: 1 to write a line feed behind each text.
    """
    addresses, sizes, out = numbers_at(addresses_at), numbers_at(sizes_at), bytes_at(out_at)
    to = 0
    for number in range(count):
        copy_bytes(bytes_at(addresses[number]), 0, sizes[number], out, to)
        to += sizes[number]
        if are_lines:
            out[to] = _LINE_FEED
            to += 1
    return to
