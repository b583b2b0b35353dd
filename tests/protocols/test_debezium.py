"""Debezium: the samples of the seed "TiCDC Debezium", what one decoder remembers of many messages, and refusals."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.events import Boundary, Code, DdlStatement, Kind, RowChange
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.debezium.decoder import DebeziumDecoder
from tests.support.debezium_wire import (
    CREATE,
    CUSTOMER,
    CUSTOMER_KEY,
    CUSTOMERS,
    ID,
    TICDC_SOURCE,
    connect,
    event_of,
    events_of,
    named,
    native,
    plain,
    raw_row,
    schema_change,
    ticdc,
)
from tests.support.wire import compact, reason, untyped

UNAVAILABLE = "__debezium_unavailable_value"
TEXT = {"type": "string", "optional": True, "field": "v"}

# --- the seed's own samples

SEED_DML = """{"payload": {"source": %s, "ts_ms": 1701326309000, "transaction": null, "op": "u", "before": {"tiny": 2},
"after": {"tiny": 1}}, "schema": {"type": "struct", "optional": false, "name": "test_cluster.test.table1.Envelope",
"version": 1, "fields": [{"type": "struct", "optional": true, "name": "test_cluster.test.table1.Value",
"field": "before", "fields": [{"type": "int16", "optional": true, "field": "tiny"}]}, {"type": "struct",
"optional": true, "name": "test_cluster.test.table1.Value", "field": "after", "fields": [{"type": "int16",
"optional": true, "field": "tiny"}]}]}}"""
SEED_SOURCE = """{"version": "2.4.0.Final", "connector": "TiCDC", "name": "test_cluster", "ts_ms": 0,
"snapshot": "false", "db": "%s", "table": "%s", "server_id": 0, "gtid": null, "file": "", "pos": 0, "row": 0,
"thread": 0, "query": null, "commit_ts": %d, "cluster_id": "test_cluster"}"""
SEED_KEY = b"""{"payload": {"tiny": 1}, "schema": {"fields": [{"field":"tiny", "optional":true, "type":"int16"}],
"name": "test_cluster.test.table1.Key", "optional": false, "type":"struct"}}"""
SEED_DDL = """{"payload": {"source": %s, "ts_ms": 1701326309000, "databaseName": "test", "schemaName": null,
"ddl": "RENAME TABLE test.table1 to test.table2", "tableChanges": [{"type": "ALTER",
"id": "\\"test\\".\\"table2\\",\\"test\\".\\"table1\\"", "table": {"defaultCharsetName": "", "primaryKeyColumnNames":
["id"], "columns": [], "comment": null}}]}, "schema": {"optional": false, "type": "struct", "version": 1,
"name": "io.debezium.connector.mysql.SchemaChangeValue", "fields": []}}"""
SEED_WATERMARK = """{"payload": {"source": %s, "op": "m", "ts_ms": 1701326309000, "transaction": null}, "schema":
{"type": "struct", "optional": false, "name": "test_cluster.watermark.Envelope", "version": 1, "fields": []}}"""


def seed(sample: str, db: str, table: str, commit_ts: int) -> bytes:
    return (sample % (SEED_SOURCE % (db, table, commit_ts))).encode()


def test_samples_of_the_seed() -> None:
    """The seed's row, schema change and watermark; blanks as people write them change nothing."""
    assert untyped(events_of(SEED_KEY, seed(SEED_DML, "test", "table1", 1))) == [
        RowChange(Kind.UPDATE, 1, 0, "test", "table1", "tiny", "tiny", "2", "1")
    ]
    assert events_of(b'{"payload":{"databaseName":"test"}}', seed(SEED_DDL, "test", "table1", 1)) == [
        DdlStatement(1, 0, "test", "table1", "RENAME TABLE test.table1 to test.table2")
    ]
    assert events_of(b'{"payload":{}}', seed(SEED_WATERMARK, "", "", 3)) == [Boundary(3)]


# --- one decoder for many messages


def test_what_is_remembered_changes_nothing() -> None:
    """Schemas, tables and columns that change from message to message, each as by a fresh decoder."""
    text = {"type": "string", "optional": True, "field": "v", "tidb_type": "text"}
    blob, added = text | {"tidb_type": "blob"}, {"type": "int32", "optional": True, "field": "w"}
    rows = [
        ticdc("c", {"id": 1, "v": "YQ=="}, [ID, text]), ticdc("c", {"id": 1, "v": "YQ=="}, [ID, blob]),
        ticdc("c", {"id": 1, "v": "YQ==", "w": 5}, [ID, blob, added]), ticdc("c", {"id": 1, "v": "YQ=="}),
        native("c", {"id": 1, "v": "YQ=="}), native("c", {"id": 1, "v": "YQ=="}, [ID, text]),
        ticdc("c", {"v": "YQ==", "id": 1}, [ID, blob]), ticdc("d", {"id": 1, "v": "YQ=="}, [ID, blob]),
        native("c", {"id": 1, "v": ',"schema":{"type":1},"payload":{"a":1}}'}, [ID, text]),
        ticdc("c", {"id": 1, "v": ',"schema":{"type":1}}'}, [ID, text]),
        json.dumps(json.loads(ticdc("c", {"id": 1, "v": "YQ=="}, [ID, blob])), indent=1).encode(),
        native("c", {"id": 1, "v": "YQ=="}, [ID, text])[:-1] + b"," + native("c", {"id": 1}, [ID, blob])[1:],
    ]  # fmt: skip
    keys = [b'{"payload":{"id":1}}', b'{"payload":{"id":1},"schema":{"a":1}}', CUSTOMER_KEY, None, b"{}"]
    decoder = make_decoder("debezium", DecodeOptions(None))
    for _ in range(2):
        for key in keys:
            for row in rows:
                assert decode_message(decoder, key, row) == events_of(key, row)


def test_remembered_schemas_are_bounded() -> None:
    """A flood of schemas does not fill the memory."""
    decoder = DebeziumDecoder(DecodeOptions(None))
    for number in range(200):
        field = {"type": "int32", "optional": True, "field": "v", "doc": "x" * 100_000, "version": number}
        [event] = decoder.decode(None, ticdc("c", {"v": 1}, [field]))
        assert event.kind is Kind.INSERT
    remembered = decoder.envelopes._schemas
    assert 0 < sum(map(len, remembered)) <= 8 << 20


@pytest.mark.parametrize("fields", [None, [ID, TEXT]], ids=["without schema", "with schema"])
@pytest.mark.parametrize("before", [None, {"id": 1, "v": UNAVAILABLE}, {"id": 1}], ids=["none", "neither", "less"])
def test_values_that_the_log_did_not_hold_are_as_they_were(
    fields: list[dict[str, Any]] | None, before: dict[str, Any] | None
) -> None:
    """Debezium's placeholder in an update is an absent column (binlog_row_image=NOBLOB), unless the row as it was has a
    value of it; the text of a row that was really given it comes to the same."""
    event = event_of(native("u", {"id": 1, "v": UNAVAILABLE}, fields, before=before))
    assert raw_row(event, event.after).keys() == {"id"}
    assert (event.kind, event.before) == (Kind.UPDATE, None if before is None else "1")


@pytest.mark.parametrize("op", ["c", "r"])
@pytest.mark.parametrize("fields", [None, [ID, TEXT]], ids=["without schema", "with schema"])
@pytest.mark.parametrize("text", [UNAVAILABLE, "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="])
def test_an_insert_has_all_its_values(op: str, fields: list[dict[str, Any]] | None, text: str) -> None:
    """The placeholder's text in a new row is what was written."""
    event = event_of(native(op, {"id": 1, "v": text}, fields))
    assert raw_row(event, event.after)["v"][0] == f"'{text}'"


def test_a_deleted_row_needs_no_more_than_its_key() -> None:
    """A value that the log did not hold is absent from the row that went."""
    event = event_of(native("d", {"id": 1, "v": "X19kZWJleml1bV91bmF2YWlsYWJsZV92YWx1ZQ=="}))
    assert (raw_row(event, event.before).keys(), event.after) == ({"id"}, None)


# --- refusals


@pytest.mark.parametrize(
    ("value", "words", "code"),
    [
        (b"", "no value", Code.MALFORMED),
        (b"\0\0\0\0\1\2", "Avro", Code.MALFORMED),
        (b"[]", "array", Code.MALFORMED),
        (compact(CUSTOMER), "ExtractNewRecordState", Code.MALFORMED),
        (compact(CUSTOMER | {"__deleted": "false", "__op": "c"}), "ExtractNewRecordState", Code.MALFORMED),
        (compact({"payload": CUSTOMER, "schema": {"type": "struct"}}), "ExtractNewRecordState", Code.MALFORMED),
        (ticdc("x", {"id": 1}), "operation 'x'", Code.UNKNOWN_TYPE),
        (native("u", {"id": 1, "v": UNAVAILABLE}, before={"id": 1, "v": "x"}), "column 'v' holds", Code.LOST_VALUE),
        (native("u", {"id": 1, "v": UNAVAILABLE}, before={"id": 1, "v": None}), "column 'v' holds", Code.LOST_VALUE),
        (native("c", {"id": 1}, source=CUSTOMERS | {"connector": "postgresql"}), "postgresql", Code.MALFORMED),
        (native("m", None, source=CUSTOMERS), "commit_ts", Code.MALFORMED),
        (ticdc("c", {"id": 1}, source={**TICDC_SOURCE, "commit_ts": "1"}), "not a TSO", Code.MALFORMED),
        (native("c", {"id": 1}, source=CUSTOMERS | {"connector": "TiCDC"}), "commit_ts", Code.NO_COMMIT_TS),
        (native("c", {"id": 1}, source=CUSTOMERS | {"ts_ms": "1"}), "not a time", Code.MALFORMED),
        (ticdc("c", None), "not an object", Code.MALFORMED),
        (ticdc("c", {}), "not an object", Code.MALFORMED),
        (ticdc("c", {"": 1}), "no name", Code.MALFORMED),
        (ticdc("c", {"a\0b": 1}), "NUL", Code.MALFORMED),
        (ticdc("c", {"v": {"a": 1}}), "'v'", Code.BAD_VALUE),
        (ticdc("c", {"id": 1, "v": 1}, [ID]), "does not describe", Code.MALFORMED),
        (ticdc("c", {"v": 1}, [plain("map") | {"field": "v"}]), "unknown type 'map'", Code.UNKNOWN_TYPE),
        (ticdc("c", {"v": "x"}, [plain("int32") | {"field": "v"}]), "not an integer", Code.BAD_VALUE),
        (ticdc("c", {"v": 1}, [plain("boolean") | {"field": "v"}]), "true or false", Code.BAD_VALUE),
        (ticdc("c", {"v": "x"}, [named("bytes", "data.Bits") | {"field": "v"}]), "Base64", Code.BAD_VALUE),
        (ticdc("c", {"v": 99999999}, [named("int32", "time.Date") | {"field": "v"}]), "out of range", Code.BAD_VALUE),
        (native("c", {"v": 0.123456789012345678}, [connect("bytes", "Decimal", parameters={"scale": "20"}, field="v")]),
         "decimal.format=BASE64", Code.LOST_VALUE),
        (schema_change(""), "schema change", Code.SCHEMA_CHANGE),
        (schema_change(CREATE, source=None), "schema change", Code.SCHEMA_CHANGE),
        (schema_change(CREATE)[:-5], "not JSON", Code.SCHEMA_CHANGE),
    ],
)  # fmt: skip
def test_refused(value: bytes, words: str, code: Code) -> None:
    """What is no Debezium message for MySQL, or holds no value of its type, says so."""
    event = event_of(value)
    assert words in reason(event)
    assert event.code == code


@pytest.mark.parametrize(
    ("id_", "expected"),
    [
        (r'"archive"."b"', "RENAME TABLE a TO archive.b"),
        (r'"shop"."a","archive"."b"', "RENAME TABLE `shop`.`a` TO archive.b"),
        (None, "RENAME TABLE a TO archive.b"),
    ],
)
def test_table_changes_of_debezium(id_: str | None, expected: str) -> None:
    """TiCDC lists both tables of a rename in the id; the connector for MySQL gives the new one alone (3.6.1)."""
    source = {"connector": "TiCDC", "db": "archive", "table": "b", "commit_ts": 5}
    change = {"type": "ALTER", "id": id_, "table": None}
    payload = {
        **{"source": source, "ts_ms": 1, "databaseName": "archive", "ddl": "RENAME TABLE a TO archive.b"},
        "tableChanges": [change, None] if id_ else None,
    }
    (event,) = events_of(None, json.dumps({"payload": payload}).encode())
    assert event.statement == expected


@pytest.mark.parametrize("table", ["a,b", "t" * 65, ["a"], None])
def test_the_table_of_a_source_is_for_people(table: object) -> None:
    """Debezium 3 lists all tables of a statement in it, however long that is."""
    source = {"connector": "mysql", "db": "shop", "table": table, "ts_ms": 1}
    payload = {"source": source, "ts_ms": 1, "databaseName": "shop", "ddl": "DROP TABLE a"}
    (event,) = events_of(None, json.dumps(payload).encode())
    assert (event.table, event.statement) == ("", "DROP TABLE a")
