"""Converts ckafka's raw values: strings whose meaning only the target's column tells (see `values.untyped`).

The arguments of the form `ckafka` are the time zone of TIMESTAMP values, and how binary values are written: "base64",
"latin1" or nothing.
"""

from __future__ import annotations

from binascii import a2b_base64
from collections.abc import Callable
from typing import Final

from bridge.protocols.decoder import DecodeError
from bridge.protocols.values import literals
from bridge.protocols.values import usual_values as usual
from bridge.protocols.values.column_types import BINARY_WORDS, ColumnType, Form, Lost, RawConverter, enum_names, of_text
from bridge.protocols.values.literals import Converter
from bridge.protocols.values.timezones import is_utc, timestamp_converter
from bridge.protocols.values.usual_values import Usual

_WIDTHS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "bigint": 64, "bit": 64}
_BOOLEANS: Final = {"true": "1", "false": "0"}
_SIMPLE: Final[dict[str, Converter]] = {
    "decimal": literals.java_decimal,
    "float": literals.float32,
    "double": literals.double,
    "date": literals.date,
    "time": literals.time,
    "datetime": literals.datetime,
    "year": literals.year,
}
"""The converters by the first word of the column's type.  All other types are text, also ENUM and SET: the server takes
a name, or a number that is not a name as an index or a bit mask."""


def ckafka_form(timezone: str | None, binary: str | None) -> str:
    """Gives the name of the form with its arguments."""
    return f"ckafka:{timezone or ''},{binary or ''}"


def _converter(arguments: str, column: ColumnType, lost: Lost) -> RawConverter | None:
    if column.word == "enum":
        return enum_names(column, lost)
    timezone, _, binary = arguments.partition(",")
    convert = _by_column(column, timezone, binary)
    return None if convert is None else of_text(convert)


def _by_column(column: ColumnType, timezone: str, binary: str) -> Converter | None:
    if column.word in _WIDTHS:
        is_natural = column.unsigned or column.word == "bit"
        number = literals.UNSIGNED[_WIDTHS[column.word]] if is_natural else literals.integer
        return lambda value: _BOOLEANS.get(value) or number(value)
    if column.word == "timestamp":
        return timestamp_converter(timezone or None)
    if column.word in BINARY_WORDS:
        convert = _BINARIES[binary]
        return literals.zero_padded(column.precision, convert) if column.word == "binary" else convert
    return _SIMPLE.get(column.word)


def _base64(value: str) -> str:
    return literals.binary(a2b_base64(value, strict_mode=True))


def _unsaid(_value: str) -> str:
    raise DecodeError("ckafka does not say how binary values are written: set ckafka.binary to base64 or latin1")


_BINARIES: Final[dict[str, Callable[[str], str]]] = {"base64": _base64, "latin1": literals.latin1, "": _unsaid}

_USUAL: Final = {
    "decimal": usual.TEXT_OF_DECIMAL,
    "double": usual.TEXT_OF_DOUBLE,
    "date": usual.TEXT_OF_DATE,
    "time": usual.TEXT_OF_TIME,
    "datetime": usual.TEXT_OF_DATETIME,
}


def _usual(arguments: str, column: ColumnType) -> Usual | None:
    timezone, _, binary = arguments.partition(",")
    if column.word in _WIDTHS:
        return usual.TEXT_OF_NATURAL if column.unsigned or column.word == "bit" else usual.TEXT_OF_INTEGER
    if column.word == "timestamp":
        return usual.TEXT_OF_DATETIME if is_utc(timezone or None) else None
    if column.word in BINARY_WORDS:
        return usual.TEXT_OF_BYTES if binary == "base64" and column.word != "binary" else None
    return _USUAL.get(column.word)


CKAFKA_USUAL: Final = {"ckafka": _usual}
CKAFKA_FORMS: Final[dict[str, Form]] = {"ckafka": _converter}
