"""What an interrupted verification had found equal is not read again."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from bridge.errors import StoppedError
from bridge.model import TableName
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.options import Checkpoint
from bridge.verify.snapshots import SnapshotReader
from tests.support.verify_servers import Pair, said

NAME = TableName("app", "a")
TABLES = "CREATE DATABASE app; USE app; CREATE TABLE app.a (id INT PRIMARY KEY, v INT);" \
         "INSERT INTO app.a SELECT seq, seq FROM seq_1_to_50000;"  # fmt: skip


def interrupt(monkeypatch: pytest.MonkeyPatch, chunks: int) -> None:
    """The process is killed after so many chunks."""
    add = Tally.add

    def dying(self: Tally, *arguments: Any) -> None:
        if self.chunks >= chunks:
            raise KeyboardInterrupt
        add(self, *arguments)

    monkeypatch.setattr(Tally, "add", dying)


def test_resume_goes_on_behind_what_was_equal(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Rows and chunks are counted as if there had been one run; earlier ranges are not asked for again."""
    pair.both(TABLES)
    monkeypatch.setattr("bridge.verify.compare.key_ranges._MOST_ROWS", 15_000)
    with monkeypatch.context() as patch:
        interrupt(patch, 2)
        with pytest.raises(KeyboardInterrupt):
            pair.verify("app.*", workers=1)
    pair.damage("UPDATE app.a SET v = 0 WHERE id = 1; INSERT INTO app.a VALUES (60000, 1)")
    queries: list[str] = []
    rows = SnapshotReader.rows
    monkeypatch.setattr(SnapshotReader, "rows", lambda self, sql: queries.append(sql) or rows(self, sql))
    report = pair.verify("app.*", workers=1, resume=True)
    assert said(report) == {"a 60000 extra"}
    assert report.tables[0].rows == 50_000
    assert report.tables[0].chunks >= 3
    assert all("`id`>" in sql for sql in queries if sql.startswith("SELECT COUNT(*) AS found,"))
    assert said(pair.verify("app.*", resume=True)) == {"a 1 different v", "a 60000 extra"}


def test_a_range_that_differs_is_read_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is kept from the first difference on; another pipeline has another file."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = Checkpoint({"pipeline": "a"}, resume=False)
    state.keep(NAME, "looks", Tally(5, 1, [], (b"\xff\x00", b"2")))
    state.keep(NAME, "looks", Tally(9, 2, [None], (b"3", b"4")))  # type: ignore[list-item]
    assert Checkpoint({"pipeline": "a"}, resume=True).tally(NAME, "looks") == Tally(5, 1, [], (b"\xff\x00", b"2"))
    assert Checkpoint({"pipeline": "b"}, resume=True).tally(NAME, "looks") == Tally()
    assert Checkpoint({"pipeline": "a"}, resume=False).tally(NAME, "looks") == Tally()


def test_a_line_that_was_cut_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A process may die while it writes."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    state = Checkpoint({}, resume=False)
    state.keep(NAME, "looks", Tally(5, 1, [], (b"1",)))
    with state.path.open("ab") as file:
        file.write(b'{"table": ["app')
    assert Checkpoint({}, resume=True).tally(NAME, "looks").rows == 5


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
