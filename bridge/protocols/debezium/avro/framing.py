"""Reads what a converter writes before the Avro bytes of a key or a value: the id of their schema.

Sources: Confluent, "Wire format" (0x00 and 4 bytes; 0x01 and a GUID from 8.0 on); Apicurio 2 and 3 (`apicurio.registry.
use-id`, DefaultIdHandler: 0x00 and 8 bytes); AWS Glue, GlueSchemaRegistryKafkaSerializer (0x03).
"""

from __future__ import annotations

from typing import Final

from bridge.protocols.decoder import DecodeError, SchemaId

_MAGIC: Final = b"\0"
_GUID: Final = b"\1"
_GLUE: Final = b"\3"
_SHORT, _LONG = 5, 9
_NO_ID: Final = bytes(4)
"""No registry gives the id 0, so that four zeros are the upper half of an id of eight bytes."""
_GUID_REFUSED: Final = (
    "begins with a schema's GUID (0x01), which the bridge does not read: leave the serializer's schema id as it is by"
    " default, a number in the prefix (value.converter.value.schema.id.serializer and key.schema.id.serializer)"
)
_GLUE_REFUSED: Final = (
    "begins as AWS Glue's Schema Registry has it (0x03), which the bridge does not read: set a converter of Confluent's"
    " or Apicurio's for Avro, or the one for JSON"
)


def is_framed(content: bytes) -> bool:
    """Tells whether a key or value begins with a schema's id, of any form."""
    return len(content) >= _SHORT and content[:1] in (_MAGIC, _GUID, _GLUE)


def framed(content: bytes, whose: str) -> tuple[SchemaId, int]:
    """Gives the schema's id, and where the Avro bytes begin.  Raises DecodeError for a form that is not read, whose
    reason names the content by `whose`."""
    if content[:1] == _MAGIC and content[1:_SHORT] != _NO_ID:
        return SchemaId("contentIds", int.from_bytes(content[1:_SHORT], "big")), _SHORT
    if content[:1] == _MAGIC and len(content) >= _LONG:
        return SchemaId("globalIds", int.from_bytes(content[1:_LONG], "big")), _LONG
    if content[:1] == _GUID:
        raise DecodeError(f"{whose} {_GUID_REFUSED}")
    if content[:1] == _GLUE:
        raise DecodeError(f"{whose} {_GLUE_REFUSED}")
    raise DecodeError(f"{whose} begins with 0x00, but not with a schema's id")
