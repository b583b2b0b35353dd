"""Canal-JSON: TiCDC's, with or without the TiDB extension (enable-tidb-extension), and official Canal's flat messages;
sources: "TiCDC Canal-JSON", alibaba/canal.

One message is one event, except that `data` may hold several rows, as in official Canal.  What a message is shows in
itself: with `_tidb` it has a commit_ts, without it goes by its event time, `es`.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final

from bridge.events import Code, Event, Kind
from bridge.protocols.canal.types import canal_types, converter_of
from bridge.protocols.decoder import (
    MAX_CACHED,
    MAX_COMMIT_TS,
    DecodeError,
    DecodeOptions,
    check_commit_ts,
    check_name,
    reading_schema_change,
    shown,
)
from bridge.protocols.fast.learner import JsonDecoder
from bridge.protocols.fast.message_shape import Hole, Lesson, Part, cells
from bridge.protocols.values.event_time import event_ts
from bridge.protocols.values.json_message import json_object
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout
from bridge.protocols.values.untyped import with_types

_KINDS: Final = {"INSERT": Kind.INSERT, "UPDATE": Kind.UPDATE, "DELETE": Kind.DELETE}
_IMAGES: Final = {Kind.INSERT: "after", Kind.UPDATE: "after", Kind.DELETE: "before"}
"""What `data` holds."""
_ANNOTATIONS: Final = frozenset({"QUERY", "XACOMMIT"})
"""Official Canal's notes that change nothing: the text of a statement whose rows follow (binlog_rows_query_log_events)
and the end of an XA transaction whose rows came when it was prepared."""
_DDL_MARK: Final = re.compile(rb'"isDdl" ?: ?true')
"""What tells a schema change, should nothing else of the message be legible."""
_NO_COLUMNS: Final = (
    "a row without columns, an unusable change, as deletes of a table without a key are: give the table a key, or "
    "switch delete-only-output-handle-key-columns off in the changefeed"
)
_STATEMENT: Final = (
    "the message holds a statement instead of rows: the upstream's binlog_format is not ROW, and what the statement "
    "changed cannot be told"
)
_ROLLED_BACK: Final = (
    "an XA transaction was rolled back after it was prepared: its rows have been sent already, and nothing undoes them"
)

_TICDC: Final = b'{"id":0,'
"""How TiCDC's messages begin."""
_KIND_END: Final = b',"es":'
"""Before it stand schema, table and type, and nothing that changes."""

_new_event = tuple.__new__
"""Half the time of Event(...), which counts at one per row."""


class _Slot:
    """What is known of one kind of change of one table."""

    __slots__ = ("kind", "layout", "schema", "table", "wanted")

    def __init__(self, kind: Kind, schema: str, table: str, wanted: bool) -> None:
        self.kind, self.schema, self.table, self.wanted = kind, schema, table, wanted
        self.layout: Layout | None = None


class CanalJsonDecoder(JsonDecoder):
    """Decodes Canal-JSON; the message's key says nothing that its value does not."""

    protocols: ClassVar[tuple[str, ...]] = ("canal-json",)

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._types = canal_types(options.timezone)
        self._slots: dict[tuple[str, str, str], _Slot] = {}

    def usual_events(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | None:  # noqa: ARG002
        """One row, as TiCDC writes it; see `GuardedDecoder.usual_events`."""
        if not value or not self._is_plain:
            return None
        event = self._templates.event(self._kind_of(value), value.decode())
        return None if event is None else (event,)

    def _kind_of(self, value: bytes) -> bytes:
        return value[: value.find(_KIND_END)]

    def _events(self, key: bytes | None, value: bytes | None) -> list[Event]:  # noqa: ARG002
        message = canal_message(value)
        events = self.events_of(message)
        if value and value.startswith(_TICDC) and len(events) == 1 and events[0].kind in _IMAGES and not events[0].text:
            kind = self._kind_of(value)
            slot = self._slots[message["database"], message["table"], message["type"]]
            if slot.layout is not None:
                lesson = partial(_lesson, value, message, events[0], slot.layout)
                self._templates.missed(kind, slot.layout, lesson)
        return events

    def events_of(self, message: dict[str, Any]) -> list[Event]:
        """The events of a message that is already parsed."""
        if message.get("isDdl") is True:
            with reading_schema_change():
                return [_schema_change(message)]
        slot = self._slots.get((message["database"], message["table"], message["type"]))
        if slot is None:
            kind = message["type"]
            if kind not in _KINDS:
                return _without_rows(message, kind)
            slot = self._new_slot(message["database"], message["table"], kind)
        return self._rows(message, slot) if slot.wanted else self._left_out(slot.schema, slot.table)

    def _new_slot(self, schema: str, table: str, kind: str) -> _Slot:
        if len(self._slots) >= MAX_CACHED:
            self._slots.clear()
        slot = self._slots[schema, table, kind] = _Slot(_KINDS[kind], schema, table, self._wanted(schema, table))
        return slot

    def _rows(self, message: dict[str, Any], slot: _Slot) -> list[Event]:
        extension, rows, kind = message.get("_tidb"), message["data"], slot.kind
        commit_ts, cut = _moment(message, extension), None
        if extension is not None and len(extension) > 1 and kind is not Kind.DELETE:
            cut = _cut(extension)
            self._check_cut(cut)
        if type(rows) is not list or not rows:
            raise DecodeError(_STATEMENT if message.get("sql") else f"data is {shown(rows)}, not an array of rows")
        olds = _old_rows(message, len(rows)) if kind is Kind.UPDATE else None
        layout = slot.layout
        if layout is None or layout.shape != message.get("mysqlType") or layout.handle != message.get("pkNames"):
            layout = self._layout(message, rows[0])
        events = []
        for index, row in enumerate(rows):
            if type(row) is not dict or layout.names != tuple(row):
                layout = self._layout(message, row)
            before: str | None = None
            after: str | None = image_of(layout, row)
            if olds is not None:
                before = image_before(layout, olds[index], row)
            elif kind is Kind.DELETE:
                before, after = after, None
            fields = (
                kind, commit_ts, index, slot.schema, slot.table, layout.columns, layout.key, before, after, cut,
                extension is None,
            )  # fmt: skip
            events.append(_new_event(Event, fields))
        slot.layout = layout
        return events

    def _layout(self, message: dict[str, Any], row: object) -> Layout:
        types, handle = message.get("mysqlType"), message.get("pkNames")
        if not isinstance(row, dict):
            raise DecodeError(f"a row of data is {shown(row)}, not an object")
        if not row:
            raise DecodeError(_NO_COLUMNS)
        if not isinstance(types, dict):
            raise DecodeError(f"mysqlType is {shown(types)}, not an object: the types of the columns are missing")
        if handle is not None and not isinstance(handle, list):
            raise DecodeError(f"pkNames is {shown(handle)}, not an array")
        columns = [(name, *converter_of(self._types, name, types.get(name))) for name in row]
        layout = make_layout(types, handle, columns)
        layout = layout.raw(with_types(layout.columns, layout.labels))
        missing = next((name for name in handle or () if name not in row), None)
        if missing is not None:
            raise DecodeError(f"the row lacks its key column {shown(missing)}: binlog_row_image must be FULL or NOBLOB")
        return layout


def _lesson(value: bytes, message: dict[str, Any], event: Event, layout: Layout) -> Lesson:
    """What templates learn from a row as TiCDC writes it, with its commit_ts.

    The order within mysqlType is random, and the codes in sqlType follow the values (golden); neither is read but for
    the types, which stay.
    """
    image = _IMAGES[event.kind]
    rows = {image: message["data"][0]}
    tree = {
        **message,
        "database": Hole.SCHEMA,
        "table": Hole.TABLE,
        "es": Hole.NUMBER,
        "ts": Hole.NUMBER,
        "sqlType": Part(message["sqlType"], is_same=False),
        "mysqlType": Part(layout.shape, is_same=True),
        "data": [cells(image, rows[image])],
        "_tidb": {"commitTs": Hole.COMMIT_TS},
    }
    if event.kind is Kind.UPDATE and message.get("old"):
        rows["before"] = message["old"][0]
        tree["old"] = [cells("before", rows["before"])]
    return Lesson(value, event, layout, rows, tree)


def canal_message(value: bytes | None) -> dict[str, Any]:
    """The message, parsed; the code of a schema change that cannot be says what it is."""
    try:
        return json_object(value)
    except DecodeError as failure:
        if value and _DDL_MARK.search(value):
            failure.code = Code.SCHEMA_CHANGE
        raise


def _schema_change(message: dict[str, Any]) -> Event:
    """The schema change of a message with isDdl."""
    extension = message.get("_tidb")
    commit_ts = _moment(message, extension)
    schema, table, sql = message["database"] or "", message["table"] or "", message["sql"]
    if type(sql) is not str or not sql:
        raise DecodeError(f"the statement of a schema change is {shown(sql)}")
    check_name(schema, "schema")
    check_name(table, "table")
    return Event(Kind.SCHEMA_CHANGE, commit_ts, 0, schema, table, text=sql, by_time=extension is None)


def _without_rows(message: dict[str, Any], kind: object) -> list[Event]:
    if kind == "TIDB_WATERMARK":
        return [Event(Kind.BOUNDARY, check_commit_ts(message["_tidb"]["watermarkTs"], "watermarkTs"))]
    if kind == "XAROLLBACK":
        raise DecodeError(_ROLLED_BACK, Code.LOST_VALUE)
    if kind in _ANNOTATIONS and not message.get("data"):
        return []
    raise DecodeError(f"unknown event type {shown(kind)}", Code.UNKNOWN_TYPE)


def _old_rows(message: dict[str, Any], count: int) -> list[dict[str, Any]] | None:
    olds = message.get("old")
    if olds is not None and (type(olds) is not list or len(olds) != count):
        raise DecodeError("old has another number of rows than data")
    return olds


def _moment(message: dict[str, Any], extension: Any) -> int:
    """The commit_ts of the TiDB extension field, without that field the event time."""
    if extension is None:
        return event_ts(message["es"], "es")
    ts = extension["commitTs"]
    return ts if type(ts) is int and 0 < ts <= MAX_COMMIT_TS else check_commit_ts(ts, "commitTs")


def _cut(extension: dict[str, Any]) -> Code | None:
    """Why the message holds the columns of the key only, None when it holds the row."""
    if extension.get("claimCheckLocation"):
        return Code.CLAIM_CHECK
    return Code.HANDLE_KEY_ONLY if extension.get("onlyHandleKey") is True else None
