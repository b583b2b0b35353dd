"""The native Debezium connector: the messages that its page documents."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.events import NO_KEY, DdlStatement, Kind
from bridge.protocols import DecodeOptions, decode_message, make_decoder
from bridge.protocols.debezium.decoder import SNAPSHOT_LEAD_MS
from bridge.protocols.decoder import DecodeError
from bridge.protocols.values.column_types import column_type
from bridge.protocols.values.event_time import SNAPSHOT_PLACE, is_change_of_snapshot, place_in_binlog
from bridge.protocols.values.row_image import raw_converter
from bridge.rows.moments import Moment
from bridge.tso import ms_tso
from tests.support.debezium_wire import (
    CREATE,
    CUSTOMER,
    CUSTOMER_FIELDS,
    CUSTOMER_KEY,
    CUSTOMERS,
    MARRIED,
    TS_MS,
    event_of,
    events_of,
    named,
    native,
    raw_row,
    schema_change,
    ticdc,
)
from tests.support.wire import compact, reason

PLACE = place_in_binlog("mysql-server-1", "mysql-bin.000003", 484, 223344)
COLUMNS = "id\0first_name\0last_name\0email"
ANNE = "1004\0'Anne'\0'Kretchmar'\0'annek@noanswer.org'"
ANNE_MARIE = ANNE.replace("Anne'", "Anne Marie'")


@pytest.mark.parametrize("with_schema", [True, False])
@pytest.mark.parametrize("snapshot", ["true", "first", "last_in_data_collection", "incremental"])
def test_the_bits_of_a_key_in_a_snapshot(with_schema: bool, snapshot: str) -> None:
    """As the connectors 3.0.8, 3.6.1 and 3.5.0 for MariaDB write a 5 in each column: reversed in the key of a snapshot
    that is no incremental one."""
    key = "BQA=" if snapshot == "incremental" else "AAU="
    fields = [named("bytes", "data.Bits", field=name, parameters={"length": "12"}) for name in ("id", "v")]
    source = CUSTOMERS | {"snapshot": snapshot, "server_id": 0}
    for op in ("r", "c"):
        value = native(op, {"id": key, "v": "BQA="}, fields if with_schema else None, source=source)
        row = raw_row(event := event_of(value, b'{"id":"' + key.encode() + b'"}'), event.after)
        ready = {name: _ready(form, literal, "bit(12)") for name, (literal, form) in row.items()}
        is_refused = op == "r" and snapshot != "incremental"
        assert ready == {"id": "refused" if is_refused else "5" if key == "BQA=" else "1280", "v": "5"}
        assert _ready(row["id"][1], row["id"][0], "bit(8)") != "refused"


def _ready(form: str, literal: str, kind: str) -> str:
    convert = raw_converter(form, column_type(kind, nullable=True), pytest.fail)
    try:
        return convert(literal) if convert else literal
    except DecodeError as refusal:
        return "refused" if "incremental snapshot" in str(refusal) else str(refusal)


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
    fields: Any = CUSTOMER_FIELDS if with_schema else None
    key = CUSTOMER_KEY if with_schema else b'{"id":1004}'
    event = event_of(native(op, None, fields, source=CUSTOMERS, before=before, after=after), key)
    assert (event.kind, event.commit_ts, event.schema, event.table) == (kind, ms_tso(TS_MS), "inventory", "customers")
    assert (event.columns or "").split("\0\0")[0] == COLUMNS
    assert (event.key, event.before, event.after, event.by_time, event.place) == ("id", *images, True, PLACE)


def test_schema_change_topic() -> None:
    """The native connector's schema-change topic gives the statements that changed something upstream."""
    changed = DdlStatement(ms_tso(TS_MS), 0, "inventory", "customers", CREATE, by_time=True)
    assert events_of(b'{"databaseName":"inventory"}', schema_change(CREATE)) == [changed._replace(place=PLACE)]
    assert events_of(None, schema_change(CREATE, "true")) == [
        changed._replace(commit_ts=ms_tso(TS_MS - SNAPSHOT_LEAD_MS), place=SNAPSHOT_PLACE)
    ]
    [of_transactions] = decode_message(
        make_decoder("debezium", DecodeOptions(None, transactions=True)), None, schema_change(CREATE, "true")
    )
    assert isinstance(of_transactions, DdlStatement)
    places = (SNAPSHOT_PLACE, of_transactions.place, PLACE, "")
    assert [is_change_of_snapshot(place or "") for place in places] == [True, True, False, False]
    for ddl in ("SET character_set_server=utf8mb4, collation_server=utf8mb4_0900_ai_ci", "use `inventory`"):
        assert events_of(None, schema_change(ddl)) == []
    for ddl in (
        "SET STATEMENT max_statement_time = 5 FOR TRUNCATE TABLE customers",
        "set\nstatement a=1 for drop table t",
    ):
        assert [event.statement for event in events_of(None, schema_change(ddl))] == [ddl]
    for ddl in ("DROP TABLE IF EXISTS `inventory`.`customers`", "DROP DATABASE IF EXISTS `inventory`"):
        assert [event.statement for event in events_of(None, schema_change(ddl))] == [ddl]
        for snapshot in (True, "true", "first", "last", "incremental"):
            assert events_of(None, schema_change(ddl, snapshot)) == []


def test_a_schema_message_without_a_statement() -> None:
    """Nothing ran upstream where a connector describes its tables: one of 3.5.0 that was killed within an incremental
    snapshot, of no server's log, when it goes on; one of 3.0.8 at the place of the signal.  Else it is not read."""
    no_log = CUSTOMERS | {"server_id": 0, "gtid": None, "db": "", "table": None}
    tables = [{"type": "CREATE", "id": '"inventory"."customers"', "table": {"columns": []}}]
    for source in (no_log, CUSTOMERS | {"table": "signals", "thread": 7}):
        assert events_of(None, schema_change(None, source=source, tableChanges=tables)) == []  # type: ignore[arg-type]
    assert "the statement is None" in reason(*events_of(None, schema_change(None)))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("charset", "to", "is_read"),
    [
        ("latin1", "CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", False),
        ("latin1", "CHARSET 'utf8mb4'", False),
        ("utf8", "CHARACTER SET UTF8MB3", True),
        (None, "CHARACTER SET utf8mb4", True),
        ("latin1", "CHARACTER SET latin1", True),
        ("latin1", "CHARACTER SET DEFAULT", True),
        ("latin1", "CHARACTER SET utf8mb4, MODIFY note TEXT CHARACTER SET latin1", True),
    ],
)
def test_a_connector_that_keeps_a_former_character_set(charset: str | None, to: str, *, is_read: bool) -> None:
    """3.0.8 reads what comes behind CONVERT TO in the former one, so that letters become others; 3.6.1 follows it."""
    columns = [{"name": "id", "charsetName": None}, {"name": "note", "charsetName": charset}]
    tables = [{"type": "ALTER", "id": '"inventory"."customers"', "table": {"columns": columns}}]
    text = f"ALTER TABLE customers CONVERT TO {to}"
    [event] = events_of(None, schema_change(text, tableChanges=tables))
    assert isinstance(event, DdlStatement) == is_read
    assert is_read or "goes on reading note in latin1" in reason(event)


def test_what_a_connector_calls_a_snapshots_and_is_of_a_servers_log() -> None:
    """As a connector 3.5.0 did behind a kill within an incremental snapshot: statements and rows of the log are what
    they are.  A drop in a snapshot's words may be a blocking snapshot's: it is not read."""
    log = CUSTOMERS | {"snapshot": "true"}
    for ddl in ("DROP TABLE `inventory`.`customers`", "TRUNCATE TABLE customers"):
        [event] = events_of(None, schema_change(ddl, "true", source=log))
        assert (event.statement, event.place, event.commit_ts) == (ddl, PLACE, ms_tso(TS_MS))
    for ddl in ("DROP TABLE IF EXISTS `inventory`.`customers`", "DROP DATABASE IF EXISTS `inventory`"):
        assert "blocking snapshot" in reason(*events_of(None, schema_change(ddl, "true", source=log)))
    assert event_of(native("d", CUSTOMER, source=log), None).index == 1


def test_gtids_are_part_of_the_place() -> None:
    """Those of the connectors for MySQL and for MariaDB; a file of another server is another one."""
    for server, gtid in ((1, "0-1-4"), (2, "24bc7850-2c16-11e6-a073-0242ac110002:9"), (2, None)):
        source = CUSTOMERS | {"server_id": server, "gtid": gtid}
        event = event_of(native("t", None, source=source), None)
        assert event.place == place_in_binlog("mysql-server-1", "mysql-bin.000003", 484, server, gtid) != PLACE


def test_rows_of_an_incremental_snapshot_have_no_time_of_a_commit() -> None:
    """Theirs is the connector's clock, which their place has to overrule: whole seconds do not."""
    row = {"id": 1}
    source = CUSTOMERS | {"snapshot": "incremental", "ts_ms": 1790000005097}
    event = event_of(native("r", None, source=source, after=row), b'{"id":1}')
    assert (event.commit_ts, event.place) == (ms_tso(1790000005000), PLACE)


def test_a_row_without_a_key_in_an_incremental_snapshot_stops() -> None:
    """Nothing tells whether the target has it already; in a first snapshot it has not."""
    for snapshot, kind in (("incremental", Kind.BAD), ("true", Kind.INSERT)):
        value = native("r", None, source=CUSTOMERS | {"snapshot": snapshot}, after={"id": 1})
        (event,) = events_of(None, value)
        assert event.kind is kind
        assert kind is not Kind.BAD or "nothing tells whether the target has it" in event.reason


def test_truncated_table() -> None:
    """op t, which a connector sends that does not skip it, truncates the table."""
    source = CUSTOMERS | {"table": "cust`omers"}
    event = event_of(native("t", None, source=source), None)
    assert (event.kind, event.by_time, event.place) == (Kind.SCHEMA_CHANGE, True, PLACE)
    assert event.statement == "TRUNCATE TABLE `inventory`.`cust``omers`"


@pytest.mark.parametrize(
    ("op", "source", "index"),
    [
        *(("c", {}, 2), ("u", {"row": 3}, 8), ("d", {"row": 3}, 7), ("c", {"row": None}, 0)),
        *(("c", {"snapshot": "incremental"}, 0), ("c", {"file": ""}, 0)),
        ("c", {"connector": "mariadb", "gtid": "0-1-40"}, 0),
        ("c", {"version": "2.7.4.Final"}, 0),
    ],
)
def test_a_row_has_the_index_that_it_has_in_its_event(op: str, source: dict[str, Any], index: int) -> None:
    """Of a changed key, the delete comes before the create.  Not of MariaDB, which gives all events of a transaction
    one position; connectors named mysql could read it before 3.0."""
    image: dict[str, Any] = {"before": CUSTOMER, "after": None} if op == "d" else {}
    assert event_of(native(op, CUSTOMER, source=CUSTOMERS | source, **image)).index == index


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


GENUINE_CREATE = (
    rb'{"source":{"version":"3.0.8.Final","connector":"mysql","name":"up","ts_ms":1795407351560,"snapshot":"true",'
    rb'"db":"shop","sequence":null,"ts_us":1795407351560754,"ts_ns":1795407351560754207,"table":"nokey","server_id":0,'
    rb'"gtid":null,"file":"binlog.000001","pos":34093,"row":0,"thread":null,"query":null},"ts_ms":1795407351563,'
    rb'"databaseName":"shop","schemaName":null,"ddl":"CREATE TABLE `nokey` (\n  `a` int DEFAULT NULL,\n  `t` varchar('
    rb'20) DEFAULT NULL\n) ENGINE=InnoDB DEFAULT CHARSET=utf8mb4 COLLATE=utf8mb4_0900_ai_ci","tableChanges":[]}'
)
"""What connector 3.0.8 wrote of MySQL 8.0.31, but for its list of columns."""
GENUINE_READ = (
    b'{"before":null,"after":{"a":0,"t":"n0"},"source":{"version":"3.0.8.Final","connector":"mysql","name":"up",'
    b'"ts_ms":1795407351000,"snapshot":"first_in_data_collection","db":"shop","sequence":null,'
    b'"ts_us":1795407351000000,"ts_ns":1795407351000000000,"table":"nokey","server_id":0,"gtid":null,'
    b'"file":"binlog.000001","pos":34093,"row":0,"thread":null,"query":null},"transaction":null,"op":"r",'
    b'"ts_ms":1795407351829,"ts_us":1795407351829908,"ts_ns":1795407351829908014}'
)


def test_a_snapshot_makes_a_table_before_its_rows() -> None:
    """The connector dates a snapshot's rows in whole seconds, before the CREATE TABLE that it dates in milliseconds:
    the statement counts as earlier all the same."""
    (made,), row = events_of(None, GENUINE_CREATE), event_of(GENUINE_READ, None)
    assert (made.kind, row.kind, row.after) == (Kind.SCHEMA_CHANGE, Kind.INSERT, "0\0'n0'")
    assert Moment.of_change(made.commit_ts, True, made.place).last < row.commit_ts


def test_event_time_of_a_snapshot() -> None:
    """Where a snapshot's row has no binlog time, the connector's own time stands in."""
    event = event_of(native("r", CUSTOMER, source=CUSTOMERS | {"ts_ms": 0, "snapshot": "true"}), None)
    assert event.commit_ts == ms_tso(TS_MS + 5)


@pytest.mark.parametrize(
    ("key", "handle"),
    [
        (b'{"payload":{"id":1}}', "id"), (b'{"payload":{"v":"a","id":1}}', "v\0id"), (b'{"payload":{}}', NO_KEY),
        (b"", NO_KEY),
        (None, NO_KEY), (b'{"id":1}', "id"), (b"{}", NO_KEY), (b"1004", ""),
        (b'{"schema":null,"payload":{"id":1}}', "id"),
        (b'{"payload":{"id":1},"schema":{"fields":[],"type":"struct"}}', "id"), (CUSTOMER_KEY, "id"),
    ],
)  # fmt: skip
def test_handle_key(key: bytes | None, handle: str) -> None:
    """The key's columns are the message key's, with a schema or without; a table without a key has none; a bare
    value says nothing."""
    assert event_of(ticdc("c", {"id": 1, "v": "a"}), key).key == handle


@pytest.mark.parametrize(
    ("sent", "whole"),
    [
        ("CREATE TABLE p (a INT)\n/*!50100 PARTITION BY HASH (`a`)\nPARTITIONS 2", " */"),
        ("CREATE TABLE p (a INT) /*!80016 ENCRYPTION='N' */ /*!50100 PARTITION BY KEY () COMMENT 'x'", " */"),
        ("CREATE TABLE p (a INT)\n/*!50100 PARTITION BY HASH (`a`) */", ""),
        ("CREATE TABLE p (a INT) COMMENT='/*!50100 x'", ""),
    ],
)
def test_a_statement_whose_last_comment_is_cut(sent: str, whole: str) -> None:
    """Debezium 3.6.1 cuts the end of the executable comment off SHOW CREATE TABLE of a partitioned table."""
    [event] = events_of(None, schema_change(sent))
    assert event.statement == sent + whole
