"""The facts of TiCDC's Open Protocol, and how its messages are recognised."""

from __future__ import annotations

import re
from typing import Final

from bridge.protocols.open_protocol.decoder import OPEN_PROTOCOL_VERSION
from bridge.protocols.protocol import Protocol, Recognised

_SCHEMA_CHANGE: Final = re.compile(rb'"t" ?: ?2\b')


def _of_key(key: bytes) -> Recognised | None:
    if not key.startswith(OPEN_PROTOCOL_VERSION):
        return None
    is_schema_change = _SCHEMA_CHANGE.search(key) is not None
    return Recognised("open-protocol", "version 1", is_schema_change=is_schema_change)


OPEN_PROTOCOL: Final = Protocol(
    "open-protocol",
    "open_protocol.fast:FastOpenProtocolDecoder",
    "keys begin with version 1 of TiCDC's Open Protocol",
    of_key=_of_key,
    takes_zone=True,
    # As with output-old-value=false.  In other formats it is an update still, and one of a table without a key is
    # refused.
    may_hide_updates=True,
)
