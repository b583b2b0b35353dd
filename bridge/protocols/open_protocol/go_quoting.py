r"""Reads bytes in Go's quoting, without the outer quotes, as strconv.Quote writes BINARY and VARBINARY.

``\x`` and octal escapes are one byte each, ``\u`` and ``\U`` are the UTF-8 of a rune, all other bytes are themselves.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.protocols.decoder import DecodeError, shown

_ESCAPE: Final = re.compile(
    rb"\\(?:[abfnrtv\\'\"]|x[0-9a-fA-F]{2}|[0-3][0-7]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8}|)", re.DOTALL
)
"""The empty alternative finds a backslash that begins no escape."""

_BYTES: Final = (
    {b"\\a": b"\a", b"\\b": b"\b", b"\\f": b"\f", b"\\n": b"\n", b"\\r": b"\r", b"\\t": b"\t", b"\\v": b"\v"}
    | {b"\\\\": b"\\", b"\\'": b"'", b'\\"': b'"'}
    | {b"\\x%02x" % byte: bytes([byte]) for byte in range(256)}
    | {b"\\%03o" % byte: bytes([byte]) for byte in range(256)}
)


def unquoted(value: str) -> bytes:
    """Gives the bytes of a quoted string; raises DecodeError for an escape that Go does not write."""
    raw = value.encode()
    return _ESCAPE.sub(_unescaped, raw) if b"\\" in raw else raw


def _unescaped(match: re.Match[bytes]) -> bytes:
    escape = match[0]
    return _BYTES.get(escape) or _other(escape)


def _other(escape: bytes) -> bytes:
    if escape[1:2] == b"x":
        return bytes.fromhex(escape[2:].decode())
    if len(escape) < 2:
        raise DecodeError(r"a binary value holds a backslash that is not part of an escape of Go")
    try:
        return chr(int(escape[2:], 16)).encode()
    except (ValueError, UnicodeEncodeError):
        raise DecodeError(f"a binary value holds the escape {shown(escape.decode())}, which is no character") from None
