"""`bridge inspect`: one record for each event of a message, and the reason when it cannot be decoded."""

from __future__ import annotations

import time
from base64 import b64decode
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from itertools import islice
from typing import Any, Final

from bridge.config import Settings
from bridge.console import readable, visible
from bridge.errors import UsageError
from bridge.events import SEP, Event, Position, RowChange, Undecodable, key_names
from bridge.filters.table_filter import TableFilter
from bridge.protocols import DecodeError, Decoder, decode_message, in_json, make_decoder, recognise
from bridge.protocols.batch_decode import ruled_row
from bridge.protocols.decode import bad_message, highest_ts
from bridge.protocols.detect import recognise_message
from bridge.protocols.values.json_message import json_object
from bridge.protocols.values.row_image import split_forms
from bridge.sources.source import Message, Source, plain_sample
from bridge.tso import tso_time

SAMPLE_MESSAGES: Final = 100
_NOTHING: Final = "nothing"


@dataclass(frozen=True)
class Record:
    """One event of a message.

    event: None for a message that holds no event, such as a tombstone.
    origin: where the change comes from (binlog position, GTID), if the sender tells it.
    """

    position: Position
    protocol: str
    variant: str
    event: Event | None
    origin: dict[str, str]

    @property
    def kind(self) -> str:
        """insert, update, delete, schema-change, boundary, bad, left-out, or nothing."""
        return _NOTHING if self.event is None else self.event.kind.name.lower().replace("_", "-")

    @property
    def fields(self) -> dict[str, Any]:
        """The fields of the event."""
        return {} if self.event is None else self.event._asdict()

    @property
    def time(self) -> str | None:
        """The commit ts, or the event time, as wall-clock time in UTC."""
        return tso_time(self.fields["commit_ts"]) if "commit_ts" in self.fields else None

    @property
    def message(self) -> str | None:
        """The message itself, as text, where it cannot be decoded."""
        if not isinstance(self.event, Undecodable):
            return None
        return readable(b64decode(self.event.message_value or self.event.message_key or ""))

    def row(self, image: str | None) -> dict[str, str] | None:
        """Returns one of the event's images, as SQL literals by column."""
        if image is None or not isinstance(self.event, RowChange):
            return None
        return dict(zip(split_forms(self.event.columns)[0].split(SEP), image.split(SEP), strict=True))

    @property
    def key(self) -> dict[str, str] | None:
        """The handle key that the message names, as SQL literals by column, from the row after the change (of a delete:
        before it)."""
        event = self.event
        if not isinstance(event, RowChange) or not (names := key_names(event.key)):
            return None
        row = self.row(event.before if event.after is None else event.after) or {}
        return {name: row.get(name, "?") for name in names}

    def document(self) -> dict[str, Any]:
        """Returns the record as a JSON object without the fields that do not apply."""
        fields = self.fields
        shown = {
            **self.position._asdict(),
            "protocol": self.protocol,
            "variant": self.variant,
            "kind": self.kind,
            "code": fields.get("code"),
            "reason": fields.get("reason"),
            "message": self.message,
            "index": fields.get("index"),
            "schema": fields.get("schema") or None,
            "table": fields.get("table") or None,
            "commit_ts": fields.get("commit_ts"),
            "time": self.time,
            "by_time": fields.get("by_time") or None,
            "key": self.key,
            "before": self.row(fields.get("before")),
            "after": self.row(fields.get("after")),
            "cut": fields.get("cut"),
            "statement": fields.get("statement"),
            **self.origin,
        }
        return {name: value for name, value in shown.items() if value is not None}


def inspect(
    source: Source, settings: Settings, *, partition: int | None = None, offset: int | None = None, limit: int
) -> Iterator[Record]:
    """Yields the records of up to `limit` messages (0: all), partition by partition, without rows that the filter
    excludes."""
    reader = _MessageReader(settings, _topic_protocol(source, settings))
    messages = source.messages(partition, offset)
    for message in islice(messages, limit) if limit else messages:
        yield from reader.records(message)


def _topic_protocol(source: Source, settings: Settings) -> str | None:
    """Returns the protocol of the topic; None when the topic does not tell.  Then each message is recognised by
    itself, so that any topic can be shown."""
    if settings.protocol != "auto":
        return settings.protocol
    try:
        return recognise(plain_sample(source, SAMPLE_MESSAGES, settings.decode_options().schemas))[0]
    except UsageError:
        return None


class _MessageReader:
    def __init__(self, settings: Settings, protocol: str | None) -> None:
        accepts = TableFilter(settings.filter) if settings.filter else None
        self._options = replace(settings.decode_options(accepts), cut_rows=True)
        self._protocol, self._filters = protocol, accepts is not None
        self._decoders: dict[str, Decoder] = {}
        if protocol:
            self._decoder(protocol)

    def records(self, message: Message) -> Iterator[Record]:
        """Yields one record for each event, and one for a message without events, unless a filter may have removed
        them."""
        [plain] = in_json([(message.key, message.value)], self._options.schemas)
        recognition = recognise_message(*plain)
        protocol = self._protocol or (recognition.protocol if recognition else "unknown")
        variant = recognition.variant if recognition else "unknown"
        events: list[Event | None]
        if protocol == "unknown":
            events = [bad_message((), _unknown(*plain), message.key, message.value)]
        else:
            decoder = self._decoder(protocol)
            highest = highest_ts([round(time.time() * 1000)], decoder.ms_ahead)
            events = [*decode_message(decoder, message.key, message.value, highest)]
        origin = _origin(plain[1]) if events else {}
        for event in events or ([] if self._filters else [None]):
            yield Record(message.position, protocol, variant, event, origin | self._ruled(event))

    def _decoder(self, protocol: str) -> Decoder:
        if protocol not in self._decoders:
            self._decoders[protocol] = make_decoder(protocol, self._options)
        return self._decoders[protocol]

    def _ruled(self, event: Event | None) -> dict[str, str]:
        """Returns what the rules for row changes do with an event."""
        if not isinstance(event, RowChange):
            return {}
        ruled = ruled_row(event, self._options.row_rules)
        if ruled is None:
            return {"left_out": "by an event filter"}
        is_routed = (ruled.schema, ruled.table) != (event.schema, event.table)
        return {"goes_to": f"{ruled.schema}.{ruled.table}"} if is_routed else {}


def _unknown(key: bytes | None, value: bytes | None) -> DecodeError:
    """Says why a message is of no known protocol."""
    try:
        json_object(key if value is None else value)
    except DecodeError as failure:
        return DecodeError(f"the message is of no known protocol: {failure}")
    return DecodeError("the message is of no known protocol, although it is JSON")


def _origin(value: bytes | None) -> dict[str, str]:
    try:
        message = json_object(value)
    except DecodeError:
        return {}
    payload = message.get("payload", message)
    source = payload.get("source") if isinstance(payload, dict) else None
    fields = source if isinstance(source, dict) else {}
    name, place = (message.get("BINLOG_NAME") or fields.get("file")), message.get("BINLOG_POS", fields.get("pos"))
    gtid = message.get("GLOBAL_ID") or message.get("gtid") or fields.get("gtid")
    return ({"binlog": f"{name}:{place}"} if name else {}) | ({"gtid": str(gtid)} if gtid else {})


_WIDTHS: Final = (18, 13, 18, 24, 20)
_HEADINGS: Final = ("position", "kind", "commit ts", "time (UTC)", "table", "content")
_PLAIN_KINDS: Final = ("boundary", "schema-change")
_SHOWN: Final = 60


def table_lines(records: Iterable[Record]) -> Iterator[str]:
    """Yields the lines of the table, as the records come.

    Values of more than 60 characters are cut off (--json prints them whole).  A line with protocol and variant stands
    above the first message that has them.  Boundaries and schema changes show less of the variant than rows do, so they
    start a new line of it only when the protocol changes.
    """
    yield _line(_HEADINGS)
    shown = ("", "")
    for record in records:
        sender = (record.protocol, record.variant)
        if sender != shown and (record.kind not in _PLAIN_KINDS or sender[0] != shown[0]):
            shown = sender
            yield f"-- {', '.join(sender)}"
        yield _line(_cells(record))
        if record.message is not None:
            yield f"    {record.message}"
    if not any(shown):
        yield "-- nothing to show: no message was read, or each is of a table that --filter leaves out"


def _line(cells: Iterable[str]) -> str:
    *first, last = cells
    padded = (f"{cell:<{width}}" for cell, width in zip(first, _WIDTHS, strict=True))
    return "  ".join((*padded, last)).rstrip()


def _cells(record: Record) -> tuple[str, ...]:
    fields = record.fields
    table = ".".join(fields[name] for name in ("schema", "table") if fields.get(name))
    commit_ts = "event time" if fields.get("by_time") else str(fields.get("commit_ts", ""))
    origin = ", ".join(f"{name} {value}" for name, value in record.origin.items())
    content = "; ".join(part for part in (_content(record), origin) if part)
    first = (str(record.position), record.kind, commit_ts, record.time or "")
    return tuple(map(visible, (*first, table, content)))


def _content(record: Record) -> str:
    match record.event:
        case None:
            return "the message holds no event"
        case RowChange() as event:
            return _row(record, event)
        case Undecodable() as event:
            return f"{event.code}: {event.reason}"
    return record.fields.get("statement") or record.fields.get("reason") or ""


def _row(record: Record, event: RowChange) -> str:
    """Returns the key, then the other columns; of an update only those that changed, from old to new."""
    key, before, after = (row or {} for row in (record.key, record.row(event.before), record.row(event.after)))
    key_words = f"key ({_assigned(key)})" if key else "no key named"
    if before and after:
        changed = (
            f"{name}={_cut(before[name])} -> {_cut(after[name])}" for name in after if before[name] != after[name]
        )
        rest = ", ".join(changed) or "nothing changed"
    else:
        rest = _assigned({name: literal for name, literal in (before or after).items() if name not in key})
    return ", ".join(part for part in (key_words, event.cut, rest) if part)


def _assigned(row: dict[str, str]) -> str:
    return ", ".join(f"{name}={_cut(literal)}" for name, literal in row.items())


def _cut(literal: str) -> str:
    return literal if len(literal) <= _SHOWN else f"{literal[:_SHOWN]}... ({len(literal)} characters)"
