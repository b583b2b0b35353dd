"""Converts ckafka's raw values: strings whose meaning only the target's column tells (see `values.row_image`).

The arguments of the form `ckafka` are the time zone of TIMESTAMP values, and how binary values are written: "base64",
"latin1" or nothing.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from functools import partial
from typing import Final

from bridge.protocols.decoder import DecodeError
from bridge.protocols.values import column_types as usual
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import (
    BINARY_WORDS,
    ColumnType,
    Conversion,
    Form,
    OnLoss,
    Usual,
    enum_names,
    of_text,
)
from bridge.protocols.values.event_time import timestamp_converter
from bridge.protocols.values.literals import Converter

_WIDTHS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64, "bit": 64}
_BOOLEANS: Final = {"true": "1", "false": "0"}
_SIMPLE: Final[dict[str, tuple[Converter, Usual]]] = {
    "decimal": (literals.java_decimal, usual.TEXT_OF_DECIMAL),
    "float": (literals.float32, usual.NONE),
    "double": (literals.double, usual.TEXT_OF_DOUBLE),
    "date": (literals.date, usual.TEXT_OF_DATE),
    "time": (literals.time, usual.TEXT_OF_TIME),
    "datetime": (literals.datetime, usual.TEXT_OF_DATETIME),
    "year": (literals.year, usual.NONE),
}
"""The converters, and the usual values, by the first word of the column's type.  All other types are text, also ENUM
and SET, but for a number that is no name: an index or a bit mask, which a text is compared with by its name."""


def ckafka_form(timezone: str | None, binary: str | None) -> str:
    """Gives the name of the form with its arguments."""
    return f"ckafka:{timezone or ''},{binary or ''}"


def _conversion(arguments: str, column: ColumnType, on_loss: OnLoss) -> Conversion | None:
    if column.word in {"enum", "set"}:
        names = enum_names(column, on_loss) if column.word == "enum" else None
        return names if column.has_number_name else Conversion(partial(_member, names))
    timezone, _, binary = arguments.partition(",")
    converter = _by_column(column, timezone or None, binary)
    return None if converter is None else of_text(*converter)


def _member(names: Conversion | None, literal: str) -> str:
    number = literal[1:-1]
    if number.isascii() and number.isdecimal():
        return str(int(number))
    return names.convert(literal) if names else literal


def _by_column(column: ColumnType, timezone: str | None, binary: str) -> tuple[Converter, Usual] | None:
    if column.word in _WIDTHS:
        is_natural = column.unsigned or column.word == "bit"
        number = literals.UNSIGNED[_WIDTHS[column.word]] if is_natural else literals.integer
        usual_number = usual.TEXT_OF_NATURAL if is_natural else usual.TEXT_OF_INTEGER
        return lambda value: _BOOLEANS.get(value) or number(value), usual_number
    if column.word == "timestamp":
        convert = timestamp_converter(timezone)
        return convert, usual.TEXT_OF_DATETIME if convert is literals.datetime else usual.NONE
    if column.word == "binary":
        return literals.zero_padded(column.precision, _BINARIES[binary]), usual.NONE
    if column.word in BINARY_WORDS:
        return _BINARIES[binary], usual.TEXT_OF_BYTES if binary == "base64" else usual.NONE
    return _SIMPLE.get(column.word)


def _base64(value: str) -> str:
    return literals.binary(a2b_base64(value, strict_mode=True))


def _unsaid(_value: str) -> str:
    raise DecodeError("ckafka does not say how binary values are written: set ckafka.binary to base64 or latin1")


_BINARIES: Final[dict[str, Callable[[str], str]]] = {"base64": _base64, "latin1": literals.latin1, "": _unsaid}
CKAFKA_FORMS: Final[dict[str, Form]] = {"ckafka": _conversion}
