"""Searches texts: for zeros, for what tells their kind, and for one number between known texts."""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled.json_text import are_digits
from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    entry,
    first_bytes,
    first_of,
    inner,
    marked_zeros,
    numbers_at,
    same,
    word,
)

_NONE, _ONE = np.uint64(0), np.uint64(1)
_FNV_BASIS: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)


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


@inner
def _place_behind(text: Bytes, at: Any, end: Any, mark: Any, size: Any) -> Any:
    """Gives where the first mark after a place ends, -1 without one.  mark: up to eight bytes, as a word."""
    while at + size <= end:
        if first_bytes(word(text, at) ^ mark, size) == _NONE:
            return at + size
        at += 1
    return -1


@inner
def _mixed(mixed: Any, character: Any) -> Any:
    return (mixed ^ np.uint64(character)) * _FNV_PRIME


@entry
def sum_kinds(
    text_at: Any, starts_at: Any, ends_at: Any, count: Any, marks_at: Any, sizes_at: Any, sums_at: Any
) -> Any:
    """Writes a sum of what lies between two marks in each text, and of the byte behind a third one (FNV-1a); 0 for a
    text that does not have all three, in this order.

    marks, sizes: the marks, up to seven bytes each, as words, and how many bytes they have.
    """
    text, starts, ends, sums = bytes_at(text_at), numbers_at(starts_at), numbers_at(ends_at), numbers_at(sums_at)
    marks, sizes = numbers_at(marks_at), numbers_at(sizes_at)
    for number in range(count):
        end, mixed = ends[number], _FNV_BASIS
        start = _place_behind(text, starts[number], end, np.uint64(marks[0]), sizes[0])
        behind = _place_behind(text, start, end, np.uint64(marks[1]), sizes[1]) if start >= 0 else -1
        last = _place_behind(text, behind, end, np.uint64(marks[2]), sizes[2]) if behind >= 0 else -1
        if last < 0 or last >= end:
            sums[number] = 0
            continue
        for at in range(start, behind):
            mixed = _mixed(mixed, text[at])
        sums[number] = np.int64(_mixed(mixed, text[last]) | _ONE)
    return count


@entry
def match_numbers(
    text_at: Any, starts_at: Any, ends_at: Any, count: Any, head_at: Any, head_size: Any, tail_at: Any, tail_size: Any,
    found_at: Any,
) -> Any:  # fmt: skip
    """Writes 1 for each text that is a head, one or more digits, and a tail, and 0 for others."""
    text, starts, ends, found = bytes_at(text_at), numbers_at(starts_at), numbers_at(ends_at), bytes_at(found_at)
    head, tail = bytes_at(head_at), bytes_at(tail_at)
    for number in range(count):
        start, end = starts[number] + head_size, ends[number] - tail_size
        found[number] = (
            start < end
            and same(text, starts[number], head, 0, head_size)
            and same(text, end, tail, 0, tail_size)
            and are_digits(text, start, end)
        )
    return count
