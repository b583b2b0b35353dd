"""A capture of official Canal under binlog_row_image=NOBLOB through the whole bridge."""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from tests.support.captures import Line, write_lines
from tests.support.command import bridge
from tests.support.pipelines import sql

TYPES = {"id": "int", "n": "int", "doc": "text"}


def line(offset: int, kind: str, row: dict[str, Any], old: dict[str, Any] | None = None) -> Line:
    """A row, without the columns that the log does not hold; `old`: those that changed."""
    message = {
        "data": [row], "database": "shop", "table": "t", "type": kind, "isDdl": False, "pkNames": ["id"],
        "es": 1700000000000 + offset, "ts": 1700000000000 + offset, "id": offset + 1, "sql": "",
        "mysqlType": {name: TYPES[name] for name in row}, "sqlType": dict.fromkeys(row, 12),
        "old": None if kind != "UPDATE" else [old],
    }  # fmt: skip
    value = base64.b64encode(json.dumps(message).encode()).decode()
    return {"topic": "t", "partition": 0, "offset": offset, "key": None, "value": value}


LINES = [
    line(0, "INSERT", {"id": "1", "n": "1", "doc": "precious"}),
    line(1, "UPDATE", {"id": "1", "n": "2"}, {"n": "1"}),
    line(2, "UPDATE", {"id": "7", "n": "70"}, {"n": "7"}),
    line(3, "UPDATE", {"id": "8", "n": "7"}, {"id": "7", "n": "70"}),
    line(4, "INSERT", {"id": "2", "n": "5", "doc": "second"}),
    line(5, "UPDATE", {"id": "3", "n": "5"}, {"id": "2"}),
    line(6, "UPDATE", {"id": "3", "n": "6", "doc": "other"}, {"n": "5"}),
    line(7, "DELETE", {"id": "9", "n": "9"}),
]


@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize("consistency", ["atomic", "parallel"])
def test_texts_that_do_not_change_stay(target: str, tmp_path: Path, consistency: str) -> None:
    """Rows come, change, move and go; a text that a message leaves out is the one that was there, a text that must be
    there (NOT NULL) as well."""
    sql(
        target,
        "CREATE DATABASE shop",
        "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT UNIQUE, doc TEXT NOT NULL)",
        "INSERT INTO shop.t VALUES (7, 7, 'seven'), (9, 9, 'nine'), (10, 10, 'ten')",
        "SELECT 1",
    )
    path = write_lines(tmp_path / "noblob.jsonl", LINES)
    ended = bridge(
        "replay", "--protocol", "canal-json", "--input", str(path), "--target", target, "--timezone", "UTC",
        "--consistency", consistency,
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert sql(target, "SELECT * FROM shop.t ORDER BY id") == [
        (1, 2, "precious"), (3, 6, "other"), (8, 7, "seven"), (10, 10, "ten"),
    ]  # fmt: skip


@pytest.mark.usefixtures("spark")
def test_a_text_that_nobody_knows_stops_the_replay(target: str, tmp_path: Path) -> None:
    """The row is not on the target: a line that names it, not a row without its text."""
    sql(target, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT PRIMARY KEY, n INT, doc TEXT)", "SELECT 1")
    path = write_lines(tmp_path / "noblob.jsonl", LINES[2:3])
    ended = bridge("replay", "--protocol", "canal-json", "--input", str(path), "--target", target, "--timezone", "UTC")
    assert ended.code == 3
    assert "a message holds only a part of a row of shop.t that is not on the target" in " ".join(ended.err.split())
    assert sql(target, "SELECT * FROM shop.t") == []


@pytest.mark.usefixtures("spark")
def test_parts_of_rows_without_a_key_are_nothing_to_compare_with(target: str, tmp_path: Path) -> None:
    """Nobody knows which row such a message means: it is quarantined, and verify makes no statement of it."""
    sql(target, "CREATE DATABASE shop", "CREATE TABLE shop.t (id INT, n INT, doc TEXT)", "SELECT 1")
    path = write_lines(tmp_path / "parts.jsonl", [*LINES[:2], LINES[4]])
    places = ("--protocol", "canal-json", "--input", str(path), "--target", target, "--timezone", "UTC")
    assert bridge("replay", *places, "--on-bad-message", "quarantine").code == 4
    there = [(1, 1, "precious"), (2, 5, "second")]
    assert sql(target, "SELECT * FROM shop.t ORDER BY id") == there
    fix = tmp_path / "fix.sql"
    verified = bridge("verify", *places, "--fix-sql", str(fix))
    assert verified.code == 0, verified.err
    assert "shop.t: it has no key" in " ".join(verified.out.split())
    assert "not covered │" in verified.out
    assert not any(word in fix.read_text() for word in ("INSERT", "DELETE", "UPDATE"))
