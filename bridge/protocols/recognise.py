"""Recognises the protocol of a topic from a sample of its messages."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import orjson

from bridge.errors import UsageError
from bridge.protocols.compression import decompressed
from bridge.protocols.decoder import DecodeError

_OPEN_PROTOCOL_VERSION: Final = (1).to_bytes(8, "big")
_CANAL_FIELDS: Final = {"isDdl", "database", "type"}


def recognise(sample: Sequence[tuple[bytes | None, bytes | None]]) -> tuple[str, str]:
    """The protocol of the (key, value) messages, and why; UsageError when nothing tells, or when they differ."""
    if not sample:
        raise UsageError("the source is empty, so that nothing tells its protocol", mend="give --protocol")
    found = {_recognise_one(key, value) for key, value in sample}
    known = {one for one in found if one is not None}
    if len(known) != 1:
        raise UsageError(
            "the messages are of several protocols" if known else "no known protocol is recognised in the messages",
            mend="give --protocol; `bridge check` shows what it finds",
        )
    return known.pop()


def _recognise_one(key: bytes | None, value: bytes | None) -> tuple[str, str] | None:
    if key and key.startswith(_OPEN_PROTOCOL_VERSION):
        return "open-protocol", "the message keys begin with version 1 of TiCDC's Open Protocol"
    try:
        message = orjson.loads(decompressed(value or b""))
    except (orjson.JSONDecodeError, DecodeError):
        return None
    if isinstance(message, dict) and message.keys() >= _CANAL_FIELDS:
        return "canal-json", "the messages have isDdl, database and type as Canal-JSON has"
    return None
