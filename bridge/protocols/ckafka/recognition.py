"""The facts of CKafka's official format 1, and how its messages are recognised."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Final

from bridge.protocols.protocol import Protocol, Recognised

_FIELDS: Final = {"BINLOG_NAME", "BINLOG_POS", "TYPE"}


def _of_message(message: Mapping[str, Any]) -> Recognised | None:
    """Recognises a row; its schema changes have Canal's form, where some of ckafka's alone are dated in seconds."""
    return Recognised("ckafka", "official format 1", mysql_born=True) if message.keys() >= _FIELDS else None


CKAFKA: Final = Protocol(
    "ckafka",
    "ckafka.fast:FastCkafkaDecoder",
    "have BINLOG_NAME, BINLOG_POS and TYPE, as CKafka's official format 1 has",
    of_message=_of_message,
    takes_zone=True,
)
