"""Parses Debezium's JSON: the payload of a key or value and, where there is one, its Connect schema.

A schema is three to thirty times as long as the payload, and the same for every row of a table, so each schema is
parsed once.  A document is cut where the schema begins (TiCDC writes it after the payload) or ends (Kafka Connect
writes it before), and the schema is looked up by its bytes.
"""

from __future__ import annotations

from typing import Any, Final

import orjson

from bridge.protocols.decoder import DecodeError
from bridge.protocols.values.json_message import json_object

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
        self.named: dict[bytes, Any] = {}
        """Schemas that documents name (`avro.front`), by their members of the documents."""

    def parsed(self, content: bytes, whose: str) -> Document:
        """Parses the bytes of a key or a value.  Raises DecodeError, whose reason names it by `whose`."""
        cut = _cut(content)
        schema = self._schemas.get(cut[0]) or self.named.get(cut[0]) if cut else None
        if cut is not None and schema is not None:
            document = _loaded_or_none(cut[1])
            if type(document) is dict and len(document) == 1 and "payload" in document:
                return document["payload"], schema
        return self._unknown(content, whose, cut)

    def _unknown(self, content: bytes, whose: str, cut: tuple[bytes, bytes] | None) -> Document:
        if content.startswith(_MAGIC):
            raise DecodeError(_BINARY)
        document = json_object(content, whose)
        if not document.keys() <= _WRAPPED or "payload" not in document:
            return document, None
        payload, schema = document["payload"], document.get("schema")
        if cut is not None and type(schema) is dict:
            self._remember(cut[0], schema)
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


def _cut(content: bytes) -> tuple[bytes, bytes] | None:
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
