"""Workers share a large table, and end together."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import StoppedError
from bridge.verify.snapshots import SnapshotReader
from tests.support.verify_servers import Pair, said

TABLES = "CREATE DATABASE app; USE app; CREATE TABLE app.a (id INT PRIMARY KEY, v INT);" \
         "INSERT INTO app.a SELECT seq, seq FROM seq_1_to_50000;"  # fmt: skip


def test_a_large_table_is_read_by_all_workers(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each in its own snapshot; a difference in a range of either is found, and the ranges make up the table."""
    pair.both(TABLES)
    pair.damage("UPDATE app.a SET v = 0 WHERE id IN (5, 25000, 50000); DELETE FROM app.a WHERE id = 31000")
    seen: dict[int, int] = {}
    rows = SnapshotReader.rows

    def counting(self: SnapshotReader, sql: str) -> list[tuple[Any, ...]]:
        if sql.startswith("SELECT COUNT(*) AS found,"):
            seen[id(self)] = seen.get(id(self), 0) + 1
        return rows(self, sql)

    monkeypatch.setattr(SnapshotReader, "rows", counting)
    monkeypatch.setattr("bridge.verify.compare.key_ranges._MOST_ROWS", 2_000)
    report = pair.verify("app.*", workers=3)
    assert said(report) == {"a 5 different v", "a 25000 different v", "a 31000 missing", "a 50000 different v"}
    assert (report.tables[0].rows, len(seen)) == (50_000, 6)
    assert min(seen.values()) > 3


ALL_CHUNKS = 200
"""Of two tables of 50,000 rows, on two servers, a thousand rows each."""


def test_a_failure_of_one_worker_ends_all(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with its own words, not when every other table has been compared."""
    pair.both(TABLES + "CREATE TABLE app.b LIKE app.a; INSERT INTO app.b SELECT * FROM app.a")
    chunks: list[str] = []
    rows = SnapshotReader.rows

    def failing(self: SnapshotReader, sql: str) -> list[tuple[Any, ...]]:
        if sql.startswith("SELECT COUNT(*) AS found,"):
            chunks.append(sql)
            if len(chunks) == 4:
                raise StoppedError("the server was lost")
        return rows(self, sql)

    monkeypatch.setattr(SnapshotReader, "rows", failing)
    monkeypatch.setattr("bridge.verify.compare.key_ranges._MOST_ROWS", 1_000)
    with pytest.raises(StoppedError, match="the server was lost"):
        pair.verify("app.*")
    assert len(chunks) < ALL_CHUNKS / 2
