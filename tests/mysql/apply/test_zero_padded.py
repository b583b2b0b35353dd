"""Keys and rows of BINARY columns, whose zero bytes at the end MySQL's log does not hold."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import Messages, decode_messages
from tests.support.pipelines import admin, run_all
from tests.support.wire import as_ckafka, compact

TABLES = {
    "a key": "k BINARY(4) PRIMARY KEY, v INT",
    "part of a key": "k BINARY(4), v INT, PRIMARY KEY (v, k)",
    "a unique value": "v INT PRIMARY KEY, k BINARY(4) NOT NULL, UNIQUE (k)",
    "no key": "k BINARY(4), v INT",
}
KEYS = {"a key": ["k"], "part of a key": ["v", "k"], "a unique value": ["v"], "no key": None}


def message(kind: str, table: str, row: tuple[str, int], old: Any = None) -> bytes:
    """Official Canal's, as it reads MySQL's log."""
    return compact(
        {
            "data": [{"k": row[0], "v": str(row[1])}], "database": "m", "es": 1700000000000, "id": 1,
            "isDdl": False, "mysqlType": {"k": "binary(4)", "v": "int(11)"}, "old": old, "pkNames": KEYS[table],
            "sql": "", "sqlType": {"k": -2, "v": 4}, "table": "t", "ts": 1700000000001, "type": kind,
        }
    )  # fmt: skip


@pytest.mark.parametrize("server", ["target", "old_target", "mysql_target", "old_mysql_target"])
@pytest.mark.parametrize("protocol", ["canal-json", "ckafka"])
@pytest.mark.parametrize("table", TABLES)
def test_rows_are_found(server: str, protocol: str, table: str, request: pytest.FixtureRequest) -> None:
    """Rows go and change by the values that the log has of them, also several at once, beside values that differ in
    zero bytes alone."""
    url: Any = request.getfixturevalue(server)
    values = [
        *(message("DELETE", table, row) for row in (("x", 1), ("xy", 2), ("", 3))),
        message("UPDATE", table, ("x\0y", 4), old=[{"k": "x", "v": "4"}] if table == "no key" else [{"k": "y"}]),
        *(message("INSERT", table, row) for row in (("z", 5), ("\0z", 6))),
        message("DELETE", table, ("\0z", 6)),
    ]
    sent: list[bytes | None] = [as_ckafka(value) if protocol == "ckafka" else value for value in values]
    count = len(sent)
    messages = Messages(["cdc"] * count, [0] * count, list(range(count)), [None] * count, sent)
    decoder = make_decoder(protocol, DecodeOptions("UTC", ckafka_binary="latin1"))
    with admin(url) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute(f"CREATE TABLE m.t ({TABLES[table]})")
        there = f"'{'x' if table == 'no key' else 'y'}', 4"
        session.execute(f"INSERT INTO m.t (k, v) VALUES ('x', 1), ('xy', 2), ('', 3), ({there}), ('xyzz', 9)")
        run_all(url, decode_messages(decoder, messages))
        found = session.rows("SELECT k, v FROM m.t ORDER BY v")
    assert found == [(b"x\0y\0", 4), (b"z\0\0\0", 5), (b"xyzz", 9)]
