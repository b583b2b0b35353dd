"""The facts of Debezium's format, and how its messages are recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.protocols.protocol import Protocol, Recognised


def _of_message(message: Mapping[str, Any], packed: str) -> Recognised | None:
    payload = message.get("payload", message)
    source = payload.get("source") if isinstance(payload, dict) else None
    if not isinstance(source, dict) or not ("op" in payload or "ddl" in payload):
        return None
    is_ticdc = source.get("connector") == "TiCDC"
    is_mariadb = source.get("connector") == "mariadb"
    sender = "TiCDC" if is_ticdc else f"Debezium's {'MariaDB' if is_mariadb else 'MySQL'} connector"
    schema = message.get("schema")
    form = ", with schema" if "schema" in message else ", without schema"
    if isinstance(schema, dict) and "avro" in schema:
        form = ", in Avro"
    is_schema_change = "ddl" in payload or payload.get("op") == "t"
    return Recognised("debezium", sender + form + packed, mysql_born=not is_ticdc, is_schema_change=is_schema_change)


DEBEZIUM: Final = Protocol(
    "debezium",
    "debezium.fast:FastDebeziumDecoder",
    "have a payload with source and op or ddl, as Debezium has",
    of_message=_of_message,
    # TiCDC writes a commit ts into every Debezium message, but sends watermarks only with the extension.
    may_lack_boundaries=True,
)
