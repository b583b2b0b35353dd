"""Converts the Open Protocol's strings without flags by the target's columns (see `values.untyped`).

The flags alone tell VARBINARY from VARCHAR, and BINARY from CHAR; of the former, characters are escaped that cannot be
seen.  The oldest encoders write no flags, nor do the description's examples.  BINARY and VARBINARY are in Go's quoting,
as strconv.Quote writes it.
"""

from __future__ import annotations

import re
from typing import Final

from bridge.protocols.decoder import DecodeError, shown
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import BINARY_WORDS, ColumnType, Form, Lost, RawConverter, of_text

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


def unescaped(value: str) -> bytes:
    r"""Gives the bytes of a string in Go's quoting, without the outer quotes; raises DecodeError for an
    escape that Go does not write.

    ``\x`` and octal escapes are one byte each, ``\u`` and ``\U`` are the UTF-8 of a rune, all other bytes are
    themselves.
    """
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


QUOTED_FORM: Final = "quoted"
"""The form of texts that are quoted bytes where the target's column holds bytes."""


def _converter(_arguments: str, column: ColumnType, _lost: Lost) -> RawConverter | None:
    if column.word not in BINARY_WORDS:
        return None
    return of_text(literals.zero_padded(column.precision, _bytes) if column.word == "binary" else _bytes)


def _bytes(value: str) -> str:
    return literals.binary(unescaped(value))


OPEN_FORMS: Final[dict[str, Form]] = {QUOTED_FORM: _converter}
