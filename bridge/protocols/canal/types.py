"""Finds converters for the types of Canal-JSON by the text of mysqlType; sources: "TiCDC Canal-JSON", official
Canal."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

from bridge.events import Code
from bridge.protocols.decoder import DecodeError, shown
from bridge.protocols.values import literals
from bridge.protocols.values.literals import Converter
from bridge.protocols.values.timezones import timestamp_converter

TYPES: Final[dict[str, Converter]] = {
    # TiCDC Canal-JSON, Integer types; official Canal has the same with a width, as in int(11)
    "tinyint": literals.integer,
    "boolean": literals.integer,
    "bool": literals.integer,
    "smallint": literals.integer,
    "mediumint": literals.integer,
    "int": literals.integer,
    "integer": literals.integer,
    "bigint": literals.integer,
    # TiCDC Canal-JSON, SQL Type field.  TiCDC never writes an exponent (types-seen); Canal writes Java's notation
    "float": literals.float32,
    "double": literals.double,
    "real": literals.double,
    "decimal": literals.decimal,
    "numeric": literals.decimal,
    "dec": literals.decimal,
    "fixed": literals.decimal,
    "char": literals.text,
    "varchar": literals.text,
    "tinytext": literals.text,
    "text": literals.text,
    "mediumtext": literals.text,
    "longtext": literals.text,
    # each byte is one ISO-8859-1 character (types-seen; official Canal does the same)
    "binary": literals.latin1,
    "varbinary": literals.latin1,
    "tinyblob": literals.latin1,
    "blob": literals.latin1,
    "mediumblob": literals.latin1,
    "longblob": literals.latin1,
    "date": literals.date,
    "datetime": literals.datetime,
    "time": literals.time,
    "year": literals.year,
    # numbers, not names (types-seen)
    "enum": literals.unsigned,
    # official Canal prints Java's long, which is negative from 2^63 on
    "set": literals.UNSIGNED[64],
    "bit": literals.UNSIGNED[64],
    "json": literals.text,
    "vector": literals.text,
}
"""The converter of each base word of mysqlType; "timestamp" is missing, as it needs the time zone."""

_WIDTHS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
_BASE_WORD: Final = re.compile(r"[a-z]+")
_PARAMETERS: Final = re.compile(r"\((.*)\)", re.DOTALL)
_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")


def canal_types(timezone: str | None) -> Mapping[str, Converter]:
    """Gives the converters by base word, with TIMESTAMP in a time zone; raises UsageError for an unknown zone."""
    return {**TYPES, "timestamp": timestamp_converter(timezone)}


def converter_of(types: Mapping[str, Converter], name: str, mysql_type: object) -> tuple[str, Converter]:
    """Gives label and converter of a column of a type like ``int``, ``int(11) unsigned`` or ``enum('a','b')``."""
    if not isinstance(mysql_type, str):
        raise DecodeError(f"column {shown(name)} has no type in mysqlType", column=name)
    word = _BASE_WORD.match(mysql_type.lower())
    converter = types.get(word[0]) if word else None
    if word is None or converter is None:
        raise DecodeError(
            f"column {shown(name)} is of the unknown type {shown(mysql_type)}", Code.UNKNOWN_TYPE, column=name
        )
    if word[0] in _WIDTHS and "unsigned" in mysql_type.lower():
        return mysql_type, literals.UNSIGNED[_WIDTHS[word[0]]]
    parameters = _PARAMETERS.search(mysql_type) if word[0] in _DECLARED else None
    return mysql_type, _DECLARED[word[0]](parameters[1]) if parameters else converter


def _enum(members: str) -> Converter:
    """Makes the converter of an ENUM, which is its index, or its name from some senders of official Canal's format."""
    names = _names(members)

    def convert(value: str) -> str:
        return literals.text(value) if value in names and not value.isdecimal() else literals.unsigned(value)

    return convert


def _set(members: str) -> Converter:
    """Makes the converter of a SET, which is its bit mask, or its names joined by commas."""
    names = _names(members)

    def convert(value: str) -> str:
        if value and not value.lstrip("-").isdecimal() and names.issuperset(value.split(",")):
            return literals.text(value)
        return literals.UNSIGNED[64](value)

    return convert


def _binary(length: str) -> Converter:
    """Makes the converter of a BINARY: official Canal passes on what stands in MySQL's log."""
    return literals.zero_padded(int(length), literals.latin1) if length.isdecimal() else literals.latin1


def _names(members: str) -> frozenset[str]:
    return frozenset(name.replace("''", "'") for name in _MEMBER.findall(members))


_DECLARED: Final = {"enum": _enum, "set": _set, "binary": _binary}
"""Makes converters from what stands in the parentheses of a type."""
