"""Converts the Open Protocol's strings without flags by the target's columns (see `values.untyped`).

The flags alone tell VARBINARY from VARCHAR, and BINARY from CHAR; of the former, characters are escaped that cannot be
seen.  The oldest encoders write no flags, nor do the description's examples.
"""

from __future__ import annotations

from typing import Final

from bridge.protocols.open_protocol.go_quoting import unquoted as unescaped
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import BINARY_WORDS, ColumnType, Form, Lost, RawConverter, unquoted
from bridge.protocols.values.literals import NULL

QUOTED_FORM: Final = "quoted"
"""The form of texts that are quoted bytes where the target's column holds bytes."""


def _converter(_arguments: str, column: ColumnType, _lost: Lost) -> RawConverter | None:
    if column.word not in BINARY_WORDS:
        return None
    convert = literals.zero_padded(column.precision, _bytes) if column.word == "binary" else _bytes
    return lambda literal: NULL if literal == NULL else convert(unquoted(literal))


def _bytes(value: str) -> str:
    return literals.binary(unescaped(value))


OPEN_FORMS: Final[dict[str, Form]] = {QUOTED_FORM: _converter}
