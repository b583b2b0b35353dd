"""Copies the texts of rows."""

from __future__ import annotations

from typing import Any, Final

from bridge.protocols.fast.compiled.machine_bytes import bytes_at, copy_bytes, entry, numbers_at

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
