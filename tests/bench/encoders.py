"""The senders of the benchmark: the demo's encoders, and more in their manner.

Debezium as TiCDC writes it without schemas and with watermarks; ckafka's official format 1; Debezium's own connector
for MySQL, with and without schemas, in Avro, and with the transaction block; Canal's own server with GTIDs (all seen in
genuine captures); JSON with blanks, as some relays write it.
"""

from __future__ import annotations

import base64
import json
import zlib
from collections.abc import Callable, Iterable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from functools import partial
from typing import Any, Final

import orjson

from bridge.demo.encode import ENCODERS as DEMO_ENCODERS
from bridge.demo.encode import TYPES, EncodedMessage, Encoder
from bridge.demo.model import BankColumn, BankRow, BankSchemaChange, Change, TableVersion, Transaction, Value
from bridge.tso import tso_ms
from tests.support.avro_wire import encoded, ticdc_schema

_EPOCH: Final = datetime(1970, 1, 1)
_DIGITS: Final = {"": "seconds", "3": "milliseconds", "6": "microseconds"}


class DebeziumEncoder(Encoder):
    """TiCDC's Debezium: one message a row; schema changes and watermarks in every partition."""

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """One message a row, keyed by its handle."""
        ts = transaction.commit_ts
        return [EncodedMessage(self.partition_of(c), _debezium_key(c), self._row(c, ts)) for c in transaction.changes]

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """The statement; table changes are for readers without a parser."""
        table = change.shape.name if change.shape else ""
        payload = {
            "source": _debezium_source(change.schema, table, change.commit_ts),
            "ts_ms": tso_ms(change.commit_ts),
            "databaseName": change.schema,
            "schemaName": None,
            "ddl": change.statement,
            "tableChanges": [],
        }
        return self._to_all(orjson.dumps({"payload": {"databaseName": change.schema}}), _payload(payload))

    def boundary(self, ts: int) -> list[EncodedMessage]:
        """A message of op "m"."""
        payload = {"source": _debezium_source("", "", ts), "ts_ms": tso_ms(ts), "transaction": None, "op": "m"}
        return self._to_all(b'{"payload":{}}', _payload(payload))

    def _row(self, change: Change, commit_ts: int) -> bytes:
        shape, before, after = change
        payload = {
            "source": _debezium_source(shape.schema, shape.name, commit_ts),
            "ts_ms": tso_ms(commit_ts),
            "transaction": None,
            "op": "d" if after is None else "c" if before is None else "u",
            "before": None if before is None else _named(shape, before, _debezium_value),
            "after": None if after is None else _named(shape, after, _debezium_value),
        }
        return _payload(payload)


class CkafkaEncoder(Encoder):
    """Official format 1: one message a row, keyless and without boundaries; schema changes in Canal's form."""

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """One message a row; all of a transaction have its time."""
        moment = datetime.fromtimestamp(tso_ms(transaction.commit_ts) // 1000, UTC).strftime("%Y%m%d%H%M%S")
        return [EncodedMessage(self.partition_of(c), None, self._row(c, moment)) for c in transaction.changes]

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """One message, in partition 0."""
        seconds = tso_ms(change.commit_ts) // 1000
        value = {
            "data": None, "database": change.schema, "es": seconds, "id": 0, "isDdl": True, "mysqlType": None,
            "old": None, "pkNames": None, "sql": change.statement, "sqlType": None,
            "table": change.shape.name if change.shape else "", "ts": seconds,
            "type": "CREATE" if change.shape else "QUERY",
        }  # fmt: skip
        return [EncodedMessage(0, None, orjson.dumps(value))]

    def boundary(self, ts: int) -> list[EncodedMessage]:  # noqa: ARG002
        """None: the format has no boundaries."""
        return []

    def _row(self, change: Change, moment: str) -> bytes:
        shape, before, after = change
        return orjson.dumps(
            {
                "BINLOG_NAME": "mysql-bin.000003",
                "BINLOG_POS": 154,
                "DATABASE": shape.schema,
                "EVENT_SERVER_ID": None,
                "GLOBAL_ID": None,
                "GROUP_ID": None,
                "NEW_VALUES": None if after is None else _named(shape, after, _text),
                "OLD_VALUES": None if before is None else _named(shape, before, _text),
                "TABLE": shape.name,
                "TIME": moment,
                "TYPE": "D" if after is None else "I" if before is None else "U",
            }
        )


class ConnectorEncoder(Encoder):
    """Debezium's own connector for MySQL, without tombstones and boundaries.

    schemas: whether each message has its Connect schema, as is the connector's default.
    transactions: whether the connector provides the transaction's metadata, and the server GTIDs.
    """

    def __init__(self, partitions: int, *, schemas: bool = False, transactions: bool = False) -> None:
        super().__init__(partitions)
        self._schemas, self._transactions = schemas, transactions
        self._position = self._number = 0
        self._parts: dict[str, tuple[bytes, bytes]] = {}

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """One message a row, keyed by its primary key."""
        self._number += 1
        self._position += 77
        begin, count = self._position, len(transaction.changes)
        found = []
        for order, change in enumerate(transaction.changes, 1):
            self._position += 154
            block = {"id": f"{_UUID}:{self._number}", "total_order": order, "data_collection_order": order}
            source = self._source(change.shape, transaction.commit_ts, begin)
            found.append(self._message(change, source, block if self._transactions and count else None))
        return found

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """The benchmark makes its tables itself."""
        raise NotImplementedError

    def boundary(self, ts: int) -> list[EncodedMessage]:  # noqa: ARG002
        """None: the format has no boundaries."""
        return []

    def _source(self, shape: TableVersion, commit_ts: int, begin: int) -> dict[str, Any]:
        ms = tso_ms(commit_ts) // 1000 * 1000
        return {
            "version": "3.6.1.Final", "connector": "mysql", "name": "shop", "ts_ms": ms, "snapshot": "false",
            "db": shape.schema, "sequence": None, "ts_us": ms * 1000, "ts_ns": ms * 1_000_000, "table": shape.name,
            "server_id": 1, "gtid": f"{_UUID}:{self._number}" if self._transactions else None,
            "file": "binlog.000003", "pos": self._position, "row": 0, "thread": 13 + begin % 3, "query": None,
        }  # fmt: skip

    def _message(self, change: Change, source: dict[str, Any], block: dict[str, Any] | None) -> EncodedMessage:
        shape, before, after = change
        ms = source["ts_ms"] + 487
        payload = orjson.dumps(
            {
                "before": None if before is None else _named(shape, before, _connector_value),
                "after": None if after is None else _named(shape, after, _connector_value),
                "source": source,
                "transaction": block,
                "op": "d" if after is None else "c" if before is None else "u",
                "ts_ms": ms,
                "ts_us": ms * 1000 + 143,
                "ts_ns": ms * 1_000_000 + 143_644,
            }
        )
        row = before if after is None else after
        assert row is not None
        key = orjson.dumps({shape.handle.name: shape.key_of(row)})
        if self._schemas:
            of_key, of_value = self._schemas_of(shape)
            key, payload = of_key + key + b"}", of_value + payload + b"}"
        return EncodedMessage(self.partition_of(change), key, payload)

    def _schemas_of(self, shape: TableVersion) -> tuple[bytes, bytes]:
        """What comes before the payload of a key and of a value."""
        if shape.name not in self._parts:
            columns = [_connector_field(column) for column in shape.columns]
            at = shape.at[shape.handle.name]
            name = f"shop.{shape.schema}.{shape.name}"
            key = {"type": "struct", "fields": [columns[at]], "optional": False, "name": f"{name}.Key"}
            images = [
                {"type": "struct", "fields": columns, "optional": True, "name": f"{name}.Value", "field": image}
                for image in ("before", "after")
            ]
            fields = [*images, *_ENVELOPE]
            value = {"type": "struct", "fields": fields, "optional": False, "name": f"{name}.Envelope", "version": 2}
            self._parts[shape.name] = tuple(  # type: ignore[assignment]  # two
                b'{"schema":' + orjson.dumps(schema) + b',"payload":' for schema in (key, value)
            )
        return self._parts[shape.name]


class SpacedEncoder(Encoder):
    """The messages of another encoder with a blank behind each comma and colon, as Python's `json` writes them."""

    def __init__(self, other: Encoder) -> None:
        super().__init__(other.partitions)
        self._other = other

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """The same messages."""
        return self._spaced(self._other.transaction(transaction))

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """The same messages."""
        return self._spaced(self._other.schema_change(change))

    def boundary(self, ts: int) -> list[EncodedMessage]:
        """The same messages."""
        return self._spaced(self._other.boundary(ts))

    def _spaced(self, messages: list[EncodedMessage]) -> list[EncodedMessage]:
        return [
            message._replace(value=json.dumps(orjson.loads(message.value), ensure_ascii=False).encode())
            for message in messages
        ]


class AvroEncoder(SpacedEncoder):
    """Debezium's own connector in Avro, with a schema registry (`schemas_in_avro`)."""

    def __init__(self, partitions: int) -> None:
        super().__init__(ConnectorEncoder(partitions, schemas=True))
        self._ids: dict[str, bytes] = {}

    def _spaced(self, messages: list[EncodedMessage]) -> list[EncodedMessage]:
        return [
            message._replace(key=self._in_avro(message.key), value=self._in_avro(message.value)) for message in messages
        ]

    def _in_avro(self, content: bytes | None) -> bytes:
        document = orjson.loads(content or b"")
        connect = document["schema"]
        name = connect["name"]
        if name not in self._ids:
            self._ids[name] = b"\0" + _avro_of(connect)[0].to_bytes(4, "big")
        return self._ids[name] + encoded(connect, document["payload"])


def _avro_of(connect: dict[str, Any]) -> tuple[int, str]:
    """The Avro schema of a Connect schema, and its id."""
    text = json.dumps(ticdc_schema(connect))
    return zlib.crc32(text.encode()), text


def schemas_in_avro(shapes: Iterable[TableVersion]) -> dict[int, str]:
    """The schemas of `AvroEncoder`'s messages, by id."""
    made = ConnectorEncoder(1, schemas=True)
    parts = [part for shape in shapes for part in made._schemas_of(shape)]
    return dict(_avro_of(orjson.loads(part + b"null}")["schema"]) for part in parts)


class CanalServerEncoder(Encoder):
    """Canal's own server: one message a row, keyless and without boundaries; the old row has what changed."""

    def __init__(self, partitions: int) -> None:
        super().__init__(partitions)
        self._number = 0

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """One message a row."""
        self._number += 1
        return [
            EncodedMessage(self.partition_of(change), None, self._row(change, tso_ms(transaction.commit_ts)))
            for change in transaction.changes
        ]

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """The benchmark makes its tables itself."""
        raise NotImplementedError

    def boundary(self, ts: int) -> list[EncodedMessage]:  # noqa: ARG002
        """None: the format has no boundaries."""
        return []

    def _row(self, change: Change, ms: int) -> bytes:
        shape, before, after = change
        image = before if after is None else after
        assert image is not None
        data, old = _named(shape, image, _canal_text), None
        if before is not None and after is not None:
            was = _named(shape, before, _canal_text)
            old = [{name: text for name, text in was.items() if data[name] != text}]
        return orjson.dumps(
            {
                "data": [data],
                "database": shape.schema,
                "es": ms // 1000 * 1000,
                "gtid": f"{_UUID}:1-{self._number}",
                "id": self._number,
                "isDdl": False,
                "mysqlType": {column.name: _canal_type(column) for column in shape.columns},
                "old": old,
                "pkNames": [column.name for column in shape.columns if column.key == "primary"],
                "sql": "",
                "sqlType": {column.name: TYPES[column.mysql_type].sql for column in shape.columns},
                "table": shape.name,
                "ts": ms + 941,
                "type": "DELETE" if after is None else "INSERT" if before is None else "UPDATE",
            }
        )


_UUID: Final = "3e11fa47-71ca-11e1-9e33-c80aa9429562"


def _struct(kind: str, field: str, optional: bool, **more: Any) -> dict[str, Any]:
    return {"type": kind, "optional": optional, **more, "field": field}


_SNAPSHOTS: Final = "true,first,first_in_data_collection,last_in_data_collection,last,false,incremental"
_ENVELOPE: Final = [
    {
        "type": "struct",
        "fields": [
            *(_struct("string", name, False) for name in ("version", "connector", "name")),
            _struct("int64", "ts_ms", False),
            _struct(
                "string", "snapshot", True, name="io.debezium.data.Enum", version=1,
                parameters={"allowed": _SNAPSHOTS},
                default="false",
            ),
            _struct("string", "db", False),
            _struct("string", "sequence", True),
            *(_struct("int64", name, True) for name in ("ts_us", "ts_ns")),
            _struct("string", "table", True),
            _struct("int64", "server_id", False),
            _struct("string", "gtid", True),
            _struct("string", "file", False),
            _struct("int64", "pos", False),
            _struct("int32", "row", False),
            _struct("int64", "thread", True),
            _struct("string", "query", True),
        ],
        "optional": False,
        "name": "io.debezium.connector.mysql.Source",
        "field": "source",
    },
    {
        "type": "struct",
        "fields": [
            _struct("string", "id", False),
            *(_struct("int64", name, False) for name in ("total_order", "data_collection_order")),
        ],
        "optional": True,
        "name": "event.block",
        "version": 1,
        "field": "transaction",
    },
    _struct("string", "op", False),
    *(_struct("int64", name, True) for name in ("ts_ms", "ts_us", "ts_ns")),
]  # fmt: skip
"""The fields of a message's schema behind its images (seen with 3.6.1)."""
_CONNECT: Final = {"int": "int32", "bigint": "int64", "tinyint": "int16", "blob": "bytes"}


def _connector_field(column: BankColumn) -> dict[str, Any]:
    kind, more = _CONNECT.get(column.mysql_type, "string"), dict[str, Any]()
    match column.mysql_type:
        case "decimal":
            precision, scale = column.size.split(",")
            kind = "bytes"
            parameters = {"scale": scale, "connect.decimal.precision": precision}
            more = {"name": "org.apache.kafka.connect.data.Decimal", "version": 1, "parameters": parameters}
        case "datetime":
            kind = "int64"
            name = "Timestamp" if int(column.size or 0) <= 3 else "MicroTimestamp"
            more = {"name": f"io.debezium.time.{name}", "version": 1}
        case "enum":
            allowed = ",".join(column.size[1:-1].replace("''", "'").split("','"))
            more = {"name": "io.debezium.data.Enum", "version": 1, "parameters": {"allowed": allowed}}
        case "json":
            more = {"name": "io.debezium.data.Json", "version": 1}
    return _struct(kind, column.name, column.nullable, **more)


def _connector_value(column: BankColumn, value: Value) -> object:
    """As `_debezium_value`, but a DECIMAL is its unscaled number in base64."""
    if isinstance(value, Decimal):
        number = int(value.scaleb(int(column.size.split(",")[1])))
        return base64.b64encode(number.to_bytes(number.bit_length() // 8 + 1, "big", signed=True)).decode()
    return _debezium_value(column, value)


def _canal_type(column: BankColumn) -> str:
    return column.mysql_type.upper() + (f"({column.size})" if column.size else "")


def _canal_text(column: BankColumn, value: Value) -> str:
    """An ENUM as its number, the bytes of a BLOB as characters of ISO-8859-1."""
    if column.mysql_type == "enum":
        return str(column.size[1:-1].replace("''", "'").split("','").index(str(value)) + 1)
    return str(value) if column.mysql_type == "blob" else _text(column, value)


def _debezium_source(schema: str, table: str, commit_ts: int) -> dict[str, Any]:
    return {
        "version": "2.4.0.Final", "connector": "TiCDC", "name": "default", "ts_ms": tso_ms(commit_ts),
        "snapshot": "false", "db": schema, "table": table, "server_id": 0, "gtid": None, "file": "", "pos": 0,
        "row": 0, "thread": 0, "query": None, "commit_ts": commit_ts, "cluster_id": "default",
    }  # fmt: skip


def _debezium_key(change: Change) -> bytes:
    shape = change.shape
    row = change.before if change.after is None else change.after
    assert row is not None
    return _payload({shape.handle.name: shape.key_of(row)})


def _payload(payload: dict[str, Any]) -> bytes:
    return orjson.dumps({"payload": payload})


def _named(shape: TableVersion, row: BankRow, form: Callable[[BankColumn, Value], object]) -> dict[str, object]:
    return {
        column.name: None if value is None else form(column, value)
        for column, value in zip(shape.columns, row, strict=True)
    }


def _debezium_value(column: BankColumn, value: Value) -> object:
    """Decimals as doubles, as TiCDC has them; times as if UTC, in milliseconds up to three digits, otherwise in
    microseconds; binary values in base64."""
    if isinstance(value, Decimal):
        return float(value)
    if isinstance(value, datetime):
        since = value - _EPOCH
        return since // timedelta(milliseconds=1) if int(column.size or 0) <= 3 else since // timedelta(microseconds=1)
    return _base64(value) if column.mysql_type == "blob" else value


def _text(column: BankColumn, value: Value) -> str:
    if column.mysql_type == "blob":
        return _base64(value)
    if isinstance(value, datetime):
        return value.isoformat(" ", _DIGITS[column.size])
    return str(value)


def _base64(value: Value) -> str:
    return base64.b64encode(str(value).encode("latin-1")).decode()


ENCODERS: Final[dict[str, Callable[[int], Encoder]]] = {
    **DEMO_ENCODERS,
    "debezium": DebeziumEncoder,
    "ckafka": CkafkaEncoder,
}
"""Protocol name -> encoder, which is made from the number of partitions."""
SENDERS: Final[dict[str, Callable[[int], Encoder]]] = {
    **ENCODERS,
    "debezium-schemas": partial(ConnectorEncoder, schemas=True),
    "debezium-plain": ConnectorEncoder,
    "debezium-transactions": partial(ConnectorEncoder, schemas=True, transactions=True),
    "canal-server": CanalServerEncoder,
    "canal-blanks": lambda partitions: SpacedEncoder(DEMO_ENCODERS["canal-json"](partitions)),
    "debezium-blanks": lambda partitions: SpacedEncoder(ConnectorEncoder(partitions, schemas=True)),
}
"""Sender -> encoder: TiCDC's by their protocols, and others."""
MEASURED: Final = {**SENDERS, "debezium-avro": AvroEncoder}
"""All senders; the last needs a schema registry."""
SETTINGS: Final = {"debezium-plain": ("--set", "debezium.decimal_handling_mode=precise")}
"""What a bridge must be told of a sender."""


def protocol_of(sender: str) -> str:
    """The protocol that a sender writes."""
    return sender if sender in ENCODERS else "debezium" if sender.startswith("debezium") else "canal-json"
