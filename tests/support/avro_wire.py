"""Writes Avro as TiCDC's debezium-avro does (ticdc, pkg/sink/codec/debezium)."""

from __future__ import annotations

import base64
import re
import struct
from collections.abc import Mapping
from typing import Any

from bridge.protocols import DecodeError
from bridge.protocols.decoder import SchemaId

_TYPES = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}


class Schemas:
    """A registry without HTTP."""

    def __init__(self, schemas: Mapping[int, str]) -> None:
        self.schemas = schemas

    def text(self, schema_id: SchemaId) -> str:
        """The schema with a number."""
        if schema_id.number not in self.schemas:
            raise DecodeError(f"the schema registry lacks the schema {schema_id.number}")
        return self.schemas[schema_id.number]


def ticdc_schema(connect: dict[str, Any], defined: set[str] | None = None) -> Any:
    """The Avro schema that TiCDC makes of a Connect schema."""
    defined = set() if defined is None else defined
    if connect["type"] != "struct":
        made = {"type": _TYPES.get(connect["type"], connect["type"])}
        if connect["type"] in ("int8", "int16"):
            made["connect.type"] = connect["type"]
        return made | _metadata(connect)
    name = ".".join(map(sanitized, connect["name"].split(".")))
    if name in defined:
        return name
    defined.add(name)
    fields = []
    for field in connect["fields"]:
        kind = ticdc_schema(field, defined)
        made = {"name": sanitized(field["field"]), "type": kind, "connect.field": field["field"]}
        if field.get("tidb_type"):
            made["tidb_type"] = field["tidb_type"]
        if field.get("optional"):
            made |= {"type": ["null", kind], "default": None}
        fields.append(made)
    space, _, last = name.rpartition(".")
    return {"type": "record", "name": last, "namespace": space, "fields": fields} | _metadata(connect)


def _metadata(connect: dict[str, Any]) -> dict[str, Any]:
    names = {"name": "connect.name", "version": "connect.version", "parameters": "connect.parameters"}
    return {theirs: connect[ours] for ours, theirs in names.items() if connect.get(ours)}


def sanitized(name: str) -> str:
    """A legal Avro name."""
    plain = re.sub(r"\W", "_", name, flags=re.ASCII)
    return f"_{plain}" if plain[:1].isdigit() else plain


def encoded(connect: dict[str, Any], value: Any) -> bytes:
    """A value in JSON, as its Connect schema has it, in Avro."""
    if connect.get("optional"):
        return b"\0" if value is None else b"\2" + encoded({**connect, "optional": False}, value)
    match connect["type"]:
        case "struct":
            return b"".join(encoded(field, value.get(field["field"])) for field in connect["fields"])
        case "boolean":
            return bytes([value])
        case "float":
            return struct.pack("<f", value)
        case "double":
            return struct.pack("<d", value)
        case "string":
            return _sized(value.encode())
        case "bytes":
            return _sized(base64.b64decode(value))
    return long(value)


def _sized(content: bytes) -> bytes:
    return long(len(content)) + content


def long(number: int) -> bytes:
    """A number of Avro's."""
    rest, written = (number << 1) ^ (number >> 63), b""
    while rest >= 0x80:
        written += bytes([rest & 0x7F | 0x80])
        rest >>= 7
    return written + bytes([rest])
