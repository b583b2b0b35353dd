"""Finds converters for the types of Canal-JSON by the text of mysqlType; sources: "TiCDC Canal-JSON", official Canal
1.1.7 and 1.1.8 (MemoryTableMeta, LogEventConvert, RowsLogBuffer), and MySQL's grammar of types.

Official Canal keeps the name that the statement spells: FLOAT8, NVARCHAR(20), LONG.  Its parser knows no character
set, and the binary log tells text and bytes of a column no more than the name does.  So it writes CHAR, VARCHAR and the
TEXT types as UTF-8, whatever the column's character set, and everything that is a BLOB in the log and is not called
exactly TINYTEXT, TEXT, MEDIUMTEXT or LONGTEXT as bytes.

`sqlType` comes from the binary log, `mysqlType` and the columns' names from what Canal has as the table's definition.
Where they contradict each other, it has that of another moment, and its names may be of other columns.

Official Canal writes the bytes of a CHAR, VARCHAR or TEXT as if they were UTF-8, whatever the column's character set
(RowsLogBuffer, with the default canal.instance.connectionCharset).  And it calls a BINARY(4) CHAR(4) where it was
declared as CHAR(4) CHARACTER SET binary.  Only the target's column tells (`values.row_image`), which should have the
upstream's character set.  It may have another one, as no message tells the default of the upstream's server: a text
that would then become another one is refused.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple

from bridge.events import Code
from bridge.protocols.decoder import DecodeError, excerpt
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import (
    BINARY_WORDS,
    Column,
    ColumnType,
    Conversion,
    Form,
    OnLoss,
    of_text,
    unquoted,
)
from bridge.protocols.values.literals import NULL, Converter

UTF8_FORM: Final = "utf8"
"""The form of texts that are bytes of the column's character set, decoded as UTF-8."""
REPLACEMENT: Final = "\ufffd"
"""What a decoder of UTF-8 writes for bytes that it cannot read."""
REPLACED: Final = "U+FFFD is what Canal writes for bytes that are no UTF-8, as in columns that are not utf8mb4 upstream"
_UTF8: Final = frozenset({"", "utf8", "utf8mb3", "utf8mb4", "ascii"})
_WIDE: Final = frozenset({"ucs2", "utf16", "utf16le", "utf32"})
"""Character sets in which ASCII has other bytes."""
TYPES: Final[dict[str, Converter]] = {
    # TiCDC Canal-JSON, Integer types; official Canal has the same with a width, as in int(11)
    **dict.fromkeys(
        ("tinyint", "boolean", "bool", "smallint", "mediumint", "int", "integer", "bigint"), literals.integer
    ),
    # TiCDC Canal-JSON, SQL Type field.  TiCDC never writes an exponent (types-seen); Canal writes Java's notation
    "float": literals.float32,
    **dict.fromkeys(("double", "real"), literals.double),
    **dict.fromkeys(("decimal", "numeric", "dec", "fixed"), literals.decimal),
    **dict.fromkeys(("char", "varchar", "tinytext", "text", "mediumtext", "longtext", "json", "vector"), literals.text),
    # each byte is one ISO-8859-1 character (types-seen; official Canal does the same)
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), literals.latin1),
    "date": literals.date,
    "datetime": literals.datetime,
    "time": literals.time,
    "year": literals.year,
    # numbers, not names (types-seen)
    "enum": literals.unsigned,
    # official Canal prints Java's long, which is negative from 2^63 on
    **dict.fromkeys(("set", "bit"), literals.UNSIGNED[64]),
    # what the server stores: the SRID, then the WKB (official Canal; MySQL, "Internal Geometry Storage Format")
    **dict.fromkeys(("geometry", "point", "linestring", "polygon", "multipoint", "multilinestring"), literals.latin1),
    **dict.fromkeys(("multipolygon", "geometrycollection", "geomcollection"), literals.latin1),
}
"""The converter of each type; "timestamp" is missing, as it needs the time zone."""

_ALIASES: Final = {
    "int1": "tinyint",
    "int2": "smallint",
    **dict.fromkeys(("int3", "middleint"), "mediumint"),
    "int4": "int",
    "int8": "bigint",
    "serial": "bigint unsigned",
    "float4": "float",
    **dict.fromkeys(("float8", "double precision"), "double"),
    **dict.fromkeys(("character", "nchar", "national char", "national character", "char byte"), "char"),
    **dict.fromkeys(
        (
            *("varcharacter", "nvarchar", "character varying", "char varying", "nchar varchar", "nchar varying"),
            *("national varchar", "national varcharacter", "national char varying", "national character varying"),
        ),
        "varchar",
    ),
    **dict.fromkeys(
        ("long", "long varchar", "long varcharacter", "long char varying", "long character varying"), "mediumtext"
    ),
    **dict.fromkeys(("long varbinary", "long byte"), "mediumblob"),
}
"""MySQL's other names of types (sql_yacc.yy), of which Canal's parser knows most, and what a server shows for them."""
_WIDTHS: Final = {"tinyint": 8, "smallint": 16, "mediumint": 24, "int": 32, "integer": 32, "bigint": 64}
_LONG_TEXTS: Final = ("tinytext", "text", "mediumtext", "longtext")
_CLOB: Final = 2005
"""JDBC's type of what official Canal has read as text."""
_BYTES: Final = frozenset({-2, -3, -4, 2004})
"""BINARY, VARBINARY, LONGVARBINARY and BLOB, of which Canal writes the last; before 1.1.7 the others for null."""
_VARCHAR: Final = 12
_SQL_TYPES: Final[dict[str, frozenset[int]]] = {
    "tinyint": frozenset({-6, -7}),
    **dict.fromkeys(("boolean", "bool"), frozenset({-6, -7, 16})),
    "smallint": frozenset({5}),
    **dict.fromkeys(("mediumint", "int", "integer"), frozenset({4})),
    "bigint": frozenset({-5}),
    "float": frozenset({7, 6}),
    "double": frozenset({8}),
    "real": frozenset({8, 7}),
    **dict.fromkeys(("decimal", "numeric", "dec", "fixed"), frozenset({3, 2})),
    "char": frozenset({1}),
    "varchar": frozenset({12}),
    **dict.fromkeys(_LONG_TEXTS, _BYTES | {_CLOB, -1}),
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), _BYTES),
    "date": frozenset({91}),
    "time": frozenset({92}),
    **dict.fromkeys(("datetime", "timestamp"), frozenset({93})),
    "year": frozenset({12, 91}),
    "enum": frozenset({4, 1}),
    "set": _BYTES | {-7, 1},
    "bit": frozenset({-7}),
    "json": _BYTES | {12, 1111, -1},
    **dict.fromkeys((word for word in TYPES if re.search("point|line|polygon|geom", word)), _BYTES),
}
"""The JDBC types that a column of a type may come with: those of Canal 1.1.0 to 1.1.8 (RowsLogBuffer, LogEventConvert;
null has another one in JSON and SET, and MariaDB's JSON is a LONGTEXT), and those of MySQL's own driver, of which other
senders of the format may take them."""
_ABOVE: Final = {"tinyint": 5, "smallint": 4, "int": -5, "integer": -5, "bigint": 3}
"""What Canal writes for unsigned values that their type would hold as negative ones."""
_FLOAT_BITS: Final = 24
"""FLOAT(p) with more bits is a DOUBLE."""
_TYPE: Final = re.compile(
    r"\s*`?([a-z][a-z0-9_]*)`?((?:\s+[a-z][a-z0-9_]*)*)\s*(?:\((.*)\))?([^()]*)", re.DOTALL | re.IGNORECASE
)
_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")


def _conversion(_arguments: str, column: ColumnType, _on_loss: OnLoss) -> Conversion | None:
    if column.word in BINARY_WORDS:
        return of_text(literals.zero_padded(column.precision, _bytes) if column.word == "binary" else _bytes)
    if column.charset in _UTF8:
        return None
    return of_text(_bytes) if column.charset in _WIDE else Conversion(partial(_ascii_only, column.charset))


def _ascii_only(charset: str, literal: str) -> str:
    """Passes on a text in a character set in which ASCII has the bytes that it has in UTF-8."""
    if not literal.isascii() and literal != NULL:
        value = unquoted(literal)
        _refuse_replacements(value)
        raise DecodeError(
            f"{excerpt(value)} may be no text of {charset}, as the target's column is: Canal writes the upstream's"
            " bytes as if they were UTF-8, and does not tell their character set; make the column utf8mb4 on the target"
            " where it is utf8mb4 upstream, otherwise on both sides",
            Code.LOST_VALUE,
        )
    return literal


def _bytes(value: str) -> str:
    _refuse_replacements(value)
    return literals.binary(value.encode())


def _refuse_replacements(value: str) -> None:
    if REPLACEMENT in value:
        raise DecodeError(
            f"{excerpt(value)} is what Canal makes of bytes that are no UTF-8: the column is of another character set,"
            " or of bytes; make it utf8mb4 upstream, or BINARY, VARBINARY or BLOB, whose bytes Canal passes on",
            Code.LOST_VALUE,
        )


CANAL_FORMS: Final[dict[str, Form]] = {UTF8_FORM: _conversion}


class _Type(NamedTuple):
    """The parts of a type.  is_named: whether the message calls it as a server does."""

    word: str
    arguments: str | None
    unsigned: bool
    is_named: bool


def column_of(
    types: Mapping[str, Converter], name: str, mysql_type: object, sql_type: object, *, is_official: bool
) -> Column:
    """Describes a column of a type like ``int``, ``INT8(20) unsigned`` or ``enum('a','b')``.

    sql_type: JDBC's type of the column's value; None where the message does not tell.
    is_official: whether the message is one of official Canal.
    Raises DecodeError for a type that is not known, or that contradicts the JDBC type of an official message.
    """
    if not isinstance(mysql_type, str):
        raise DecodeError(f"column {excerpt(name)} has no type in mysqlType")
    kind = _type_of(mysql_type)
    if kind is None or kind.word not in types:
        raise DecodeError(f"column {excerpt(name)} is of the unknown type {excerpt(mysql_type)}", Code.UNKNOWN_TYPE)
    if is_official and sql_type is not None:
        _check_sql_type(name, kind, mysql_type, sql_type)
    convert, form, declared = types[kind.word], "", _declared(kind, mysql_type)
    if kind.word in _WIDTHS and kind.unsigned:
        convert = literals.UNSIGNED[_WIDTHS[kind.word]]
    elif kind.word in _DECLARED and kind.arguments is not None:
        convert = _DECLARED[kind.word](kind.arguments)
    elif is_official and kind.word == "binary":
        convert = _binary("1")
    elif is_official and kind.word == "json":
        convert = _document_bytes if sql_type in _BYTES else _document
    elif is_official and convert is literals.text and kind.word != "vector":
        is_exact = kind.is_named and kind.arguments is None  # only then Canal takes it for a text (LogEventConvert)
        is_bytes = kind.word in _LONG_TEXTS and sql_type != _CLOB and not is_exact
        convert, form = (literals.latin1, "") if is_bytes else (convert, UTF8_FORM)
    return Column(mysql_type, convert, form, declared)


def sql_types_of(sql_types: object) -> Mapping[str, object]:
    """Gives what a message's `sqlType` tells of its columns: nothing where it is missing, or says VARCHAR of all, as
    senders do that know values only as texts."""
    return sql_types if isinstance(sql_types, dict) and set(sql_types.values()) != {_VARCHAR} else {}


def _check_sql_type(name: str, kind: _Type, mysql_type: str, sql_type: object) -> None:
    possible = _SQL_TYPES.get(kind.word)
    if possible is None or sql_type in possible or (kind.unsigned and sql_type == _ABOVE.get(kind.word)):
        return
    raise DecodeError(
        f"column {excerpt(name)} is {excerpt(mysql_type)} in mysqlType, but the value in the binary log has"
        f" another type (sqlType {excerpt(sql_type)}): Canal took the table's columns of another moment, so names and"
        " values may be of different columns; let Canal read from its last position with the table's history"
        " (canal.instance.tsdb), or copy the table anew",
        Code.BAD_VALUE,
    )


def _type_of(mysql_type: str) -> _Type | None:
    """Takes a type apart; the longest name that is known counts, and what follows it are attributes."""
    match = _TYPE.fullmatch(mysql_type)
    if match is None:
        return None
    words = [match[1].lower(), *match[2].lower().split()]
    attributes = {*words[1:], *match[4].lower().split()}
    unsigned, arguments = not attributes.isdisjoint(("unsigned", "zerofill")), match[3]
    for count in range(len(words), 0, -1):
        alias = _ALIASES.get(" ".join(words[:count]))
        if alias is not None:
            return _Type(alias.split()[0], arguments, unsigned or " " in alias, is_named=False)
    if words[0] == "float" and arguments is not None and arguments.isdecimal() and int(arguments) > _FLOAT_BITS:
        return _Type("double", None, unsigned, is_named=False)
    return _Type(words[0], arguments, unsigned, is_named=True)


def _declared(kind: _Type, mysql_type: str) -> str:
    """Writes a type as a server shows it.  Of TEXT(n) and BLOB(n) a server makes the smallest type for n characters."""
    if kind.arguments is not None and kind.word in ("text", "blob"):
        return ""
    if kind.is_named:
        return mysql_type
    length = "" if kind.arguments is None else f"({kind.arguments})"
    return kind.word + length + " unsigned" * kind.unsigned


def _document(value: str) -> str:
    """Converts a JSON document.  Official Canal writes the rows that had no value when a JSON column NOT NULL was added
    with an empty text: they hold nothing, which MySQL reads as JSON's null (RowsLogBuffer).  It escapes nothing in the
    names of members, and older ones than 1.1.7 in texts only quotation marks and backslashes (JsonConversion)."""
    if "\\" in value and any(match[1] and "\\" in match[0] for match in _TEXTS.finditer(value)):
        raise DecodeError("a name in JSON holds a backslash, which Canal does not escape: upstream it is another")
    return literals.text(_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", value) or "null")


_TEXTS: Final = re.compile(r'"(?:[^"\\]|\\.)*"(:?)', re.DOTALL)
"""The texts of a JSON document; behind the name of a member there is a colon."""
_CONTROLS: Final = re.compile(r"[\0-\x1f]")


def _document_bytes(value: str) -> str:
    """Converts a JSON document of MariaDB, which is a LONGTEXT in its log, so that Canal writes its bytes."""
    return literals.text(value.encode("latin-1").decode())


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
