"""What the server itself takes: ready-made multi-row statements, nothing but sending them is timed."""

from __future__ import annotations

import time
from collections.abc import Iterator
from itertools import islice

import pyarrow as pa
import pymysql
from sqlalchemy import make_url

from bridge.events import EVENT_SCHEMA
from bridge.protocols import DecodeOptions, make_decoder
from bridge.stream.decode import Messages, decode_messages
from bridge.stream.rows import DriverRows
from bridge.target.catalog import Column, Table, TableName
from bridge.target.render import Rendering
from tests.bench.workload import SCHEMA, TABLE, Message

ROWS_PER_TRANSACTION = 50_000
_NAME = TableName(SCHEMA, "sbtest")
_COLUMNS = {name: Column(name, "", None, generated=False) for name in ("id", "k", "c", "pad")}
_TABLE = Table(_NAME, _COLUMNS, keys=(("id",),), uniques=(("id",),))


def ready_made(messages: Iterator[Message]) -> list[list[str]]:
    """Statements of one transaction after the other, folded and rendered as the bridge does it."""
    decoder = make_decoder("canal-json", DecodeOptions("UTC"))
    transactions = []
    while batch := list(islice(messages, ROWS_PER_TRANSACTION)):
        size = len(batch)
        keys, values = [message[1] for message in batch], [message[2] for message in batch]
        some = Messages(["t"] * size, [0] * size, list(range(size)), keys, values)
        events = pa.Table.from_batches([decode_messages(decoder, some)], EVENT_SCHEMA)
        rows = DriverRows.of([events.filter(pa.compute.less_equal(events["kind"], 3))])
        statements = rows.statements({_NAME: _TABLE}, Rendering("_bridge"))
        transactions.append([statement.sql for statement in statements])
    return transactions


def seconds_to_apply(url: str, transactions: list[list[str]]) -> float:
    """Wall-clock seconds that one connection needs for all of them, on a fresh table."""
    where = make_url(url)
    connection = pymysql.connect(host=where.host, port=where.port or 3306, user=where.username, charset="utf8mb4")
    with connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
        cursor.execute(f"CREATE DATABASE {SCHEMA}")
        cursor.execute(f"USE {SCHEMA}")
        cursor.execute(TABLE)
        began = time.perf_counter()
        for statements in transactions:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()
        return time.perf_counter() - began
