"""Recognises the protocol and variant of one message, and of a topic by a sample of its messages;
and lists the protocols that are read: a new one is its folder and its line here.

Formats that are not read are named by their first bytes and members.  Sources: TiCDC's and Canal's own source, the
manuals of Maxwell, AWS DMS, CloudEvents and of the schema registries, and the definitions of the file formats.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

import orjson

from bridge.errors import UsageError
from bridge.protocols.canal.recognition import CANAL_JSON
from bridge.protocols.ckafka.recognition import CKAFKA
from bridge.protocols.debezium.recognition import DEBEZIUM
from bridge.protocols.decoder import DecodeError
from bridge.protocols.open_protocol.recognition import OPEN_PROTOCOL
from bridge.protocols.protocol import Protocol, Recognised
from bridge.protocols.values.json_message import LZ4_MAGIC, json_object


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
_MARKS: Final = [(re.compile(mark, re.DOTALL), wire_format) for mark, wire_format in _BYTES]
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


PROTOCOLS: Final[dict[str, Protocol]] = {
    protocol.name: protocol for protocol in (OPEN_PROTOCOL, CANAL_JSON, CKAFKA, DEBEZIUM)
}
Sample = Sequence[tuple[bytes | None, bytes | None]]
"""The keys and values of some messages."""


def recognise(sample: Sample) -> tuple[str, str]:
    """Gives the protocol of a topic, and the reason.  Raises UsageError when the messages do not tell it, or differ."""
    if not sample:
        raise UsageError("the source is empty, so its protocol cannot be recognised", fix="give --protocol")
    origins = [origin for key, value in sample if (origin := recognise_message(key, value))]
    names = {origin.protocol for origin in origins if origin.certain} or {origin.protocol for origin in origins}
    if len(names) > 1 and not any(origin.certain for origin in origins):
        names = {CKAFKA.name}  # only of it some are in seconds and others in milliseconds
    if not names:
        raise _unknown(sample)
    if len(names) > 1:
        counts = Counter(origin.protocol for origin in origins).most_common()
        raise UsageError(
            f"the messages are of several protocols: {', '.join(f'{count} {name}' for name, count in counts)}",
            fix="give --protocol; `bridge inspect` shows the messages",
        )
    protocol = names.pop()
    return protocol, _reason(protocol, origins, len(sample))


def _unknown(sample: Sample) -> UsageError:
    """Says that no message is of a known protocol, and what most of them are instead, where they show it."""
    summary = f"no known protocol is recognised in {len(sample)} messages"
    formats = Counter(wire_format for key, value in sample if (wire_format := foreign(key, value))).most_common(1)
    if not formats:
        return UsageError(summary, fix="give --protocol; `bridge inspect` shows the messages")
    [(wire_format, count)] = formats
    return UsageError(f"{summary}; {count} are {wire_format.what}", fix=wire_format.fix)


def is_other(origin: Recognised, protocols: Sequence[str]) -> bool:
    """Tells whether a message is surely of none of these protocols."""
    return origin.certain and origin.protocol not in protocols


def is_mysql_born(sample: Sample) -> bool:
    """Tells whether a topic comes from MySQL's binlog; a sample that does not show it counts as if it did."""
    origins = [origin for key, value in sample if (origin := recognise_message(key, value))]
    return not origins or any(origin.mysql_born for origin in origins)


def binlog_source(sample: Sample) -> str:
    """Tells of which server's binlog messages are, as `collation_tables.SOURCES` names it: "mariadb",
    which Debezium's connector for it says, or "mysql", which may be any; "" where no message shows that it is one's.
    (Debezium's documentation, "MariaDB connector", source.connector.)"""
    origins = [origin for key, value in sample if (origin := recognise_message(key, value)) and origin.mysql_born]
    if any("MariaDB" in origin.variant for origin in origins):
        return "mariadb"
    return "mysql" if origins else ""


def _reason(protocol: str, origins: list[Recognised], sample_size: int) -> str:
    own = [origin.variant for origin in origins if origin.protocol == protocol]
    variants = ", ".join(f"{count}: {name}" for name, count in Counter(own).most_common())
    return f"{len(own)} of {sample_size} messages {PROTOCOLS[protocol].shows} ({variants})"


def recognise_message(key: bytes | None, value: bytes | None) -> Recognised | None:
    """Gives the protocol and variant of a message; None when it does not show them, as a tombstone."""
    by_key = (protocol.of_key(key) for protocol in PROTOCOLS.values() if key and protocol.of_key)
    if origin := next(filter(None, by_key), None):
        return origin
    try:
        message = json_object(value)
    except DecodeError:
        return None
    by_message = (protocol.of_message(message) for protocol in PROTOCOLS.values() if protocol.of_message)
    return next(filter(None, by_message), None)
