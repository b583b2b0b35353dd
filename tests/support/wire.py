"""Encoders by the rules of the seeds: tests go from value to wire to literal."""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterable, Iterator, Sequence
from datetime import datetime
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any
from zoneinfo import ZoneInfo

import pyarrow as pa

from bridge.events import SEP, Boundary, Event, LeftOut, RowChange, Undecodable
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from bridge.protocols.values.row_image import split_forms

TSO = 470611860099956739

SAFE_LITERAL = re.compile(
    r"""NULL | -?[0-9]+(\.[0-9]+)?(e[+-]?[0-9]+)? | x'([0-9a-f]{2})+' | '([^'\\\0]|\\['\\0])*'""", re.VERBOSE
)


def compact(value: object) -> bytes:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False).encode()


# --- Canal-JSON


def canal(kind: str, columns: dict[str, tuple[str, Any]], **fields: Any) -> bytes:
    """A row message; columns are name -> (mysqlType, value), fields replace or add what the message holds."""
    message = {
        "id": 0, "database": "d", "table": "t", "pkNames": ["id"] if "id" in columns else [], "isDdl": False,
        "type": kind, "es": 1, "ts": 2,
        "sql": "", "sqlType": dict.fromkeys(columns, 12),
        "mysqlType": {name: mysql_type for name, (mysql_type, _) in columns.items()},
        "old": None, "data": [{name: value for name, (_, value) in columns.items()}], "_tidb": {"commitTs": TSO},
    }  # fmt: skip
    return compact(message | fields)


def official(kind: str, columns: dict[str, tuple[str, Any]], **fields: Any) -> bytes:
    """A row message as Alibaba's own Canal sends it, of the table `m.t`."""
    times = {"es": 1700000000000, "ts": 1700000000001}
    message = json.loads(canal(kind, columns, **{"database": "m", "gtid": "", "id": 7, **times, **fields}))
    del message["_tidb"]  # which nothing but TiCDC knows
    return compact(message)


# --- ckafka


def as_ckafka(value: bytes, timezone: str = "UTC") -> bytes:
    """What CKafka's official format 1 makes of a row of Canal-JSON; a schema change stays what it is."""
    message = json.loads(value)
    if message["isDdl"]:
        return value
    new, old = message["data"][0], (message["old"] or [None])[0]
    if message["type"] == "DELETE":
        new, old = None, new
    row = {
        "BINLOG_NAME": "mysql-bin.000001", "BINLOG_POS": message["ts"], "DATABASE": message["database"],
        "EVENT_SERVER_ID": None, "GLOBAL_ID": None, "GROUP_ID": None, "NEW_VALUES": new, "OLD_VALUES": old,
        "TABLE": message["table"], "TIME": _local_time(message["es"], timezone), "TYPE": message["type"][0],
    }  # fmt: skip
    return compact(row)


def _local_time(ms: int, timezone: str) -> str:
    return datetime.fromtimestamp(ms / 1000, ZoneInfo(timezone)).strftime("%Y%m%d%H%M%S")


# --- Open Protocol


def frame(content: bytes) -> bytes:
    return struct.pack(">q", len(content)) + content


def open_key(*events: dict[str, Any]) -> bytes:
    return struct.pack(">q", 1) + b"".join(frame(compact(event)) for event in events)


def open_value(*events: dict[str, Any]) -> bytes:
    return b"".join(frame(compact(event)) for event in events)


ROW_KEY = {"ts": TSO, "scm": "d", "tbl": "t", "t": 1}


def open_row(change: dict[str, Any], **fields: Any) -> tuple[bytes, bytes]:
    """A message of one row change."""
    return open_key(ROW_KEY | fields), open_value(change)


_GO_SIMPLE = {7: "\\a", 8: "\\b", 12: "\\f", 10: "\\n", 13: "\\r", 9: "\\t", 11: "\\v", 92: "\\\\", 34: '\\"'}


def go_quoted(content: bytes) -> str:
    """strconv.Quote without the outer quotes."""
    return "".join(_go_rune(rune) for rune in content.decode(errors="surrogateescape"))


def _go_rune(rune: str) -> str:
    code = ord(rune)
    if code in _GO_SIMPLE:
        return _GO_SIMPLE[code]
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    if code < 0x20 or code == 0x7F:
        return f"\\x{code:02x}"
    if rune.isprintable():
        return rune
    return f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"


def base64_text(content: bytes) -> str:
    return base64.b64encode(content).decode()


def plain_notation(number: float) -> str:
    """Canal-JSON writes floats without an exponent."""
    return format(Decimal(repr(number)), "f")


# --- events


def decode(protocol: str, key: bytes | None, value: bytes | None, timezone: str | None = "UTC") -> list[Any]:
    """The events of a message by a fresh decoder."""
    return decode_message(make_decoder(protocol, DecodeOptions(timezone)), key, value)


def lot(values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, topic: str = "cdc") -> Messages:
    """The messages of partition 0 of a topic."""
    count = len(values)
    return Messages([topic] * count, [0] * count, [*range(count)], [*(keys or [None] * count)], [*values])


def decoded_lot(
    protocol: str, values: Sequence[bytes | None], keys: Sequence[bytes | None] | None = None, **options: Any
) -> pa.Table:
    """Their events, decoded together."""
    return decode_messages(make_decoder(protocol, DecodeOptions("UTC", **options)), lot(values, keys))


def canal_event(value: bytes, timezone: str | None = "UTC") -> Any:
    [event] = decode("canal-json", b"", value, timezone)
    return event


def open_event(key: bytes, value: bytes | None, timezone: str | None = "UTC") -> Any:
    [event] = decode("open-protocol", key, value, timezone)
    return event


def reason(event: Event) -> str:
    """Why an event is BAD."""
    assert isinstance(event, Undecodable), event
    return event.reason


def split(image: str | None) -> list[str]:
    assert image is not None
    return image.split(SEP)


def row_change(event: Event) -> RowChange:
    """The event, which is a row change."""
    assert isinstance(event, RowChange), event
    return event


def row_changes(events: Iterable[Event]) -> list[RowChange]:
    """Those of the events that are row changes."""
    return [event for event in events if isinstance(event, RowChange)]


def names_of(event: RowChange) -> str:
    """The names of the image's columns, joined by NUL."""
    return split_forms(event.columns)[0]


def untyped(events: Iterable[Event]) -> list[Event]:
    """The events without the types of their columns."""
    return [event._replace(columns=names_of(event)) if isinstance(event, RowChange) else event for event in events]


def row_of(event: RowChange, image: str | None) -> dict[str, str]:
    """Column name -> literal."""
    return dict(zip(split(names_of(event)), split(image), strict=True))


def check_sound(events: list[Event]) -> None:
    """What holds for every event, whatever the bytes were: it can travel, and its literals can hurt nobody."""
    for event in events:
        for field in event:
            if isinstance(field, str):
                field.encode()
        if isinstance(event, Undecodable):
            assert event.reason
            assert len(event.reason) < 600
            continue
        assert not isinstance(event, LeftOut)
        by_time = not isinstance(event, Boundary) and event.by_time
        assert (0 if by_time else 1) <= event.commit_ts < 1 << 63
        if not isinstance(event, RowChange):
            continue
        for image in (event.before, event.after):
            if image is not None:
                assert all(SAFE_LITERAL.fullmatch(literal) for literal in split(image))
                assert len(split(image)) == len(split_forms(event.columns)[1])


# --- captures

PROTOCOL_OF_FOLDER = {"canal": "canal-json", "open": "open-protocol", "debezium": "debezium"}


def messages(path: Path) -> Iterator[tuple[int, bytes | None, bytes | None]]:
    """(partition, key, value) of a capture file, in its order."""
    with path.open() as lines:
        for line in lines:
            message = json.loads(line)
            key, value = (
                None if message[field] is None else base64.b64decode(message[field]) for field in ("key", "value")
            )
            yield message["partition"], key, value


@cache
def capture_events(path: Path) -> Sequence[tuple[int, Any]]:
    """(partition, event) of a capture file, decoded by one decoder in the zone that its script ran in."""
    protocol = PROTOCOL_OF_FOLDER[path.parent.name.partition("-")[0]]
    zone = "Asia/Shanghai" if path.stem.endswith("tz8") else "UTC"
    decoder = make_decoder(protocol, DecodeOptions(zone))
    return [
        (partition, event) for partition, key, value in messages(path) for event in decode_message(decoder, key, value)
    ]
