"""Capture files as the tests read, change and write them."""

from __future__ import annotations

import base64
import json
import re
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.support.producers import ordered_producer

Line = dict[str, Any]
Rows = dict[str, dict[str, str | None]]

_ADD_COLUMN = re.compile(r"ADD COLUMN `(\w+)` INT DEFAULT (\d+)")


def read_lines(path: Path) -> list[Line]:
    """The lines of a capture file."""
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


def write_lines(path: Path, lines: Iterable[Line]) -> Path:
    """Makes a capture file."""
    path.write_text("".join(json.dumps(line) + "\n" for line in lines), encoding="utf-8")
    return path


def send_lines(bootstrap_servers: str, topic: str, lines: Iterable[Line]) -> None:
    """Puts the messages into a topic that is empty so far; they get the offsets that they have in the file."""
    producer: Any = ordered_producer(bootstrap_servers)
    for line in lines:
        key, value = (None if line[name] is None else base64.b64decode(line[name]) for name in ("key", "value"))
        producer.produce(topic, value, key, line["partition"])
    assert producer.flush(60) == 0


def encoded(value: bytes | None) -> str | None:
    """A key or value as a capture file holds it."""
    return None if value is None else base64.b64encode(value).decode()


def text(line: Line) -> str:
    """The message's value, as far as it is text."""
    return base64.b64decode(line["value"]).decode(errors="replace")


def canal(line: Line) -> dict[str, Any]:
    """The message of a Canal-JSON capture."""
    message: dict[str, Any] = json.loads(base64.b64decode(line["value"]))
    return message


def is_watermark(line: Line) -> bool:
    """A Canal-JSON boundary."""
    return bool(canal(line)["type"] == "TIDB_WATERMARK")


def commit_ts(line: Line) -> int:
    """The TSO of a Canal-JSON row or schema change."""
    ts: int = canal(line)["_tidb"]["commitTs"]
    return ts


def with_value(line: Line, value: bytes) -> Line:
    """The same message with another value."""
    return {**line, "value": base64.b64encode(value).decode()}


@dataclass
class BankState:
    """The tables of the script `bank`, made from Canal-JSON messages alone.

    schema_changes: those that have run.  exists: the database does.
    """

    tables: dict[str, Rows] = field(default_factory=dict)
    schema_changes: int = 0

    def text_rows(self, table: str) -> list[tuple[str | None, ...]]:
        """As `SELECT *` gives them, in the order of their ids."""
        return [tuple(row.values()) for _, row in sorted(self.tables[table].items(), key=lambda item: int(item[0]))]

    def apply(self, message: dict[str, Any]) -> None:
        """One row or schema change."""
        if message["isDdl"]:
            self._change_schema(message)
            return
        rows = self.tables[message["table"]]
        for row in message["data"]:
            if message["type"] == "DELETE":
                del rows[row["id"]]
            else:
                rows[row["id"]] = row

    def _change_schema(self, message: dict[str, Any]) -> None:
        self.schema_changes += 1
        if message["sql"].startswith("CREATE TABLE"):
            self.tables[message["table"]] = {}
        elif added := _ADD_COLUMN.search(message["sql"]):
            for row in self.tables[message["table"]].values():
                row[added[1]] = added[2]


def bank_below(lines: Iterable[Line], ts: int) -> BankState:
    """The upstream's state below a commit_ts."""
    messages = [canal(line) for line in lines]
    state = BankState()
    for message in sorted(
        (m for m in messages if m["type"] != "TIDB_WATERMARK" and m["_tidb"]["commitTs"] < ts),
        key=lambda m: (m["_tidb"]["commitTs"], m["isDdl"]),
    ):
        state.apply(message)
    return state


def line(offset: int, message: dict[str, Any], *, partition: int = 0, topic: str | None = None) -> Line:
    """A message of a test's own, with JSON for its value."""
    value = base64.b64encode(json.dumps(message).encode()).decode()
    named = {} if topic is None else {"topic": topic}
    return {**named, "partition": partition, "offset": offset, "key": None, "value": value}


def row(ts: int, id_: int, **more: tuple[str, str]) -> dict[str, Any]:
    """An INSERT into m.t as Canal-JSON with the TiDB extension."""
    columns = {"id": ("int", str(id_)), **more}
    return {
        "id": 0, "database": "m", "table": "t", "pkNames": ["id"], "isDdl": False, "type": "INSERT", "es": 1, "ts": 2,
        "sql": "", "sqlType": {}, "mysqlType": {name: kind for name, (kind, _) in columns.items()}, "old": None,
        "data": [{name: value for name, (_, value) in columns.items()}], "_tidb": {"commitTs": ts},
    }  # fmt: skip


def watermark(ts: int) -> dict[str, Any]:
    return {
        "id": 0, "database": "", "table": "", "pkNames": None, "isDdl": False, "type": "TIDB_WATERMARK", "es": 1,
        "ts": 2, "sql": "", "sqlType": None, "mysqlType": None, "data": None, "old": None, "_tidb": {"watermarkTs": ts},
    }  # fmt: skip
