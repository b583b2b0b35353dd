"""Debezium: one case per type row and sample of the seed "TiCDC Debezium", and of the native connector's own page."""

from __future__ import annotations

import json
from typing import Any

import pytest

from bridge.events import Code, Event, Kind, ms_tso
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.debezium_modes import DebeziumModes
from tests.protocols.debezium_wire import (
    NATIVE_SOURCE,
    TICDC_SOURCE,
    TS_MS,
    event_of,
    events_of,
    native,
    payload,
    raw_row,
    schema,
    ticdc,
)
from tests.protocols.wire import TSO, compact, reason

ID = {"type": "int32", "optional": False, "field": "id"}
STRING = "string:double,adaptive_time_microseconds,base64"
OPEN_STRING = "string:,adaptive_time_microseconds,"
INT64 = "int64:double,adaptive_time_microseconds,base64"
FLOAT64 = "float64:double,adaptive_time_microseconds,base64"


def named(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": f"io.debezium.{name}", "version": 1} | more


def connect(kind: str, name: str, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": True, "name": f"org.apache.kafka.connect.data.{name}", "version": 1} | more


def plain(kind: str, tidb_type: str | None = None) -> dict[str, Any]:
    return {"type": kind, "optional": True} | ({"tidb_type": tidb_type} if tidb_type else {})


NOT_NULL = {"optional": False}

TICDC_TYPES = [
    # numbers (types-seen: ints, bits, decs, floats)
    (plain("int16"), -128, "-128", ""), (plain("int16"), 255, "255", ""), (plain("int16"), -32768, "-32768", ""),
    (plain("int32"), 65535, "65535", ""), (plain("int32"), 16777215, "16777215", ""),
    (plain("int32", "int"), -2147483648, "-2147483648", ""),
    (plain("int64", "int unsigned"), 4294967295, "4294967295", ""),
    (plain("int64", "bigint"), -9223372036854775808, "-9223372036854775808", ""),
    (plain("int64", "bigint"), 9007199254740993, "9007199254740993", ""),
    (plain("int64", "bigint unsigned"), -1, "18446744073709551615", ""),
    (plain("int64", "bigint unsigned"), -9223372036854775808, "9223372036854775808", ""),
    (plain("int64"), -2, "-2", INT64),
    (plain("boolean", "bit"), True, "1", ""), (plain("boolean"), False, "0", ""),
    (named("bytes", "data.Bits", parameters={"length": "9"}), "AAE=", "256", ""),
    (named("bytes", "data.Bits"), "//////////8=", "18446744073709551615", ""),
    (plain("double", "decimal"), 3.1, "3.1e0", FLOAT64), (plain("double"), 1e35, "1e+35", FLOAT64),
    (plain("double", "decimal unsigned"), 0, "0.0e0", FLOAT64),
    (plain("float", "float"), 3.4028235e38, "3.4028234663852886e+38", ""),
    (plain("float"), 0.1, "0.10000000149011612e0", ""),
    (plain("double", "float"), 9999.999, "9999.9990234375e0", ""),
    (plain("double", "double unsigned"), 1e22, "1e+22", ""),
    # text and bytes (strs, cs, gbk_t, bins)
    (plain("string", "char"), "quo'te \"dq\"", "'quo\\'te \"dq\"'", ""),
    (plain("string", "varchar"), "\\", r"'\\'", ""),
    (plain("string", "mediumtext"), "nul\0byte", r"'nul\0byte'", ""),
    (plain("string", "longtext"), "漢字😀", "'漢字😀'", ""),
    (plain("string", "tinytext"), "", "''", ""), (plain("string", "text"), "   x", "'   x'", ""),
    (plain("string"), "AP8=", "'AP8='", STRING),
    (plain("string", "binary"), "YWIA", "x'616200'", ""), (plain("string", "varbinary"), "", "''", ""),
    (plain("string", "tinyblob"), "/wD/", "x'ff00ff'", ""), (plain("string", "blob"), "4oCC", "x'e28082'", ""),
    (plain("string", "mediumblob"), "8JCAgA==", "x'f0908080'", ""),
    (plain("string", "longblob"), "//4=", "x'fffe'", ""),
    # dates and times (times, tsdef)
    (named("int32", "time.Date"), 19782, "'2024-02-29'", ""),
    (named("int32", "time.Date"), -354285, "'1000-01-01'", ""),
    (named("int32", "time.Date", **NOT_NULL), 0, "'1970-01-01'", "epoch"),
    (named("int64", "time.MicroTime"), -3020398999999, "'-838:59:58.999999'", ""),
    (named("int64", "time.Timestamp"), 253402300799000, "'9999-12-31 23:59:59'", ""),
    (named("int64", "time.Timestamp", **NOT_NULL), 1704070923000, "'2024-01-01 01:02:03'", "epoch"),
    (named("int64", "time.MicroTimestamp"), -30610223999999999, "'1000-01-01 00:00:00.000001'", ""),
    (named("string", "time.ZonedTimestamp"), "2038-01-19T03:14:07.999Z", "'2038-01-19 03:14:07.999'", ""),
    (named("string", "time.ZonedTimestamp", **NOT_NULL), "1970-01-01T00:00:00Z", "'0000-00-00 00:00:00'", ""),
    (named("int32", "time.Year"), 2155, "2155", ""), (named("int32", "time.Year"), 0, "0", ""),
    # names, JSON, vectors (enums, jsons, vecs)
    (named("string", "data.Enum", parameters={"allowed": "a,g\\,h"}), "g,h", "'g,h'", ""),
    (named("string", "data.EnumSet"), "x,y,z,w w,q'q", r"'x,y,z,w w,q\'q'", ""),
    (named("string", "data.EnumSet"), "", "''", ""),
    (named("string", "data.Json"), '{"a": 1}', """'{"a": 1}'""", ""),
    (named("string", "data.Json"), "null", "'null'", ""),
    (named("string", "data.TiDBVectorFloat32"), "[1,2,3.5]", "'[1,2,3.5]'", ""),
]  # fmt: skip

NATIVE_TYPES = [
    # basic types
    (plain("boolean"), True, "1", ""), (plain("int16"), 255, "255", ""), (plain("int32"), 16777215, "16777215", ""),
    (plain("int64"), 4294967295, "4294967295", "int64:,adaptive_time_microseconds,"),
    (plain("float"), 5.610000133514404, "5.610000133514404e0", ""),
    (plain("bytes"), "AP8=", "x'00ff'", ""), (plain("string"), "00ff", "'00ff'", OPEN_STRING),
    (named("string", "data.Json"), "{}", "'{}'", ""), (named("int32", "time.Year"), 2018, "2018", ""),
    (named("string", "time.ZonedTimestamp"), "2018-06-20T13:37:03+08:00", "'2018-06-20 05:37:03'", ""),
    # decimal.handling.mode=precise, bigint.unsigned.handling.mode=precise
    (connect("bytes", "Decimal", parameters={"scale": "2", "connect.decimal.precision": "10"}), "MDk=", "123.45", ""),
    (connect("bytes", "Decimal", parameters={"scale": "2"}), "/w==", "-0.01", ""),
    (connect("bytes", "Decimal", parameters={"scale": "0"}), "AP//////////", "18446744073709551615", ""),
    (connect("bytes", "Decimal", parameters={"scale": "2"}), 123.45, "123.45", ""),
    (named("struct", "data.VariableScaleDecimal"), {"scale": 1, "value": "Dw=="}, "1.5", ""),
    # time.precision.mode: adaptive, connect, nanoseconds, isostring
    (named("int32", "time.Time"), 1500, "'00:00:01.500000'", ""),
    (named("int64", "time.NanoTime"), -1000, "'-00:00:00.000001'", ""),
    (named("int64", "time.NanoTimestamp"), 1529476623000000000, "'2018-06-20 06:37:03'", ""),
    (connect("int32", "Date"), 17702, "'2018-06-20'", ""),
    (connect("int32", "Time"), 86399999, "'23:59:59.999000'", ""),
    (connect("int64", "Timestamp", **NOT_NULL), 1529476623123, "'2018-06-20 06:37:03.123000'", "epoch"),
    (named("string", "time.IsoDate"), "2018-06-20Z", "'2018-06-20'", ""),
    (named("string", "time.IsoTime"), "06:37:03.5Z", "'06:37:03.5'", ""),
    (named("string", "time.IsoTimestamp"), "2018-06-20T06:37:03Z", "'2018-06-20 06:37:03'", ""),
    # spatial types and vectors
    (named("struct", "data.geometry.Point"), {"x": 1.0, "y": 2.0, "wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": None},
     "x'000000000101000000000000000000f03f0000000000000040'", ""),
    (named("struct", "data.geometry.Geometry"), {"wkb": "AQEAAAAAAAAAAADwPwAAAAAAAABA", "srid": 4326},
     "x'e61000000101000000000000000000f03f0000000000000040'", ""),
    (named("array", "data.FloatVector"), [1.0, 2.5], "'[1.0,2.5]'", ""),
]  # fmt: skip


@pytest.mark.parametrize(("field", "value", "literal", "form"), TICDC_TYPES)
def test_type_of_ticdc(field: dict[str, Any], value: Any, literal: str, form: str) -> None:
    """Each type of TiCDC's schema becomes its literal, or a raw one where the schema leaves something open."""
    event = event_of(ticdc("c", {"id": 1, "v": value}, [ID, field | {"field": "v"}]))
    assert raw_row(event, event.after) == {"id": ("1", ""), "v": (literal, form)}
    event = event_of(ticdc("d", {"id": 1, "v": None}, [ID, field | {"field": "v"}]))
    assert raw_row(event, event.before) == {"id": ("1", ""), "v": ("NULL", form)}


@pytest.mark.parametrize(("field", "value", "literal", "form"), NATIVE_TYPES)
def test_type_of_the_native_connector(field: dict[str, Any], value: Any, literal: str, form: str) -> None:
    """The same for the native connector's schemas."""
    event = event_of(native("c", {"id": 1, "v": value}, [ID, field | {"field": "v"}]), b'{"id":1}')
    assert raw_row(event, event.after) == {"id": ("1", ""), "v": (literal, form)}


@pytest.mark.parametrize(
    ("value", "literal"),
    [
        (-9223372036854775808, "-9223372036854775808"), (18446744073709551615, "18446744073709551615"), (True, "1"),
        (1e-05, "1e-05"), (0.1, "0.1e0"), ("it's", r"'it\'s'"), ("a\0b", r"'a\0b'"), (None, "NULL"),
        ([1, 2.5], "'[1,2.5]'"),
        ({"scale": 1, "value": "Dw=="}, "1.5"), ({"wkb": "AA==", "srid": None}, "x'0000000000'"),
    ],
)  # fmt: skip
def test_without_schema(value: Any, literal: str) -> None:
    """Without a schema a value is raw, by its JSON type; the form tells TiCDC's modes, or the connector's as set."""
    event = event_of(ticdc("c", {"id": 1, "v": value}))
    assert raw_row(event, event.after)["v"] == (literal, "json:double,adaptive_time_microseconds,base64")
    event = event_of(native("c", {"id": 1, "v": value}), b'{"id":1}', DebeziumModes("string", "connect", "hex"))
    assert raw_row(event, event.after)["v"] == (literal, "json:string,connect,hex")


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
    assert events_of(SEED_KEY, seed(SEED_DML, "test", "table1", 1)) == [
        Event(Kind.UPDATE, 1, 0, "test", "table1", "tiny", "tiny", "2", "1")
    ]
    assert events_of(b'{"payload":{"databaseName":"test"}}', seed(SEED_DDL, "test", "table1", 1)) == [
        Event(Kind.SCHEMA_CHANGE, 1, 0, "test", "table1", text="RENAME TABLE test.table1 to test.table2")
    ]
    assert events_of(b'{"payload":{}}', seed(SEED_WATERMARK, "", "", 3)) == [Event(Kind.BOUNDARY, 3)]


# --- the native connector's documented messages

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
COLUMNS = "id\0first_name\0last_name\0email"
ANNE = "1004\0'Anne'\0'Kretchmar'\0'annek@noanswer.org'"
ANNE_MARIE = ANNE.replace("Anne'", "Anne Marie'")


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize(
    ("op", "before", "after", "kind", "images"),
    [
        ("c", None, CUSTOMER, Kind.INSERT, (None, ANNE)),
        ("r", None, CUSTOMER, Kind.INSERT, (None, ANNE)),
        ("u", CUSTOMER, MARRIED, Kind.UPDATE, (ANNE, ANNE_MARIE)),
        ("u", None, MARRIED, Kind.UPDATE, (None, ANNE_MARIE)),
        ("d", MARRIED, None, Kind.DELETE, (ANNE_MARIE, None)),
    ],
)
def test_rows_of_the_native_connector(
    op: str, before: Any, after: Any, kind: Kind, images: tuple[str | None, str | None], with_schema: bool
) -> None:
    """Create, snapshot read, update and delete, with schemas and without; ordered by the binlog, timed by its event."""
    fields = CUSTOMER_FIELDS if with_schema else None
    key = CUSTOMER_KEY if with_schema else b'{"id":1004}'
    event = event_of(native(op, None, fields, source=CUSTOMERS, before=before, after=after), key)
    assert event[:5] == (kind, ms_tso(TS_MS), 0, "inventory", "customers")
    assert (event.columns or "").split("\0\0")[0] == COLUMNS
    assert (event.key, event.before, event.after, event.by_time) == ("id", *images, True)


def schema_change(ddl: str, snapshot: Any = "false", **fields: Any) -> bytes:
    source = CUSTOMERS | {"snapshot": snapshot}
    content = {"source": source, "ts_ms": TS_MS + 5, "databaseName": "inventory", "schemaName": None, "ddl": ddl,
               "tableChanges": []}  # fmt: skip
    return compact({"schema": {"type": "struct", "fields": []}, "payload": content | fields})


CREATE = "CREATE TABLE `customers` (\n  `id` int NOT NULL\n)"


def test_schema_change_topic() -> None:
    """The native connector's schema-change topic gives the statements that changed something upstream."""
    changed = Event(Kind.SCHEMA_CHANGE, ms_tso(TS_MS), 0, "inventory", "customers", text=CREATE, by_time=True)
    assert events_of(b'{"databaseName":"inventory"}', schema_change(CREATE)) == [changed]
    assert events_of(None, schema_change(CREATE, "true")) == [changed]
    for ddl in ("SET character_set_server=utf8mb4, collation_server=utf8mb4_0900_ai_ci", "use `inventory`"):
        assert events_of(None, schema_change(ddl)) == []
    for ddl in ("DROP TABLE IF EXISTS `inventory`.`customers`", "DROP DATABASE IF EXISTS `inventory`"):
        assert [event.text for event in events_of(None, schema_change(ddl))] == [ddl]
        for snapshot in (True, "true", "first", "last", "incremental"):
            assert events_of(None, schema_change(ddl, snapshot)) == []


def test_truncated_table() -> None:
    """op t, which a connector sends that does not skip it, truncates the table."""
    source = CUSTOMERS | {"table": "cust`omers"}
    event = event_of(native("t", None, source=source), None)
    assert (event.kind, event.by_time) == (Kind.SCHEMA_CHANGE, True)
    assert event.text == "TRUNCATE TABLE `inventory`.`cust``omers`"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (b'{"id":1004}', None),
        (CUSTOMER_KEY, None),
        (b'{"id":1004}', b'{"schema":null,"payload":null}'),
        (b'{"serverName":"mysql-server-1"}', b'{"ts_ms":1465491411815}'),
        (b"", b'{"schema":{"type":"struct","fields":[]},"payload":{"ts_ms":1465491411815}}'),
        (b'{"id":"571"}', compact({"status": "BEGIN", "id": "571", "ts_ms": 1, "event_count": None,
                                   "data_collections": None})),
        (b'{"id":"571"}', compact({"status": "END", "id": "571", "ts_ms": 1, "event_count": 2,
                                   "data_collections": [{"data_collection": "a.b", "event_count": 2}]})),
    ],
)  # fmt: skip
def test_messages_that_change_nothing(key: bytes, value: bytes | None) -> None:
    """Tombstones, heartbeats and transaction metadata give no event."""
    assert events_of(key, value) == []


def test_event_time_of_a_snapshot() -> None:
    """Where a snapshot's row has no binlog time, the connector's own time stands in."""
    event = event_of(native("r", CUSTOMER, source=CUSTOMERS | {"ts_ms": 0, "snapshot": "true"}), None)
    assert event.commit_ts == ms_tso(TS_MS + 5)


@pytest.mark.parametrize(
    ("key", "handle"),
    [
        (b'{"payload":{"id":1}}', "id"), (b'{"payload":{"v":"a","id":1}}', "v\0id"), (b'{"payload":{}}', ""),
        (b"", ""),
        (None, ""), (b'{"id":1}', "id"), (b"{}", ""), (b"1004", ""), (b'{"schema":null,"payload":{"id":1}}', "id"),
        (b'{"payload":{"id":1},"schema":{"fields":[],"type":"struct"}}', "id"), (CUSTOMER_KEY, "id"),
    ],
)  # fmt: skip
def test_handle_key(key: bytes | None, handle: str) -> None:
    """The key's columns are the message key's, with a schema or without; a table without a key has none."""
    assert event_of(ticdc("c", {"id": 1, "v": "a"}), key).key == handle


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
    ]  # fmt: skip
    keys = [b'{"payload":{"id":1}}', b'{"payload":{"id":1},"schema":{"a":1}}', CUSTOMER_KEY, None, b"{}"]
    decoder = make_decoder("debezium", DecodeOptions(None))
    for _ in range(2):
        for key in keys:
            for row in rows:
                assert decode_message(decoder, key, row) == events_of(key, row)


def test_remembered_schemas_are_bounded() -> None:
    """A flood of schemas does not fill the memory."""
    decoder = make_decoder("debezium", DecodeOptions(None))
    for number in range(200):
        field = {"type": "int32", "optional": True, "field": "v", "doc": "x" * 100_000, "version": number}
        [event] = decode_message(decoder, None, ticdc("c", {"v": 1}, [field]))
        assert event.kind is Kind.INSERT
    remembered = decoder._envelopes._schemas  # type: ignore[attr-defined]
    assert 0 < sum(map(len, remembered)) <= 8 << 20


def test_unwanted_tables_are_not_decoded() -> None:
    """Rows of a table that the filter leaves out are dropped before their values are looked at."""
    decoder = make_decoder("debezium", DecodeOptions(None, lambda schema, table: (schema, table) != ("d", "t")))
    assert decode_message(decoder, None, ticdc("c", {"id": []})) == []
    assert decode_message(decoder, None, native("c", {"id": 1}, source=CUSTOMERS))[0].kind is Kind.INSERT


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
    assert event.columns == code


def test_payload_helper_matches_the_seed() -> None:
    """The encoders of these tests write the fields that the seed's sample has."""
    written = payload("u", {"tiny": 1}, TICDC_SOURCE)
    sample = json.loads(seed(SEED_DML, "test", "table1", 1))["payload"]
    assert written.keys() == sample.keys()
    assert written["source"].keys() == sample["source"].keys()
    assert schema([])["fields"][1]["field"] == "after"
    assert TSO > 0
