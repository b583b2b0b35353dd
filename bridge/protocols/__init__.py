"""Decodes wire formats: pure functions from a message's (key, value) bytes to `bridge.events.Event`s.

A new format is a folder with its plain decoder, its shape in `fast/`, and one line in `DECODERS`.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable
from importlib import import_module
from typing import TYPE_CHECKING, Final

from bridge.errors import UsageError
from bridge.protocols.debezium.avro.front import in_json
from bridge.protocols.decode import decode_message
from bridge.protocols.decoder import DecodeError, DecodeOptions, Decoder
from bridge.protocols.detect import binlog_source, is_mysql_born, recognise

if TYPE_CHECKING:
    from bridge.protocols.fast.decoder import FastDecoder

__all__ = [
    "DECODERS",
    "MAY_HIDE_UPDATES",
    "MAY_LACK_BOUNDARIES",
    "OLD_VALUES_FIX",
    "DecodeError",
    "DecodeOptions",
    "Decoder",
    "binlog_source",
    "decode_message",
    "in_json",
    "is_mysql_born",
    "make_decoder",
    "recognise",
    "require_protocol",
]


def _of(module: str, name: str) -> Callable[[DecodeOptions], FastDecoder]:
    """Gives what makes a decoder.  Its module is loaded when the first is made: most commands make none, and numpy and
    pyarrow take 0.15 s."""
    return lambda options: getattr(import_module(f"bridge.protocols.fast.{module}"), name)(options)


DECODERS: Final[dict[str, Callable[[DecodeOptions], FastDecoder]]] = {
    "canal-json": _of("canal_shape", "FastCanalDecoder"),
    "ckafka": _of("ckafka_shape", "FastCkafkaDecoder"),
    "debezium": _of("debezium_shape", "FastDebeziumDecoder"),
    "open-protocol": _of("open_protocol_shape", "FastOpenProtocolDecoder"),
}


MAY_LACK_BOUNDARIES: Final = frozenset({"debezium"})
"""Protocols whose changes can have a commit ts although no boundaries are sent: TiCDC writes a commit ts into every
Debezium message, but sends watermarks only with the extension.  In other protocols both come together."""

MAY_HIDE_UPDATES: Final = frozenset({"open-protocol"})
"""Protocols in which an update without its old row is written as an insert is (TiCDC's `output-old-value=false`).  In
others it is an update still, and one of a table without a key is refused."""
OLD_VALUES_FIX: Final = (
    "set output-old-value=true ([sink.open]) in the changefeed, or give the table a primary key; then compare it with"
    " bridge verify --against upstream"
)


def make_decoder(protocol: str, options: DecodeOptions) -> Decoder:
    """Makes the decoder of a protocol.  Raises UsageError for an unknown protocol or time zone."""
    require_protocol(protocol)
    return DECODERS[protocol](options)


def require_protocol(protocol: str) -> None:
    """Raises UsageError for a protocol that is neither known nor `auto`."""
    if protocol not in {*DECODERS, "auto"}:
        close = difflib.get_close_matches(protocol, DECODERS, n=1, cutoff=0.3)
        hint = f"; did you mean {close[0]}?" if close else ""
        raise UsageError(f"unknown protocol {protocol!r}", fix=f"known are {', '.join(sorted(DECODERS))}{hint}")
