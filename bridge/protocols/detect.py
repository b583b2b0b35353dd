"""Recognises the protocol and variant of one message, and of a topic by a sample of its messages;
and lists the protocols that are read: a new one is its folder and its line here."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from typing import Final

from bridge.errors import UsageError
from bridge.protocols.canal.recognition import CANAL_JSON
from bridge.protocols.ckafka.recognition import CKAFKA
from bridge.protocols.debezium.recognition import DEBEZIUM
from bridge.protocols.decoder import DecodeError
from bridge.protocols.foreign import foreign
from bridge.protocols.open_protocol.recognition import OPEN_PROTOCOL
from bridge.protocols.protocol import Protocol, Recognised
from bridge.protocols.values.json_message import json_object, packing

PROTOCOLS: Final[dict[str, Protocol]] = {
    protocol.name: protocol for protocol in (OPEN_PROTOCOL, CANAL_JSON, CKAFKA, DEBEZIUM)
}
Sample = Sequence[tuple[bytes | None, bytes | None]]
"""The keys and values of some messages."""


def recognise(sample: Sample) -> tuple[str, str]:
    """Gives the protocol of a topic, and the reason.  Raises UsageError when the messages do not tell it, or differ."""
    if not sample:
        raise UsageError("the source is empty, so its protocol cannot be recognised", fix="give --protocol")
    origins = [origin for key, value in sample if (origin := recognise_message(key, value))]
    names = {origin.protocol for origin in origins if origin.certain} or {origin.protocol for origin in origins}
    twins = [
        protocol.name for protocol in PROTOCOLS.values() if protocol.twin and names == {protocol.name, protocol.twin}
    ]
    if twins and not any(origin.certain for origin in origins):
        names = {*twins}  # only in this one some are in seconds and others in milliseconds
    if not names:
        raise _unknown(sample)
    if len(names) > 1:
        counted = Counter(origin.protocol for origin in origins).most_common()
        raise UsageError(
            f"the messages are of several protocols: {', '.join(f'{count} {name}' for name, count in counted)}",
            fix="give --protocol; `bridge inspect` shows the messages",
        )
    protocol = names.pop()
    return protocol, _reason(protocol, origins, len(sample))


def _unknown(sample: Sample) -> UsageError:
    """Says that no message is of a known protocol, and what most of them are instead, where they show it."""
    what = f"no known protocol is recognised in {len(sample)} messages"
    formats = Counter(wire_format for key, value in sample if (wire_format := foreign(key, value))).most_common(1)
    if not formats:
        return UsageError(what, fix="give --protocol; `bridge inspect` shows the messages")
    [(wire_format, count)] = formats
    return UsageError(f"{what}; {count} are {wire_format.what}", fix=wire_format.fix)


def is_other(origin: Recognised, protocols: Sequence[str]) -> bool:
    """Tells whether a message is of none of these protocols."""
    if not origin.certain and any(
        {protocol.name, protocol.twin}.intersection(protocols) for protocol in PROTOCOLS.values() if protocol.twin
    ):
        return False
    return origin.protocol not in protocols


def is_mysql_born(sample: Sample) -> bool:
    """Tells whether a topic comes from MySQL's binlog; a sample that does not show it counts as if it did."""
    origins = [origin for key, value in sample if (origin := recognise_message(key, value))]
    return not origins or any(origin.mysql_born for origin in origins)


def binlog_source(sample: Sample) -> str:
    """Tells of which server's binlog messages are, as `collation_tables.SOURCES` names it: "mariadb",
    which Debezium's connector for it says, or "mysql", which may be any; "" where no message shows that it is one's.
    (Debezium's documentation, "MariaDB connector", source.connector.)"""
    origins = [origin for key, value in sample if (origin := recognise_message(key, value)) and origin.mysql_born]
    if any("MariaDB" in origin.variant for origin in origins):
        return "mariadb"
    return "mysql" if origins else ""


def _reason(protocol: str, origins: list[Recognised], looked_at: int) -> str:
    own = [origin for origin in origins if origin.protocol == protocol]
    variants = ", ".join(f"{count}: {name}" for name, count in Counter(origin.variant for origin in own).most_common())
    return f"{len(own)} of {looked_at} messages {PROTOCOLS[protocol].shows} ({variants})"


def recognise_message(key: bytes | None, value: bytes | None) -> Recognised | None:
    """Gives the protocol and variant of a message; None when it does not show them, as a tombstone."""
    by_key = (protocol.of_key(key, value or b"") for protocol in PROTOCOLS.values() if key and protocol.of_key)
    if origin := next(filter(None, by_key), None):
        return origin
    try:
        message = json_object(value)
    except DecodeError:
        return None
    packed = packing(value or b"")
    by_message = (protocol.of_message(message, packed) for protocol in PROTOCOLS.values() if protocol.of_message)
    return next(filter(None, by_message), None)
