"""Tables without a key: by ranges of an index where there is one, as a stream of hashes where there is none."""

from __future__ import annotations

from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.errors import StoppedError
from bridge.mysql.connection.target import Target
from bridge.verify.compare.key_ranges import Tally
from bridge.verify.compare.side import Buckets
from bridge.verify.load_throttle import Throttle
from bridge.verify.snapshot_reader import SnapshotReader
from tests.support.verify_servers import Pair, said

PLAIN = (
    "CREATE DATABASE app; USE app; CREATE TABLE k (a INT, b VARCHAR(30));"
    "INSERT INTO k SELECT seq, CONCAT('b', seq % 10) FROM seq_1_to_40000;"
)
INDEXED = (
    "CREATE DATABASE app; USE app;"
    "CREATE TABLE k (a INT, b VARCHAR(30) COLLATE utf8mb4_general_ci, j JSON, v INT, KEY ab (a, b), KEY coarse (v),"
    " FULLTEXT KEY words (b));"
    "INSERT INTO k SELECT NULLIF(seq % 5000, 7), NULLIF(CONCAT('B ', seq % 3), 'B 2'), '{\"k\": 1}', seq % 2"
    " FROM seq_1_to_30000; INSERT INTO k VALUES (NULL, NULL, NULL, NULL), (NULL, 'b', NULL, 1), (1, 'É ', NULL, 1);"
    "INSERT INTO k SELECT 1234, 'same', '{\"k\": 1}', seq FROM seq_1_to_2500; ANALYZE TABLE k;"
)
HASHES = st.lists(st.one_of(st.none(), st.integers(0, 7).map(lambda n: (n << 60 | n).to_bytes(8, "big"))), max_size=9)


def filled(hashes: list[bytes | None]) -> Buckets:
    """Rows with these hashes, in two portions."""
    buckets = Buckets()
    buckets.add(hashes[: len(hashes) // 2])
    buckets.add(hashes[len(hashes) // 2 :])
    return buckets


@given(HASHES, HASHES)
def test_buckets_tell_multisets_apart(left: list[bytes | None], right: list[bytes | None]) -> None:
    """Whatever the order, and however often a row is there; rows without a hash are always looked at."""
    is_equal = Counter(left) == Counter(right) and None not in left
    assert (filled(left).differing(filled(right)) == []) is is_equal


QUERIES = [
    ("UPDATE k SET b = 'x' WHERE a = 17", "k 17 'b7' missing", "k 17 'x' extra"),
    ("INSERT INTO k SELECT * FROM k WHERE a IN (5, 6)", "k 5 'b5' extra", "k 6 'b6' extra"),
    ("UPDATE k SET b = 'B7' WHERE a = 17", "k 17 'b7' missing", "k 17 'B7' extra"),
    ("DELETE FROM k WHERE a = 39999", "k 39999 'b9' missing"),
]


def test_without_an_index(pair: Pair) -> None:
    """One pass over each side, by pieces of the time that is given; what differs is named and fixed."""
    pair.both(PLAIN)
    for damage, *expected in QUERIES:
        pair.damage(f"USE app; {damage}")
        report = pair.verify("app.*", chunk_seconds=0.01)
        assert said(report) == set(expected)
        assert report.tables[0].rows == 40_000
        assert report.tables[0].chunks > 3
        pair.run_fix()
    assert said(pair.verify("app.*")) == set()


INDEXED_DAMAGE = [
    ("DO 0", 0, 0),
    ("UPDATE k SET v = 5 WHERE a IS NULL AND b IS NULL AND v IS NULL", 1, 1),
    ("DELETE FROM k WHERE a IS NULL AND b = 'b'", 1, 0),
    ("UPDATE k SET b = 'é' WHERE a = 1 AND b = 'É '", 1, 1),
    ("UPDATE k SET j = '{\"k\":1.0}' WHERE a < 20 AND j IS NOT NULL", 0, 0),
    ("UPDATE k SET v = 9000 WHERE b = 'same' AND v = 77", 1, 1),
    ("INSERT INTO k SELECT * FROM k WHERE a = 1234 AND b = 'same' AND v < 3", 0, 2),
]


def test_by_ranges_of_an_index(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the finest one; NULLs, upper and lower case and accents at the ends of ranges, and more equal values than a
    leaf holds."""
    pair.both(INDEXED)
    monkeypatch.setattr("bridge.verify.compare.key_ranges._MOST_ROWS", 1_000)
    for damage, missing, extra in INDEXED_DAMAGE:
        pair.damage(f"USE app; {damage}")
        [table] = pair.verify("app.*").tables
        assert (table.rows, table.missing, table.extra) == (32_503, missing, extra), damage
        assert table.chunks >= 5
        pair.run_fix()
        assert said(pair.verify("app.*")) == set()


def test_ranges_are_resumed(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """As those of a key, and not when another index has taken the place of the one they were of."""
    pair.both(INDEXED)
    monkeypatch.setattr("bridge.verify.compare.key_ranges._MOST_ROWS", 1_000)
    add = Tally.add

    def dying(self: Tally, *arguments: Any) -> None:
        if self.chunks >= 3:
            raise KeyboardInterrupt
        add(self, *arguments)

    with monkeypatch.context() as patch:
        patch.setattr(Tally, "add", dying)
        with pytest.raises(KeyboardInterrupt):
            pair.verify("app.*")
    pair.damage("USE app; DELETE FROM k WHERE a IS NULL; DELETE FROM k WHERE a = 4999 LIMIT 1")
    report = pair.verify("app.*", resume=True)
    assert (report.tables[0].missing, report.tables[0].rows) == (1, 32_503)


def test_a_table_that_was_equal_is_not_read_again(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A stream has no place to go on from, but its table is done when it was equal."""
    pair.both(PLAIN + "CREATE TABLE z (a INT)")
    stream = SnapshotReader.stream
    seen: list[str] = []

    def dying(self: SnapshotReader, sql: str) -> Any:
        if "`z`" in sql:
            raise KeyboardInterrupt
        seen.append(sql)
        return stream(self, sql)

    monkeypatch.setattr(SnapshotReader, "stream", dying)
    with pytest.raises(KeyboardInterrupt):
        pair.verify("app.*", workers=1)
    assert len(seen) == 2
    monkeypatch.setattr(SnapshotReader, "stream", lambda self, sql: seen.append(sql) or stream(self, sql))
    pair.damage("USE app; UPDATE k SET b = 'x' WHERE a = 17; INSERT INTO z VALUES (5)")
    report = pair.verify("app.*", workers=1, resume=True)
    assert [sql for sql in seen[2:] if "`z`" not in sql] == []
    assert {table.rows for table in report.tables} == {0, 40_000}
    assert said(report) == {"z 5 extra"}


def test_a_stream_is_no_load_of_its_own(pair: Pair) -> None:
    """Though it stands on the server while verify waits, which would wait for itself."""
    pair.both(PLAIN)
    assert said(pair.verify("app.*", chunk_seconds=0.01, max_load={"Threads_running": 2})) == set()


def test_an_abandoned_stream_ends_at_once(pair: Pair) -> None:
    """Its session is closed; nothing is read on behind the scenes."""
    session = Target(pair.target).connect()
    blocks: Any = session.stream("SELECT seq FROM mysql.seq_1_to_100000000", 1_000)
    assert len(next(blocks)) == 1_000
    blocks.close()
    with pytest.raises(Exception, match="0"):
        session.rows("SELECT 1")


def test_who_waits_is_let_go_when_the_verification_ends() -> None:
    """With an error, so that no chunk is begun."""
    throttle = Throttle({}, {}, print)
    throttle.stop()
    with pytest.raises(StoppedError, match="given up"):
        throttle.wait()
