"""Canal-JSON as TiCDC writes it with the TiDB extension (enable-tidb-extension=true); source: "TiCDC Canal-JSON".

One message is one event, except that `data` may hold several rows, as in official Canal.
"""

from __future__ import annotations

import re
from typing import Any, Final

import orjson

from bridge.events import SEP, Code, Event, Kind
from bridge.protocols import literals
from bridge.protocols.compression import decompressed
from bridge.protocols.decoder import (
    MAX_CACHED,
    DecodeError,
    DecodeOptions,
    GuardedDecoder,
    check_commit_ts,
    check_name,
    reading_schema_change,
    shown,
)
from bridge.protocols.images import Layout, literals_of, make_layout, old_literals
from bridge.protocols.literals import Converter
from bridge.protocols.timezones import utc_converter

TYPES: Final[dict[str, Converter]] = {
    # TiCDC Canal-JSON, Integer types; official Canal has the same with a width, as in int(11)
    "tinyint": literals.integer,
    "boolean": literals.integer,
    "bool": literals.integer,
    "smallint": literals.integer,
    "mediumint": literals.integer,
    "int": literals.integer,
    "integer": literals.integer,
    "bigint": literals.integer,
    # TiCDC Canal-JSON, SQL Type field.  Values are plain notation, never an exponent (types-seen)
    "float": literals.float32,
    "double": literals.double,
    "decimal": literals.decimal,
    "numeric": literals.decimal,
    "char": literals.text,
    "varchar": literals.text,
    "tinytext": literals.text,
    "text": literals.text,
    "mediumtext": literals.text,
    "longtext": literals.text,
    # each byte is one ISO-8859-1 character (types-seen)
    "binary": literals.latin1,
    "varbinary": literals.latin1,
    "tinyblob": literals.latin1,
    "blob": literals.latin1,
    "mediumblob": literals.latin1,
    "longblob": literals.latin1,
    "date": literals.date,
    "datetime": literals.datetime,
    "time": literals.time,
    "year": literals.year,
    # numbers, not names (types-seen)
    "enum": literals.unsigned,
    "set": literals.unsigned,
    "bit": literals.unsigned,
    "json": literals.text,
    "vector": literals.text,
}
"""The base word of mysqlType to its converter; "timestamp" is added per decoder, since it needs the time zone."""

_BASE_WORD: Final = re.compile(r"[a-z]+")
_KINDS: Final = {"INSERT": Kind.INSERT, "UPDATE": Kind.UPDATE, "DELETE": Kind.DELETE}
_DDL_MARK: Final = b'"isDdl":true'
"""How TiCDC begins a schema change, should nothing else of the message be legible."""
_NO_EXTENSION: Final = (
    "the message has no _tidb.{}: this topic lacks the TiDB extension (enable-tidb-extension=true), and without it "
    "there are neither commit timestamps nor boundaries"
)
_NO_COLUMNS: Final = (
    "a row without columns: an unusable change, such as a table without a key gets from "
    "delete-only-output-handle-key-columns"
)


class _Slot:
    """What is known of one kind of change of one table."""

    __slots__ = ("kind", "layout", "wanted")

    def __init__(self, kind: Kind, wanted: bool) -> None:
        self.kind, self.wanted = kind, wanted
        self.layout: Layout | None = None


class CanalJsonDecoder(GuardedDecoder):
    """Decodes Canal-JSON; the message's key says nothing that its value does not."""

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._types = TYPES | {"timestamp": literals.timestamp(utc_converter(options.timezone))}
        self._slots: dict[tuple[str, str, str], _Slot] = {}

    def _events(self, key: bytes | None, value: bytes | None) -> list[Event]:  # noqa: ARG002
        message = _parsed(value)
        if message.get("isDdl") is True:
            with reading_schema_change():
                return [_schema_change(message)]
        kind = message["type"]
        slot = self._slots.get((message["database"], message["table"], kind))
        if slot is None:
            if kind == "TIDB_WATERMARK":
                return [Event(Kind.BOUNDARY, _tso(message, "watermarkTs"))]
            slot = self._new_slot(message["database"], message["table"], kind)
        return self._rows(message, slot) if slot.wanted else []

    def _new_slot(self, schema: str, table: str, kind: str) -> _Slot:
        if kind not in _KINDS:
            raise DecodeError(f"unknown event type {shown(kind)}", Code.UNKNOWN_TYPE)
        if len(self._slots) >= MAX_CACHED:
            self._slots.clear()
        slot = self._slots[schema, table, kind] = _Slot(_KINDS[kind], self._wanted(schema, table))
        return slot

    def _rows(self, message: dict[str, Any], slot: _Slot) -> list[Event]:
        commit_ts, cut = _tso(message, "commitTs"), _cut(message["_tidb"]) if slot.kind is not Kind.DELETE else None
        self._check_cut(cut)
        rows, olds = message["data"], message.get("old") if slot.kind is Kind.UPDATE else None
        if type(rows) is not list or not rows:
            raise DecodeError(f"data is {shown(rows)}, not an array of rows")
        if olds is not None and (type(olds) is not list or len(olds) != len(rows)):
            raise DecodeError("old has another number of rows than data")
        if len(rows) == 1:
            return [self._row(message, slot, commit_ts, cut, 0, rows[0], olds[0] if olds else None)]
        return [
            self._row(message, slot, commit_ts, cut, index, row, olds[index] if olds else None)
            for index, row in enumerate(rows)
        ]

    def _row(
        self, message: dict[str, Any], slot: _Slot, commit_ts: int, cut: Code | None, index: int, row: Any, old: Any
    ) -> Event:
        types, handle, layout = message.get("mysqlType"), message.get("pkNames"), slot.layout
        if (
            layout is None
            or type(row) is not dict
            or layout.shape != types
            or layout.names != tuple(row)
            or layout.handle != handle
        ):
            layout = slot.layout = self._layout(row, types, handle)
        literals = literals_of(layout, row)
        image: str | None = SEP.join(literals)
        before: str | None = None
        if slot.kind is Kind.DELETE:
            before, image = image, None
        elif old is not None:
            before = SEP.join(old_literals(layout, old, row, literals))
        schema, table = message["database"], message["table"]
        return Event(slot.kind, commit_ts, index, schema, table, layout.columns, layout.key, before, image, cut)

    def _layout(self, row: object, types: object, handle: object) -> Layout:
        if not isinstance(row, dict):
            raise DecodeError(f"a row of data is {shown(row)}, not an object")
        if not row:
            raise DecodeError(_NO_COLUMNS)
        if not isinstance(types, dict):
            raise DecodeError(f"mysqlType is {shown(types)}, not an object: the types of the columns are missing")
        if handle is not None and not isinstance(handle, list):
            raise DecodeError(f"pkNames is {shown(handle)}, not an array")
        return make_layout(types, handle, [(name, *self._converter(name, types.get(name))) for name in row])

    def _converter(self, name: str, mysql_type: object) -> tuple[str, Converter]:
        """The converter of a type like ``int``, ``int(11) unsigned`` or ``enum('a','b')``."""
        if not isinstance(mysql_type, str):
            raise DecodeError(f"column {shown(name)} has no type in mysqlType")
        word = _BASE_WORD.match(mysql_type.lower())
        converter = self._types.get(word[0]) if word else None
        if converter is None:
            raise DecodeError(f"column {shown(name)} is of the unknown type {shown(mysql_type)}", Code.UNKNOWN_TYPE)
        return mysql_type, converter


def _parsed(value: bytes | None) -> dict[str, Any]:
    if not value:
        raise DecodeError("the message has no value")
    try:
        message = orjson.loads(decompressed(value))
    except orjson.JSONDecodeError as failure:
        code = Code.SCHEMA_CHANGE if _DDL_MARK in value else Code.MALFORMED
        raise DecodeError(f"the value is not JSON: {failure}", code) from failure
    if type(message) is not dict:
        raise DecodeError(f"the value is {shown(message)}, not a JSON object")
    return message


def _schema_change(message: dict[str, Any]) -> Event:
    schema, table, sql = message["database"] or "", message["table"] or "", message["sql"]
    if type(sql) is not str or not sql:
        raise DecodeError(f"the statement of a schema change is {shown(sql)}")
    check_name(schema, "schema")
    check_name(table, "table")
    return Event(Kind.SCHEMA_CHANGE, _tso(message, "commitTs"), 0, schema, table, text=sql)


def _tso(message: dict[str, Any], field: str) -> int:
    """A TSO of the TiDB extension field."""
    extension = message.get("_tidb")
    if type(extension) is not dict or field not in extension:
        raise DecodeError(_NO_EXTENSION.format(field), Code.NO_COMMIT_TS)
    return check_commit_ts(extension[field], field)


def _cut(extension: dict[str, Any]) -> Code | None:
    """Why the message holds the columns of the key only, None when it holds the row."""
    if extension.get("claimCheckLocation"):
        return Code.CLAIM_CHECK
    return Code.HANDLE_KEY_ONLY if extension.get("onlyHandleKey") is True else None
