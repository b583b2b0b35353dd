"""Tables without a key: by one checksum, and by buckets of hashes where they differ."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.errors import StoppedError
from bridge.verify.snapshot_reader import SnapshotReader, Throttle
from tests.support.verify_servers import Pair, said

PLAIN = (
    "CREATE DATABASE app; USE app; CREATE TABLE k (a INT, b VARCHAR(30));"
    "INSERT INTO k SELECT seq, CONCAT('b', seq % 10) FROM seq_1_to_40000;"
)
QUERIES = [
    ("UPDATE k SET b = 'x' WHERE a = 17", "k 17 'b7' missing", "k 17 'x' extra"),
    ("UPDATE k SET b = NULL WHERE a = 17", "k 17 'b7' missing", "k 17 NULL extra"),
    ("INSERT INTO k SELECT * FROM k WHERE a IN (5, 6)", "k 5 'b5' extra", "k 6 'b6' extra"),
    ("UPDATE k SET b = 'B7' WHERE a = 17", "k 17 'b7' missing", "k 17 'B7' extra"),
    ("DELETE FROM k WHERE a = 39999", "k 39999 'b9' missing"),
]


def test_rows_that_differ(pair: Pair) -> None:
    """They are named and fixed, however often they are there."""
    pair.both(PLAIN)
    for damage, *expected in QUERIES:
        pair.damage(f"USE app; {damage}")
        report = pair.verify("app.*")
        assert said(report) == set(expected)
        assert report.tables[0].rows == 40_000
        pair.run_fix()
    assert said(pair.verify("app.*")) == set()


def test_a_table_that_was_equal_is_not_read_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has no place to go on from, but it is done when it was equal."""
    pair.both(PLAIN + "CREATE TABLE z (a INT)")
    rows = SnapshotReader.rows
    seen: list[str] = []

    def dying(self: SnapshotReader, sql: str) -> Any:
        if "`z`" in sql:
            raise KeyboardInterrupt
        seen.append(sql)
        return rows(self, sql)

    monkeypatch.setattr(SnapshotReader, "rows", dying)
    with pytest.raises(KeyboardInterrupt):
        pair.verify("app.*", workers=1)
    assert len(seen) == 2
    monkeypatch.setattr(SnapshotReader, "rows", lambda self, sql: seen.append(sql) or rows(self, sql))
    pair.damage("USE app; UPDATE k SET b = 'x' WHERE a = 17; INSERT INTO z VALUES (5)")
    report = pair.verify("app.*", workers=1, resume=True)
    assert [sql for sql in seen[2:] if "`z`" not in sql] == []
    assert {table.rows for table in report.tables} == {0, 40_000}
    assert said(report) == {"z 5 extra"}


def test_rows_that_are_too_long_for_a_hash(pair: Pair) -> None:
    """They are fetched and compared, as no checksum holds them."""
    pair.both(
        "CREATE DATABASE app; USE app; CREATE TABLE k (a INT, b VARCHAR(9)); INSERT INTO k VALUES (1,'x'),(2,'x')"
    )
    pair.damage("USE app; UPDATE k SET b = 'y' WHERE a = 2")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("bridge.verify.compare.checksums._digest", lambda *_: "NULL")
        assert said(pair.verify("app.*")) == {"k 2 'x' missing", "k 2 'y' extra"}


def test_who_waits_is_let_go_when_the_verification_ends() -> None:
    """With an error, so that no chunk is begun."""
    throttle = Throttle({}, {}, print)
    throttle.stop()
    with pytest.raises(StoppedError, match="given up"):
        throttle.wait()
