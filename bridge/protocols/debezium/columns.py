"""Finds the converter of each column of a Debezium row, by the message's Connect schema or by JSON type alone.

Sources: "TiCDC Debezium", Data type mapping; golden/types-seen.txt; Debezium connector for MySQL, Data type mappings.

Numbers in JSON documents are written so that a server reads the number that the upstream has.  The connector for MySQL
takes a document out of the binlog and writes a DOUBLE in it with all digits of its binary value: 1e100 has 101 of them
(mysql-binlog-connector, JsonStringFormatter).  MySQL reads numbers of many digits inexactly: of those digits it makes
1.0000000000000006e100 (RapidJSON without full precision, which `_mysql_reads` follows).

Parses Debezium's JSON: the payload of a key or value and, where there is one, its Connect schema.

A schema is three to thirty times as long as the payload, and the same for every row of a table, so each schema is
parsed once.  A document is cut where the schema begins (TiCDC writes it after the payload) or ends (Kafka Connect
writes it before), and the schema is looked up by its bytes.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from decimal import Decimal
from functools import partial
from typing import Any, Final

import orjson

from bridge.events import Code
from bridge.protocols.debezium import values
from bridge.protocols.debezium.recognition import TICDC_MODES, DebeziumModes
from bridge.protocols.decoder import DecodeError, excerpt
from bridge.protocols.values import literals
from bridge.protocols.values.column_types import Column
from bridge.protocols.values.json_message import json_object
from bridge.protocols.values.literals import Converter

_MAX_CACHED_BYTES: Final = 8 << 20
"""The most bytes of all remembered schemas together; a parsed schema takes about ten times as much memory."""
_PAYLOAD_FIRST: Final = b'{"payload":'
_SCHEMA_FIRST: Final = b'{"schema":'
_SCHEMA: Final = b',"schema":'
_PAYLOAD: Final = b',"payload":'
_MAGIC: Final = b"\0"
"""Messages in Avro and Protobuf with a schema registry begin with this byte."""
_WRAPPED: Final = {"schema", "payload"}
_BINARY: Final = (
    "the message is not JSON but Avro, Protobuf or JSON Schema with a schema registry: give its URL with --registry"
    " (source.registry.url), which Avro needs, or set the connector's converter for JSON"
)
Document = tuple[Any, Any]
"""A payload and its Connect schema.  Equal schemas are one object; a null or missing schema is None."""


class Envelopes:
    """Parses keys and values; remembers schemas."""

    def __init__(self) -> None:
        self._schemas: dict[bytes, Any] = {}
        self._bytes = 0
        self.referenced: dict[bytes, Any] = {}
        """Schemas that documents name (`avro.front`), by their members of the documents."""

    def parsed(self, content: bytes, owner: str) -> Document:
        """Parses the bytes of a key or a value.  Raises DecodeError, whose reason says whose they are (`owner`)."""
        parts = _split_document(content)
        schema = self._schemas.get(parts[0]) or self.referenced.get(parts[0]) if parts else None
        if parts is not None and schema is not None:
            document = _loaded_or_none(parts[1])
            if type(document) is dict and len(document) == 1 and "payload" in document:
                return document["payload"], schema
        return self._unknown(content, owner, parts)

    def _unknown(self, content: bytes, owner: str, parts: tuple[bytes, bytes] | None) -> Document:
        if content.startswith(_MAGIC):
            raise DecodeError(_BINARY)
        document = json_object(content, owner)
        if not document.keys() <= _WRAPPED or "payload" not in document:
            return document, None
        payload, schema = document["payload"], document.get("schema")
        if parts is not None and type(schema) is dict:
            self._remember(parts[0], schema)
        return payload, schema

    def _remember(self, content: bytes, schema: dict[str, Any]) -> None:
        """Remembers a schema by its bytes, if they are the schema's member of the document and nothing else.

        By JSON's grammar a document is then its schema's member and the rest, and each can be parsed alone.
        """
        alone = _loaded_or_none(content + b"}" if content.startswith(b"{") else b"{" + content[1:])
        if alone != {"schema": schema} or len(content) > _MAX_CACHED_BYTES:
            return
        if self._bytes + len(content) > _MAX_CACHED_BYTES:
            self._schemas.clear()
            self._bytes = 0
        self._schemas[content] = schema
        self._bytes += len(content)


def _split_document(content: bytes) -> tuple[bytes, bytes] | None:
    """Splits a document into the bytes of its schema's member and the rest; None where it does not look like one."""
    if content.startswith(_PAYLOAD_FIRST):
        at = content.rfind(_SCHEMA)
        return (content[at:], content[:at] + b"}") if at > 0 else None
    if content.startswith(_SCHEMA_FIRST):
        at = content.find(_PAYLOAD)
        return (content[:at], b"{" + content[at + 1 :]) if at > 0 else None
    return None


def _loaded_or_none(content: bytes) -> Any:
    try:
        return orjson.loads(content)
    except orjson.JSONDecodeError:
        return None


_MANY_DIGITS: Final = re.compile("[0-9][0-9.]{17}")
_TOKEN: Final = re.compile(r'"(?:[^"\\]|\\.)*"|-?[0-9]+(?:[.][0-9]+)?(?![0-9.eE])')
_EXACT_DIGITS: Final = 17
"""A text of so many digits may be another number than the double that is nearest to it."""
_LONGEST: Final = 1100
"""No double has more digits."""
_INTEGERS: Final = range(-(1 << 63), 1 << 64)
"""Integers that servers store as such."""
_LARGEST_POWER: Final = 308
_STEPS: Final = (0, 1, -1, 2, -2, 3, -3)


def document(value: str) -> str:
    """Converts a JSON document."""
    if type(value) is str and _MANY_DIGITS.search(value):
        value = _TOKEN.sub(lambda match: _number(match[0]), value)
    return literals.text(value)


def _number(token: str) -> str:
    if (
        token[0] == '"'
        or not _EXACT_DIGITS < len(token) < _LONGEST
        or (token.lstrip("-").isdigit() and int(token) in _INTEGERS)
    ):
        return token
    double = float(token)
    if Decimal(token) != Decimal(double):  # a DECIMAL of the upstream, which no double holds, or beyond all doubles
        return token
    return next((text for text in _spellings(double) if _mysql_reads(text) == double), repr(double))


def _spellings(double: float) -> Iterator[str]:
    """Yields texts that are close to a double: the shortest, then integers of 15 to 19 digits with an exponent."""
    _, digits, exponent = Decimal(repr(double)).as_tuple()
    shortest = int("".join(map(str, digits)))
    sign = "-" if double < 0 else ""
    yield f"{sign}{shortest}e{exponent}"
    first = len(digits) + int(exponent)
    for size in range(15, 20):
        near = int(Decimal(abs(double)).scaleb(size - first).to_integral_value())
        unit = 1 << max(0, near.bit_length() - sys.float_info.mant_dig)
        for steps in _STEPS:
            yield f"{sign}{near + steps * unit}e{first - size}"


def _mysql_reads(text: str) -> float:
    """Returns the number that MySQL makes of an integer with an exponent."""
    digits, _, power = text.partition("e")
    exponent, number = int(power), float(int(digits))
    if exponent < -_LARGEST_POWER:
        number, exponent = number / float(f"1e{_LARGEST_POWER}"), exponent + _LARGEST_POWER
    return number * float(f"1e{exponent}") if exponent >= 0 else number / float(f"1e{-exponent}")


def boolean(value: bool) -> str:  # as JSON gave it
    """Converts a BIT(1), or a TINYINT(1) for which the connector has a converter."""
    if type(value) is not bool:
        raise DecodeError(f"{excerpt(value)} is not true or false")
    return "1" if value else "0"


def wrapped_unsigned(value: int) -> str:
    """Converts a BIGINT UNSIGNED, which wraps to negative above 2^63 (types-seen)."""
    return literals.integer_number(value + (1 << 64) if type(value) is int and value < 0 else value)


def geometry(value: dict[str, Any]) -> str:
    """Converts a spatial value to what the server stores: SRID, low byte first, then WKB (MySQL's manual)."""
    srid = value.get("srid") or 0
    return literals.binary(srid.to_bytes(4, "little") + values.base64_bytes(value["wkb"]))


def variable_scale(value: dict[str, Any]) -> str:
    """Converts a DECIMAL that carries its own scale."""
    return values.unscaled(value["value"], value["scale"])


def vector(value: list[float]) -> str:
    """Converts a VECTOR to JSON text, as TiCDC writes it."""
    if type(value) is not list or any(type(part) not in (int, float) for part in value):
        raise DecodeError(f"{excerpt(value)} is not an array of numbers")
    return literals.text(orjson.dumps(value).decode())


_BY_JSON_TYPE: Final[dict[type, Converter]] = {
    str: literals.text,
    int: literals.integer_number,
    float: literals.double_number,
    bool: boolean,
    dict: lambda value: geometry(value) if "wkb" in value else variable_scale(value),
    list: vector,
}


def raw_literal(value: Any) -> str:
    """Gives the raw literal of a value of unknown type (see `values.row_image`)."""
    return _BY_JSON_TYPE[type(value)](value)


_NAMED: Final[dict[str, Converter]] = {
    "io.debezium.data.Bits": values.bits,
    "io.debezium.time.Date": values.date_days,
    "org.apache.kafka.connect.data.Date": values.date_days,
    "io.debezium.time.Time": values.time_millis,
    "org.apache.kafka.connect.data.Time": values.time_millis,
    "io.debezium.time.MicroTime": values.time_micros,
    "io.debezium.time.NanoTime": values.time_nanos,
    "io.debezium.time.Timestamp": values.datetime_millis,
    "org.apache.kafka.connect.data.Timestamp": values.datetime_millis,
    "io.debezium.time.MicroTimestamp": values.datetime_micros,
    "io.debezium.time.NanoTimestamp": values.datetime_nanos,
    "io.debezium.time.IsoDate": values.iso_text,
    "io.debezium.time.IsoTime": values.iso_text,
    "io.debezium.time.IsoTimestamp": values.iso_text,
    "io.debezium.time.ZonedTimestamp": values.zoned_timestamp,
    "io.debezium.time.Year": values.year,
    "io.debezium.data.Enum": literals.text,
    "io.debezium.data.EnumSet": literals.text,
    "io.debezium.data.Json": document,
    "io.debezium.data.TiDBVectorFloat32": literals.text,
    "io.debezium.data.FloatVector": vector,
    "io.debezium.data.DoubleVector": vector,
    "io.debezium.data.VariableScaleDecimal": variable_scale,
}
"""The converter of each semantic type, a schema's name; but for Connect's Decimal, which needs its parameters."""
_DECIMAL: Final = "org.apache.kafka.connect.data.Decimal"
_GEOMETRY: Final = "io.debezium.data.geometry."
_ENUM: Final = "io.debezium.data.Enum"
_COMMA: Final = re.compile(r"(?<!\\),")
"""Between the members of an ENUM; in their names there is a backslash before each."""
_MAY_BE_ZERO: Final = frozenset(
    name for name in _NAMED if name.rpartition(".")[2] in ("Date", "Timestamp", "MicroTimestamp", "NanoTimestamp")
)
"""Semantic types that write DATE and DATETIME as numbers, with no number for a zero date."""

_TIDB: Final[dict[str, Converter]] = {
    "bigint unsigned": wrapped_unsigned,
    "float": literals.float32_number,
    "double": literals.double_number,
    **dict.fromkeys(("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob"), values.binary),
    **dict.fromkeys(("char", "varchar", "var_string", "tinytext", "text", "mediumtext", "longtext"), literals.text),
    **dict.fromkeys(("tinyint", "smallint", "mediumint", "int", "bigint"), literals.integer_number),
}
"""Converters by tidb_type (enable-tidb-extension), where the Connect type alone is ambiguous."""
_TYPED: Final[dict[str, Converter]] = {
    "boolean": boolean,
    "int8": literals.integer_number,
    "int16": literals.integer_number,
    "int32": literals.integer_number,
    "bytes": values.binary,
}
_OPEN: Final[dict[str, tuple[Converter, str]]] = {
    "int64": (literals.integer_number, "int64"),
    "float": (literals.float32_number, "float32"),
    "double": (literals.double_number, "float64"),
    "string": (literals.text, "string"),
}
"""Ambiguous Connect types: the converter to a raw literal, and its form."""


def column_of(name: str, field: dict[str, Any], modes: DebeziumModes) -> Column:
    """Describes a column that a Connect schema describes; raises DecodeError for an unknown type."""
    kind, semantic, tidb_type = field.get("type"), field.get("name"), field.get("tidb_type")
    label, declared = str(tidb_type or semantic or kind), _declared(field)
    if semantic == _DECIMAL:
        return Column(label, _connect_decimal(field), "", declared)
    if type(semantic) is str and semantic in _NAMED:
        return Column(label, _NAMED[semantic], _named_form(semantic, field), declared)
    if type(semantic) is str and semantic.startswith(_GEOMETRY):
        return Column(label, geometry, "", declared)
    if (convert := _by_tidb_type(tidb_type) or _TYPED.get(str(kind))) is not None:
        return Column(label, convert, "", declared)
    if kind in _OPEN:
        convert, form = _OPEN[kind]
        if kind == "float" and modes is TICDC_MODES:
            return Column(label, convert, "", declared)
        return Column(label, convert, f"{form}:{modes}", declared)
    raise DecodeError(f"column {excerpt(name)} is of the unknown type {excerpt(label)}", Code.UNKNOWN_TYPE)


def _declared(field: dict[str, Any]) -> str:
    """Gives the column's type upstream: TiCDC's tidb_type, with the length of a BIT, or the type that the native
    connector sends if configured so (column.propagate.source.type); "" where the schema has neither."""
    parameters = field.get("parameters")
    parameters_by_name = parameters if type(parameters) is dict else {}
    word, size, scale = (parameters_by_name.get(_SOURCE_TYPE + part) for part in ("type", "length", "scale"))
    if type(field.get("tidb_type")) is str:
        word, size = field["tidb_type"], parameters_by_name.get("length")
    if type(word) is not str:
        return ""
    name, _, behind = word.lower().partition(" ")
    if type(size) is not str or name not in _SIZED:
        return word.lower()
    return f"{name}({size}{f',{scale}' if type(scale) is str else ''}) {behind}".rstrip()


_SOURCE_TYPE: Final = "__debezium.source.column."
_SIZED: Final = frozenset({"bit", "decimal", "numeric", "char", "varchar", "binary", "varbinary"})
"""Types whose length limits their values."""


def _named_form(semantic: str, field: dict[str, Any]) -> str:
    if semantic == _ENUM:
        allowed = (field.get("parameters") or {}).get("allowed")
        return "" if type(allowed) is str and "" not in _COMMA.split(allowed) else "enum"
    return "epoch" if semantic in _MAY_BE_ZERO and field.get("optional") is False else ""


def _by_tidb_type(tidb_type: Any) -> Converter | None:
    if type(tidb_type) is not str:
        return None
    return _TIDB.get(tidb_type) or _TIDB.get(tidb_type.partition(" ")[0])


def _connect_decimal(field: dict[str, Any]) -> Converter:
    """Makes the converter for decimal.handling.mode=precise, and for BIGINT UNSIGNED under
    bigint.unsigned.handling.mode=precise."""
    parameters = field["parameters"]
    precision = int(parameters.get("connect.decimal.precision", literals.MAX_DECIMAL_DIGITS))
    return partial(_precise, precision, int(parameters["scale"]))


def scale_of(convert: Converter) -> int | None:
    """Gives the scale of a converter of Connect's Decimal; None for other converters."""
    return convert.args[1] if isinstance(convert, partial) and convert.func is _precise else None


def _precise(precision: int, scale: int, value: Any) -> str:
    if type(value) is str:
        return values.unscaled(value, scale)
    if type(value) not in (int, float):  # decimal.format=NUMERIC of the JSON converter
        raise DecodeError(f"{excerpt(value)} is not a decimal number")
    return values.decimal_of_double(value, precision, scale, _refuse)


def _refuse(reason: str) -> None:
    raise DecodeError(f"{reason}; set the converter's decimal.format=BASE64", Code.LOST_VALUE)


def handle_names(envelopes: Envelopes, key: bytes | None) -> list[str] | None:
    """Gives the names of a key's columns; raises DecodeError for a key that is not JSON.

    There are none for a table without a key (null, `{}`).  Gives None where a transform has turned the key into a bare
    value: then the target's catalog tells the key.
    """
    if not key:
        return []
    if not key.lstrip().startswith(b"{"):
        return None
    payload, _ = envelopes.parsed(key, "the message's key")
    return [*payload] if type(payload) is dict else []
