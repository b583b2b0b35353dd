"""Decompresses values that TiCDC itself compressed (large-message-handle-compression), not Kafka."""

from __future__ import annotations

from typing import Final

from cramjam import DecompressionError, snappy
from lz4.frame import LZ4FrameDecompressor

from bridge.protocols.decoder import DecodeError

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
SMALL_BYTES: Final = 16 << 20
GROWTH: Final = 16
MAX_BYTES: Final = 64 << 20

_FIRST_CHUNK: Final = 64 << 10
_SNAPPY_RATIO: Final = 22
"""A copy element of 3 bytes makes at most 64, so a block that claims more than this many times its size is not sound
(snappy, format description).  No memory is allocated for it."""


def growth_limit(size: int) -> int:
    """Gives the most bytes to which a value of this size may grow, so that a small message never takes much memory.

    TiDB's rows have at most 6 MiB by default (txn-entry-size-limit); larger rows may have shrunk to a 16th.
    """
    return min(max(SMALL_BYTES, GROWTH * size), MAX_BYTES)


def decompressed(value: bytes) -> bytes:
    """Gives the contents of a value's lz4 frame or snappy block, or the value itself when it is neither; raises
    DecodeError.

    TiCDC writes snappy as bare blocks, which have no magic.  So a value that decompresses as a whole is a block.  JSON
    that begins with {" never does (as a block it would refer to bytes before its first).
    """
    limit = growth_limit(len(value))
    if value[:4] == LZ4_MAGIC:
        return _lz4(value, limit)
    content = _snappy(value, limit)
    return value if content is None else content


def _snappy(value: bytes, limit: int) -> bytes | None:
    """Gives the contents of a snappy block; None for a value that is not a snappy block."""
    try:
        size = snappy.decompress_raw_len(value)
        if size > _SNAPPY_RATIO * len(value):
            return None
        content = bytes(snappy.decompress_raw(value))
    except DecompressionError:
        return None
    if size > limit:
        raise DecodeError(f"the snappy block holds more than {limit} bytes")
    return content


def _lz4(value: bytes, limit: int) -> bytes:
    """Decompresses an lz4 frame step by step, so that a bomb is refused early."""
    frame = LZ4FrameDecompressor()
    try:
        content = _content(frame, value, limit)
    except RuntimeError as failure:
        raise DecodeError(f"the lz4 frame is damaged: {failure}") from failure
    if frame.unused_data:
        raise DecodeError("bytes follow the lz4 frame")
    return content


def _content(frame: LZ4FrameDecompressor, value: bytes, limit: int) -> bytes:
    step = min(max(_FIRST_CHUNK, 4 * len(value)), limit + 1)
    chunks: list[bytes] = []
    size, remainder = 0, value
    while not frame.eof:
        if not remainder and frame.needs_input:
            raise DecodeError("the lz4 frame is cut off")
        chunks.append(frame.decompress(remainder, max_length=step))
        size, remainder = size + len(chunks[-1]), b""
        if size > limit:
            raise DecodeError(f"the lz4 frame holds more than {limit} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)


def packing(value: bytes) -> str:
    """Tells how a value in JSON is compressed, in words behind a comma; "" for one that is not."""
    if not value or value.lstrip()[:1] == b"{":
        return ""
    return ", lz4" if value.startswith(LZ4_MAGIC) else ", snappy"
