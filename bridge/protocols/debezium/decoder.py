"""Decodes Debezium's change events in JSON: TiCDC's (with and without schema, with and without the TiDB extension) and
those of the native connector for MySQL, which is CKafka's default format; sources: "TiCDC Debezium" and Debezium's own
page on the connector for MySQL.

`op` marks a row (c, u, d, r), a truncated table (t) or a watermark (m); `ddl` marks a schema change.  Tombstones and
heartbeats hold nothing that the other messages do not hold; what they tell of transactions is read on request
(`transactions`).
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace
from typing import Any, ClassVar, Final

from bridge.ddl.by_table.routing import with_message_databases
from bridge.events import NO_KEY, NO_PRIMARY_KEY, Boundary, Code, DdlStatement, Event, Kind, RowChange, TransactionPart
from bridge.model import TableName
from bridge.protocols.debezium import values
from bridge.protocols.debezium.columns import Document, Envelopes, column_of, handle_names, raw_literal
from bridge.protocols.debezium.recognition import TICDC_MODES, DebeziumModes
from bridge.protocols.debezium.transactions import place_of_change, place_of_row, time_and_text
from bridge.protocols.decoder import (
    MAX_NAME,
    DecodeError,
    DecodeOptions,
    check_commit_ts,
    check_name,
    excerpt,
    reading_schema_change,
)
from bridge.protocols.fast.compiled.codes import PLACEHOLDERS
from bridge.protocols.plain_decoder import PlainDecoder
from bridge.protocols.values.column_types import Column
from bridge.protocols.values.event_time import SNAPSHOT_PLACE, event_ts, place_in_binlog, row_index
from bridge.protocols.values.row_image import Layout, image_before, image_of, make_layout, new_event
from bridge.tso import ms_tso, tso_ms

TICDC: Final = "TiCDC"
_CONNECTORS: Final = frozenset({TICDC, "mysql", "mariadb", None})
"""The senders that `source.connector` may name; very old connectors name none."""
_KINDS: Final = {"c": Kind.INSERT, "r": Kind.INSERT, "u": Kind.UPDATE, "d": Kind.DELETE, "t": Kind.SCHEMA_CHANGE}
"""The kind of each `op`.  A snapshot's read (r) is an upsert, as every insert is."""
_IMAGES: Final = {Kind.INSERT: "after", Kind.UPDATE: "after", Kind.DELETE: "before"}
_DDL_MARK: Final = b'"ddl"'

_SESSION_ONLY: Final = re.compile(r"\s*(?:SET\b(?!.*\bSTATEMENT\b)|USE\b)", re.IGNORECASE | re.DOTALL)
"""MariaDB's SET STATEMENT ... FOR runs another statement."""
_DROP: Final = re.compile(r"\s*DROP\b", re.IGNORECASE)
_DROP_OF_SNAPSHOT: Final = re.compile(r"\s*DROP\s+(?:TABLE|DATABASE)\s+IF\s+EXISTS\b", re.IGNORECASE)
_CHARSET: Final = r"\b(?:CHARACTER\s+SET|CHARSET)\b"
_CONVERT: Final = re.compile(
    rf"\s*ALTER\b(?:(?!{_CHARSET})[^'\"])*\bCONVERT\s+TO\s+{_CHARSET}\s+['\"`]?(?!DEFAULT\b)(\w+)(?!.*{_CHARSET})",
    re.IGNORECASE | re.DOTALL,
)
"""The only character set that a statement names."""
_NOT_CONVERTED: Final = (
    "the connector goes on reading {} in {}, not in {}: letters beyond ASCII come as others from here on. Take one that"
    " follows the statement (3.6.1 does), with a new snapshot"
)
_ID: Final = re.compile(r'"((?:[^"]|"")*)"\."((?:[^"]|"")*)"')
"""A table in `tableChanges`: "database"."table"."""
_INCREMENTAL: Final = "incremental"
_WITHOUT_KEY: Final = (
    "an incremental snapshot has read a row of a table without a key, and nothing tells whether the target has it"
    " already: give the table a key, or put the rows of the snapshot into the quarantine (--on-bad-message quarantine)"
    " and compare the table with the upstream (bridge verify --against upstream)"
)
_NO_SNAPSHOT: Final = (None, False, "false")
SNAPSHOT_LEAD_MS: Final = 60_000
"""How much earlier than it says a snapshot's schema change counts, so that it comes before the snapshot's rows.

The connector dates it by its own clock in milliseconds, and the rows after it by the server's clock in whole seconds
(seen with 3.0.8): CREATE TABLE at 07:15:51.559, the table's rows at 07:15:51.000.
"""

_FLATTENED: Final = (
    "no Debezium envelope: neither op and source of a row, nor ddl of a schema change. A row flattened by the transform"
    " ExtractNewRecordState has lost its table, its operation and its position: take the transform out of the connector"
)

UNAVAILABLE: Final = tuple(placeholder.decode() for placeholder in PLACEHOLDERS)
"""What Debezium writes for a value that the binlog did not hold (unavailable.value.placeholder); text and bytes."""
_UNAVAILABLE_AS_SENT: Final = tuple(f'"{placeholder}"'.encode() for placeholder in UNAVAILABLE)
_NOT_AVAILABLE: Final = (
    "column {} holds Debezium's placeholder for a value that the binlog did not hold, and may have changed:"
    " binlog_row_image must be FULL"
)


class DebeziumDecoder(PlainDecoder):
    """Decodes Debezium's JSON."""

    protocols: ClassVar[tuple[str, ...]] = ("debezium",)

    def __init__(self, options: DecodeOptions) -> None:
        super().__init__(options)
        self._modes, self._tells_transactions = options.debezium, options.transactions
        self.row_rules = replace(options.row_rules, keeps_count=options.transactions)
        self.envelopes = Envelopes()

    def parse(self, key: bytes | None, value: bytes | None) -> list[Event]:
        """Gives the events of one message."""
        if value is None:
            return []  # a tombstone for Kafka's compaction: the delete came before it
        payload, schema = self._value(value)
        if payload is None:
            return []
        if type(payload) is not dict:
            raise DecodeError(f"the payload is {excerpt(payload)}, not a JSON object")
        source, op = payload.get("source"), payload.get("op")
        if type(source) is not dict or op is None:
            return self._without_row(payload)
        op = _op_of(op, source)
        if op == "m":
            return [Boundary(check_commit_ts(source.get("commit_ts"), "commit_ts"))]
        connector = source.get("connector")
        if connector not in _CONNECTORS:
            raise DecodeError(f"the connector is {excerpt(connector)}, not Debezium's for MySQL or MariaDB, nor TiCDC")
        if op not in _KINDS:
            raise DecodeError(f"unknown operation {excerpt(op)}", Code.UNKNOWN_TYPE)
        name = source["db"], source["table"]
        is_wanted = self._wanted[name]
        if op == "t":
            return [self._truncation(payload, source)]
        if not is_wanted:
            return [*self._left_out(*name), *self._row_of_transaction(payload, source)]
        if connector != TICDC and any(placeholder in value for placeholder in _UNAVAILABLE_AS_SENT):
            payload = _without_unavailable(payload, _KINDS[op])
        return [self._row(key, payload, source, schema, op)]

    def _value(self, value: bytes) -> Document:
        """Gives a message's payload and schema."""
        try:
            return self.envelopes.parsed(value, "the message")
        except DecodeError as failure:
            if _DDL_MARK in value:
                failure.code = Code.SCHEMA_CHANGE
            raise

    def _row(
        self, key: bytes | None, payload: dict[str, Any], source: dict[str, Any], schema: Any, op: str
    ) -> RowChange:
        kind, layout_key = _KINDS[op], (source["db"], source["table"], op, source.get("connector"))
        row, layout = payload[_IMAGES[kind]], self.layouts[layout_key]
        handle = handle_names(self.envelopes, key)
        if handle == [] and source.get("snapshot") == _INCREMENTAL:
            raise DecodeError(_WITHOUT_KEY)
        if (
            layout is None
            or type(row) is not dict
            or (layout.types is not schema and layout.types != schema)
            or layout.names != tuple(row)
            or layout.handle != handle
        ):
            modes = TICDC_MODES if source.get("connector") == TICDC else self._modes
            layout = self.layouts[layout_key] = _layout(row, schema, handle, modes, is_read=op == "r")
        self.layout = layout
        after: str | None = image_of(layout, row)
        before: str | None = None
        if kind is Kind.DELETE:
            before, after = after, None
        elif kind is Kind.UPDATE and (old := payload.get("before")) is not None:
            before = image_before(layout, old, row)
        (commit_ts, by_time), place, index = _commit_ts(payload, source), None, 0
        if by_time:
            is_of_snapshot = _is_of_snapshot(source)
            if self._tells_transactions:
                place = place_of_row(payload, source, is_of_snapshot=is_of_snapshot)
            elif (place := _place(source)) is not None and not is_of_snapshot:
                row_fields = (source.get(name) for name in ("row", "connector", "version"))
                index = row_index(*row_fields, is_deleted=kind is Kind.DELETE)
        names = source["db"], source["table"], layout.columns, layout.key
        return new_event(RowChange, (kind, commit_ts, index, *names, before, after, None, by_time, place))

    def _row_of_transaction(self, payload: dict[str, Any], source: dict[str, Any]) -> list[Event]:
        """Gives the event of a row that is not replicated, where its transaction counts it."""
        if not self._tells_transactions or not payload.get("transaction"):
            return []
        return [TransactionPart(0, None, place_of_row(payload, source, is_of_snapshot=_is_of_snapshot(source)))]

    def _without_row(self, payload: dict[str, Any]) -> list[Event]:
        """Gives a schema change, and on request the beginning or end of a transaction; nothing for a heartbeat."""
        if "ddl" in payload:
            with reading_schema_change():
                return self._schema_change(payload)
        if payload.keys() >= {"status", "id", "event_count"}:
            return [TransactionPart(*time_and_text(payload))] if self._tells_transactions else []
        if payload.keys() == {"ts_ms"}:
            return []
        raise DecodeError(_FLATTENED)

    def _place_of_change(self, source: dict[str, Any], *, by_time: bool) -> str | None:
        if not by_time:
            return None
        is_of_snapshot = _is_of_snapshot(source)
        if self._tells_transactions:
            return place_of_change(source, is_of_snapshot=is_of_snapshot)
        return SNAPSHOT_PLACE if is_of_snapshot else _place(source)

    def _schema_change(self, payload: dict[str, Any]) -> list[Event]:
        source, sql = payload["source"], payload["ddl"]
        if sql is None and source.get("connector") != TICDC and payload.get("tableChanges"):
            return []  # a connector in an incremental snapshot describes its tables
        if type(sql) is not str or not sql:
            raise DecodeError(f"the statement is {excerpt(sql)}")
        if _is_no_change(sql, source):
            return []
        names = _tables_of_change(payload)
        if source.get("connector") != TICDC and any(self._wanted[name.schema, name.table] for name in names):
            _check_charsets(sql, payload)
        sql = _whole_statement(sql)
        schema = check_name(payload.get("databaseName") or source.get("db") or "", "schema")
        sql = with_message_databases(sql, schema, list(_tables_of_change(payload)))
        commit_ts, by_time = _commit_ts(payload, source)
        place = self._place_of_change(source, by_time=by_time)
        if by_time and _is_of_snapshot(source):
            commit_ts = event_ts(max(0, tso_ms(commit_ts) - SNAPSHOT_LEAD_MS), "source.ts_ms")
        return [DdlStatement(commit_ts, 0, schema, _table(source), sql, by_time, place)]

    def _truncation(self, payload: dict[str, Any], source: dict[str, Any]) -> DdlStatement:
        """Gives the schema change of `op` t, a TRUNCATE TABLE.  A connector may skip these (skipped.operations)."""
        with reading_schema_change():
            commit_ts, by_time = _commit_ts(payload, source)
            place = self._place_of_change(source, by_time=by_time)
        schema, table = source["db"], source["table"]
        text = "TRUNCATE TABLE " + ".".join("`" + name.replace("`", "``") + "`" for name in (schema, table))
        return DdlStatement(commit_ts, 0, schema, table, text, by_time, place)


def _op_of(op: str, source: dict[str, Any]) -> str:
    """Gives the operation of a row; one of an incremental snapshot is an insert."""
    return "c" if op == "r" and source.get("snapshot") == _INCREMENTAL else op


def _without_unavailable(payload: dict[str, Any], kind: Kind) -> dict[str, Any]:
    """Removes from an update the columns whose values the connector did not have: they did not change.

    An insert has all its values, and the placeholder's text is one of them.  Raises DecodeError where the old row does
    hold a value: then the placeholder's text may be a value that was written.
    """
    image = _IMAGES[kind]
    row, before = payload[image], payload.get("before")
    if type(row) is not dict or kind is Kind.INSERT:
        return payload
    missing = {name for name, value in row.items() if value in UNAVAILABLE}
    for name in missing:
        if before is not None and before.get(name, UNAVAILABLE[0]) not in UNAVAILABLE:
            raise DecodeError(_NOT_AVAILABLE.format(excerpt(name)), Code.LOST_VALUE)
    available = {name: value for name, value in row.items() if name not in missing}
    if before is None or image == "before":
        return {**payload, image: available}
    old = {name: value for name, value in before.items() if name not in missing}
    return {**payload, "before": old, image: available}


def _layout(row: Any, schema: Any, handle: list[str] | None, modes: DebeziumModes, *, is_read: bool) -> Layout:
    keys = handle or () if is_read else ()
    if type(row) is not dict or not row:
        raise DecodeError(f"the row is {excerpt(row)}, not an object with columns")
    if "" in row:
        raise DecodeError("a column has no name")
    # The connectors for MySQL and MariaDB may take a unique key for the primary key, and may not
    without_names = "" if handle is None else NO_KEY if modes is TICDC_MODES else NO_PRIMARY_KEY
    if schema is None:
        forms = {name: f"read:{modes}" if name in keys else f"json:{modes}" for name in row}
        columns = {name: Column("no type", raw_literal, form) for name, form in forms.items()}
        return make_layout(schema, handle, columns, without_names)
    fields = _row_fields(schema)
    columns = {name: column_of(name, _field(fields, name), modes) for name in row}
    for name, column in columns.items():
        if name in keys and column.convert is values.bits:
            columns[name] = column._replace(form="read")
    if "avro" in schema and modes is not TICDC_MODES and any("_" in name for name in row):
        for name in [name for name, column in columns.items() if not column.form][:1]:
            columns[name] = columns[name]._replace(form="avro")
    return make_layout(schema, handle, columns, without_names)


def _row_fields(schema: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """Gives the fields of a row by name: those of `after`, which `before` shares."""
    for field in schema["fields"]:
        if field["field"] == "after":
            return {column["field"]: column for column in field["fields"]}
    raise DecodeError("the schema does not describe `after`")


def _field(fields: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    if name not in fields:
        raise DecodeError(f"the schema does not describe the column {excerpt(name)}")
    return fields[name]


def _commit_ts(payload: dict[str, Any], source: dict[str, Any]) -> tuple[int, bool]:
    """Gives the commit_ts, and whether it is only the event time from the binlog (which a snapshot may lack).

    The rows of an incremental snapshot have the connector's clock, which no commit of the server has: they get the
    whole second of it, so that their place decides (`bridge.rows.moments`).
    """
    if "commit_ts" in source:
        return check_commit_ts(source["commit_ts"], "commit_ts"), False
    if source.get("connector") == TICDC:
        raise DecodeError("source.commit_ts is missing", Code.NO_COMMIT_TS)
    ts = event_ts(source.get("ts_ms") or payload.get("ts_ms"), "source.ts_ms")
    if source.get("snapshot") == _INCREMENTAL:
        ts = ms_tso(tso_ms(ts) // 1000 * 1000)
    return ts, True


def _place(source: dict[str, Any]) -> str | None:
    """Gives the place in the binlog of an event of the native connector.

    All rows of a snapshot have the place where the connector begins to follow the binlog, so that they are earlier than
    the schema changes that it finds there.
    """
    name, file, position = source.get("name"), source.get("file"), source.get("pos")
    if type(name) is not str or type(file) is not str or type(position) is not int:
        return None
    return place_in_binlog(name, file, position, source.get("server_id"), source.get("gtid"))


def _table(source: dict[str, Any]) -> str:
    """Gives the table that the source of a schema change names, for people to read; "" where it lists several, as
    Debezium 3 does for a statement of several tables."""
    table = source.get("table")
    return table if type(table) is str and len(table) <= MAX_NAME and "," not in table else ""


def _tables_of_change(payload: dict[str, Any]) -> Iterator[TableName]:
    """Gives the tables that `tableChanges` names: the `id` of each, which lists both of a rename where TiCDC writes it,
    and `previousId` where there is one."""
    changes = payload.get("tableChanges")
    for change in changes if type(changes) is list else ():
        for text in (change.get("id"), change.get("previousId")) if type(change) is dict else ():
            for schema, table in _ID.findall(text) if type(text) is str else ():
                yield TableName(schema.replace('""', '"'), table.replace('""', '"'))


def _check_charsets(sql: str, payload: dict[str, Any]) -> None:
    """Raises DecodeError where a connector (3.0.8) keeps the former character set of a column that is converted."""
    if (convert := _CONVERT.match(sql)) is None:
        return
    for change in payload.get("tableChanges") or ():
        for column in (change.get("table") or {}).get("columns", ()):
            charset = column.get("charsetName") or convert[1]
            kept, new = (name.lower().removesuffix("mb3").removesuffix("mb4") for name in (charset, convert[1]))
            if kept != new:
                raise DecodeError(_NOT_CONVERTED.format(column.get("name"), charset, convert[1]), Code.LOST_VALUE)


def _whole_statement(sql: str) -> str:
    """Closes the executable comment at the end of a statement, whose end Debezium 3.6.1 cuts off SHOW CREATE TABLE of a
    partitioned table."""
    comment = _CUT_COMMENT.search(sql)
    is_text = comment is not None and (sql[: comment.start()].count("'") % 2 or comment.group().count("'") % 2)
    return sql if comment is None or is_text else f"{sql} */"


_CUT_COMMENT: Final = re.compile(r"/\*!\d{5,6} (?:(?!\*/).)*\Z", re.DOTALL)


def _is_no_change(sql: str, source: dict[str, Any]) -> bool:
    """Tells whether a statement changed nothing upstream.

    The native connector also reports SET and USE.  When a snapshot begins, it writes a drop of every table that it is
    about to describe, for consumers that keep their own list of tables; nobody dropped these tables upstream.
    """
    if source.get("connector") == TICDC:
        return False
    if _DROP_OF_SNAPSHOT.match(sql) and source.get("snapshot") not in _NO_SNAPSHOT and not _is_of_snapshot(source):
        raise DecodeError(f"nothing tells whether {excerpt(sql)} is the upstream's, or begins a blocking snapshot")
    return bool(_SESSION_ONLY.match(sql) or (_is_of_snapshot(source) and _DROP.match(sql)))


def _is_of_snapshot(source: dict[str, Any]) -> bool:
    """Tells whether a message is of a snapshot, thus of no server's log, or of an incremental one.  A connector 3.5.0
    that was killed within one of these calls all that it reads of the log a snapshot's from then on."""
    flag = source.get("snapshot")
    return flag == _INCREMENTAL or (flag not in _NO_SNAPSHOT and not source.get("server_id"))
