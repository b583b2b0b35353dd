"""Values that TiCDC compressed itself (large-message-handle-compression), apart from Kafka's own compression."""

from __future__ import annotations

from typing import Final

from lz4.frame import LZ4FrameDecompressor

from bridge.protocols.decoder import DecodeError

LZ4_MAGIC: Final = b"\x04\x22\x4d\x18"
MAX_VALUE_BYTES: Final = 64 << 20
"""A value that grows beyond this is refused; TiDB's rows are 6 MiB at most by default (txn-entry-size-limit)."""

_FIRST_CHUNK: Final = 64 << 10


def decompressed(value: bytes, limit: int = MAX_VALUE_BYTES) -> bytes:
    """The value itself, or what its lz4 frame holds; grown step by step, so that a bomb is refused early."""
    if value[:4] != LZ4_MAGIC:
        return value
    frame = LZ4FrameDecompressor()
    try:
        content = _content(frame, value, limit)
    except RuntimeError as failure:
        raise DecodeError(f"not a sound lz4 frame: {failure}") from failure
    if frame.unused_data:
        raise DecodeError("bytes follow the lz4 frame")
    return content


def _content(frame: LZ4FrameDecompressor, value: bytes, limit: int) -> bytes:
    step = min(max(_FIRST_CHUNK, 4 * len(value)), limit + 1)
    chunks: list[bytes] = []
    size, rest = 0, value
    while not frame.eof:
        if not rest and frame.needs_input:
            raise DecodeError("the lz4 frame is cut off")
        chunks.append(frame.decompress(rest, max_length=step))
        size, rest = size + len(chunks[-1]), b""
        if size > limit:
            raise DecodeError(f"the lz4 frame holds more than {limit} bytes")
    return chunks[0] if len(chunks) == 1 else b"".join(chunks)
