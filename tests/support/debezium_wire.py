"""Encoders of Debezium's JSON by the rules of the seed and of the native connector's page."""

from __future__ import annotations

from typing import Any

from bridge.events import RowChange
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.debezium.recognition import DebeziumModes
from bridge.protocols.values.row_image import split_forms
from tests.support.wire import TSO, compact, split

TS_MS = 1_465_491_411_000

TICDC_SOURCE = {
    "version": "2.4.0.Final", "connector": "TiCDC", "name": "test_cluster", "ts_ms": TS_MS, "snapshot": "false",
    "db": "d", "table": "t", "server_id": 0, "gtid": None, "file": "", "pos": 0, "row": 0, "thread": 0, "query": None,
    "commit_ts": TSO, "cluster_id": "test_cluster",
}  # fmt: skip
NATIVE_SOURCE = {
    "version": "3.0.8.Final", "connector": "mysql", "name": "mysql-server-1", "ts_ms": TS_MS, "snapshot": "false",
    "db": "d", "table": "t", "server_id": 223344, "gtid": None, "file": "mysql-bin.000003", "pos": 484, "row": 0,
    "thread": 7, "query": None,
}  # fmt: skip
ID = {"type": "int32", "optional": False, "field": "id"}
CUSTOMER = {"id": 1004, "first_name": "Anne", "last_name": "Kretchmar", "email": "annek@noanswer.org"}
MARRIED = CUSTOMER | {"first_name": "Anne Marie"}
CUSTOMER_FIELDS = [
    {"type": "int32", "optional": False, "field": "id"},
    *({"type": "string", "optional": False, "field": name} for name in ("first_name", "last_name", "email")),
]
CUSTOMER_KEY = compact(
    {
        "schema": {"type": "struct", "name": "mysql-server-1.inventory.customers.Key", "optional": False,
                   "fields": [{"field": "id", "type": "int32", "optional": False}]},
        "payload": {"id": 1004},
    }
)  # fmt: skip
CUSTOMERS = NATIVE_SOURCE | {"db": "inventory", "table": "customers"}
CREATE = "CREATE TABLE `customers` (\n  `id` int NOT NULL\n)"


def payload(op: str, row: dict[str, Any] | None, source: dict[str, Any], **fields: Any) -> dict[str, Any]:
    """A row message's payload; the row is the one after the change, for a delete the one before."""
    before, after = (row, None) if op == "d" else (None, row)
    return {
        "source": source, "ts_ms": TS_MS + 5, "transaction": None, "op": op, "before": before, "after": after,
    } | fields  # fmt: skip


def schema(fields: list[dict[str, Any]]) -> dict[str, Any]:
    """The Connect schema of an envelope; the parts that no reader needs are left out."""
    images = [{"type": "struct", "optional": True, "field": image, "fields": fields} for image in ("before", "after")]
    return {"type": "struct", "optional": False, "name": "c.d.t.Envelope", "fields": images}


def ticdc(op: str, row: dict[str, Any] | None, fields: list[dict[str, Any]] | None = None, **more: Any) -> bytes:
    """TiCDC's message, with schema when there are fields."""
    content = payload(op, row, **{"source": TICDC_SOURCE, **more})
    return compact({"payload": content, "schema": schema(fields)} if fields is not None else {"payload": content})


def native(op: str, row: dict[str, Any] | None, fields: list[dict[str, Any]] | None = None, **more: Any) -> bytes:
    """The native connector's message, with schema (in front) when there are fields."""
    content = payload(op, row, **{"source": NATIVE_SOURCE, **more})
    return compact({"schema": schema(fields), "payload": content} if fields is not None else content)


def events_of(key: bytes | None, value: bytes | None, modes: DebeziumModes | None = None) -> list[Any]:
    """The events of a message by a fresh decoder."""
    return decode_message(make_decoder("debezium", DecodeOptions(None, debezium=modes or DebeziumModes())), key, value)


def event_of(value: bytes, key: bytes | None = b'{"payload":{"id":1}}', modes: DebeziumModes | None = None) -> Any:
    [event] = events_of(key, value, modes)
    return event


def raw_row(event: RowChange, image: str | None) -> dict[str, tuple[str, str]]:
    """Column name -> (literal, form)."""
    names, forms = split_forms(event.columns)
    return dict(zip(names.split("\0"), zip(split(image), forms, strict=True), strict=True))


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": f"io.debezium.{name}", "version": 1} | more


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": f"org.apache.kafka.connect.data.{name}", "version": 1} | more


def plain(kind: str, tidb_type: str | None = None) -> dict[str, Any]:
    return {"type": kind, "optional": True} | ({"tidb_type": tidb_type} if tidb_type else {})


def schema_change(ddl: str, snapshot: Any = "false", **fields: Any) -> bytes:
    source = CUSTOMERS | {"snapshot": snapshot} | ({} if snapshot in {"false", False, None} else {"server_id": 0})
    content = {"source": source, "ts_ms": TS_MS + 5, "databaseName": "inventory", "schemaName": None, "ddl": ddl,
               "tableChanges": []}  # fmt: skip
    return compact({"schema": {"type": "struct", "fields": []}, "payload": content | fields})
