"""The facts of Canal-JSON, and how its messages are recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.protocols.protocol import Protocol, Recognised
from bridge.protocols.values.event_time import is_seconds

_FIELDS: Final = {"isDdl", "database", "type"}
_SCHEMA_CHANGES: Final = ("CREATE", "ERASE", "ALTER", "RENAME", "TRUNCATE", "CINDEX", "DINDEX")


def _of_message(message: Mapping[str, Any]) -> Recognised | None:
    if not message.keys() >= _FIELDS:
        return None
    is_schema_change = message["isDdl"] is True or message["type"] in _SCHEMA_CHANGES
    return _sender(message)._replace(is_schema_change=is_schema_change)


def _sender(message: Mapping[str, Any]) -> Recognised:
    if message.get("_tidb") is not None:
        return Recognised("canal-json", "TiCDC with the TiDB extension")
    if message.get("id") or "gtid" in message:
        return Recognised("canal-json", "official Canal", mysql_born=True)
    if message["isDdl"] is True and is_seconds(message.get("es")):
        return Recognised("ckafka", "schema change in Canal's form", certain=False, mysql_born=True)
    certain = message["isDdl"] is not True
    return Recognised("canal-json", "TiCDC without the extension", certain)


CANAL_JSON: Final = Protocol(
    "canal-json",
    "canal.fast:FastCanalDecoder",
    "have isDdl, database and type, as Canal-JSON has",
    of_message=_of_message,
    takes_zone=True,
)
