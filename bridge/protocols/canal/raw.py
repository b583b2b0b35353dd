"""Converts official Canal's texts by the target's columns (see `values.untyped`).

Official Canal calls a BINARY(4) that was declared as CHAR(4) CHARACTER SET binary CHAR(4), and writes its bytes as if
they were UTF-8 (LogEventConvert).  Only the target's column tells.
"""

from __future__ import annotations

from typing import Final

from bridge.events import Code
from bridge.protocols.decoder import DecodeError, shown
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import BINARY_WORDS, ColumnType, Form, Lost, RawConverter, unquoted
from bridge.protocols.values.literals import NULL

UTF8_FORM: Final = "utf8"
"""The form of texts that may be bytes, decoded as UTF-8."""
_REPLACEMENT: Final = "\ufffd"
"""What a decoder of UTF-8 writes for bytes that it cannot read."""


def _converter(_arguments: str, column: ColumnType, _lost: Lost) -> RawConverter | None:
    if column.word not in BINARY_WORDS:
        return None
    convert = literals.zero_padded(column.precision, _bytes) if column.word == "binary" else _bytes
    return lambda literal: NULL if literal == NULL else convert(unquoted(literal))


def _bytes(value: str) -> str:
    if _REPLACEMENT in value:
        raise DecodeError(
            f"{shown(value)} is what Canal makes of bytes that are no UTF-8, in a column of bytes that is declared as a"
            " text with CHARACTER SET binary: declare it upstream as BINARY, VARBINARY or BLOB, whose bytes Canal"
            " passes on",
            Code.LOST_VALUE,
        )
    return literals.binary(value.encode())


CANAL_FORMS: Final[dict[str, Form]] = {UTF8_FORM: _converter}
