"""Decodes Canal-JSON: TiCDC's, with or without the TiDB extension (enable-tidb-extension), and official Canal's flat
messages; sources: "TiCDC Canal-JSON", alibaba/canal.

A message is one event, but `data` may hold several rows, as in official Canal.  With `_tidb` a message has a commit_ts;
without it, the event time `es` counts.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, ClassVar, Final

from bridge.events import NO_PRIMARY_KEY, RAW, Boundary, Code, DdlStatement, Event, Kind, RowChange
from bridge.protocols.canal.types import TYPES, column_of, sql_types_of
from bridge.protocols.decoder import (
    DecodeError,
    DecodeOptions,
    check_commit_ts,
    check_name,
    excerpt,
    reading_schema_change,
)
from bridge.protocols.plain_decoder import PlainDecoder
from bridge.protocols.values.event_time import event_ts, place_in_gtid_set, place_of_sending, timestamp_converter
from bridge.protocols.values.json_message import json_object
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout, new_event

_KINDS: Final = {"INSERT": Kind.INSERT, "UPDATE": Kind.UPDATE, "DELETE": Kind.DELETE}
_ANNOTATIONS: Final = frozenset({"QUERY", "XACOMMIT"})
"""Messages of official Canal that change nothing: the text of a statement whose rows follow
(binlog_rows_query_log_events), and the end of an XA transaction whose rows came when it was prepared."""
_DDL_MARK: Final = re.compile(rb'"isDdl" ?: ?true')
"""Recognises a schema change even where nothing else of the message can be read."""
_NO_COLUMNS: Final = (
    "a row without columns, which cannot be applied, as deletes of tables without a key are: give the table a key, or "
    "switch delete-only-output-handle-key-columns off in the changefeed"
)
_STATEMENT: Final = (
    "the message holds a statement instead of rows: the upstream's binlog_format is not ROW, and nothing tells what "
    "the statement changed"
)
_UNSAID: Final = ()
"""Stands for the `pkNames` of a message that has none, and so says nothing of keys.  Both TiCDC and Canal always write
it: it is empty (TiCDC) or null (Canal) for a table without a primary key (TiCDC Canal-JSON; Canal 1.1.7,
MQMessageUtils)."""
_ROLLED_BACK: Final = (
    "an XA transaction was rolled back after it was prepared: its rows have been sent already, and nothing undoes them"
)


class CanalJsonDecoder(PlainDecoder):
    """Decodes Canal-JSON.  A message's key holds nothing that its value does not hold."""

    protocols: ClassVar[tuple[str, ...]] = ("canal-json",)

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._types = {**TYPES, "timestamp": timestamp_converter(options.timezone)}

    def parse(self, key: bytes | None, value: bytes | None) -> list[Event]:  # noqa: ARG002
        """Gives the events of one message."""
        return self.events_of(canal_message(value))

    def events_of(self, message: dict[str, Any]) -> list[Event]:
        """Gives the events of a message that is parsed as JSON already."""
        if message.get("isDdl") is True:
            with reading_schema_change():
                return [_schema_change(message)]
        schema, table, kind = message["database"], message["table"], message["type"]
        if kind not in _KINDS:
            return _without_rows(message, kind)
        if not self._wanted[schema, table]:
            return self._left_out(schema, table)
        return self._rows(message, schema, table, _KINDS[kind])

    def _rows(self, message: dict[str, Any], schema: str, table: str, kind: Kind) -> list[Event]:
        extension, rows = message.get("_tidb"), message["data"]
        commit_ts, cut = _moment(message, extension), None
        if extension is not None and len(extension) > 1 and kind is not Kind.DELETE:
            cut = _cut_code(extension)
            self._check_cut(cut)
        if type(rows) is not list or not rows:
            raise DecodeError(_STATEMENT if message.get("sql") else f"data is {excerpt(rows)}, not an array of rows")
        olds = _old_rows(message, len(rows)) if kind is Kind.UPDATE else None
        place = _place(message) if extension is None else None
        # Of TiCDC's messages, sqlType depends on the values, and is not read; Canal's may change and change back
        is_official = is_of_canal(message)
        sql_types = sql_types_of(message.get("sqlType")) if is_official else {}
        layout_key = schema, table, kind, is_official, *sql_types.items()
        types, handle, layout = message.get("mysqlType"), message.get("pkNames", _UNSAID), self.layouts[layout_key]
        if layout is None or layout.types != types or layout.handle != handle:
            layout = self._layout(message, rows[0], sql_types, is_official=is_official)
        events: list[Event] = []
        layouts: dict[tuple[str, ...], Layout] = {}
        for index, row in enumerate(rows):
            names = tuple(row) if type(row) is dict else ()
            if layout.names != names:
                if names not in layouts:
                    layouts[names] = self._layout(message, row, sql_types, is_official=is_official)
                layout = layouts[names]
            before: str | None = None
            after: str | None = image_of(layout, row)
            if olds is not None:
                before = image_before(layout, olds[index], row)
            elif kind is Kind.DELETE:
                before, after = after, None
            names_of_row = schema, table, layout.columns, layout.key
            fields = (kind, commit_ts, index, *names_of_row, before, after, cut, extension is None, place)
            events.append(new_event(RowChange, fields))
        self.layouts[layout_key] = self.layout = layout
        return events

    def _layout(
        self, message: dict[str, Any], row: object, sql_types: Mapping[str, object], *, is_official: bool
    ) -> Layout:
        mysql_types, handle = message.get("mysqlType"), message.get("pkNames", _UNSAID)
        if not isinstance(row, dict):
            raise DecodeError(f"a row of data is {excerpt(row)}, not an object")
        if not row:
            raise DecodeError(_NO_COLUMNS)
        if not isinstance(mysql_types, dict):
            raise DecodeError(
                f"mysqlType is {excerpt(mysql_types)}, not an object: the types of the columns are missing"
            )
        if handle is not None and handle is not _UNSAID and not isinstance(handle, list):
            raise DecodeError(f"pkNames is {excerpt(handle)}, not an array")
        columns = {
            name: column_of(self._types, name, mysql_types.get(name), sql_types.get(name), is_official=is_official)
            for name in row
        }
        layout = make_layout(mysql_types, handle, columns, "" if handle is _UNSAID else NO_PRIMARY_KEY)
        if is_official:
            names, raw, forms = layout.columns.partition(RAW)
            layout = replace(layout, columns=_unescaped(names) + raw + forms, key=_unescaped(layout.key))
        missing = next((name for name in handle or () if name not in row), None)
        if missing is not None:
            raise DecodeError(
                f"the row lacks its key column {excerpt(missing)}: binlog_row_image must be FULL or NOBLOB"
            )
        return layout


def _unescaped(names: str) -> str:
    """Gives the names of columns, of which official Canal keeps the backquotes as a statement has them, doubled (seen
    with 1.1.7); such a name stands in backquotes in every statement."""
    return names.replace("``", "`")


def is_of_canal(message: dict[str, Any]) -> bool:
    """Tells whether a message is one of official Canal: it numbers its batches from 1, and has a gtid, which may be
    empty; TiCDC's `id` is always 0."""
    return "_tidb" not in message and bool(message.get("id") or "gtid" in message)


def canal_message(value: bytes | None) -> dict[str, Any]:
    """Parses a message; raises DecodeError, with SCHEMA_CHANGE where a schema change cannot be parsed."""
    try:
        return json_object(value)
    except DecodeError as failure:
        if value and _DDL_MARK.search(value):
            failure.code = Code.SCHEMA_CHANGE
        raise


def _schema_change(message: dict[str, Any]) -> DdlStatement:
    """Gives the schema change of a message with isDdl."""
    extension = message.get("_tidb")
    commit_ts = _moment(message, extension)
    schema, table, sql = message["database"] or "", message["table"] or "", message["sql"]
    if type(sql) is not str or not sql:
        raise DecodeError(f"the statement of a schema change is {excerpt(sql)}")
    check_name(schema, "schema")
    check_name(table, "table")
    by_time = extension is None
    place = _place(message) if by_time else None
    return DdlStatement(commit_ts, 0, schema, table, sql, by_time, place)


def _without_rows(message: dict[str, Any], kind: object) -> list[Event]:
    if kind == "TIDB_WATERMARK":
        return [Boundary(check_commit_ts(message["_tidb"]["watermarkTs"], "watermarkTs"))]
    if kind == "XAROLLBACK":
        raise DecodeError(_ROLLED_BACK, Code.LOST_VALUE)
    if kind in _ANNOTATIONS and not message.get("data"):
        return []
    raise DecodeError(f"unknown event type {excerpt(kind)}", Code.UNKNOWN_TYPE)


def _old_rows(message: dict[str, Any], count: int) -> list[dict[str, Any]] | None:
    olds = message.get("old")
    if olds is not None and (type(olds) is not list or len(olds) != count):
        raise DecodeError("old has another number of rows than data")
    return olds


def _moment(message: dict[str, Any], extension: Any) -> int:
    """Gives the commit_ts of the TiDB extension, or without it the TSO of the event time."""
    if extension is None:
        return event_ts(message["es"], "es")
    return check_commit_ts(extension["commitTs"], "commitTs")


def _place(message: dict[str, Any]) -> str | None:
    """Gives the place that official Canal's `gtid` tells, without GTIDs that of its sending; None for TiCDC."""
    gtids = message.get("gtid")
    if gtids and type(gtids) is str:
        return place_in_gtid_set(gtids)
    return place_of_sending(message.get("ts"), message.get("id"))


def _cut_code(extension: dict[str, Any]) -> Code | None:
    """Tells why the message holds only the columns of the key; None when it holds the whole row."""
    if extension.get("claimCheckLocation"):
        return Code.CLAIM_CHECK
    return Code.HANDLE_KEY_ONLY if extension.get("onlyHandleKey") is True else None
