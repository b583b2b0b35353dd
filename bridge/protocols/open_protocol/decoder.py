"""TiCDC Open Protocol, version 1; source: "TiCDC Open Protocol".

A message is a batch: the key holds the version and one frame per event, the value one frame per event.
"""

from __future__ import annotations

import re
from binascii import a2b_base64
from collections.abc import Hashable, Iterator, Sequence
from contextlib import suppress
from functools import partial
from typing import Any, ClassVar, Final

import numpy as np
import orjson

from bridge.events import Code, Event, Kind
from bridge.protocols.decoder import (
    FAILURES,
    MAX_CACHED,
    DecodeError,
    DecodeOptions,
    GuardedDecoder,
    RowEvents,
    check_commit_ts,
    check_name,
    reading_schema_change,
    shown,
)
from bridge.protocols.fast.batch import Outside, TableName
from bridge.protocols.fast.byte_buffer import Numbers
from bridge.protocols.fast.learner import Templates, sample_of
from bridge.protocols.fast.message_shape import Lesson, cells
from bridge.protocols.open_protocol.frames import Frames, Heads, frames_of, heads_of
from bridge.protocols.open_protocol.go_quoting import unquoted
from bridge.protocols.open_protocol.old_rows import Columns, old_row
from bridge.protocols.values import literals
from bridge.protocols.values.compression import decompressed, growth_limit
from bridge.protocols.values.json_message import json_object
from bridge.protocols.values.literals import Converter
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout
from bridge.protocols.values.timezones import timestamp_converter
from bridge.protocols.values.untyped import with_types

VERSION: Final = b"\0\0\0\0\0\0\0\1"
BINARY_FLAG: Final = 0x01
HANDLE_KEY_FLAG: Final = 0x02
UNSIGNED_FLAG: Final = 0x80

_LENGTH: Final = 8
_PLAIN_KEY: Final = len(("ts", "scm", "tbl", "t"))
_PLAIN_HEAD: Final = re.compile(
    r'\{"ts":([1-9][0-9]{0,17}),"scm":"([^"\\\x00-\x1f]*)","tbl":"([^"\\\x00-\x1f]*)","t":1\}'
).fullmatch
_PLAIN_STARTS: Final = frozenset({b'{"u"', b'{"d"'})
_MOST_UNCOUNTED: Final = 16 << 20
"""Bytes of a value whose images stay within the limit of a batch (`growth_limit`), whatever they hold."""
_START: Final = 4
_IMAGES: Final = {"u": "after", "p": "before", "d": "before"}
_WITH_OLD: Final = b'},"p":{"'


def _base64_binary(value: str) -> str:
    return literals.binary(a2b_base64(value, strict_mode=True))


def _base64_text(value: str) -> str:
    return literals.text(a2b_base64(value, strict_mode=True).decode())


def _base64_either(value: str) -> str:
    """Without flags nothing tells TEXT from BLOB: text when it is UTF-8; a BLOB column stores it as the same bytes."""
    content = a2b_base64(value, strict_mode=True)
    try:
        return literals.text(content.decode())
    except UnicodeDecodeError:
        return literals.binary(content)


def _quoted_binary(value: str) -> str:
    return literals.binary(unquoted(value))


def _only_null(value: object) -> str:
    raise DecodeError(f"{shown(value)} in a column of type NULL")


TYPES: Final[dict[int, tuple[str, Converter]]] = {
    # TiCDC Open Protocol, Column type code
    1: ("TINYINT", literals.integer_number),
    2: ("SMALLINT", literals.integer_number),
    3: ("INT", literals.integer_number),
    4: ("FLOAT", literals.float32_number),
    5: ("DOUBLE", literals.double_number),
    6: ("NULL", _only_null),
    8: ("BIGINT", literals.integer_number),
    9: ("MEDIUMINT", literals.integer_number),
    10: ("DATE", literals.date),
    11: ("TIME", literals.time),
    12: ("DATETIME", literals.datetime),
    13: ("YEAR", literals.year_number),
    14: ("DATE", literals.date),
    15: ("VARCHAR", literals.text),
    16: ("BIT", literals.unsigned_number),
    # not in the description; seen for VECTOR (types-seen)
    225: ("VECTOR", literals.text),
    245: ("JSON", literals.text),
    246: ("DECIMAL", literals.decimal),
    247: ("ENUM", literals.unsigned_number),
    248: ("SET", literals.unsigned_number),
    249: ("TINYTEXT", _base64_text),
    250: ("MEDIUMTEXT", _base64_text),
    251: ("LONGTEXT", _base64_text),
    252: ("TEXT", _base64_text),
    253: ("VARCHAR", literals.text),
    254: ("CHAR", literals.text),
}
"""Type code to label and converter; 7, TIMESTAMP, is added per decoder, since it needs the time zone."""

BINARY_TYPES: Final[dict[int, tuple[str, Converter]]] = {
    15: ("VARBINARY", _quoted_binary),
    253: ("VARBINARY", _quoted_binary),
    254: ("BINARY", _quoted_binary),
    249: ("TINYBLOB", _base64_binary),
    250: ("MEDIUMBLOB", _base64_binary),
    251: ("LONGBLOB", _base64_binary),
    252: ("BLOB", _base64_binary),
}
"""What BinaryFlag makes of the types that it tells apart (TiCDC Open Protocol, Bit flags of columns)."""

FLAGLESS_TYPES: Final[dict[int, tuple[str, Converter]]] = dict.fromkeys(
    (249, 250, 251, 252), ("TEXT or BLOB", _base64_either)
)


Images = dict[str, dict[str, Any]]
"""By "before" and "after", rows as JSON gave them."""


class _Slot:
    """What is known of one table: the layouts of its new rows and of its deleted ones."""

    __slots__ = ("deleted", "new", "wanted")

    def __init__(self, wanted: bool) -> None:
        self.wanted = wanted
        self.new: Layout | None = None
        self.deleted: Layout | None = None


class OpenProtocolDecoder(GuardedDecoder):
    """Decodes Open Protocol batches, with or without compressed values inside."""

    protocols: ClassVar[tuple[str, ...]] = ("open-protocol",)

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._types = TYPES | {7: ("TIMESTAMP", timestamp_converter(options.timezone))}
        self._slots: dict[tuple[str, str], _Slot] = {}
        self._templates = Templates(self._wanted, strict=True)
        self._head: bytes | None = None
        self._moment, self._table = 0, ("", "")

    @property
    def learnt(self) -> int:
        """See `GuardedDecoder.learnt`."""
        return self._templates.learnt

    def usual_events(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | None:
        """Whole rows in plain frames, as most messages are; see `GuardedDecoder.usual_events`."""
        if not key or not value or key[:_LENGTH] != VERSION or len(value) > _MOST_UNCOUNTED:
            return None
        events = []
        for index, (head, body) in enumerate(zip(_frames(key, _LENGTH), _frames(value, 0), strict=True)):
            if head != self._head:
                ts, schema, table = _PLAIN_HEAD(head.decode()).groups()  # type: ignore[union-attr]
                self._head, self._moment, self._table = head, int(ts), (schema, table)
            outside = (self._moment, index, *self._table)
            event = self._templates.event(_kind_of(self._table, body), body.decode(), outside)
            if event is None:
                return None
            events.append(event)
        return events

    def usual_rows(self, keys: Sequence[bytes | None], values: Sequence[bytes | None]) -> Iterator[RowEvents]:
        """Messages all of whose frames are whole rows; see `GuardedDecoder.usual_rows`."""
        (key_frames, key_counts), (frames, counts) = frames_of(keys, _LENGTH), frames_of(values, 0)
        versions = np.fromiter((key is not None and key[:_LENGTH] == VERSION for key in keys), np.bool_, len(keys))
        wanted = (key_counts == counts) & (counts > 0) & versions
        heads, frames = heads_of(key_frames.of(wanted)), frames.of(wanted)
        sample = self._sample(heads, frames, keys, values)
        outside = Outside(heads.commit_ts, frames.index, self._wanted_tables(heads), heads.names)
        found = self._templates.read(frames.texts, sample, outside)
        lots = [(frames.messages[rows.numbers], rows) for rows in found]
        read = sum((np.bincount(messages, minlength=len(keys)) for messages, _ in lots), np.zeros_like(counts))
        for messages, rows in lots:
            yield RowEvents(messages, rows.events).only(read[messages] == counts[messages])

    def _wanted_tables(self, heads: Heads) -> Numbers:
        """`Heads.tables`, with -1 for those that are not wanted, too."""
        wanted = np.array([self._is_wanted(name) for name in heads.names] + [False])
        return np.where(wanted[heads.tables], heads.tables, -1)

    def _is_wanted(self, name: TableName) -> bool:
        try:
            return self._templates.wants(*name)
        except DecodeError:
            return False

    def _sample(
        self, heads: Heads, frames: Frames, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> Iterator[tuple[int, Hashable]]:
        """Numbers of some frames, and their kinds; a message with one that is not known is parsed, so that it is."""
        for number in sample_of(len(frames.messages)):
            if heads.tables[number] >= 0:
                kind = _kind_of(heads.names[heads.tables[number]], frames.texts.text(number))
                if not self._templates.knows(kind):
                    message = frames.messages[number]
                    with suppress(*FAILURES, DecodeError):
                        self._events(keys[message], values[message])
                yield number, kind

    def _events(self, key: bytes | None, value: bytes | None) -> list[Event]:
        if not key:
            raise DecodeError("the message has no key")
        if key[:_LENGTH] != VERSION:
            raise DecodeError(f"the protocol version is {shown(key[:_LENGTH])}, not 1")
        keys = _frames(key, _LENGTH)
        values = _frames(value, 0) if value else [b""] * len(keys)
        if len(keys) == 1 == len(values):
            event = self._framed_event(keys[0], values[0], 0, _LENGTH)
            return [event] if event else []
        if len(keys) != len(values) or not keys:
            raise DecodeError(f"{len(keys)} events in the key, {len(values)} in the value")
        return self._batch(keys, values, growth_limit(len(value or b"")))

    def _batch(self, keys: list[bytes], values: list[bytes], limit: int) -> list[Event]:
        """Each value is bounded by itself, but a batch may hold many: so are their images together."""
        events: list[Event] = []
        size = at = 0
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            at += _LENGTH
            event = self._framed_event(key, value, index, at)
            at += len(value)
            if event:
                events.append(event)
                size += len(event.before or "") + len(event.after or "")
                if size > limit:
                    raise DecodeError(f"the batch holds more than {limit} bytes")
        return events

    def _framed_event(self, key: bytes, value: bytes, index: int, at: int) -> Event | None:
        """The event of one frame of the key and one of the value, which begins at a byte of the message's value."""
        try:
            return self._event(orjson.loads(key), value, index)
        except DecodeError as failure:
            if failure.at is not None:
                failure.at += at
            raise

    def _event(self, key: dict[str, Any], value: bytes, index: int) -> Event | None:
        if key.get("t") == 2:
            with reading_schema_change():
                return _schema_change(key, check_commit_ts(key["ts"], "ts"), index, value)
        commit_ts, kind = check_commit_ts(key["ts"], "ts"), key["t"]
        if kind == 1:
            slot = self._slots.get((key["scm"], key["tbl"])) or self._new_slot(key["scm"], key["tbl"])
            if slot.wanted:
                return self._row(key, slot, commit_ts, index, value)
            return next((event._replace(index=index) for event in self._left_out(key["scm"], key["tbl"])), None)
        if kind == 3:
            return _boundary(commit_ts, index, value)
        raise DecodeError(f"unknown event type {shown(kind)}", Code.UNKNOWN_TYPE)

    def _new_slot(self, schema: str, table: str) -> _Slot:
        if len(self._slots) >= MAX_CACHED:
            self._slots.clear()
        slot = self._slots[schema, table] = _Slot(self._wanted(schema, table))
        return slot

    def _row(self, key: dict[str, Any], slot: _Slot, commit_ts: int, index: int, value: bytes) -> Event:
        change = json_object(value, "the event")
        schema, table, new = key["scm"], key["tbl"], change.get("u")
        if new is None:
            layout, row = self._image(change["d"], slot.deleted)
            slot.deleted = layout
            before = image_of(layout, row)
            event = Event(Kind.DELETE, commit_ts, index, schema, table, layout.columns, layout.key, before)
            self._learn(value, event, layout, {"before": row}, change)
            return event
        if "d" in change:
            raise DecodeError("a change is both an upsert and a delete")
        cut = _cut(key) if len(key) > _PLAIN_KEY else None
        self._check_cut(cut)
        layout, row = self._image(new, slot.new)
        slot.new = layout
        image = image_of(layout, row)
        kind, images, old_image = Kind.INSERT, {"after": row}, None
        if change.get("p") is not None:
            kind, was = Kind.UPDATE, old_row(change["p"], new, row, layout)
            if was is not None:
                images["before"], old_image = was, image_before(layout, was, row)
        event = Event(kind, commit_ts, index, schema, table, layout.columns, layout.key, old_image, image, cut)
        if cut is None:
            self._learn(value, event, layout, images, change)
        return event

    def _learn(self, value: bytes, event: Event, layout: Layout, images: Images, change: dict[str, Any]) -> None:
        """Tells the templates of a row; its values have been taken out of the change."""
        if value[:_START] in _PLAIN_STARTS:
            kind = _kind_of((event.schema, event.table), value)
            self._templates.missed(kind, layout, partial(_lesson, value, event, layout, images, change))

    def _image(self, columns: Columns, layout: Layout | None) -> tuple[Layout, dict[str, Any]]:
        """The values of an image, which are taken out of `columns`, and the layout of what stays there."""
        row = _values_out_of(columns)
        if layout is None or layout.shape != columns or layout.names != tuple(columns):
            layout = self._layout(columns)
        return layout, row

    def _layout(self, columns: Columns) -> Layout:
        if not columns:
            raise DecodeError("a row without columns")
        handle = [name for name, column in columns.items() if column.get("h") or _flags(column) & HANDLE_KEY_FLAG]
        layout = make_layout(columns, handle, [(name, *self._converter(name, columns[name])) for name in columns])
        types = (_declared(label, columns[name].get("f")) for name, label in zip(columns, layout.labels, strict=True))
        return layout.raw(with_types(layout.columns, tuple(types)))

    def _converter(self, name: str, column: dict[str, Any]) -> tuple[str, Converter]:
        code, flags = column["t"], column.get("f")
        if flags is None and code in FLAGLESS_TYPES:
            return FLAGLESS_TYPES[code]
        if code in BINARY_TYPES and _flags(column) & BINARY_FLAG:
            return BINARY_TYPES[code]
        if code in self._types:
            return self._types[code]
        raise DecodeError(f"column {shown(name)} is of the unknown type {shown(code)}", Code.UNKNOWN_TYPE, column=name)


def _kind_of(table: TableName, body: bytes) -> Hashable:
    """The kind of a row, for templates."""
    return table, body[:_START], _WITH_OLD in body


def _values_out_of(columns: Columns) -> dict[str, Any]:
    return {name: column.pop("v") for name, column in columns.items()}


def _lesson(value: bytes, event: Event, layout: Layout, images: Images, change: dict[str, Columns]) -> Lesson:
    tree = {
        part: {name: {**columns[name], "v": cell} for name, cell in cells(_IMAGES[part], images[_IMAGES[part]]).items()}
        for part, columns in change.items()
    }
    return Lesson(value, event, layout, images, tree)


def _cut(key: dict[str, Any]) -> Code | None:
    """Why the event holds the columns of the key only, None when it holds the row."""
    if key.get("ccl"):
        return Code.CLAIM_CHECK
    return Code.HANDLE_KEY_ONLY if key.get("ohk") else None


def _flags(column: dict[str, Any]) -> int:
    """The bit flags; the oldest encoders write none."""
    flags = column.get("f")
    if flags is None:
        return 0
    if not isinstance(flags, int | float):
        raise DecodeError(f"the flags of a column are {shown(flags)}, not a number")
    return int(flags)


def _declared(label: str, flags: int | None) -> str:
    """The type in words; without flags nothing tells signed from unsigned, nor text from bytes."""
    return "" if flags is None else label.lower() + " unsigned" * bool(int(flags) & UNSIGNED_FLAG)


def _frames(packed: bytes, at: int) -> list[bytes]:
    """The frames after an offset; a length is big-endian int64, and a negative one reads as one too large."""
    start, end = at + _LENGTH, len(packed)
    if start + int.from_bytes(packed[at:start], "big") == end:
        return [packed[start:]]
    frames = []
    while at < end:
        start = at + _LENGTH
        at = start + int.from_bytes(packed[at:start], "big")
        if at > end:
            raise DecodeError("a frame is longer than what follows")
        frames.append(packed[start:at])
    return frames


def _schema_change(key: dict[str, Any], commit_ts: int, index: int, value: bytes) -> Event:
    """Goes by the statement; action codes beyond the described 36 occur."""
    schema, table, sql = key["scm"], key["tbl"], json_object(value, "the event")["q"]
    if type(sql) is not str or not sql:
        raise DecodeError(f"the statement of a schema change is {shown(sql)}")
    check_name(schema, "schema")
    check_name(table, "table")
    return Event(Kind.SCHEMA_CHANGE, commit_ts, index, schema, table, text=sql)


def _boundary(commit_ts: int, index: int, value: bytes) -> Event:
    """A resolved event's value is none, empty, or one frame of no length."""
    if value and decompressed(value):
        raise DecodeError("a resolved event has a value")
    return Event(Kind.BOUNDARY, commit_ts, index)
