"""Converts official Canal's texts by the target's columns (see `values.untyped`).

Official Canal writes the bytes of a CHAR, VARCHAR or TEXT as if they were UTF-8, whatever the column's character set
(RowsLogBuffer, with the default canal.instance.connectionCharset).  And it calls a BINARY(4) CHAR(4) where it was
declared as CHAR(4) CHARACTER SET binary.  Only the target's column tells, which should have the upstream's character
set.  It may have another one, as no message tells the default of the upstream's server: a text that would then become
another one is refused.
"""

from __future__ import annotations

from functools import partial
from typing import Final

from bridge.events import Code
from bridge.protocols.decoder import DecodeError, shown
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import BINARY_WORDS, ColumnType, Form, Lost, RawConverter, of_text, unquoted
from bridge.protocols.values.literals import NULL

UTF8_FORM: Final = "utf8"
"""The form of texts that are bytes of the column's character set, decoded as UTF-8."""
REPLACEMENT: Final = "\ufffd"
"""What a decoder of UTF-8 writes for bytes that it cannot read."""
REPLACED: Final = "U+FFFD is what Canal writes for bytes that are no UTF-8, as in columns that are not utf8mb4 upstream"
_UTF8: Final = frozenset({"", "utf8", "utf8mb3", "utf8mb4", "ascii"})
_WIDE: Final = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""Character sets in which ASCII has other bytes."""


def _converter(_arguments: str, column: ColumnType, _lost: Lost) -> RawConverter | None:
    if column.word in BINARY_WORDS:
        return of_text(literals.zero_padded(column.precision, _bytes) if column.word == "binary" else _bytes)
    if column.charset in _UTF8:
        return None
    return of_text(_bytes) if column.charset in _WIDE else partial(_other, column.charset)


def _other(charset: str, literal: str) -> str:
    """Passes on a text in a character set in which ASCII has the bytes that it has in UTF-8."""
    if not literal.isascii() and literal != NULL:
        value = unquoted(literal)
        _refuse_replacements(value)
        raise DecodeError(
            f"{shown(value)} may be no text of {charset}, as the target's column is: Canal writes the upstream's bytes"
            " as if they were UTF-8, and does not tell their character set; make the column utf8mb4 on the target where"
            " it is utf8mb4 upstream, otherwise on both sides",
            Code.LOST_VALUE,
        )
    return literal


def _bytes(value: str) -> str:
    _refuse_replacements(value)
    return literals.binary(value.encode())


def _refuse_replacements(value: str) -> None:
    if REPLACEMENT in value:
        raise DecodeError(
            f"{shown(value)} is what Canal makes of bytes that are no UTF-8: the column is of another character set, or"
            " of bytes; make it utf8mb4 upstream, or BINARY, VARBINARY or BLOB, whose bytes Canal passes on",
            Code.LOST_VALUE,
        )


CANAL_FORMS: Final[dict[str, Form]] = {UTF8_FORM: _converter}
