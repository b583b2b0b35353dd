"""Puts a schema's id that comes in Kafka's headers before the bytes that it is for, where other converters write it.

Sources: Apicurio, `apicurio.registry.headers.enabled` (DefaultHeadersHandler: 8 bytes); Confluent 8.0,
HeaderSchemaIdSerializer (what else is the prefix).
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.sources.source import KeyAndValue

SUFFIXES: Final = ("_schema_id", ".contentId", ".globalId")
"""How the names of such headers end."""


def have_ids(received: list[Any]) -> bool:
    """Tells whether messages that were received together may have ids in their headers: the first or the last has any
    header.  A converter writes them into each message."""
    return bool(received and (received[0].headers() or received[-1].headers()))


def key_and_value(message: Any) -> KeyAndValue:
    """Gives the key and value of a message."""
    return with_ids(message.key(), message.value(), dict(message.headers() or ()))


def with_ids(key: bytes | None, value: bytes | None, headers: Mapping[str, bytes | None]) -> KeyAndValue:
    """Puts the ids that headers hold before a key and a value."""
    if not headers or (value and value.startswith(b"{")):  # JSON, with or without a schema
        return key, value
    return _prefixed(key, headers, "key"), _prefixed(value, headers, "value")


def _prefixed(content: bytes | None, headers: Mapping[str, bytes | None], part: str) -> bytes | None:
    if content is None:
        return None
    if prefix := headers.get(f"__{part}_schema_id"):
        return prefix + content
    if id_ := headers.get(f"apicurio.{part}.contentId"):
        return b"\0" + id_[-4:] + content
    if id_ := headers.get(f"apicurio.{part}.globalId"):
        return b"\0" + id_ + content
    return content
