"""The facts of Debezium's format: how its messages are recognised, and which options of the connector they lack."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass
from typing import Any, Final, Literal

from bridge.protocols.protocol import Protocol, Recognised

DecimalMode = Literal["precise", "string", "double"]
TimeMode = Literal["adaptive_time_microseconds", "adaptive", "connect", "microseconds", "nanoseconds", "isostring"]
BinaryMode = Literal["bytes", "base64", "base64-url-safe", "hex"]


@dataclass(frozen=True)
class DebeziumModes:
    """The connector's properties decimal.handling.mode, time.precision.mode and binary.handling.mode.

    A Connect schema in the message tells more than these options, and so may a JSON number or string.  None means not
    given: then the connector's default holds (precise, adaptive_time_microseconds, bytes), unless the value may just as
    well be of another mode.
    """

    decimal: DecimalMode | None = None
    time: TimeMode | None = None
    binary: BinaryMode | None = None

    @classmethod
    def read(cls, text: str) -> DebeziumModes:
        """Reads what `str` wrote."""
        return cls(*(mode or None for mode in text.split(",")))  # type: ignore[arg-type]

    def __str__(self) -> str:
        return ",".join(mode or "" for mode in astuple(self))


TICDC_MODES = DebeziumModes("double", "adaptive_time_microseconds", "base64")
"""The modes of TiCDC, whose messages name it as the connector."""


def _of_message(message: Mapping[str, Any]) -> Recognised | None:
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
    return Recognised("debezium", sender + form, mysql_born=not is_ticdc, is_schema_change=is_schema_change)


DEBEZIUM: Final = Protocol(
    "debezium",
    "debezium.fast:FastDebeziumDecoder",
    "have a payload with source and op or ddl, as Debezium has",
    of_message=_of_message,
    # TiCDC writes a commit ts into every Debezium message, but sends watermarks only with the extension.
    may_lack_boundaries=True,
)
