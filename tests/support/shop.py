"""A small upstream: what the blocks of real output in the manual are made of."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any, Final

BEGAN: Final = 470611860099956736
"""TSO of the first change."""
_TYPES: Final = {"id": "int", "customer": "int", "total": "decimal", "note": "varchar"}


def _message(ms: int, kind: str, **more: Any) -> dict[str, Any]:
    plain = {"id": 0, "database": "shop", "table": "orders", "pkNames": None, "isDdl": False, "type": kind, "sql": ""}
    empty = dict.fromkeys(("sqlType", "mysqlType", "old", "data"))
    es = (BEGAN >> 18) + ms
    return {**plain, "es": es, "ts": es + 120, **empty, "_tidb": {"commitTs": BEGAN + (ms << 18)}, **more}


def _row(ms: int, *values: str, kind: str = "INSERT", old: str | None = None) -> dict[str, Any]:
    row = dict(zip(_TYPES, values, strict=True))
    types = {"pkNames": ["id"], "sqlType": dict.fromkeys(_TYPES, 12), "mysqlType": _TYPES}
    return _message(ms, kind, **types, data=[row], old=None if old is None else [{"note": old}])


def _change(ms: int, text: str, kind: str = "ALTER") -> dict[str, Any]:
    return _message(ms, kind, isDdl=True, sql=text)


def _boundary(ms: int) -> dict[str, Any]:
    message = _message(ms, "TIDB_WATERMARK", database="", table="")
    return {**message, "_tidb": {"watermarkTs": BEGAN + (ms << 18)}}


MESSAGES: Final = (
    _change(
        0,
        "CREATE TABLE `orders` (`id` INT PRIMARY KEY /*T![clustered_index] CLUSTERED */,`customer` INT,"
        "`total` DECIMAL(10,2),`note` VARCHAR(20))",
        "CREATE",
    ),
    _change(100, "CREATE TABLE `carts` (`id` INT PRIMARY KEY)", "CREATE"),
    _row(400, "4711", "600", "19.99", "gift"),
    _row(700, "4712", "601", "much", "to be called back"),
    _row(900, "4713", "602", "5.00", "leave it at the neighbour's"),
    _row(1200, "4711", "600", "19.99", "no gift", kind="UPDATE", old="gift"),
    _boundary(2000),
    _change(2500, "ALTER TABLE `orders` ADD INDEX `by_customer`(`customer`) INVISIBLE"),
    _change(3000, "DROP TABLE `shop`.`carts`", "ERASE"),
    _boundary(4000),
)
"""Canal-JSON of TiCDC with the TiDB extension, of which one row cannot be decoded and one does not fit."""


def write_capture(folder: Path) -> Path:
    """A capture file with the messages in one partition."""
    folder.mkdir(exist_ok=True)
    lines = (
        {"topic": "changes", "partition": 0, "offset": at, "key": None, "value": base64.b64encode(encoded).decode()}
        for at, message in enumerate(MESSAGES)
        if (encoded := json.dumps(message, separators=(",", ":")).encode())
    )
    path = folder / "orders.jsonl"
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path
