"""Parses JSON objects from the wire, plain or compressed."""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from bridge.protocols.decoder import DecodeError, shown
from bridge.protocols.values.compression import decompressed

_LARGE: Final = 4 << 20
_MAX_STRINGS: Final = 200_000
_MAX_STRUCTURE: Final = 1 << 20
"""The most strings, and the most bytes outside of strings, of a large object that was compressed.  A row of 4,096
columns has about 25,000 strings; nested brackets grow to 45 times their size when they are parsed."""

_STRING: Final = re.compile(rb'"[^"\\]*+(?:\\.[^"\\]*+)*+(?:"|\\?\Z)', re.DOTALL)


def json_object(value: bytes | None, whose: str = "the message") -> dict[str, Any]:
    """Gives the JSON object that a value holds.  Raises DecodeError, whose reason names the value by `whose`."""
    if not value:
        raise DecodeError(f"{whose} has no value")
    try:
        parsed = orjson.loads(value)
    except orjson.JSONDecodeError as failure:
        parsed = _unpacked(value, whose, failure)
    if type(parsed) is not dict:
        raise DecodeError(f"the value of {whose} is {shown(parsed)}, not a JSON object")
    return parsed


def _unpacked(value: bytes, whose: str, failure: orjson.JSONDecodeError) -> object:
    content = decompressed(value)
    if content is value:
        raise DecodeError(f"the value of {whose} is not JSON: {failure}", at=_failed_at(value, failure)) from failure
    if len(content) > _LARGE:
        _check_structure(content, whose)
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError as inner:
        raise DecodeError(f"the value of {whose} is compressed and does not hold JSON: {inner}") from inner


def _failed_at(value: bytes, failure: orjson.JSONDecodeError) -> int:
    """Gives the byte at which parsing failed.  orjson counts characters, and counts none where the bytes are not
    UTF-8."""
    try:
        text = value.decode()
    except UnicodeDecodeError as broken:
        return broken.start
    return len(text[: failure.pos].encode())


def _check_structure(content: bytes, whose: str) -> None:
    """Raises DecodeError for JSON that would take much more memory than its size; stops reading at the limits."""
    outside = end = 0
    for number, string in enumerate(_STRING.finditer(content)):
        outside += string.start() - end
        end = string.end()
        if number > _MAX_STRINGS or outside > _MAX_STRUCTURE:
            break
    if outside + len(content) - end > _MAX_STRUCTURE:
        raise DecodeError(f"the value of {whose} is compressed and holds more JSON values than any row")
