"""Parses JSON objects from the wire, plain or as TiCDC itself, not Kafka, has compressed them
(large-message-handle-compression)."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson
from cramjam import DecompressionError, snappy
from lz4.frame import LZ4FrameDecompressor

from bridge.protocols.decoder import DecodeError, excerpt

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


_LARGE: Final = 4 << 20
_MAX_STRINGS: Final = 200_000
_MAX_STRUCTURE: Final = 1 << 20
"""The most strings, and the most bytes outside of strings, of a large object that was compressed.  A row of 4,096
columns has about 25,000 strings; nested brackets grow to 45 times their size when they are parsed."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def json_object(value: bytes | None, owner: str = "the message") -> dict[str, Any]:
    """Gives the JSON object that a value holds.  Raises DecodeError, whose reason says whose value it is (`owner`)."""
    if not value:
        raise DecodeError(f"{owner} has no value")
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as failure:
        parsed = _unpacked(value, owner, failure)
    if type(parsed) is not dict:
        raise DecodeError(f"the value of {owner} is {excerpt(parsed)}, not a JSON object")
    return parsed


def _unpacked(value: bytes, owner: str, failure: orjson.JSONDecodeError) -> object:
    content = decompressed(value)
    if content is value:
        raise DecodeError(f"the value of {owner} is not JSON: {failure}") from failure
    if len(content) > _LARGE:
        _check_structure(content, owner)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as inner:
        raise DecodeError(f"the value of {owner} is compressed and does not hold JSON: {inner}") from inner


def _check_structure(content: bytes, owner: str) -> None:
    """Raises DecodeError for JSON that would take much more memory than its size; stops reading at the limits."""
    outside = end = 0
    for number, string in enumerate(_STRING.finditer(content)):
        outside += string.start() - end
        end = string.end()
        if number > _MAX_STRINGS or outside > _MAX_STRUCTURE:
            break
    if outside + len(content) - end > _MAX_STRUCTURE:
        raise DecodeError(f"the value of {owner} is compressed and holds more JSON values than any row")
