"""Decodes wire formats: pure functions from a message's (key, value) bytes to `bridge.events.Event`s.

A new format is a folder with its decoders and its facts, and one line in `detect.py`.
"""

from __future__ import annotations

from importlib import import_module
from typing import Final

from bridge.errors import UsageError, meant
from bridge.protocols.debezium.avro.front import in_json
from bridge.protocols.decode import decode_message
from bridge.protocols.decoder import DecodeError, DecodeOptions, Decoder
from bridge.protocols.detect import PROTOCOLS, binlog_source, is_mysql_born, recognise

__all__ = [
    "OLD_VALUES_FIX",
    "PROTOCOLS",
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
OLD_VALUES_FIX: Final = (
    "set output-old-value=true ([sink.open]) in the changefeed, or give the table a primary key; then compare it with"
    " bridge verify --against upstream"
)


def make_decoder(protocol: str, options: DecodeOptions) -> Decoder:
    """Makes the decoder of a protocol.  Raises UsageError for an unknown protocol or time zone.

    Its module is loaded when the first is made: most commands make none, and numpy and pyarrow take 0.15 s.
    """
    require_protocol(protocol)
    module, name = PROTOCOLS[protocol].decoder.split(":")
    decoder: Decoder = getattr(import_module(f"bridge.protocols.{module}"), name)(options)
    return decoder


def require_protocol(protocol: str) -> None:
    """Raises UsageError for a protocol that is neither known nor `auto`."""
    if protocol not in {*PROTOCOLS, "auto"}:
        hint, names = meant(protocol, PROTOCOLS), ", ".join(sorted(PROTOCOLS))
        raise UsageError(f"unknown protocol {protocol!r}", fix=f"{hint}known are {names}")
