"""Events of Debezium's connector with the topic of transactions, as they come out of the decoder."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import orjson
import pyarrow as pa

from bridge.events import EVENT_SCHEMA, Kind
from bridge.protocols.debezium.transactions import NO_TRANSACTION, id_of

TOPIC = ("p.transaction", 0)
SERVER = "p/binlog/1"
Said = dict[str, Any]
EMPTY: Said = {"partition": 0, "commit_ts": 0, "index": 0, "schema": "", "table": "", "by_time": True}


def gtid(id_: str) -> str:
    """The id of a transaction, as the decoder writes it; a number alone is that of a GTID."""
    return id_of(f"u:{id_}" if id_.isdigit() else id_)


def row(
    id_: str, order: int, pos: int, name: str = "s.a", *, row: int = 0, kind: Kind = Kind.UPDATE,
    offset: int | None = None, server: str = SERVER, partition: int = 0, ts: int = 5,
) -> Said:  # fmt: skip
    """A row of a transaction; of none, where that is ""."""
    place = f"{name}\n{server}\n{pos:019}\n{row:019}\n{order:019}\n{gtid(id_) or NO_TRANSACTION}"
    schema, table = name.split(".")
    said = {
        "topic": f"p.{name}",
        "offset": pos * 10 + row if offset is None else offset,
        "kind": int(kind),
        "place": place,
    }
    return EMPTY | said | {"schema": schema, "table": table, "commit_ts": ts, "partition": partition}


def begin(id_: str, offset: int) -> Said:
    """A BEGIN."""
    return mark(id_, offset, is_end=False, tables={})


def end(id_: str, offset: int, ts: int = 5, **tables: int) -> Said:
    """An END; of each table of the database s, how many rows it counts."""
    return mark(id_, offset, is_end=True, tables={f"s.{name}": rows for name, rows in tables.items()}, ts=ts)


def mark(id_: str, offset: int, *, is_end: bool, tables: dict[str, int], ts: int = 5) -> Said:
    text = orjson.dumps([gtid(id_), is_end, sum(tables.values()), tables]).decode()
    return EMPTY | {"topic": TOPIC[0], "offset": offset, "kind": int(Kind.TRANSACTION), "text": text, "commit_ts": ts}


def change(text: str, pos: int, *, server: str = SERVER, offset: int | None = None, ts: int = 5) -> Said:
    """A schema change."""
    at = {
        "topic": "p",
        "offset": pos if offset is None else offset,
        "place": f"\n{server}\n{pos}\n0\n0\n{NO_TRANSACTION}",
    }
    return EMPTY | at | {"kind": int(Kind.SCHEMA_CHANGE), "text": text, "schema": "s", "commit_ts": ts}


def events(said: Sequence[Said]) -> pa.Table:
    """As they come out of the decoder."""
    return pa.Table.from_pylist(list(said), schema=EVENT_SCHEMA)
