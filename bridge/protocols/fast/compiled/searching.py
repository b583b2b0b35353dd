"""Searches texts: for zeros, for what tells their kind, for frames, each behind its length (TiCDC Open Protocol); and
gives CRC-32 of many texts at once (as `zlib.crc32`)."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    entry,
    first_bytes,
    first_of,
    inner,
    long_rows_at,
    marked,
    marked_zeros,
    numbers_at,
    word,
)

_NONE, _ONE, _BYTE = np.uint64(0), np.uint64(1), np.uint64(0xFF)
_LOWS: Final = np.uint64(0x0101010101010101)
_FNV_BASIS: Final = np.uint64(0xCBF29CE484222325)
_FNV_PRIME: Final = np.uint64(0x100000001B3)


@entry
def find_zeros(text_at: Any, start: Any, end: Any, room: Any, places_at: Any) -> Any:
    """Writes the places of the bytes of a text that are 0, as far as there is room; gives how many there are."""
    text, places = bytes_at(text_at), numbers_at(places_at)
    count, at = 0, start
    while at + 8 <= end:
        marks = marked_zeros(word(text, at))
        while marks != _NONE:
            if count < room:
                places[count] = at + first_of(marks)
            count += 1
            marks &= marks - _ONE
        at += 8
    while at < end:
        if text[at] == 0:
            if count < room:
                places[count] = at
            count += 1
        at += 1
    return count


@inner
def _place_behind(text: Bytes, at: Any, end: Any, mark: Any, size: Any) -> Any:
    """Gives where the first mark after a place ends, -1 without one.  mark: up to seven bytes, as a word."""
    first_bytes_of_mark = (mark & _BYTE) * _LOWS
    while at + size <= end:
        eight = word(text, at)
        marks = marked(eight, first_bytes_of_mark)
        if marks == _NONE:
            at += 8
            continue
        at += first_of(marks)
        if at + size <= end and first_bytes(word(text, at) ^ mark, size) == _NONE:
            return at + size
        at += 1
    return -1


@inner
def _last_place_behind(text: Bytes, start: Any, end: Any, mark: Any, size: Any) -> Any:
    """Gives where the last mark between two places ends, -1 without one.  mark: as of `_place_behind`."""
    first_bytes_of_mark, at, found = (mark & _BYTE) * _LOWS, end, -1
    while at > start and found < 0:
        at = max(at - 8, start)
        marks = marked(word(text, at), first_bytes_of_mark)
        while marks != _NONE:
            place = at + first_of(marks)
            if place + size <= end and first_bytes(word(text, place) ^ mark, size) == _NONE:
                found = place + size
            marks &= marks - _ONE
    return found


@inner
def _mixed(mixed: Any, character: Any) -> Any:
    return (mixed ^ np.uint64(character)) * _FNV_PRIME


@entry
def sum_kinds(
    text_at: Any, starts_at: Any, ends_at: Any, count: Any, marks_at: Any, sizes_at: Any, mark_count: Any, sums_at: Any
) -> Any:
    """Writes a sum of what lies between pairs of marks in each text, all behind the last place of a first mark
    (FNV-1a); 0 for a text that does not have all marks, in their order.

    From the end on, the first mark is found without a look at the schemas before Debezium's rows: 0.2 us a message of
    3.1 KB instead of 0.9.

    marks, sizes: the first mark, and then the pairs; up to seven bytes each, as words, and how many bytes they have.
    """
    text, starts, ends, sums = bytes_at(text_at), numbers_at(starts_at), numbers_at(ends_at), numbers_at(sums_at)
    marks, sizes = numbers_at(marks_at), numbers_at(sizes_at)
    for number in range(count):
        end, mixed = ends[number], _FNV_BASIS
        at = _last_place_behind(text, starts[number], end, np.uint64(marks[0]), sizes[0])
        for pair in range(1, mark_count, 2):
            if at >= 0:
                at = _place_behind(text, at, end, np.uint64(marks[pair]), sizes[pair])
            if at >= 0:
                start = at
                at = _place_behind(text, at, end, np.uint64(marks[pair + 1]), sizes[pair + 1])
                for place in range(start, at):
                    mixed = _mixed(mixed, text[place])
        sums[number] = np.int64(mixed | _ONE) if at >= 0 else 0
    return count


_CRC_MASK: Final = 0xFFFFFFFF
_CRC_OF_BYTES: Final = np.array([zlib.crc32(bytes([byte]), _CRC_MASK) ^ _CRC_MASK for byte in range(256)], np.int64)


@entry
def sum_texts(text_at: Any, offsets_at: Any, count: Any, start: Any, sums_at: Any) -> Any:
    """Writes the CRC-32 of texts, which goes on from `start`.

    offsets: where each text begins; the next one begins where it ends.
    """
    text, offsets, sums = bytes_at(text_at), numbers_at(offsets_at), numbers_at(sums_at)
    for number in range(count):
        crc = start ^ _CRC_MASK
        for at in range(offsets[number], offsets[number + 1]):
            crc = _CRC_OF_BYTES[(crc ^ text[at]) & 0xFF] ^ (crc >> 8)
        sums[number] = crc ^ _CRC_MASK
    return count


_LENGTH: Final = 8
"""In bytes; the highest comes first."""
_MOST_BYTES: Final = 1 << 40


@inner
def _length(text: Bytes, at: Any) -> Any:
    """Reads a length; one that no message has may come out as another that no message has."""
    number = 0
    for place in range(at, at + _LENGTH):
        number = min(number * 256 + text[place], _MOST_BYTES)
    return number


@entry
def split(text_at: Any, starts_at: Any, ends_at: Any, count: Any, frames_at: Any, counts_at: Any) -> Any:
    """Finds the frames of messages, and gives how many there are.

    starts, ends: where the frames of each of the `count` messages start and end.
    frames: room for the number of the message, the number of the frame in it, and where the frame starts and ends.
    counts: becomes the number of frames of each message, 0 for a message that does not consist of frames.
    """
    text, starts, ends = bytes_at(text_at), numbers_at(starts_at), numbers_at(ends_at)
    frames, counts, total = long_rows_at(frames_at, 4), numbers_at(counts_at), 0
    for number in range(count):
        at, first = starts[number], total
        while at + _LENGTH <= ends[number]:
            start = at + _LENGTH
            at = start + _length(text, at)
            if at > ends[number]:
                break
            frames[total, 0], frames[total, 1], frames[total, 2], frames[total, 3] = number, total - first, start, at
            total += 1
        if at != ends[number]:
            total = first
        counts[number] = total - first
    return total
