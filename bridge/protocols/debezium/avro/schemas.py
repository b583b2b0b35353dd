"""Reads Avro schemas as Kafka Connect's converters write them (Confluent, AvroData; Apicurio has a copy of it)."""

from __future__ import annotations

import json
from typing import Any, Final, NamedTuple

from fastavro import parse_schema
from fastavro.schema import SchemaParseException, UnknownType

from bridge.protocols.decoder import FAILURES, DecodeError, explain, shown

_TYPES: Final = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "string": "string",
    "bytes": "bytes",
    "enum": "string",
}
"""Connect's types by Avro's."""
_CONNECT: Final = '"connect.'
"""Begins the properties that tell Connect's types; `connect.meta.data=false` leaves all of them out."""


class WrittenSchema(NamedTuple):
    """A schema with which keys or values were written.

    parsed: as fastavro takes it, without logical types: it rounds DECIMAL, and has no TIME of a day or more.
    connect: the Connect schema from which it was made; None where it does not tell Connect's types.
    name: the record's.
    has_floats: whether there are numbers in it that JSON may lack.
    has_booleans: whether there are booleans in it, for which fastavro takes every byte.
    """

    parsed: Any
    connect: dict[str, Any] | None
    name: str
    has_floats: bool
    has_booleans: bool


def read_schema(text: str) -> WrittenSchema:
    """Reads the text that a registry has.  Raises DecodeError for one that no converter of Debezium's messages has."""
    try:
        written = _without_logical_types(json.loads(text))
        parsed = parse_schema(written)
        connect = _Connect().record(written)
        _give_true_names(parsed)
    except (*FAILURES, DecodeError, SchemaParseException, UnknownType) as failure:
        raise DecodeError(f"its schema is not one of Connect's in Avro: {explain(failure)}") from failure
    tells_types = _CONNECT in text or '"tidb_type"' in text
    has_floats, has_booleans = '"float"' in text or '"double"' in text, '"boolean"' in text
    return WrittenSchema(parsed, connect if tells_types else None, _full_name(written, ""), has_floats, has_booleans)


def _without_logical_types(schema: Any) -> Any:
    if isinstance(schema, dict):
        return {name: _without_logical_types(part) for name, part in schema.items() if name != "logicalType"}
    return list(map(_without_logical_types, schema)) if isinstance(schema, list) else schema


def _give_true_names(parsed: Any) -> None:
    """Has values come by the columns' names, where TiCDC says which they are."""
    for part in parsed.values() if isinstance(parsed, dict) else parsed if isinstance(parsed, list) else ():
        _give_true_names(part)
    if isinstance(parsed, dict) and "type" in parsed and isinstance(name := parsed.get("connect.field"), str):
        parsed["name"] = name


def _full_name(schema: dict[str, Any], above: str) -> str:
    name = str(schema["name"])
    space = schema.get("namespace", above)
    return f"{space}.{name}" if space and "." not in name else name


class _Connect:
    """Makes Connect schemas; remembers those that have a name, since Avro defines each at its first place only."""

    def __init__(self) -> None:
        self._named: dict[str, dict[str, Any]] = {}

    def record(self, schema: Any) -> dict[str, Any]:
        """Gives the Connect schema of the record that a whole key or value is."""
        if not isinstance(schema, dict) or schema.get("type") != "record":
            raise DecodeError(f"it describes {shown(schema)}, not a record")
        return self._of(schema, "")

    def _of(self, schema: Any, space: str) -> dict[str, Any]:
        if isinstance(schema, list):
            branches = [branch for branch in schema if branch != "null"]
            if len(branches) != 1 or len(schema) > 2:
                raise DecodeError(f"a union of {len(schema)} types")
            return {**self._of(branches[0], space), "optional": True}
        if isinstance(schema, str):
            return {"type": _TYPES[schema], "optional": False} if schema in _TYPES else self._again(schema, space)
        kind = schema["type"]
        if not isinstance(kind, str):  # {"type": {"type": ...}}
            return self._of(kind, space)
        made: dict[str, Any] = {"type": schema.get("connect.type") or _TYPES.get(kind, kind), "optional": False}
        name = _full_name(schema, space) if kind in ("record", "enum") else ""
        if kind == "record":
            inner = name.rpartition(".")[0]
            made = {"type": "struct", "optional": False, "name": name}
            made["fields"] = [self._field(field, inner) for field in schema["fields"]]
        elif kind == "array":
            made["items"] = self._of(schema["items"], space)
        elif kind not in _TYPES:
            raise DecodeError(f"the type {shown(kind)}")
        for ours, theirs in (("name", "connect.name"), ("parameters", "connect.parameters")):
            if theirs in schema:
                made[ours] = schema[theirs]
        if name:
            self._named[name] = made
        return made

    def _field(self, field: dict[str, Any], space: str) -> dict[str, Any]:
        made = {**self._of(field["type"], space), "field": field.get("connect.field") or field["name"]}
        if field.get("default") is not None:
            made["default"] = field["default"]
        if "tidb_type" in field:
            made["tidb_type"] = field["tidb_type"]
        return made

    def _again(self, name: str, space: str) -> dict[str, Any]:
        return self._named[f"{space}.{name}" if space and "." not in name else name]
