"""Describes a message's column; and a column of the target for the rules of raw values, and its usual raw literals (see
`row_image`), which compiled functions convert as its converter does."""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import Final, NamedTuple

from bridge.protocols.fast.compiled import codes
from bridge.protocols.values.literals import Converter

_EXACT_DIGITS: Final = 15
"""A double tells decimals of so many digits apart."""


class Column(NamedTuple):
    """How the values of a message's column become literals.

    label: its type in words, for error messages.
    form: the form of raw literals (see `row_image`), "" when literals are ready.
    declared: its type upstream, as far as the message tells it, "" otherwise.
    """

    label: str
    convert: Converter
    form: str = ""
    declared: str = ""


class Usual(NamedTuple):
    """What the usual literals of a column are; all others, and a NULL that its column cannot hold, are left to Python:
    raw ones to the column's converter, ready ones to the check of what the column stores unchanged."""

    code: int
    argument: int = 0


NONE: Final = Usual(codes.LEFT)
"""The converter converts each."""
NATURAL_NUMBER: Final = Usual(codes.NATURAL_OF_NUMBER)
DOUBLE_NUMBER: Final = Usual(codes.DOUBLE_OF_NUMBER)
"""Numbers that are ready as they are."""
MILLIS, MICROS = Usual(codes.MILLISECONDS), Usual(codes.MICROSECONDS)
"""Integers since 1970-01-01, as if in UTC, that become DATETIMEs; 0 may be a zero date."""
JSON_DOCUMENT: Final = Usual(codes.DOCUMENT)
"""A document without numbers of many digits (`debezium.columns`) stays as it is."""
TEXT_OF_INTEGER, TEXT_OF_NATURAL, TEXT_OF_DECIMAL, TEXT_OF_DOUBLE, TEXT_OF_DATE, TEXT_OF_TIME, TEXT_OF_DATETIME = (
    Usual(codes.TEXT_OF, of)
    for of in (codes.INTEGER, codes.NATURAL, codes.DECIMAL, codes.DOUBLE, codes.DATE, codes.TIME, codes.DATETIME)
)
"""Strings, of which a converter for the column's type makes literals."""
TEXT_OF_BYTES: Final = Usual(codes.TEXT_OF, codes.BYTES_IN_BASE64)
"""Bytes in base64."""


def decimal_of_double(scale: int) -> Usual:
    """Names doubles that become DECIMALs with so many digits behind the point, where doubles are exact enough."""
    return Usual(codes.DECIMAL_OF_DOUBLE, scale) if 0 < scale < _EXACT_DIGITS else NONE


RawConverter = Callable[[str], str]
"""Turns a raw literal into a ready one."""

OnLoss = Callable[[str], None]
"""Is called with a reason in words when the format has lost a part of a value."""


class Conversion(NamedTuple):
    """How a column's raw literals become ready ones.  usual: those that compiled functions convert as `convert`
    does."""

    convert: RawConverter
    usual: Usual = NONE


BINARY_WORDS: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
"""The first words of the types of bytes."""
_TYPE: Final = re.compile(r"([a-z0-9_]+)(?:\((\d+)(?:,(\d+))?\))?( unsigned)?")
_EMPTY_NAME: Final = re.compile(r"enum\((?:.*,)?''[,)]", re.DOTALL)
_NUMBER_NAME: Final = re.compile(r"'\d+'")
_DEFAULT_PRECISION: Final = {"decimal": 10, "bit": 1}
_ESCAPE: Final = re.compile(r"\\(.)", re.DOTALL)


class ColumnType(NamedTuple):
    """A type such as ``decimal(20,4) unsigned``.

    word: the first word, in lower case.
    precision: the first number in parentheses, or the default where it is left out; 0 for types that have none.
    scale: the second number in parentheses, or 0.
    has_empty_name: whether it is an ENUM with the member ''.
    charset: its character set, "" for a type without one.
    has_number_name: whether it is an ENUM or SET with a member like '1'.
    """

    word: str
    precision: int = 0
    scale: int = 0
    unsigned: bool = False
    nullable: bool = True
    has_empty_name: bool = False
    charset: str = ""
    has_number_name: bool = False


Form = Callable[[str, ColumnType, OnLoss], Conversion | None]
"""(arguments after the form's colon, the target's column, the function to call for losses) -> conversion, or None where
raw literals are ready as they are."""


@lru_cache(maxsize=10_000)
def column_type(text: str, *, nullable: bool, charset: str | None = None) -> ColumnType:
    """Reads a `column_type` of information_schema.columns.  charset: None for a type without one."""
    lowered = text.lower()
    match = _TYPE.match(lowered)
    if match is None:
        return ColumnType(lowered, nullable=nullable)
    precision = int(match[2]) if match[2] else _DEFAULT_PRECISION.get(match[1], 0)
    names = _EMPTY_NAME.match(lowered) is not None, charset or "", _NUMBER_NAME.search(lowered) is not None
    return ColumnType(match[1], precision, int(match[3] or 0), bool(match[4]), nullable, *names)


def enum_names(column: ColumnType, on_loss: OnLoss) -> Conversion | None:
    """Makes the conversion of ENUM values that come by their names, in which the error value 0 is ''; None where no
    member has that name, too."""
    if not column.has_empty_name:
        return None

    def convert(literal: str) -> str:
        if literal == "''":
            on_loss("'' is the name of a member, and how the error value 0 of an ENUM comes: the member is written")
        return literal

    return Conversion(convert)


def is_text(literal: str) -> bool:
    """Tells whether a raw literal was a string on the wire."""
    return literal[0] == "'"


def of_text(convert: Callable[[str], str], usual: Usual = NONE) -> Conversion:
    """Makes the conversion of raw literals that are strings, or NULL, from the converter of their texts."""
    return Conversion(lambda literal: "NULL" if literal == "NULL" else convert(unquoted(literal)), usual)


def unquoted(literal: str) -> str:
    """Gives the string from which `literals.text` made a raw literal."""
    if "\\" not in literal:
        return literal[1:-1]
    return _ESCAPE.sub(lambda escape: "\0" if escape[1] == "0" else escape[1], literal[1:-1])
