"""Finds converters for the types of the Open Protocol by type code and flags; source: "TiCDC Open Protocol", Column
type code and Bit flags of columns.

The flags alone tell VARBINARY from VARCHAR, and BINARY from CHAR; of the former, characters are escaped that cannot be
seen.  The oldest encoders write no flags, nor do the description's examples: then the target's column tells
(`values.row_image`).  BINARY and VARBINARY are in Go's quoting, as strconv.Quote writes it.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Mapping
from typing import Any, Final

from bridge.events import Code
from bridge.protocols.decoder import DecodeError, excerpt
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import BINARY_WORDS, Column, ColumnType, Conversion, Form, OnLoss, of_text
from bridge.protocols.values.literals import Converter

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
_BINARY_FLAG: Final = 0x01
_HANDLE_KEY_FLAG: Final = 0x02
_UNSIGNED_FLAG: Final = 0x80


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
        text = excerpt(escape.decode())
        raise DecodeError(f"a binary value holds the escape {text}, which is no character") from None


QUOTED_FORM: Final = "quoted"
"""The form of texts that are quoted bytes where the target's column holds bytes."""


def _conversion(_arguments: str, column: ColumnType, _on_loss: OnLoss) -> Conversion | None:
    if column.word not in BINARY_WORDS:
        return None
    return of_text(literals.zero_padded(column.precision, _bytes) if column.word == "binary" else _bytes)


def _bytes(value: str) -> str:
    return literals.binary(unescaped(value))


OPEN_FORMS: Final[dict[str, Form]] = {QUOTED_FORM: _conversion}


def base64_binary(value: str) -> str:
    """Converts bytes that are written in base64."""
    return literals.binary(a2b_base64(value, strict_mode=True))


def base64_text(value: str) -> str:
    """Converts text in UTF-8 that is written in base64."""
    return literals.text(a2b_base64(value, strict_mode=True).decode())


def _base64_either(value: str) -> str:
    """Converts TEXT or BLOB, which differ only in their flags.  UTF-8 becomes text, which a BLOB column stores as the
    same bytes."""
    content = a2b_base64(value, strict_mode=True)
    try:
        return literals.text(content.decode())
    except UnicodeDecodeError:
        return literals.binary(content)


def _only_null(value: object) -> str:
    raise DecodeError(f"{excerpt(value)} in a column of type NULL")


TypeCodes = Mapping[int, tuple[str, Converter]]
"""The type codes, each with the type in words and its converter."""

TYPES: Final[dict[int, tuple[str, Converter]]] = {
    # TiCDC Open Protocol, Column type code
    1: ("TINYINT", literals.integer_number),
    2: ("SMALLINT", literals.integer_number),
    3: ("INT", literals.integer_number),
    4: ("FLOAT", literals.float32_number),
    5: ("DOUBLE", literals.double_number),
    6: ("NULL", _only_null),
    8: ("BIGINT", literals.integer_number),
    9: ("MEDIUMINT", literals.integer_number),
    10: ("DATE", literals.date),
    11: ("TIME", literals.time),
    12: ("DATETIME", literals.datetime),
    13: ("YEAR", literals.year_number),
    14: ("DATE", literals.date),
    15: ("VARCHAR", literals.text),
    16: ("BIT", literals.unsigned_number),
    # not in the description; seen for VECTOR (types-seen)
    225: ("VECTOR", literals.text),
    245: ("JSON", literals.text),
    246: ("DECIMAL", literals.decimal),
    247: ("ENUM", literals.unsigned_number),
    248: ("SET", literals.unsigned_number),
    249: ("TINYTEXT", base64_text),
    250: ("MEDIUMTEXT", base64_text),
    251: ("LONGTEXT", base64_text),
    252: ("TEXT", base64_text),
    253: ("VARCHAR", literals.text),
    254: ("CHAR", literals.text),
}
"""The label and converter of each type code; 7, TIMESTAMP, is missing, as it needs the time zone."""

_BINARY_TYPES: Final[dict[int, tuple[str, Converter]]] = {
    15: ("VARBINARY", _bytes),
    253: ("VARBINARY", _bytes),
    254: ("BINARY", _bytes),
    249: ("TINYBLOB", base64_binary),
    250: ("MEDIUMBLOB", base64_binary),
    251: ("LONGBLOB", base64_binary),
    252: ("BLOB", base64_binary),
}
"""The types that BinaryFlag changes (TiCDC Open Protocol, Bit flags of columns)."""

_FLAGLESS_TYPES: Final[dict[int, Column]] = {
    **dict.fromkeys((15, 253), Column("VARCHAR or VARBINARY", literals.text, QUOTED_FORM)),
    254: Column("CHAR or BINARY", literals.text, QUOTED_FORM),
    **dict.fromkeys((249, 250, 251, 252), Column("TEXT or BLOB", _base64_either)),
}
"""Types that only BinaryFlag would tell, in messages without flags, as in the description's examples."""


def column_of(types: TypeCodes, name: str, column: Mapping[str, Any]) -> Column:
    """Describes a column by its type code and flags, without which it declares no type: they alone tell signed from
    unsigned and text from bytes.  Raises DecodeError for an unknown code."""
    code, flags = column["t"], flags_of(column)
    if column.get("f") is None and code in _FLAGLESS_TYPES:
        return _FLAGLESS_TYPES[code]
    entry = (_BINARY_TYPES if flags & _BINARY_FLAG else types).get(code) or types.get(code)
    if entry is None:
        raise DecodeError(f"column {excerpt(name)} is of the unknown type {excerpt(code)}", Code.UNKNOWN_TYPE)
    label, convert = entry
    declared = "" if column.get("f") is None else label.lower() + " unsigned" * bool(flags & _UNSIGNED_FLAG)
    return Column(label, convert, declared=declared)


def is_of_handle(column: Mapping[str, Any]) -> bool:
    """Tells whether a column belongs to the handle key; the oldest encoders say so only by `h`."""
    return bool(column.get("h")) or bool(flags_of(column) & _HANDLE_KEY_FLAG)


def flags_of(column: Mapping[str, Any]) -> int:
    """Gives the bit flags of a column, 0 where the message has none, as from the oldest encoders."""
    flags = column.get("f")
    if flags is None:
        return 0
    if not isinstance(flags, int | float):
        raise DecodeError(f"the flags of a column are {excerpt(flags)}, not a number")
    return int(flags)
