"""Finds the frames of messages: texts, each behind its length (TiCDC Open Protocol)."""

from __future__ import annotations

from typing import Any, Final

from bridge.protocols.fast.compiled.machine_bytes import Bytes, bytes_at, entry, inner, long_rows_at, numbers_at

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
    frames, counts, found = long_rows_at(frames_at, 4), numbers_at(counts_at), 0
    for number in range(count):
        at, first = starts[number], found
        while at + _LENGTH <= ends[number]:
            start = at + _LENGTH
            at = start + _length(text, at)
            if at > ends[number]:
                break
            frames[found, 0], frames[found, 1], frames[found, 2], frames[found, 3] = number, found - first, start, at
            found += 1
        if at != ends[number]:
            found = first
        counts[number] = found - first
    return found
