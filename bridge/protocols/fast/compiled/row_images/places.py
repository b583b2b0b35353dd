"""Writes the places of events (`protocols.values.event_time`), and copies the texts of rows."""

from __future__ import annotations

from typing import Any, Final

from bridge.protocols.fast.compiled.codes import PLACE_NUMBERS
from bridge.protocols.fast.compiled.machine_bytes import (
    bytes_at,
    copy_bytes,
    entry,
    long_rows_at,
    numbers_at,
    row_at,
    rows_at,
)
from bridge.protocols.fast.compiled.row_images.moments import put_digits

_DIGITS: Final = 19
"""`protocols.values.event_time.NUMBER_DIGITS`."""


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
