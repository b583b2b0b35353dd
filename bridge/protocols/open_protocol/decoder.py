"""Decodes TiCDC's Open Protocol, version 1; source: "TiCDC Open Protocol".

A message is a batch of events.  Its key holds the version and a frame for each event; its value holds a frame for each
event.
"""

from __future__ import annotations

from typing import Any, ClassVar, Final

import orjson

from bridge.events import NO_KEY, Boundary, Code, DdlStatement, Event, Kind, RowChange, key_names
from bridge.protocols.decoder import (
    DecodeError,
    DecodeOptions,
    check_commit_ts,
    check_name,
    excerpt,
    reading_schema_change,
)
from bridge.protocols.open_protocol.types import TYPES, column_of, is_of_handle
from bridge.protocols.plain_decoder import PlainDecoder
from bridge.protocols.values.event_time import timestamp_converter
from bridge.protocols.values.json_message import decompressed, growth_limit, json_object
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout

Columns = dict[str, dict[str, Any]]

_FIELDS: Final = frozenset({"t", "h", "f", "v"})
_LOST: Final = (
    "the old row has lost the names of columns that became NULL, a defect of TiCDC with only-output-updated-columns; "
    "run the changefeed without that option"
)


def old_row(old: Columns, new: Columns, row: dict[str, Any], layout: Layout) -> dict[str, Any] | None:
    """Gives the values of the old image, or None when they are lost.  row: the values of the new image, which were
    removed from `new`."""
    if type(old.get("t", old)) is not dict:
        return _restored(old, new, row, layout)
    values = {name: column.pop("v") for name, column in old.items()}
    if old != new and not old.items() <= new.items():
        raise DecodeError("the columns of the old row are not those of the new one")
    return values


def _restored(old: dict[str, Any], new: Columns, row: dict[str, Any], layout: Layout) -> dict[str, Any] | None:
    nameless = {name: old.pop(name) for name in _FIELDS & old.keys() if type(old[name]) is not dict}
    values = old_row(old, new, row, layout) if old else {}
    became_null = [name for name, value in row.items() if value is None and name not in old]
    if values is not None and len(became_null) == 1 and _is_sure(became_null[0], nameless, new, layout):
        return values | {became_null[0]: nameless["v"]}
    handle = set(key_names(layout.key)) or _FIELDS
    if handle & (old.keys() | _FIELDS):
        raise DecodeError(_LOST, Code.LOST_VALUE)
    return None


def _is_sure(name: str, nameless: dict[str, Any], new: Columns, layout: Layout) -> bool:
    """Tells whether the nameless fields are the column's: they are complete, its own, and hide no column named like a
    field."""
    before = layout.names[: layout.names.index(name)]
    fields = {field: value for field, value in nameless.items() if field != "v"}
    return "v" in nameless and fields == new[name] and _FIELDS.isdisjoint(before)


OPEN_PROTOCOL_VERSION: Final = (1).to_bytes(8, "big")
"""The bytes that the key of every message begins with."""

_LENGTH: Final = 8
_PLAIN_KEY: Final = len(("ts", "scm", "tbl", "t"))


class OpenProtocolDecoder(PlainDecoder):
    """Decodes the batches of the Open Protocol, with or without compressed values inside."""

    protocols: ClassVar[tuple[str, ...]] = ("open-protocol",)

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._types = {**TYPES, 7: ("TIMESTAMP", timestamp_converter(options.timezone))}

    def parse(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Gives the events of one message."""
        if not key:
            raise DecodeError("the message has no key")
        if key[:_LENGTH] != OPEN_PROTOCOL_VERSION:
            raise DecodeError(f"the protocol version is {excerpt(key[:_LENGTH])}, not 1")
        keys = _frames(key, _LENGTH)
        values = _frames(value, 0) if value else [b""] * len(keys)
        if len(keys) == 1 == len(values):
            event = self.event_of(orjson.loads(keys[0]), values[0], 0)
            return [event] if event else []
        if len(keys) != len(values) or not keys:
            raise DecodeError(f"{len(keys)} events in the key, {len(values)} in the value")
        return self._batch(keys, values, growth_limit(len(value or b"")))

    def _batch(self, keys: list[bytes], values: list[bytes], limit: int) -> list[Event]:
        """Decodes several events; raises DecodeError when their images together hold more than `limit` bytes.

        Each value has a limit of its own, but a batch may hold many values.
        """
        events: list[Event] = []
        size = 0
        for index, (key, value) in enumerate(zip(keys, values, strict=True)):
            if event := self.event_of(orjson.loads(key), value, index):
                events.append(event)
                if isinstance(event, RowChange):
                    size += len(event.before or "") + len(event.after or "")
                if size > limit:
                    raise DecodeError(f"the batch holds more than {limit} bytes")
        return events

    def event_of(self, key: dict[str, Any], value: bytes, index: int) -> Event | None:
        """Gives the event of one parsed frame of the key and one frame of the value; None for an unwanted row.

        index: the frame's number in its message.
        """
        if key.get("t") == 2:
            with reading_schema_change():
                return _schema_change(key, check_commit_ts(key["ts"], "ts"), index, value)
        commit_ts, kind = check_commit_ts(key["ts"], "ts"), key["t"]
        if kind == 1:
            if self._wanted[key["scm"], key["tbl"]]:
                return self._row(key, commit_ts, index, value)
            return next(iter(self._left_out(key["scm"], key["tbl"], index)), None)
        if kind == 3:
            return _boundary(commit_ts, index, value)
        raise DecodeError(f"unknown event type {excerpt(kind)}", Code.UNKNOWN_TYPE)

    def _row(self, key: dict[str, Any], commit_ts: int, index: int, value: bytes) -> RowChange:
        change = json_object(value, "the event")
        schema, table, new = key["scm"], key["tbl"], change.get("u")
        if new is None:
            layout, row = self._image(change["d"], schema, table, Kind.DELETE)
            before = image_of(layout, row)
            return RowChange(Kind.DELETE, commit_ts, index, schema, table, layout.columns, layout.key, before, None)
        if "d" in change:
            raise DecodeError("a change is both an upsert and a delete")
        cut = _cut_code(key) if len(key) > _PLAIN_KEY else None
        self._check_cut(cut)
        layout, row = self._image(new, schema, table)
        image = image_of(layout, row)
        kind, old_image = Kind.INSERT, None
        if change.get("p") is not None:
            kind, was = Kind.UPDATE, old_row(change["p"], new, row, layout)
            if was is not None:
                old_image = image_before(layout, was, row)
        return RowChange(kind, commit_ts, index, schema, table, layout.columns, layout.key, old_image, image, cut)

    def _image(self, columns: Columns, *layout_key: str | Kind) -> tuple[Layout, dict[str, Any]]:
        """Removes the values of an image from `columns`; gives the values, and the layout of what is left."""
        row = {name: column.pop("v") for name, column in columns.items()}
        layout = self.layouts[layout_key]
        if layout is None or layout.types != columns or layout.names != tuple(columns):
            layout = self.layouts[layout_key] = self._layout(columns)
        self.layout = layout
        return layout, row

    def _layout(self, columns: Columns) -> Layout:
        if not columns:
            raise DecodeError("a row without columns")
        handle = [name for name, column in columns.items() if is_of_handle(column)]
        described = {name: column_of(self._types, name, column) for name, column in columns.items()}
        return make_layout(columns, handle, described, NO_KEY)


def _cut_code(key: dict[str, Any]) -> Code | None:
    """Tells why the event holds only the columns of the key; None when it holds the whole row."""
    if key.get("ccl"):
        return Code.CLAIM_CHECK
    return Code.HANDLE_KEY_ONLY if key.get("ohk") else None


def _frames(packed: bytes, at: int) -> list[bytes]:
    """Splits the bytes from `at` on into frames.  A length is a big-endian int64; a negative one is read as too
    large."""
    start, end = at + _LENGTH, len(packed)
    if start + int.from_bytes(packed[at:start], "big") == end:
        return [packed[start:]]
    frames = []
    while at < end:
        start = at + _LENGTH
        at = start + int.from_bytes(packed[at:start], "big")
        if at > end:
            raise DecodeError("a frame is longer than the bytes that follow")
        frames.append(packed[start:at])
    return frames


def _schema_change(key: dict[str, Any], commit_ts: int, index: int, value: bytes) -> DdlStatement:
    """Gives a schema change by its statement.  It does not read the action code, as codes occur beyond the 36 that are
    described."""
    schema, table, sql = key["scm"], key["tbl"], json_object(value, "the event")["q"]
    if type(sql) is not str or not sql:
        raise DecodeError(f"the statement of a schema change is {excerpt(sql)}")
    check_name(schema, "schema")
    check_name(table, "table")
    return DdlStatement(commit_ts, index, schema, table, sql)


def _boundary(commit_ts: int, index: int, value: bytes) -> Boundary:
    """Gives the boundary of a resolved event, whose value is missing, empty, or one empty frame."""
    if value and decompressed(value):
        raise DecodeError("a resolved event has a value")
    return Boundary(commit_ts, index)
