"""Encodes the upstream's steps as Kafka messages, byte for byte as TiCDC writes them (known from genuine captures).

Rows go to partitions by the hash of schema, table and handle column (TiCDC's index-value dispatcher).
"""

from __future__ import annotations

import base64
import struct
import zlib
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, NamedTuple

import orjson

from bridge.demo.model import BankColumn, BankRow, BankSchemaChange, Change, DdlKind, TableVersion, Transaction, Value
from bridge.tso import tso_ms


class EncodedMessage(NamedTuple):
    """One Kafka message."""

    partition: int
    key: bytes | None
    value: bytes


class TypeCode(NamedTuple):
    """The numbers of a column type.

    sql: in Canal-JSON (java.sql.Types).  mysql: in Open Protocol (MySQL's protocol).
    """

    sql: int
    mysql: int
    binary: bool
    """Whether BinaryFlag is set, as it is for everything but text."""


TYPES: Final = {
    "int": TypeCode(4, 3, True),
    "bigint": TypeCode(-5, 8, True),
    "varchar": TypeCode(12, 15, False),
    "char": TypeCode(1, 254, False),
    "decimal": TypeCode(3, 246, True),
    "datetime": TypeCode(93, 12, True),
    "tinyint": TypeCode(-6, 1, True),
    "enum": TypeCode(4, 247, False),
    "json": TypeCode(12, 245, True),
    "text": TypeCode(2005, 252, False),
    "blob": TypeCode(2004, 252, True),
}
"""The types that the bank and the benchmark need.  A BLOB is a text, of which each character is a byte (Latin-1)."""

OPEN_BATCH: Final = 16
"""The most events of one Open Protocol message (max-batch-size)."""
_ROW, _DDL, _RESOLVED = 1, 2, 3


class Encoder(ABC):
    """Encodes steps; the same step gives the same messages.  Raises ValueError for an unknown column type."""

    def __init__(self, partitions: int) -> None:
        self.partitions = partitions

    @abstractmethod
    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """Returns the messages of the rows of a transaction."""

    @abstractmethod
    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """Returns the messages of a schema change."""

    @abstractmethod
    def boundary(self, ts: int) -> list[EncodedMessage]:
        """Returns a message for every partition that says that everything with a commit_ts below `ts` (TSO) was
        sent."""

    def partition_of(self, change: Change) -> int:
        """Returns the partition of a row change, by its handle key, which no update changes (TiCDC splits such
        updates)."""
        shape = change.shape
        row = change.before if change.after is None else change.after
        assert row is not None
        text = f"{shape.schema}\0{shape.name}\0{shape.handle.name}\0{shape.key_of(row)}"
        return zlib.crc32(text.encode()) % self.partitions

    def _to_all(self, key: bytes | None, value: bytes) -> list[EncodedMessage]:
        return [EncodedMessage(partition, key, value) for partition in range(self.partitions)]


class CanalJsonEncoder(Encoder):
    """Canal-JSON with the TiDB extension: watermarks everywhere, schema changes in partition 0 only."""

    _DDL_TYPES: Final = {
        DdlKind.CREATE_DATABASE: "QUERY",
        DdlKind.DROP_DATABASE: "QUERY",
        DdlKind.CREATE_TABLE: "CREATE",
        DdlKind.ADD_COLUMN: "ALTER",
    }

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """Returns one message for each row, with an empty key."""
        ts = transaction.commit_ts
        return [EncodedMessage(self.partition_of(c), b"", self._row(c, ts)) for c in transaction.changes]

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """Returns one message, without key."""
        table = change.shape.name if change.shape else ""
        fields = {"database": change.schema, "table": table, "isDdl": True, "type": self._DDL_TYPES[change.kind]}
        return [EncodedMessage(0, None, _no_row(fields, change.statement, change.commit_ts, "commitTs"))]

    def boundary(self, ts: int) -> list[EncodedMessage]:
        """Returns a TIDB_WATERMARK for every partition, without key."""
        fields = {"database": "", "table": "", "isDdl": False, "type": "TIDB_WATERMARK"}
        return self._to_all(None, _no_row(fields, "", ts, "watermarkTs"))

    def _row(self, change: Change, commit_ts: int) -> bytes:
        shape, before, after = change
        image = before if after is None else after
        assert image is not None
        kind = "DELETE" if after is None else "INSERT" if before is None else "UPDATE"
        return _html_safe(
            {
                "id": 0,
                "database": shape.schema,
                "table": shape.name,
                "pkNames": [c.name for c in shape.columns if c.key == "primary"],
                "isDdl": False,
                "type": kind,
                "es": tso_ms(commit_ts),
                "ts": tso_ms(commit_ts),
                "sql": "",
                "sqlType": {c.name: _type(c).sql for c in shape.columns},
                "mysqlType": _types_of(shape, commit_ts),
                "old": [_texts(shape, before)] if kind == "UPDATE" and before is not None else None,
                "data": [_texts(shape, image)],
                "_tidb": {"commitTs": commit_ts},
            }
        )


def _types_of(shape: TableVersion, commit_ts: int) -> dict[str, str]:
    """Returns the types by column, in a different order each time, as TiCDC writes them (golden captures)."""
    columns = sorted(shape.columns, key=lambda column: zlib.crc32(column.name.encode()) * commit_ts % 65521)
    return {column.name: column.mysql_type for column in columns}


def _no_row(fields: dict[str, Any], statement: str, ts: int, ts_name: str) -> bytes:
    envelope = {
        "id": 0,
        "database": fields["database"],
        "table": fields["table"],
        "pkNames": None,
        "isDdl": fields["isDdl"],
        "type": fields["type"],
        "es": tso_ms(ts),
        "ts": tso_ms(ts),
        "sql": statement,
        "sqlType": None,
        "mysqlType": None,
        "data": None,
        "old": None,
        "_tidb": {ts_name: ts},
    }
    return _html_safe(envelope)


def _texts(shape: TableVersion, row: BankRow) -> dict[str, str | None]:
    """Returns every value as text, by column."""
    return {c.name: None if v is None else str(_plain(c, v)) for c, v in zip(shape.columns, row, strict=True)}


class OpenProtocolEncoder(Encoder):
    """Open Protocol: framed batches; schema changes and resolved events in every partition."""

    _DDL_CODES: Final = {
        DdlKind.CREATE_DATABASE: 1,
        DdlKind.DROP_DATABASE: 2,
        DdlKind.CREATE_TABLE: 3,
        DdlKind.ADD_COLUMN: 5,
    }

    def transaction(self, transaction: Transaction) -> list[EncodedMessage]:
        """Returns the rows of each partition in batches, in the order of the transaction."""
        by_partition: dict[int, list[Change]] = {}
        for change in transaction.changes:
            by_partition.setdefault(self.partition_of(change), []).append(change)
        return [
            self._batch(partition, changes[at : at + OPEN_BATCH], transaction.commit_ts)
            for partition, changes in by_partition.items()
            for at in range(0, len(changes), OPEN_BATCH)
        ]

    def schema_change(self, change: BankSchemaChange) -> list[EncodedMessage]:
        """Returns the statement, for every partition."""
        table = change.shape.name if change.shape else ""
        key = _open_key([{"ts": change.commit_ts, "scm": change.schema, "tbl": table, "t": _DDL}])
        return self._to_all(key, _frame(orjson.dumps({"q": change.statement, "t": self._DDL_CODES[change.kind]})))

    def boundary(self, ts: int) -> list[EncodedMessage]:
        """Returns a resolved event for every partition; its value is one empty frame."""
        return self._to_all(_open_key([{"ts": ts, "t": _RESOLVED}]), _frame(b""))

    def _batch(self, partition: int, changes: Iterable[Change], commit_ts: int) -> EncodedMessage:
        changes = list(changes)
        keys = [{"ts": commit_ts, "scm": c.shape.schema, "tbl": c.shape.name, "t": _ROW} for c in changes]
        values = b"".join(_frame(orjson.dumps(_open_row(change))) for change in changes)
        return EncodedMessage(partition, _open_key(keys), values)


def _open_row(change: Change) -> dict[str, Any]:
    shape, before, after = change
    if after is None:
        assert before is not None
        return {"d": _open_image(shape, before)}
    row = {"u": _open_image(shape, after)}
    return row if before is None else row | {"p": _open_image(shape, before)}


def _open_image(shape: TableVersion, row: BankRow) -> dict[str, dict[str, Any]]:
    return {
        column.name: {**_open_column(shape, column), "v": None if value is None else _open_value(column, value)}
        for column, value in zip(shape.columns, row, strict=True)
    }


def _open_value(column: BankColumn, value: Value) -> int | str:
    """Returns BLOB and TEXT in base64, and any other value plain."""
    if column.mysql_type not in {"blob", "text"}:
        return _plain(column, value)
    return base64.b64encode(str(value).encode("latin-1" if column.mysql_type == "blob" else "utf-8")).decode()


def _open_column(shape: TableVersion, column: BankColumn) -> dict[str, Any]:
    """Returns type and flags of a column: 1 binary, 2 handle, 8 primary, 16 unique, 64 nullable."""
    code, is_handle = _type(column), column == shape.handle
    flags = code.binary | is_handle << 1 | column.nullable << 6 | {"": 0, "primary": 8, "unique": 16}[column.key]
    return {"t": code.mysql, **({"h": True} if is_handle else {}), "f": flags}


def _open_key(events: Iterable[dict[str, Any]]) -> bytes:
    return struct.pack(">q", 1) + b"".join(_frame(orjson.dumps(event)) for event in events)


def _frame(content: bytes) -> bytes:
    return struct.pack(">q", len(content)) + content


def _type(column: BankColumn) -> TypeCode:
    code = TYPES.get(column.mysql_type)
    if code is None:
        raise ValueError(f"column {column.name} is of type {column.mysql_type}; known are {', '.join(TYPES)}")
    return code


def _plain(column: BankColumn, value: Value) -> int | str:
    """Returns an integer as it is, the number of an ENUM member, and any other value as the upstream's text."""
    _type(column)
    if column.mysql_type == "enum":
        return members(column.size).index(str(value)) + 1
    if isinstance(value, datetime):
        return _datetime_text(value, int(column.size or 0))
    if column.mysql_type == "decimal":
        return f"{value:.{column.size.partition(',')[2]}f}"
    return value if isinstance(value, int) else str(value)


@lru_cache
def members(definition: str) -> list[str]:
    """Returns the members of an ENUM by what stands between its parentheses."""
    return [member.replace("''", "'") for member in definition[1:-1].split("','")]


def _datetime_text(value: datetime, digits: int) -> str:
    text = value.strftime("%Y-%m-%d %H:%M:%S.%f")
    return text[: 19 + digits + 1] if digits else text[:19]


def _html_safe(document: dict[str, Any]) -> bytes:
    """Returns JSON with & < > escaped, as in Canal-JSON (not in Open Protocol); they occur in strings only."""
    packed = orjson.dumps(document)
    return packed.replace(b"&", b"\\u0026").replace(b"<", b"\\u003c").replace(b">", b"\\u003e")


ENCODERS: Final[dict[str, Callable[[int], Encoder]]] = {
    "canal-json": CanalJsonEncoder,
    "open-protocol": OpenProtocolEncoder,
}
"""Protocol name -> encoder, which is made from the number of partitions."""
