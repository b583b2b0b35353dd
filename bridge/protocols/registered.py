"""The protocols that are read, by name.  A new one is its folder and its line here; messages are recognised in this
order."""

from __future__ import annotations

from typing import Final

from bridge.protocols.canal.recognition import CANAL_JSON
from bridge.protocols.ckafka.recognition import CKAFKA
from bridge.protocols.debezium.recognition import DEBEZIUM
from bridge.protocols.open_protocol.recognition import OPEN_PROTOCOL
from bridge.protocols.protocol import Protocol

PROTOCOLS: Final[dict[str, Protocol]] = {
    protocol.name: protocol for protocol in (OPEN_PROTOCOL, CANAL_JSON, CKAFKA, DEBEZIUM)
}
