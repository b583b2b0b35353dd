"""Debezium's change events in JSON: TiCDC's (with and without schema, with and without the TiDB extension) and those
of the native connector for MySQL, which is CKafka's default format; sources: "TiCDC Debezium" and Debezium's own page
on the connector for MySQL.

A message says by its form what it is: a row (`op` c, u, d, r), a truncated table (t), a watermark (m), a schema change
(`ddl`).  Tombstones, heartbeats and transaction metadata say nothing that the others do not.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import partial
from typing import Any, ClassVar, Final, cast

import numpy as np
import orjson

from bridge.events import Code, Event, Kind
from bridge.protocols.debezium.columns import column_reader, raw_literal
from bridge.protocols.debezium.connector_options import TICDC_MODES, DebeziumModes
from bridge.protocols.debezium.envelope import Document, Envelopes
from bridge.protocols.debezium.keys import HandleKeys
from bridge.protocols.decoder import (
    FAILURES,
    MAX_CACHED,
    MAX_COMMIT_TS,
    DecodeError,
    DecodeOptions,
    RowEvents,
    check_commit_ts,
    check_name,
    reading_schema_change,
    shown,
)
from bridge.protocols.fast.learner import JsonDecoder
from bridge.protocols.fast.message_shape import Hole, Lesson, cells
from bridge.protocols.values.event_time import event_ts
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout
from bridge.protocols.values.untyped import with_forms, with_types

_TICDC: Final = "TiCDC"
_CONNECTORS: Final = frozenset({_TICDC, "mysql", "mariadb", None})
"""What `source.connector` may be; very old connectors do not say it."""
_KINDS: Final = {"c": Kind.INSERT, "r": Kind.INSERT, "u": Kind.UPDATE, "d": Kind.DELETE, "t": Kind.SCHEMA_CHANGE}
"""A snapshot's read (r) is an upsert, as every insert is."""
_IMAGES: Final = {Kind.INSERT: "after", Kind.UPDATE: "after", Kind.DELETE: "before"}
_NAMES: Final = ("before", "after")
_TABLE: Final = b'"db":'
_TABLE_END: Final = b',"server_id":'
_OPERATION: Final = b'"op":"'
_DDL_MARK: Final = b'"ddl"'

_SESSION_ONLY: Final = re.compile(r"\s*(?:SET|USE)\b", re.IGNORECASE)
_DROP: Final = re.compile(r"\s*DROP\b", re.IGNORECASE)
_NO_SNAPSHOT: Final = (None, False, "false")

_FLATTENED: Final = (
    "no Debezium envelope: neither op and source of a row, nor ddl of a schema change. A row flattened by the transform"
    " ExtractNewRecordState has lost its table, its operation and its position: take the transform out of the connector"
)

_UNAVAILABLE: Final = ("__debezium_unavailable_value", "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ==")
"""What Debezium writes for a value that the log did not hold (unavailable.value.placeholder), as text and as bytes."""
_UNAVAILABLE_AS_SENT: Final = tuple(f'"{placeholder}"'.encode() for placeholder in _UNAVAILABLE)
_NOT_AVAILABLE: Final = (
    "column {} holds Debezium's placeholder for a value that the log did not have, and is not known to be as it was:"
    " binlog_row_image must be FULL"
)

_new_event = tuple.__new__
"""Half the time of Event(...)."""


class _Slot:
    """What is known of one kind of change of one table."""

    __slots__ = ("image", "keys", "kind", "layout", "modes", "schema", "table", "wanted")

    def __init__(
        self, kind: Kind, schema: str, table: str, wanted: bool, modes: DebeziumModes, keys: HandleKeys
    ) -> None:
        self.kind, self.schema, self.table, self.wanted, self.modes = kind, schema, table, wanted, modes
        self.keys, self.image = keys, _IMAGES.get(kind)
        self.layout: Layout | None = None


class DebeziumDecoder(JsonDecoder):
    """Decodes Debezium's JSON."""

    protocols: ClassVar[tuple[str, ...]] = ("debezium",)

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._modes = options.debezium
        self._envelopes = Envelopes()
        self._has_schemas = True
        self._slots: dict[tuple[str | None, str, str, str], _Slot] = {}

    def usual_events(self, key: bytes | None, value: bytes | None) -> Sequence[Event] | None:
        """One row of TiCDC's; see `GuardedDecoder.usual_events`."""
        if not value or not self._is_plain:
            return None
        kind = self._kind_of(value)
        event = self._templates.event(kind, value.decode())
        if event is None:
            return None
        keys, handle = self._templates.guard(kind)
        return (event,) if keys.names(key) == handle else None

    def _guarded(self, keys: Sequence[bytes | None], guard: Any, rows: RowEvents) -> RowEvents:
        handle_keys, handle = guard
        named = (_names(handle_keys, keys[number]) == handle for number in rows.numbers.tolist())
        return rows.only(np.fromiter(named, np.bool_, len(rows.numbers)))

    def _kind_of(self, value: bytes) -> bytes:
        """What tells table and operation, where a message looks as TiCDC writes it."""
        table, operation = value.find(_TABLE), value.find(_OPERATION)
        return value[table : value.find(_TABLE_END, table)] + value[operation : operation + len(_OPERATION) + 1]

    def _events(self, key: bytes | None, value: bytes | None) -> list[Event]:
        if value is None:
            return []  # a tombstone, for Kafka's compaction: the delete came before it
        payload, schema = self._value(value)
        if payload is None:
            return []
        if type(payload) is not dict:
            raise DecodeError(f"the payload is {shown(payload)}, not a JSON object")
        source, op = payload.get("source"), payload.get("op")
        if type(source) is not dict or op is None:
            return _without_row(payload)
        slot = self._slots.get((source.get("connector"), source["db"], source["table"], op))
        if slot is None:
            if op == "m":
                return [_watermark(source)]
            slot = self._new_slot(source, op)
        if slot.image is None:
            return [_truncation(payload, source)]
        if not slot.wanted:
            return self._left_out(slot.schema, slot.table)
        if slot.modes is not TICDC_MODES and any(placeholder in value for placeholder in _UNAVAILABLE_AS_SENT):
            payload = _without_unavailable(payload, slot)
        event = self._row(key, payload, source, schema, slot)
        if slot.modes is TICDC_MODES and slot.layout is not None:
            lesson = partial(_lesson, value, payload, schema, event, slot)
            self._templates.missed(self._kind_of(value), slot.layout, lesson)
        return [event]

    def _value(self, value: bytes) -> Document:
        """A message's payload and schema; one without a schema, most likely if the last had none, is parsed at once."""
        if not self._has_schemas:
            try:
                message = orjson.loads(value)
                if "op" in message:
                    return message, None
                if len(message) == 1:
                    return message["payload"], None
            except FAILURES:
                pass
        try:
            document = self._envelopes.parsed(value, "the message")
        except DecodeError as failure:
            if _DDL_MARK in value:
                failure.code = Code.SCHEMA_CHANGE
            raise
        self._has_schemas = document[1] is not None
        return document

    def _new_slot(self, source: dict[str, Any], op: str) -> _Slot:
        connector, schema, table = source.get("connector"), source["db"], source["table"]
        if connector not in _CONNECTORS:
            raise DecodeError(f"the connector is {shown(connector)}, not Debezium's for MySQL or MariaDB, nor TiCDC")
        if op not in _KINDS:
            raise DecodeError(f"unknown operation {shown(op)}", Code.UNKNOWN_TYPE)
        if len(self._slots) >= MAX_CACHED:
            self._slots.clear()
        modes = TICDC_MODES if connector == _TICDC else self._modes
        slot = _Slot(_KINDS[op], schema, table, self._wanted(schema, table), modes, HandleKeys(self._envelopes))
        self._slots[connector, schema, table, op] = slot
        return slot

    def _row(
        self, key: bytes | None, payload: dict[str, Any], source: dict[str, Any], schema: Any, slot: _Slot
    ) -> Event:
        row, handle, kind, layout = payload[slot.image or ""], slot.keys.names(key), slot.kind, slot.layout
        if (
            layout is None
            or type(row) is not dict
            or (layout.shape is not schema and layout.shape != schema)
            or layout.names != tuple(row)
            or layout.handle != handle
        ):
            layout = slot.layout = _layout(row, schema, handle, slot.modes)
        after: str | None = image_of(layout, row)
        before: str | None = None
        if kind is Kind.DELETE:
            before, after = after, None
        elif kind is Kind.UPDATE and (old := payload.get("before")) is not None:
            before = image_before(layout, old, row)
        commit_ts, by_time = source.get("commit_ts"), False
        if type(commit_ts) is not int or not 0 < commit_ts <= MAX_COMMIT_TS:
            commit_ts, by_time = _commit_ts(payload, source)
        fields = (kind, commit_ts, 0, slot.schema, slot.table, layout.columns, layout.key, before, after, None, by_time)
        return _new_event(Event, fields)


def _without_unavailable(payload: dict[str, Any], slot: _Slot) -> dict[str, Any]:
    """A row without the columns of which the connector did not have the value, which in an update are as they were.

    An insert has no other value for them.  Where the row as it was does hold one, the text may be what was written.
    """
    row, before = payload[slot.image or ""], payload.get("before")
    if type(row) is not dict:
        return payload
    missing = {name for name, found in row.items() if found in _UNAVAILABLE}
    for name in missing:
        if slot.kind is Kind.INSERT or (before is not None and before.get(name, _UNAVAILABLE[0]) not in _UNAVAILABLE):
            raise DecodeError(_NOT_AVAILABLE.format(shown(name)), Code.LOST_VALUE, column=name)
    rest = {name: found for name, found in row.items() if name not in missing}
    if before is None or slot.image == "before":
        return {**payload, slot.image or "": rest}
    was = {name: found for name, found in before.items() if name not in missing}
    return {**payload, "before": was, slot.image or "": rest}


def _names(keys: HandleKeys, key: bytes | None) -> list[str] | None:
    """The columns that a key names, None when it cannot be read."""
    try:
        return keys.names(key)
    except (*FAILURES, DecodeError):
        return None


def _lesson(value: bytes, payload: dict[str, Any], schema: Any, event: Event, slot: _Slot) -> Lesson:
    """What templates learn from a row of TiCDC's; the guard is how to read a key, and the columns that it must name."""
    rows = {image: row for image in _NAMES if (row := payload.get(image)) is not None}
    names = {"db": Hole.SCHEMA, "table": Hole.TABLE}
    source = {**payload["source"], **names, "ts_ms": Hole.NUMBER, "commit_ts": Hole.COMMIT_TS}
    images = {image: cells(image, row) for image, row in rows.items()}
    tree = {"payload": {**payload, "source": source, "ts_ms": Hole.NUMBER, **images}}
    if schema is not None:
        tree["schema"] = _of_any_table(schema)
    layout = cast(Layout, slot.layout)
    return Lesson(value, event, layout, rows, tree, guard=(slot.keys, layout.handle))


def _of_any_table(schema: dict[str, Any]) -> dict[str, Any]:
    """A schema with holes for the names that it gives to the message and the row: they hold the table's, and say
    nothing."""
    fields = [_unnamed(field) if field["field"] in _NAMES else field for field in schema["fields"]]
    return _unnamed({**schema, "fields": fields})


def _unnamed(schema: dict[str, Any]) -> dict[str, Any]:
    return {**schema, "name": Hole.TEXT} if type(schema.get("name")) is str else schema


def _layout(row: Any, schema: Any, handle: list[str], modes: DebeziumModes) -> Layout:
    if type(row) is not dict or not row:
        raise DecodeError(f"the row is {shown(row)}, not an object with columns")
    if "" in row:
        raise DecodeError("a column has no name")
    if schema is None:
        layout = make_layout(schema, handle, [(name, "no type", raw_literal) for name in row])
        return layout.raw(with_forms(layout.columns, [f"json:{modes}"]))
    fields = _row_fields(schema)
    readers = [column_reader(name, _field(fields, name), modes) for name in row]
    columns = [(name, reader.label, reader.convert) for name, reader in zip(row, readers, strict=True)]
    layout = make_layout(schema, handle, columns)
    with_all = with_forms(layout.columns, [reader.form for reader in readers])
    return layout.raw(with_types(with_all, tuple(reader.declared for reader in readers)))


def _row_fields(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The fields of a row, by name: those of `after`, which are those of `before` too."""
    for field in schema["fields"]:
        if field["field"] == "after":
            return {column["field"]: column for column in field["fields"]}
    raise DecodeError("the schema does not describe `after`")


def _field(fields: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in fields:
        raise DecodeError(f"the schema does not describe the column {shown(name)}")
    return fields[name]


def _commit_ts(payload: dict[str, Any], source: dict[str, Any]) -> tuple[int, bool]:
    """The commit_ts, and whether it is only the event's time, as the binlog has it (a snapshot may have none)."""
    if "commit_ts" in source:
        return check_commit_ts(source["commit_ts"], "commit_ts"), False
    if source.get("connector") == _TICDC:
        raise DecodeError("source.commit_ts is missing", Code.NO_COMMIT_TS)
    return event_ts(source.get("ts_ms") or payload.get("ts_ms"), "source.ts_ms"), True


def _watermark(source: dict[str, Any]) -> Event:
    return Event(Kind.BOUNDARY, check_commit_ts(source.get("commit_ts"), "commit_ts"))


def _without_row(payload: dict[str, Any]) -> list[Event]:
    """A schema change, or what says nothing about rows: a heartbeat, the begin or end of a transaction."""
    if "ddl" in payload:
        with reading_schema_change():
            return _schema_change(payload)
    if payload.keys() == {"ts_ms"} or payload.keys() >= {"status", "id", "event_count"}:
        return []
    raise DecodeError(_FLATTENED)


def _schema_change(payload: dict[str, Any]) -> list[Event]:
    source, sql = payload["source"], payload["ddl"]
    if type(sql) is not str or not sql:
        raise DecodeError(f"the statement is {shown(sql)}")
    if _is_no_change(sql, source):
        return []
    schema = check_name(payload.get("databaseName") or source.get("db") or "", "schema")
    table = check_name(source.get("table") or "", "table")
    commit_ts, by_time = _commit_ts(payload, source)
    return [Event(Kind.SCHEMA_CHANGE, commit_ts, 0, schema, table, text=sql, by_time=by_time)]


def _is_no_change(sql: str, source: dict[str, Any]) -> bool:
    """The native connector reports SET and USE too, and as a snapshot begins it writes the drop of every table that it
    is about to describe, for consumers that keep their own list of tables: nobody dropped those upstream."""
    if source.get("connector") == _TICDC:
        return False
    return bool(_SESSION_ONLY.match(sql) or (source.get("snapshot") not in _NO_SNAPSHOT and _DROP.match(sql)))


def _truncation(payload: dict[str, Any], source: dict[str, Any]) -> Event:
    """op t: TRUNCATE TABLE, as a connector reports it that does not skip it (skipped.operations)."""
    with reading_schema_change():
        commit_ts, by_time = _commit_ts(payload, source)
    schema, table = source["db"], source["table"]
    quoted = ".".join("`" + name.replace("`", "``") + "`" for name in (schema, table))
    return Event(Kind.SCHEMA_CHANGE, commit_ts, 0, schema, table, text=f"TRUNCATE TABLE {quoted}", by_time=by_time)
