"""Names messages of formats that the bridge does not read, by their first bytes and members.

Sources: TiCDC's and Canal's own source, the manuals of Maxwell, AWS DMS, CloudEvents and of the schema registries, and
the definitions of the file formats.
"""

from __future__ import annotations

import re
from typing import Any, Final, NamedTuple

import orjson

from bridge.protocols.values.json_message import LZ4_MAGIC


class Foreign(NamedTuple):
    """A format.  what: its name.  fix: what to set at the sender, or here.  is_read: whether it is, with that."""

    what: str
    fix: str
    is_read: bool = False


_TICDC: Final = (
    "it is not read: set protocol=canal-json with enable-tidb-extension=true, or protocol=open-protocol, in the"
    " changefeed's sink-uri"
)
_CONNECTOR: Final = "it is not read: set the connector's key.converter and value.converter to the ones for JSON or Avro"
_TRANSFORM: Final = "it is not read: take that out of the sender; Kafka's own compression.type and TLS serve as well"
SIMPLE: Final = Foreign("TiCDC's Simple protocol", _TICDC)
REGISTRY: Final = Foreign(
    "in Avro, or Protobuf, with a schema registry",
    "give the registry's URL with --registry (source.registry.url), and --protocol debezium; of these only Debezium's"
    " Avro is read",
    is_read=True,
)
_BYTES: Final = (
    (rb"\x16(?:\x00\x00|\x02\x02|\x04\x04|\x06\x06)", SIMPLE._replace(what="TiCDC's Simple protocol in Avro")),
    (rb"\x00....\s*[{\[]", Foreign("JSON Schema's form with a schema registry (0x00, an id, JSON)", _CONNECTOR)),
    (rb"\x00.{4}", REGISTRY),
    (rb"\x01.{16}", Foreign("a schema registry's form with a GUID (0x01)", _CONNECTOR)),
    (rb"\x03[\x00\x05].{16}", Foreign("AWS Glue's form (0x03)", _CONNECTOR)),
    (rb"\x1f\x8b", Foreign("compressed with gzip by the sender itself", _TRANSFORM)),
    (rb"\x28\xb5\x2f\xfd", Foreign("compressed with zstd by the sender itself", _TRANSFORM)),
    (rb"\x78[\x01\x5e\x9c\xda]", Foreign("compressed with zlib by the sender itself", _TRANSFORM)),
    (
        rb"(?:\x08.{1,5})?(?:\x10.)?\x18\x07(?:\x20.)?\x2a",
        Foreign(
            "Canal's Protobuf", "it is not read: set canal.mq.flatMessage=true in canal.properties, Canal's default"
        ),
    ),
)
_MARKS: Final = [(re.compile(mark, re.DOTALL), one) for mark, one in _BYTES]
_MAXWELL: Final = Foreign(
    "Maxwell's JSON", "it is not read: send the tables by Debezium's connector for MySQL, or by Canal"
)
_DMS: Final = Foreign("AWS DMS's JSON", "it is not read: send the tables by Debezium's connector, or by Canal")
CLOUD_EVENTS: Final = Foreign(
    "CloudEvents",
    "it is not read: set the connector's value.converter to JsonConverter or AvroConverter, not CloudEventsConverter",
)
_FLATTENED: Final = Foreign(
    "rows flattened by Debezium's transform ExtractNewRecordState, without table, operation or position",
    "it is not read: take the transform out of the connector",
)
_ENCRYPTED: Final = Foreign("encrypted by the sender", _TRANSFORM)
_BINARY: Final = Foreign("neither text nor of a known binary format: maybe encrypted, or packed", _TRANSFORM)


class Unread(bytes):
    """A value in Avro that cannot be read with the registry's schemas.  why: the reason, and what to do."""

    why = ""


def foreign(key: bytes | None, value: bytes | None) -> Foreign | None:
    """Names the format of a message that is of none of the bridge's protocols; None where it does not show it."""
    content = value or key
    if not content:
        return None
    if isinstance(content, Unread):
        return Foreign(f"in Avro, and cannot be read: {content.why}", "see bridge help protocols")
    try:
        document = orjson.loads(content)
    except orjson.JSONDecodeError:
        return _of_bytes(content)
    return _of_json(document) if isinstance(document, dict) else None


def _of_bytes(content: bytes) -> Foreign | None:
    for mark, wire_format in _MARKS:
        if mark.match(content):
            return wire_format
    if content.startswith(LZ4_MAGIC):
        return None  # TiCDC's own, of a message that is read once it is whole
    try:
        content.decode()
    except UnicodeDecodeError:
        return _BINARY
    return None


def _of_json(message: dict[str, Any]) -> Foreign | None:
    payload = message.get("payload", message)
    if message.keys() >= {"version", "type", "commitTs", "buildTs"} or message.keys() >= {"tableSchema", "buildTs"}:
        return SIMPLE
    if message.keys() >= {"specversion", "id", "source", "type"}:
        return CLOUD_EVENTS
    if message.keys() >= {"database", "type", "ts"} and "isDdl" not in message:
        return _MAXWELL
    metadata = message.get("metadata")
    if isinstance(metadata, dict) and "record-type" in metadata:
        return _DMS
    if "encrypted" in message:
        return _ENCRYPTED
    schema = message.get("schema")
    is_value = isinstance(schema, dict) and str(schema.get("name")).endswith(".Value")
    if is_value or (isinstance(payload, dict) and payload.keys() & {"__deleted", "__op", "__source_ts_ms"}):
        return _FLATTENED
    return None
