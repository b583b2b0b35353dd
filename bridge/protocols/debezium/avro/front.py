"""Turns keys and values in Avro into the JSON that Kafka Connect's converter would have written of the same event.

So everything behind it is the same for both: the plain decoder, the compiled one, and what recognises senders.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from functools import lru_cache
from typing import Any, Final

import orjson

from bridge.errors import BridgeError
from bridge.events import Code
from bridge.protocols.debezium.avro.schemas import Plan, WrittenSchema, framed, is_framed, read_schema
from bridge.protocols.debezium.columns import Envelopes
from bridge.protocols.decoder import (
    FAILURES,
    MAX_CACHED,
    Contents,
    DecodeError,
    Remembered,
    SchemaId,
    SchemaLookup,
    excerpt,
    explain,
)
from bridge.protocols.detect import CLOUD_EVENTS, Unread

_MARK: Final = b'{"schema":{"avro":"'
"""Begins a value in JSON whose schema is named, not written out."""
_PAYLOAD: Final = b',"payload":'
_ENVELOPE, _KEY = "Envelope", "Key"
_CLOUD_EVENTS: Final = ".CloudEvents.Envelope"
_SCHEMA_CHANGE_KEY: Final = "SchemaChangeKey"
_WITHOUT_ROW: Final = ("SchemaChangeValue", "TransactionMetadataValue", "TransactionValue", "Heartbeat")
"""How the names of Debezium's other records end (SchemaFactory, TransactionStructMaker)."""
_FLATTENED: Final = (
    "is a record {}, no Debezium envelope. A row flattened by the transform ExtractNewRecordState has lost its table,"
    " its operation and its position: take the transform out of the connector"
)
_PLAIN_TICDC: Final = (
    "the value is of TiCDC's protocol avro, whose deletes tell no commit ts, and which sends no schema changes and no"
    " boundaries: set protocol=canal-json with enable-tidb-extension=true, protocol=open-protocol or"
    " protocol=debezium in the changefeed's sink-uri"
)
_ESCAPED: Final = re.compile("_u([0-9a-f]{4})")
_NOT_IN_NAMES: Final = re.compile("[^A-Za-z0-9]")

Pair = tuple[bytes | None, bytes | None]
"""The key and value of a message."""


class AvroFront:
    """Reads Avro with the schemas that `lookup` gives; remembers them."""

    def __init__(self, lookup: SchemaLookup, envelopes: Envelopes) -> None:
        """envelopes: is told the schemas that values in JSON name."""
        self._lookup, self._envelopes = lookup, envelopes
        self._schemas = Remembered[SchemaId, WrittenSchema](lambda id_: read_schema(lookup.text(id_)))

    def in_json(self, key: bytes | None, value: bytes | None, *, whole: bool = False) -> Pair:
        """Gives a message in JSON; what is no Avro stays as it is.

        whole: the schema is written out, for others than the decoder of these envelopes.
        Raises DecodeError, or what `lookup` raises.
        """
        if value is not None and value.startswith(_MARK):
            raise DecodeError("the message names a schema in a way that no sender does")
        if value is None:
            return key, value  # a tombstone, whose key nobody needs
        key_name, of_key = "", None
        try:
            if key is not None and is_framed(key):
                key, key_name = self._key(key)
        except DecodeError as failure:
            of_key = failure
        if not is_framed(value):
            if of_key:
                raise of_key
            return key, value
        is_row = bool(key_name) and not key_name.endswith(_SCHEMA_CHANGE_KEY)
        try:
            id_, start = framed(value, "the value")
            schema = self._schemas[id_]
            is_row = not schema.name.endswith(_WITHOUT_ROW[0])
            if of_key:
                raise of_key
            payload = self._record(value, start, schema, id_, "the value")
            self._check(payload, schema, key_name)
        except DecodeError as failure:
            if not is_row:
                failure.code = Code.SCHEMA_CHANGE  # or may be one, which is as bad
            raise
        return key, self._text(payload, schema, id_, whole=whole)

    def all_in_json(self, keys: Contents, values: Contents) -> tuple[list[bytes | None], list[bytes | None]]:
        """Gives messages in JSON; those that cannot be read become null, and all behind one whose schema cannot be had:
        whoever decodes these one by one learns why."""
        pairs = list[Pair]()
        with suppress(BridgeError):
            for key, value in zip(keys, values, strict=True):
                try:
                    pairs.append(self.in_json(key, value))
                except DecodeError:
                    pairs.append((None, None))
        pairs += [(None, None)] * (len(values) - len(pairs))
        return [key for key, _ in pairs], [value for _, value in pairs]

    def reading_of(self, key: bytes | None, value: bytes) -> tuple[Plan | None, Plan, bytes, tuple[str, str]]:
        """Tells how a message is read that has a row: the types of its key, None for one that is no Avro, and of its
        value, what stands before its payload in JSON, and the table.  Raises DecodeError for other messages, and those
        that cannot be read, and what `lookup` raises."""
        _, text = self.in_json(key, value)
        id_, start = framed(value, "the value")
        schema = self._schemas[id_]
        if schema.name.endswith(_CLOUD_EVENTS):
            raise DecodeError(f"the value is {CLOUD_EVENTS.what}: {CLOUD_EVENTS.fix}")
        if not schema.name.endswith(_ENVELOPE):
            raise DecodeError("a message without a row")
        source = self._record(value, start, schema, id_, "the value")["source"]
        member, comma, _ = (text or b"").partition(_PAYLOAD)
        of_key = self._schemas[framed(key, "the key")[0]].plan if key is not None and is_framed(key) else None
        return of_key, schema.plan, b"" if schema.connect is None else member + comma, (source["db"], source["table"])

    def texts(self, *contents: bytes | None) -> dict[str, str]:
        """Gives the texts of the schemas that keys and values name, by `SchemaId.name`, as far as they can be had."""
        texts = {}
        for content in contents:
            if content is not None and is_framed(content):
                with suppress(BridgeError, DecodeError):
                    id_, _ = framed(content, "it")
                    texts[id_.name] = self._lookup.text(id_)
        return texts

    def _key(self, key: bytes) -> tuple[bytes, str]:
        id_, start = framed(key, "the key")
        schema = self._schemas[id_]
        return orjson.dumps(self._record(key, start, schema, id_, "the key")), schema.name

    def _record(self, content: bytes, start: int, schema: WrittenSchema, id_: SchemaId, owner: str) -> dict[str, Any]:
        """Reads Avro bytes.  Raises DecodeError where they show another schema: some are left, or missing."""
        try:
            record, at = schema.read(content, start)
        except IndexError:
            why = "it ends too early"
        except FAILURES as failure:
            why = explain(failure)
        else:
            if at == len(content):
                return record  # type: ignore[no-any-return]  # that of a record
            why = f"{len(content) - at} bytes are left"
        raise DecodeError(f"{owner} is not Avro of the schema {id_.number} ({schema.name}): {why}")

    def _check(self, payload: dict[str, Any], schema: WrittenSchema, key_name: str) -> None:
        """Raises DecodeError for a row whose own table is not that of its schema, or of its key's: the schemas are then
        not those that it was written with."""
        if schema.is_plain_ticdc:
            raise DecodeError(_PLAIN_TICDC)
        if schema.name.endswith(_WITHOUT_ROW):
            return
        if schema.name.endswith(_CLOUD_EVENTS):
            raise DecodeError(f"the value is {CLOUD_EVENTS.what}: {CLOUD_EVENTS.fix}")
        if not schema.name.endswith(_ENVELOPE):
            raise DecodeError("the value " + _FLATTENED.format(excerpt(schema.name)))
        source = payload.get("source")
        db, table = (source.get("db"), source.get("table")) if type(source) is dict else (None, None)
        is_named = type(db) is type(table) is str
        of_schema = schema.name.removesuffix(_ENVELOPE).rstrip(".")
        if not (is_named and _names(of_schema, f"{db}.{table}")):
            raise DecodeError(
                f"the row is of {excerpt(db)}.{excerpt(table)}, but its schema is {schema.name}: the registry's ids"
                " were given anew, or a transform has renamed the topic's records (ByLogicalTableRouter), and the"
                " bridge reads neither"
            )
        if key_name and key_name.removesuffix(_KEY).rstrip(".") != of_schema:
            raise DecodeError(f"the key's schema is {key_name}, and the value's {schema.name}: they are of two tables")

    def _text(self, payload: dict[str, Any], schema: WrittenSchema, id_: SchemaId, *, whole: bool) -> bytes:
        row = orjson.dumps(payload)
        if schema.connect is None:
            return row
        name = id_.name
        if whole:
            return orjson.dumps({"schema": {**schema.connect, "avro": name}, "payload": orjson.Fragment(row)})
        member = _MARK + name.encode() + b'"}'
        self._envelopes.referenced[member] = schema.connect
        return member + _PAYLOAD + row + b"}"


def in_json(sample: Sequence[Pair], lookup: SchemaLookup | None) -> list[Pair]:
    """Gives messages in JSON, each with its schema, to recognise what they are; those that cannot be read stay as they
    are.  Raises what `lookup` raises."""
    if lookup is None:
        return list(sample)
    front, pairs = AvroFront(lookup, Envelopes()), list[Pair]()
    for key, value in sample:
        try:
            pairs.append(front.in_json(key, value, whole=True))
        except DecodeError as failure:
            unread = value
            if value is not None and is_framed(value):
                unread = Unread(value)
                unread.why = str(failure)
            pairs.append((key, unread))
    return pairs


@lru_cache(maxsize=MAX_CACHED)
def _names(record: str, table: str) -> bool:
    """Tells whether the name of a record may be that of a table (schema.name.adjustment.mode: `_` or `_u0041` for what
    is no letter, digit or `_`, and `_` before a digit; topic.delimiter)."""
    plain = _ESCAPED.sub(lambda match: chr(int(match[1], 16)), record)
    suffix, joined = f".{_bare(table)}", "_" + _bare(table).replace(".", "_")
    return any(f".{_bare(name)}".endswith((suffix, joined)) for name in (record, plain))


def _bare(name: str) -> str:
    return ".".join(_NOT_IN_NAMES.sub("_", part).lstrip("_") for part in name.split("."))
