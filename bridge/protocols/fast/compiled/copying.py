"""Copies texts, and finds zeros in them."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled.machine_bytes import (
    bytes_at,
    copy_bytes,
    entry,
    first_of,
    marked_zeros,
    numbers_at,
    word,
)

_LINE_FEED: Final = ord("\n")
_NONE, _ONE = np.uint64(0), np.uint64(1)


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


@entry
def find_zeros(text_at: Any, start: Any, end: Any, room: Any, places_at: Any) -> Any:
    """Writes the places of the bytes of a text that are 0, as far as there is room; gives how many there are."""
    text, places = bytes_at(text_at), numbers_at(places_at)
    found, at = 0, start
    while at + 8 <= end:
        marks = marked_zeros(word(text, at))
        while marks != _NONE:
            if found < room:
                places[found] = at + first_of(marks)
            found += 1
            marks &= marks - _ONE
        at += 8
    while at < end:
        if text[at] == 0:
            if found < room:
                places[found] = at
            found += 1
        at += 1
    return found
