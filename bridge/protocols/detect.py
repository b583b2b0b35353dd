"""Recognises the protocol and variant of one message, and of a topic by a sample of its messages."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

from bridge.errors import UsageError
from bridge.protocols.decoder import DecodeError
from bridge.protocols.foreign import foreign
from bridge.protocols.protocol import Recognised
from bridge.protocols.registered import PROTOCOLS
from bridge.protocols.values.compression import packing
from bridge.protocols.values.json_message import json_object

Sample = Sequence[tuple[bytes | None, bytes | None]]
"""The keys and values of some messages."""


def recognise(sample: Sample) -> tuple[str, str]:
    """Gives the protocol of a topic, and the reason.  Raises UsageError when the messages do not tell it, or differ."""
    if not sample:
        raise UsageError("the source is empty, so its protocol cannot be recognised", fix="give --protocol")
    found = [one for key, value in sample if (one := recognise_message(key, value))]
    known = {one.protocol for one in found if one.certain} or {one.protocol for one in found}
    twins = [one.name for one in PROTOCOLS.values() if one.twin and known == {one.name, one.twin}]
    if twins and not any(one.certain for one in found):
        known = {*twins}  # only in this one some are in seconds and others in milliseconds
    if not known:
        raise _unknown(sample)
    if len(known) > 1:
        counted = Counter(one.protocol for one in found).most_common()
        raise UsageError(
            f"the messages are of several protocols: {', '.join(f'{count} {name}' for name, count in counted)}",
            fix="give --protocol; `bridge inspect` shows the messages",
        )
    protocol = known.pop()
    return protocol, _reason(protocol, found, len(sample))


def _unknown(sample: Sample) -> UsageError:
    """Says that no message is of a known protocol, and what most of them are instead, where they show it."""
    what = f"no known protocol is recognised in {len(sample)} messages"
    others = Counter(one for key, value in sample if (one := foreign(key, value))).most_common(1)
    if not others:
        return UsageError(what, fix="give --protocol; `bridge inspect` shows the messages")
    [(other, count)] = others
    return UsageError(f"{what}; {count} are {other.what}", fix=other.fix)


def is_other(seen: Recognised, protocols: Sequence[str]) -> bool:
    """Tells whether a message is of none of these protocols."""
    if not seen.certain and any({one.name, one.twin}.intersection(protocols) for one in PROTOCOLS.values() if one.twin):
        return False
    return seen.protocol not in protocols


def is_mysql_born(sample: Sample) -> bool:
    """Tells whether a topic comes from MySQL's binlog; a sample that does not show it counts as if it did."""
    found = [one for key, value in sample if (one := recognise_message(key, value))]
    return not found or any(one.mysql_born for one in found)


def binlog_source(sample: Sample) -> str:
    """Tells of which server's binlog messages are, as `collation_tables.SOURCES` and SOME_MYSQL name it: "mariadb",
    which Debezium's connector for it says, or "mysql", which may be any; "" where no message shows that it is one's.
    (Debezium's documentation, "MariaDB connector", source.connector.)"""
    found = [one for key, value in sample if (one := recognise_message(key, value)) and one.mysql_born]
    if any("MariaDB" in one.variant for one in found):
        return "mariadb"
    return "mysql" if found else ""


def _reason(protocol: str, found: list[Recognised], looked_at: int) -> str:
    mine = [one for one in found if one.protocol == protocol]
    variants = ", ".join(f"{count}: {name}" for name, count in Counter(one.variant for one in mine).most_common())
    return f"{len(mine)} of {looked_at} messages {PROTOCOLS[protocol].shows} ({variants})"


def recognise_message(key: bytes | None, value: bytes | None) -> Recognised | None:
    """Gives the protocol and variant of a message; None when it does not show them, as a tombstone."""
    by_key = (one.of_key(key, value or b"") for one in PROTOCOLS.values() if key and one.of_key)
    if seen := next(filter(None, by_key), None):
        return seen
    try:
        message = json_object(value)
    except DecodeError:
        return None
    packed = packing(value or b"")
    by_message = (one.of_message(message, packed) for one in PROTOCOLS.values() if one.of_message)
    return next(filter(None, by_message), None)
