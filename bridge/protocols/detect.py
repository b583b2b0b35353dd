"""Recognises the protocol and variant of one message, and of a topic by a sample of its messages."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from typing import Any, Final, NamedTuple

from bridge.errors import UsageError
from bridge.protocols.decoder import DecodeError
from bridge.protocols.foreign import foreign
from bridge.protocols.open_protocol.decoder import OPEN_PROTOCOL_VERSION
from bridge.protocols.values.compression import LZ4_MAGIC
from bridge.protocols.values.event_time import is_seconds
from bridge.protocols.values.json_message import json_object

_OPEN_SCHEMA_CHANGE: Final = re.compile(rb'"t" ?: ?2\b')
_CANAL_FIELDS: Final = {"isDdl", "database", "type"}
_CANAL_SCHEMA_CHANGES: Final = ("CREATE", "ERASE", "ALTER", "RENAME", "TRUNCATE", "CINDEX", "DINDEX")
_CKAFKA_FIELDS: Final = {"BINLOG_NAME", "BINLOG_POS", "TYPE"}
_SAME_SCHEMA_CHANGES: Final = {"canal-json", "ckafka"}
_WHY: Final = {
    "open-protocol": "keys begin with version 1 of TiCDC's Open Protocol",
    "canal-json": "have isDdl, database and type, as Canal-JSON has",
    "ckafka": "have BINLOG_NAME, BINLOG_POS and TYPE, as CKafka's official format 1 has",
    "debezium": "have a payload with source and op or ddl, as Debezium has",
}

Sample = Sequence[tuple[bytes | None, bytes | None]]
"""The keys and values of some messages."""


class Recognised(NamedTuple):
    """What a message tells about its format.

    protocol: a key of `protocols.DECODERS`.
    variant: the sender and its options, in words for people, as far as the message shows them.
    certain: False for a message that looks the same in another protocol, as ckafka's schema changes look like Canal's.
    mysql_born: whether the message was made from MySQL's binlog, which lacks the changes that foreign keys cascade.
    is_schema_change: whether the message says that it is a schema change, whatever else it holds.
    """

    protocol: str
    variant: str
    certain: bool = True
    mysql_born: bool = False
    is_schema_change: bool = False


def recognise(sample: Sample) -> tuple[str, str]:
    """Gives the protocol of a topic, and the reason.  Raises UsageError when the messages do not tell it, or differ."""
    if not sample:
        raise UsageError("the source is empty, so its protocol cannot be recognised", fix="give --protocol")
    found = [one for key, value in sample if (one := recognise_message(key, value))]
    known = {one.protocol for one in found if one.certain} or {one.protocol for one in found}
    if known == _SAME_SCHEMA_CHANGES and not any(one.certain for one in found):
        known = {"ckafka"}  # only in ckafka some are in seconds and others in milliseconds
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
    if not seen.certain and _SAME_SCHEMA_CHANGES.intersection(protocols):
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
    variants = Counter(one.variant for one in mine).most_common()
    return f"{len(mine)} of {looked_at} messages {_WHY[protocol]} ({', '.join(f'{n}: {name}' for name, n in variants)})"


def recognise_message(key: bytes | None, value: bytes | None) -> Recognised | None:
    """Gives the protocol and variant of a message; None when it does not show them, as a tombstone."""
    if key and key.startswith(OPEN_PROTOCOL_VERSION):
        is_schema_change = _OPEN_SCHEMA_CHANGE.search(key) is not None
        return Recognised("open-protocol", "version 1" + _packed((value or b"")[8:]), is_schema_change=is_schema_change)
    try:
        message = json_object(value)
    except DecodeError:
        return None
    packed = _packed(value or b"")
    if message.keys() >= _CANAL_FIELDS:
        is_schema_change = message["isDdl"] is True or message["type"] in _CANAL_SCHEMA_CHANGES
        return _canal(message, packed)._replace(is_schema_change=is_schema_change)
    if message.keys() >= _CKAFKA_FIELDS:
        return Recognised("ckafka", "official format 1" + packed, mysql_born=True)
    return _debezium(message, packed)


def _packed(value: bytes) -> str:
    if not value or value.lstrip()[:1] == b"{":
        return ""
    return ", lz4" if value.startswith(LZ4_MAGIC) else ", snappy"


def _canal(message: dict[str, Any], packed: str) -> Recognised:
    if message.get("_tidb") is not None:
        return Recognised("canal-json", "TiCDC with the TiDB extension" + _options(message) + packed)
    if message.get("id") or "gtid" in message:
        return Recognised("canal-json", "official Canal" + packed, mysql_born=True)
    if message["isDdl"] is True and is_seconds(message.get("es")):
        return Recognised("ckafka", "schema change in Canal's form", certain=False, mysql_born=True)
    certain = message["isDdl"] is not True
    return Recognised("canal-json", "TiCDC without the extension" + _options(message) + packed, certain)


def _options(message: dict[str, Any]) -> str:
    types, extension = message.get("mysqlType"), message.get("_tidb")
    said = ""
    if isinstance(types, dict) and any(isinstance(word, str) and "(" in word for word in types.values()):
        said += ", content-compatible"
    if isinstance(extension, dict):
        said += ", row key" if "rowkey" in extension else ""
        said += ", cut to its key" if extension.get("onlyHandleKey") or extension.get("claimCheckLocation") else ""
    return said


def _debezium(message: dict[str, Any], packed: str) -> Recognised | None:
    payload = message.get("payload", message)
    source = payload.get("source") if isinstance(payload, dict) else None
    if not isinstance(source, dict) or not ("op" in payload or "ddl" in payload):
        return None
    is_mine = source.get("connector") == "TiCDC"
    is_mariadb = source.get("connector") == "mariadb"
    sender = "TiCDC" if is_mine else f"Debezium's {'MariaDB' if is_mariadb else 'MySQL'} connector"
    schema = message.get("schema")
    form = ", with schema" if "schema" in message else ", without schema"
    if isinstance(schema, dict) and "avro" in schema:
        form = ", in Avro"
    is_schema_change = "ddl" in payload or payload.get("op") == "t"
    return Recognised("debezium", sender + form + packed, mysql_born=not is_mine, is_schema_change=is_schema_change)
