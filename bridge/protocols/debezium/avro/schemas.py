"""Reads Avro schemas as Kafka Connect's converters write them (Confluent, AvroData; Apicurio has a copy of it), and
the id of a schema, which a converter writes before the Avro bytes of a key or a value.

Sources of the latter: Confluent, "Wire format" (0x00 and 4 bytes; 0x01 and a GUID from 8.0 on); Apicurio 2 and 3
(`apicurio.registry.use-id`, DefaultIdHandler: 0x00 and 8 bytes); AWS Glue, GlueSchemaRegistryKafkaSerializer (0x03).

Reads values of Avro's binary encoding (Avro 1.12, "Binary Encoding") as JSON has them.

It takes nothing that no encoder writes.  Libraries take any byte for a boolean, a branch of a union below 0, and cut
numbers of more than 64 bits (fastavro 1.13): what was damaged, or read with a wrong schema, would be a row.
"""

from __future__ import annotations

import binascii
import json
from collections.abc import Callable, Mapping, Sequence
from struct import Struct
from typing import Any, Final, NamedTuple

from bridge.protocols.decoder import FAILURES, DecodeError, SchemaId, excerpt, explain

Read = Callable[[bytes, int], tuple[Any, int]]
"""Takes bytes and a place in them, and gives the value there and the place behind it.  Raises ValueError, or IndexError
where the bytes end too early."""

_MORE: Final = 0x80
_MOST_LONG, _MOST_INT = (1 << 64) - 1, (1 << 32) - 1


def _unsigned(content: bytes, at: int, limit: int) -> tuple[int, int]:
    number = shift = 0
    byte = content[at]
    while byte >= _MORE and shift < 64:
        number |= (byte - _MORE) << shift
        at, shift = at + 1, shift + 7
        byte = content[at]
    number |= byte << shift
    if (shift and not byte) or number > limit:
        raise ValueError("a number is longer than its type")
    return number, at + 1


def _number(limit: int) -> Read:
    def read(content: bytes, at: int) -> tuple[int, int]:
        number = content[at]
        if number < _MORE:
            at += 1
        else:
            number, at = _unsigned(content, at, limit)
        return (number >> 1) ^ -(number & 1), at

    return read


_long: Final = _number(_MOST_LONG)


def _null(_: bytes, at: int) -> tuple[None, int]:
    return None, at


def _boolean(content: bytes, at: int) -> tuple[bool, int]:
    byte = content[at]
    if byte > 1:
        raise ValueError("a boolean is neither 0 nor 1")
    return byte == 1, at + 1


def _real(form: str) -> Read:
    layout = Struct(form)

    def read(content: bytes, at: int) -> tuple[float, int]:
        end = at + layout.size
        if end > len(content):
            raise IndexError
        [number] = layout.unpack_from(content, at)
        if number - number:  # NaN, which JSON lacks, as it lacks the infinite ones
            raise ValueError(f"{number} is no value of MySQL's")
        return number, end

    return read


def _part(content: bytes, at: int) -> tuple[bytes, int]:
    size = content[at]
    if size < _MORE:
        at += 1
    else:
        size, at = _unsigned(content, at, _MOST_LONG)
    end = at + (size >> 1)
    if size & 1:
        raise ValueError("a length is below 0")
    if end > len(content):
        raise IndexError
    return content[at:end], end


def _text(content: bytes, at: int) -> tuple[str, int]:
    part, at = _part(content, at)
    return part.decode(), at


def _base64(content: bytes, at: int) -> tuple[str, int]:
    part, at = _part(content, at)
    return binascii.b2a_base64(part, newline=False).decode(), at


_PRIMITIVES: Final[Mapping[str, Read]] = {
    "null": _null,
    "boolean": _boolean,
    "int": _number(_MOST_INT),
    "long": _long,
    "float": _real("<f"),
    "double": _real("<d"),
    "string": _text,
    "bytes": _base64,
}


class Union(NamedTuple):
    """A type of which a value is of one of these."""

    branches: list[Plan]


class Record(NamedTuple):
    """A record: the names of its fields, and their types."""

    fields: list[tuple[str, Plan]]


class Array(NamedTuple):
    """An array of items of a type."""

    item: Plan


Plan = str | Union | Record | Array
"""A type of Avro's, without its properties; the name of a primitive one."""


def reader(plan: Plan) -> Read:
    """Makes what reads values of a type.  Raises KeyError for an unknown type, ValueError for a union of three."""
    match plan:
        case Record(fields):
            return _record([(name, reader(field)) for name, field in fields])
        case Union(branches):
            return _union([reader(branch) for branch in branches])
        case Array(item):
            return _array(reader(item))
    return _PRIMITIVES[plan]


def _union(branches: Sequence[Read]) -> Read:
    if len(branches) > 2:
        raise ValueError(f"a union of {len(branches)} types")

    def read(content: bytes, at: int) -> tuple[Any, int]:
        byte = content[at]
        if byte & 1 or byte > 2 * len(branches) - 2:
            raise ValueError("a union has no such branch")
        return branches[byte >> 1](content, at + 1)

    return read


def _record(fields: Sequence[tuple[str, Read]]) -> Read:
    def read(content: bytes, at: int) -> tuple[dict[str, Any], int]:
        values = {}
        for name, read_field in fields:
            values[name], at = read_field(content, at)
        return values, at

    return read


def _array(item: Read) -> Read:
    def read(content: bytes, at: int) -> tuple[list[Any], int]:
        items: list[Any] = []
        while True:
            count, at = _long(content, at)
            if count < 0:  # the block's size in bytes follows
                _, at = _long(content, at)
            if abs(count) > len(content):  # each takes a byte at least
                raise ValueError("an array has more items than bytes")
            if not count:
                return items, at
            for _ in range(abs(count)):
                value, at = item(content, at)
                items.append(value)

    return read


_MAGIC: Final = b"\0"
_GUID: Final = b"\1"
_GLUE: Final = b"\3"
_SHORT, _LONG = 5, 9
_NO_ID: Final = bytes(4)
"""No registry gives the id 0, so that four zeros are the upper half of an id of eight bytes."""
_REFUSED: Final = (
    "begins with a schema's GUID (0x01) or as AWS Glue has it (0x03), which the bridge does not read: set Confluent's"
    " or Apicurio's converter for Avro with its default schema id, a number in the prefix, or the one for JSON"
)


def is_framed(content: bytes) -> bool:
    """Tells whether a key or value begins with a schema's id, of any form."""
    return len(content) >= _SHORT and content[:1] in (_MAGIC, _GUID, _GLUE)


def framed(content: bytes, owner: str) -> tuple[SchemaId, int]:
    """Gives the schema's id, and where the Avro bytes begin.  Raises DecodeError for a form that is not read, whose
    reason says whose content it is (`owner`)."""
    if content[:1] == _MAGIC and content[1:_SHORT] != _NO_ID:
        return SchemaId("contentIds", int.from_bytes(content[1:_SHORT], "big")), _SHORT
    if content[:1] == _MAGIC and len(content) >= _LONG:
        return SchemaId("globalIds", int.from_bytes(content[1:_LONG], "big")), _LONG
    if content[:1] == _MAGIC:
        raise DecodeError(f"{owner} begins with 0x00, but not with a schema's id")
    raise DecodeError(f"{owner} {_REFUSED}")


_TYPES: Final = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "record": "struct",
    "array": "array",
}
"""Connect's types by Avro's."""
_CONNECT: Final = '"connect.'
"""Begins the properties that tell Connect's types; `connect.meta.data=false` leaves all of them out."""
_TIDB: Final = '"tidb_type"'


class WrittenSchema(NamedTuple):
    """A schema with which keys or values were written.

    read: reads them, without logical types: these have neither all DECIMALs nor a TIME of a day or more.
    plan: the record's type.
    connect: the Connect schema from which it was made; None where it does not tell Connect's types.
    name: the record's.
    is_plain_ticdc: whether it is of TiCDC's protocol avro, whose records are bare rows.
    """

    read: Read
    plan: Plan
    connect: dict[str, Any] | None
    name: str
    is_plain_ticdc: bool


def read_schema(text: str) -> WrittenSchema:
    """Reads the text that a registry has.  Raises DecodeError for one that no converter of Debezium's messages has."""
    try:
        schema = json.loads(text)
        connect, plan = _Schemas().of_record(schema)
        read = reader(plan)
    except (*FAILURES, DecodeError) as failure:
        raise DecodeError(f"its schema is not one of Connect's in Avro: {explain(failure)}") from failure
    has_types, columns = _CONNECT in text or _TIDB in text, {field["field"] for field in connect["fields"]}
    is_plain = _TIDB in text and not {"before", "after"} & columns
    return WrittenSchema(read, plan, {**connect, "avro": True} if has_types else None, connect["name"], is_plain)


class _Schemas:
    """Makes Connect schemas and plans; remembers those that have a name, as Avro defines each at its first place."""

    def __init__(self) -> None:
        self._by_name: dict[str, tuple[dict[str, Any], Plan]] = {}

    def of_record(self, schema: Any) -> tuple[dict[str, Any], Plan]:
        """Takes the record that a whole key or value is."""
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise DecodeError(f"it describes {excerpt(schema)}, not a record")
        connect, plan = self._of(schema, "")
        return {**connect, "name": _full_name(schema, "")}, plan

    def _of(self, schema: Any, space: str) -> tuple[dict[str, Any], Plan]:
        if isinstance(schema, list):
            branches = [({}, branch) if branch == "null" else self._of(branch, space) for branch in schema]
            [only] = [connect for connect, _ in branches if connect]
            return {**only, "optional": True}, Union([plan for _, plan in branches])
        if isinstance(schema, str):
            if schema not in _TYPES:
                return self._by_name[f"{space}.{schema}" if space and "." not in schema else schema]
            schema = {"type": schema}
        kind = schema["type"]
        if not isinstance(kind, str):  # {"type": {"type": ...}}
            return self._of(kind, space)
        plan: Plan
        connect: dict[str, Any] = {"type": schema.get("connect.type") or _TYPES[kind], "optional": False}
        for member, property_ in (("name", "connect.name"), ("parameters", "connect.parameters")):
            if property_ in schema:
                connect[member] = schema[property_]
        name = _full_name(schema, space) if kind == "record" else ""
        match kind:
            case "record":
                fields = [self._field(field, name.rpartition(".")[0]) for field in schema["fields"]]
                connect |= {"name": name, "fields": [field for field, _ in fields]}
                plan = Record([(field["field"], field_plan) for field, field_plan in fields])
            case "array":
                connect["items"], item = self._of(schema["items"], space)
                plan = Array(item)
            case _:
                plan = kind
        if name:
            self._by_name[name] = connect, plan
        return connect, plan

    def _field(self, field: dict[str, Any], space: str) -> tuple[dict[str, Any], Plan]:
        connect, plan = self._of(field["type"], space)
        connect = {**connect, "field": field.get("connect.field") or field["name"]}  # TiCDC: the column's own name
        if field.get("default") is not None:
            connect["default"] = field["default"]
        if "tidb_type" in field:
            connect["tidb_type"] = field["tidb_type"]
        return connect, plan


def _full_name(schema: dict[str, Any], above: str) -> str:
    name = str(schema["name"])
    space = schema.get("namespace", above)
    return f"{space}.{name}" if space and "." not in name else name
