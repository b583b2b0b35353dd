"""CRC-32 of many texts at once (as `zlib.crc32`)."""

from __future__ import annotations

import zlib
from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled.machine_bytes import bytes_at, entry, numbers_at

_CRC_MASK: Final = 0xFFFFFFFF
_CRC_OF_BYTES: Final = np.array([zlib.crc32(bytes([byte]), _CRC_MASK) ^ _CRC_MASK for byte in range(256)], np.int64)


@entry
def sum_texts(text_at: Any, offsets_at: Any, count: Any, start: Any, found_at: Any) -> Any:
    """Writes the CRC-32 of texts, which goes on from `start`.

    offsets: where each text begins; the next one begins where it ends.
    """
    text, offsets, found = bytes_at(text_at), numbers_at(offsets_at), numbers_at(found_at)
    for number in range(count):
        crc = start ^ _CRC_MASK
        for at in range(offsets[number], offsets[number + 1]):
            crc = _CRC_OF_BYTES[(crc ^ text[at]) & 0xFF] ^ (crc >> 8)
        found[number] = crc ^ _CRC_MASK
    return count
