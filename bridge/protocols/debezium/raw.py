"""Converts Debezium's raw values by the target's columns (see `values.row_image`).

For a value of the form `json` only the JSON type is known (messages without a schema); the form's arguments are the
connector's modes.  In the other forms the Connect schema is ambiguous: an `int64` may be a BIGINT UNSIGNED that has
wrapped, a `float32` may be a REAL, a `float64` may be a DECIMAL, a `string` may be bytes or a DECIMAL, the date
1970-01-01 may be a zero date (`epoch`), and the ENUM '' the error value (`enum`).  `read` is a key in a snapshot.
`avro` only marks a row of which the connector may have changed the columns' names (field.name.adjustment.mode).
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Final

from bridge.events import Code
from bridge.protocols.debezium import values
from bridge.protocols.debezium.columns import document
from bridge.protocols.debezium.recognition import TICDC_MODES, DebeziumModes, TimeMode
from bridge.protocols.decoder import DecodeError, excerpt
from bridge.protocols.values import column_types as usual
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import (
    BINARY_WORDS,
    ColumnType,
    Conversion,
    Form,
    OnLoss,
    RawConverter,
    Usual,
    enum_names,
    is_text,
    unquoted,
)
from bridge.protocols.values.literals import NULL

_MILLIS_DIGITS: Final = 3
"""A DATETIME with more digits than this in its fraction of a second is written in microseconds."""

_MICROS_DIGITS: Final = 6
_BITS_OF_A_BYTE: Final = 8
_DAY_MILLIS: Final = 86_400_000
_MILLIS: Final = range(-62_167_219_200_000, 253_402_300_800_000)
"""The milliseconds of the years 0 to 9999.  As microseconds they are moments of 1968 to 1978."""
_EITHER_DIGITS: Final = 15
"""Of those of `_MILLIS`."""
_HEX: Final = re.compile("[0-9a-f]+")
_EITHER: Final = (
    "{} can be a {} value in two of the connector's modes: set the mode that the connector has with --set debezium.{},"
    " or make the column as the upstream has it"
)

_TEXT_OF_BYTES: Final = (
    "{} is text in a binary column. If the connector has another binary.handling.mode than bytes, set it with --set"
    " debezium.binary_handling_mode; otherwise the column is of the character set binary, of which the connector sends"
    " no bytes: make it VARBINARY or BINARY upstream, or leave its table out with --filter"
)

_REVERSED: Final = (
    "{} is a BIT(9) to BIT(64) in a key in a snapshot, where Debezium's connector turns its bytes round: send the table"
    " by an incremental snapshot instead, make the column an integer, or leave the table out with --filter"
)
_HALF: Final = (
    "{} comes with the digits of a FLOAT, and the column is a DOUBLE: Debezium's connector sends a column so that was"
    " made as REAL. Make it DOUBLE upstream, or leave its table out with --filter; a FLOAT upstream should be one"
    " here"
)

_Rule = Callable[[DebeziumModes, ColumnType, OnLoss], Conversion | None]


def _always(convert: RawConverter, usual_literals: Usual = usual.NONE) -> _Rule:
    """Makes the rule that converts values so, whatever the modes and the column."""
    return lambda _modes, _column, _on_loss: Conversion(convert, usual_literals)


def _unsigned(literal: str) -> str:
    """Converts a BIGINT UNSIGNED, which wraps to negative above 2^63, or is a Connect Decimal
    (bigint.unsigned.handling.mode=precise)."""
    if is_text(literal):
        return literals.unsigned(values.unscaled(unquoted(literal), 0))
    return str(_number(literal) + (1 << 64)) if literal[0] == "-" else literal


def _decimal(modes: DebeziumModes, column: ColumnType, on_loss: OnLoss) -> Conversion:
    def convert(literal: str) -> str:
        if not is_text(literal):
            return values.decimal_of_double(float(literal), column.precision, column.scale, on_loss)
        text = unquoted(literal)
        if modes.decimal == "string" or "." in text or "-" in text:  # Base64 has neither
            return literals.java_decimal(text)
        if modes.decimal is None and text.isdecimal():
            raise DecodeError(_EITHER.format(excerpt(text), "decimal", "decimal_handling_mode"), Code.LOST_VALUE)
        return values.unscaled(text, column.scale)

    return Conversion(convert, usual.decimal_of_double(column.scale))


def _decimal_text(modes: DebeziumModes, column: ColumnType, on_loss: OnLoss) -> Conversion:
    """Makes the conversion of a string with a Connect schema, never Base64: mode precise has a type of its own."""
    return _decimal(replace(modes, decimal="string"), column, on_loss)._replace(usual=usual.TEXT_OF_DECIMAL)


def _refuse_half(literal: str) -> str:
    """Refuses 32 bits for a DOUBLE: the connector sends a column that was made as REAL so (seen with 3.0.8)."""
    raise DecodeError(_HALF.format(excerpt(literal)), Code.LOST_VALUE)


def _binary(modes: DebeziumModes, column: ColumnType, _on_loss: OnLoss) -> Conversion:
    """Makes the conversion of a string without a Connect schema."""
    read = values.binary_hex if modes.binary == "hex" else values.binary
    # The connector fills values up to the n of a BINARY(n) (DBZ-254); TiCDC does not.  So no text of a column of the
    # character set binary looks like one.
    size = column.precision if column.word == "binary" and modes != TICDC_MODES else 0

    def convert(literal: str) -> str:
        text = _string(literal)
        if modes.binary is None and _HEX.fullmatch(text) and len(text) % 4 == 0:
            raise DecodeError(_EITHER.format(excerpt(text), "binary", "binary_handling_mode"), Code.LOST_VALUE)
        result = read(text)
        if text and size and len(result) != len("x''") + 2 * size:
            raise DecodeError(_TEXT_OF_BYTES.format(excerpt(text)), Code.LOST_VALUE)
        return result

    return Conversion(convert, usual.TEXT_OF_BYTES if modes.binary == "base64" and not size else usual.NONE)


def _binary_text(modes: DebeziumModes, column: ColumnType, on_loss: OnLoss) -> Conversion:
    """Makes the conversion of a string with a Connect schema.  In the default mode bytes have their own Connect type,
    and a column that was made as VARCHAR or CHAR of the character set `binary` comes as text (seen with 3.0.8)."""
    if modes.binary not in (None, "bytes"):
        return _binary(modes, column, on_loss)

    def convert(literal: str) -> str:
        if text := _string(literal):
            raise DecodeError(_TEXT_OF_BYTES.format(excerpt(text)), Code.LOST_VALUE)
        return "''"

    return Conversion(convert)


def _string(literal: str) -> str:
    if is_text(literal):
        return unquoted(literal)
    raise DecodeError(f"{literal} is not a string")


def _number(literal: str) -> int:
    if literal.lstrip("-").isdecimal():
        return int(literal)
    raise DecodeError(f"{excerpt(literal)} is not an integer")


def _real(literal: str) -> float:
    if is_text(literal):
        raise DecodeError(f"{excerpt(literal)} is not a number")
    return float(literal)


_TIMES: Final[dict[TimeMode | None, Callable[[int], str]]] = {
    None: values.time_micros,
    "adaptive_time_microseconds": values.time_micros,
    "microseconds": values.time_micros,
    "connect": values.time_millis,
    "nanoseconds": values.time_nanos,
}
_DATETIMES: Final[dict[TimeMode | None, Callable[[int], str]]] = {
    "connect": values.datetime_millis,
    "microseconds": values.datetime_micros,
    "nanoseconds": values.datetime_nanos,
}
"""Converters of numbers by mode.  In other modes the unit depends on the digits of the column's fraction."""


_USUAL_DATETIMES: Final[dict[Callable[[int], str], Usual]] = {
    values.datetime_millis: usual.MILLIS,
    values.datetime_micros: usual.MICROS,
}


def _time(modes: DebeziumModes, column: ColumnType, _on_loss: OnLoss) -> Conversion:
    """Makes the conversion of a TIME.  Without a mode, microseconds below 86.4 s may be milliseconds of a day."""
    adaptive = values.time_millis if column.precision <= _MILLIS_DIGITS else values.time_micros
    read, unit = _TIMES.get(modes.time, adaptive), 10 ** (_MICROS_DIGITS - column.precision)

    def convert(number: int) -> str:
        is_either = modes.time is None and 0 < abs(number) < _DAY_MILLIS
        if is_either or (read is values.time_micros and number % unit):
            raise DecodeError(_EITHER.format(number, "TIME", "time_precision_mode"), Code.LOST_VALUE)
        return read(number)

    return Conversion(_temporal(convert))


def _datetime(modes: DebeziumModes, column: ColumnType, on_loss: OnLoss) -> Conversion:
    """Makes the conversion of a DATETIME.  Where the mode is not told, one may come in milliseconds or microseconds."""
    is_either = modes.time is None and column.precision > _MILLIS_DIGITS
    adaptive = values.datetime_millis if column.precision <= _MILLIS_DIGITS else values.datetime_micros
    read = _DATETIMES.get(modes.time, adaptive)

    def convert(number: int) -> str:
        if number in _MILLIS and number and is_either:
            raise DecodeError(_EITHER.format(number, "DATETIME", "time_precision_mode"), Code.LOST_VALUE)
        return read(number)

    usual_moment = _USUAL_DATETIMES.get(read, usual.NONE)._replace(argument=_EITHER_DIGITS * is_either)
    return Conversion(_with_zero_dates(column, _temporal(convert), on_loss), usual_moment)


def _temporal(of_number: Callable[[int], str]) -> RawConverter:
    def convert(literal: str) -> str:
        return values.iso_text(unquoted(literal)) if is_text(literal) else of_number(_number(literal))

    return convert


def _with_zero_dates(column: ColumnType, convert: RawConverter, on_loss: OnLoss) -> RawConverter:
    """Makes a converter report zero dates.

    Zero dates are written as NULL, or as 1970-01-01 where the column is NOT NULL (types-seen; Debezium, Temporal
    values).  Only in the second case the loss can be seen.
    """
    return convert if column.nullable else lambda literal: _epoch(convert(literal), on_loss)


def _epoch(literal: str, on_loss: OnLoss) -> str:
    if literal in (values.EPOCH_DATE, values.EPOCH_DATETIME):
        on_loss("1970-01-01 in a NOT NULL column may be this date or a zero date")
    return literal


def _bits(literal: str) -> str:
    return values.bits(unquoted(literal)) if is_text(literal) else literal


def _reversed(literal: str) -> str:
    """Refuses what a snapshot has of a BIT of several bytes in a key (seen with 3.0.8, 3.6.1 and MariaDB's 3.5.0)."""
    raise DecodeError(_REVERSED.format(_bits(literal)), Code.LOST_VALUE)


_INTEGERS: Final[dict[str, _Rule]] = {
    "bigint": lambda _modes, column, _on_loss: Conversion(_unsigned, usual.NATURAL_NUMBER) if column.unsigned else None
}
_REALS: Final[dict[str, _Rule]] = {
    "decimal": _decimal,
    "float": _always(lambda literal: literals.float32_number(_real(literal))),
    "double": _always(lambda literal: literals.double_number(_real(literal)), usual.DOUBLE_NUMBER),
}
_STRINGS: Final[dict[str, _Rule]] = {"decimal": _decimal_text, **dict.fromkeys(BINARY_WORDS, _binary_text)}
_ENUMS: Final[dict[str, _Rule]] = {"enum": lambda _modes, column, on_loss: enum_names(column, on_loss)}
_JSON: Final[dict[str, _Rule]] = {
    **_INTEGERS,
    **_REALS,
    **dict.fromkeys(BINARY_WORDS, _binary),
    "bit": _always(_bits),
    "json": _always(lambda literal: document(unquoted(literal)) if is_text(literal) else literal, usual.JSON_DOCUMENT),
    "date": lambda _modes, column, on_loss: Conversion(_with_zero_dates(column, _temporal(values.date_days), on_loss)),
    "time": _time,
    "datetime": _datetime,
    "timestamp": _always(lambda literal: values.zoned_timestamp(_string(literal))),
    "year": _always(lambda literal: values.year(_number(literal))),
    **_ENUMS,
}


def _form(rules: dict[str, _Rule]) -> Form:
    return partial(_by_word, rules)


def _by_word(rules: dict[str, _Rule], arguments: str, column: ColumnType, on_loss: OnLoss) -> Conversion | None:
    rule = rules.get(column.word)
    modes = DebeziumModes.read(arguments) if arguments else DebeziumModes()
    conversion = rule(modes, column, on_loss) if rule else None
    if conversion is None:
        return None
    convert, takes_null = conversion.convert, column.nullable or column.word not in ("date", "datetime")

    def with_null(literal: str) -> str:
        if literal != NULL:
            return convert(literal)
        if takes_null:
            return NULL
        raise DecodeError(
            "NULL in a NOT NULL column: a zero date, or one with a zero month or day, which Debezium cannot carry; send"
            " the table as Canal-JSON or by the Open Protocol, or fix the value upstream",
            Code.LOST_VALUE,
        )

    return conversion._replace(convert=with_null)


DEBEZIUM_FORMS: Final[dict[str, Form]] = {
    "json": _form(_JSON),
    "read": _form(
        {**_JSON, "bit": lambda _, bit, __: Conversion(_reversed if bit.precision > _BITS_OF_A_BYTE else _bits)}
    ),
    "avro": _form({}),
    "int64": _form(_INTEGERS),
    "float32": _form({"double": _always(_refuse_half)}),
    "float64": _form(_REALS),
    "string": _form(_STRINGS),
    "enum": _form(_ENUMS),
    "epoch": lambda _arguments, _column, on_loss: Conversion(lambda literal: _epoch(literal, on_loss)),
}
