"""A topic of sysbench-like rows: 4 columns, about 200 bytes, 60/30/10 insert/update/delete, 3-10 rows a transaction."""

from __future__ import annotations

import random
from collections.abc import Iterator
from dataclasses import dataclass, field

import orjson

TABLE = "CREATE TABLE `sbtest` (`id` INT PRIMARY KEY,`k` INT NOT NULL,`c` CHAR(120) NOT NULL,`pad` CHAR(60) NOT NULL)"
SCHEMA = "sbtest"
START_TS = 470611868434825218
BOUNDARY_EVERY = 1000
_SQL_TYPE = {"id": 4, "k": 4, "c": 1, "pad": 1}
_MYSQL_TYPE = {"id": "int", "k": "int", "c": "char", "pad": "char"}

Row = tuple[int, int, str, str]
Change = tuple[Row | None, Row | None]
Message = tuple[int, bytes | None, bytes]
"""partition, key, value"""


@dataclass
class Sysbench:
    """The upstream: `rows` is its state after all transactions drawn so far."""

    seed: int = 1
    rows: dict[int, Row] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._random = random.Random(self.seed)
        self._ids: list[int] = []
        self._next = 1

    def transaction(self) -> list[Change]:
        """The row changes of the next transaction; each row at most once."""
        touched: set[int] = set()
        return [change for _ in range(self._random.randint(3, 10)) if (change := self._change(touched))]

    def _change(self, touched: set[int]) -> Change | None:
        dice = self._random.random()
        if dice < 0.6 or not self._ids:
            return self._insert(touched)
        at = self._random.randrange(len(self._ids))
        key = self._ids[at]
        if key in touched:
            return self._insert(touched)
        touched.add(key)
        before = self.rows[key]
        if dice < 0.9:
            self.rows[key] = after = self._row(key)
            return before, after
        self._ids[at] = self._ids[-1]
        self._ids.pop()
        del self.rows[key]
        return before, None

    def _insert(self, touched: set[int]) -> Change:
        key, self._next = self._next, self._next + 1
        touched.add(key)
        self._ids.append(key)
        self.rows[key] = row = self._row(key)
        return None, row

    def _row(self, key: int) -> Row:
        number = self._random.getrandbits(64)
        return key, number & 0x7FFFFFF, f"{number:020d}-" * 5 + "c" * 15, f"{number:020d}-" * 2 + "p" * 18


def _image(row: Row) -> dict[str, str]:
    return {"id": str(row[0]), "k": str(row[1]), "c": row[2], "pad": row[3]}


def canal_json(upstream: Sysbench, events: int, partitions: int) -> Iterator[Message]:
    """Messages as TiCDC writes them (Canal-JSON with the TiDB extension, full old rows)."""
    ts = START_TS
    for statement, table in ((f"CREATE DATABASE `{SCHEMA}`", ""), (TABLE, "sbtest")):
        ts += 1 << 18
        yield 0, None, _canal_message(ts, table, "CREATE", sql=statement, isDdl=True)
    sent = transactions = 0
    while sent < events:
        ts += 1 << 18
        for before, after in upstream.transaction():
            row = after or before
            assert row is not None
            kind = "INSERT" if before is None else "DELETE" if after is None else "UPDATE"
            old = [_image(before)] if before and after else None
            value = _canal_message(
                ts, "sbtest", kind, pkNames=["id"], sqlType=_SQL_TYPE, mysqlType=_MYSQL_TYPE, old=old,
                data=[_image(row)],
            )  # fmt: skip
            yield row[0] % partitions, b"", value
            sent += 1
        transactions += 1
        if transactions % BOUNDARY_EVERY == 0 or sent >= events:
            ts += 1 << 18
            boundary = _canal_message(ts, "", "TIDB_WATERMARK", database="", tidb={"watermarkTs": ts})
            for partition in range(partitions):
                yield partition, None, boundary


def _canal_message(ts: int, table: str, kind: str, *, tidb: dict[str, int] | None = None, **fields: object) -> bytes:
    message = {
        "id": 0, "database": SCHEMA, "table": table, "pkNames": None, "isDdl": False, "type": kind, "es": ts >> 18,
        "ts": ts >> 18, "sql": "", "sqlType": None, "mysqlType": None, "old": None, "data": None, **fields,
        "_tidb": tidb or {"commitTs": ts},
    }  # fmt: skip
    return orjson.dumps(message)


def paced_transactions(count: int, rate: int, partitions: int, start_ts: int) -> Iterator[list[Message]]:
    """One-row transactions with ascending ids from 0, with a boundary five times a second; the first brings the
    table."""
    ts = start_ts
    first = [(0, None, _canal_message(ts + i, t, "CREATE", sql=s, isDdl=True)) for i, (s, t) in enumerate(
        ((f"CREATE DATABASE `{SCHEMA}`", ""), (TABLE, "sbtest")))]  # fmt: skip
    every = max(1, rate // 5)
    for number in range(count):
        ts += 1 << 18
        row: Row = (number, 1, "c", "p")
        value = _canal_message(
            ts, "sbtest", "INSERT", pkNames=["id"], sqlType=_SQL_TYPE, mysqlType=_MYSQL_TYPE, data=[_image(row)]
        )
        messages: list[Message] = [*first, (number % partitions, b"", value)]
        first = []
        if number % every == 0:
            ts += 1 << 18
            boundary = _canal_message(ts, "", "TIDB_WATERMARK", database="", tidb={"watermarkTs": ts})
            messages += [(partition, None, boundary) for partition in range(partitions)]
        yield messages
