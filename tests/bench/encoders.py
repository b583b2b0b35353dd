"""The protocols of the benchmark: the demo's encoders, and two more in their manner.

Debezium as TiCDC writes it without schemas and with watermarks (seen in genuine captures); ckafka's official format 1.
"""

from __future__ import annotations

import base64
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any, Final

import orjson

from bridge.demo.encode import ENCODERS as DEMO_ENCODERS
from bridge.demo.encode import EncodedMessage, Encoder
from bridge.demo.model import BankColumn, BankRow, BankSchemaChange, Change, TableVersion, Transaction, Value
from bridge.tso import tso_ms

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
