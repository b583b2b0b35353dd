"""Ranges of a primary key are read where they lie."""

from __future__ import annotations

from contextlib import closing
from typing import Any

import pytest

from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import Definition, load_definitions
from bridge.verify.compare.checksums import between, in_key_order, key_parts
from bridge.verify.compare.key_ranges import ChunkSize
from bridge.verify.report import TableResult
from tests.support.verify_servers import Pair, execute, said

T = TableName("app", "t")


def loaded(session: Session, columns: str, select: str = "") -> Definition:
    """A table `app.t`, and its definition."""
    session.execute("CREATE DATABASE IF NOT EXISTS app")
    session.execute("DROP TABLE IF EXISTS app.t")
    session.execute(f"CREATE TABLE app.t ({columns})")
    if select:
        session.execute(f"INSERT INTO app.t {select}")
    session.execute("ANALYZE TABLE app.t")
    return load_definitions(session, [T])[T]


def plan(session: Session, hint: str, where: str) -> str:
    """How the server reads a range."""
    row: Any = session.rows(f"EXPLAIN SELECT SUM(LENGTH(pad)) FROM app.t{hint} WHERE {where}")[0]
    return str(row[3])


def test_a_range_of_the_primary_key_is_read_where_it_lies(target: str) -> None:
    """MariaDB would read the whole table for half of it."""
    with closing(Target(target).connect()) as session:
        select = "SELECT seq, REPEAT('x', 100) FROM app.seq_1_to_30000"
        definition = loaded(session, "id INT PRIMARY KEY, pad VARCHAR(100)", select=select)
        key = [definition.columns["id"]]
        parts = key_parts(key, key)
        half = between(parts, (b"10000",), (b"25000",))
        assert plan(session, in_key_order(definition, parts), half) == "range"


@pytest.mark.parametrize(
    ("columns", "key", "hint"),
    [
        ("a INT, b INT, PRIMARY KEY (a, b)", "ab", " FORCE INDEX (PRIMARY)"),
        ("a INT, b INT, PRIMARY KEY (a, b)", "a", " FORCE INDEX (PRIMARY)"),
        ("a INT, b INT, PRIMARY KEY (a, b)", "b", ""),
        ("a INT NOT NULL UNIQUE, b INT PRIMARY KEY", "a", ""),
        ("a INT NOT NULL UNIQUE, b INT", "a", ""),
        ("a ENUM('x', 'y') PRIMARY KEY, b INT", "a", ""),
        ("a INT PRIMARY KEY, b INT", "", ""),
    ],
)
def test_only_the_order_of_the_primary_key_is_asked_for(target: str, columns: str, key: str, hint: str) -> None:
    """Another index, or another order than the column's own, would cost more than it spares."""
    with closing(Target(target).connect()) as session:
        definition = loaded(session, columns)
        mine = [definition.columns[name] for name in key]
        assert in_key_order(definition, key_parts(mine, mine)) == hint


def test_damage_at_the_ends_of_ranges(pair: Pair) -> None:
    """Rows below the first key and behind the last one of the source are extra; those at a range's end count once."""
    pair.both("CREATE DATABASE app; CREATE TABLE app.t (id INT PRIMARY KEY, v INT);"
              " INSERT INTO app.t SELECT seq * 3 DIV 2, seq FROM app.seq_1_to_30000; ANALYZE TABLE app.t")  # fmt: skip
    assert pair.verify("app.t").is_equal
    pair.damage("INSERT INTO app.t VALUES (-7, 1), (0, 1), (45001, 1); UPDATE app.t SET v = 0 WHERE id IN (10000, 1);"
                " DELETE FROM app.t WHERE id IN (9999, 45000)")  # fmt: skip
    report = pair.verify("app.t")
    assert said(report) == {
        "t -7 extra", "t 0 extra", "t 45001 extra", "t 10000 different v", "t 1 different v", "t 9999 missing",
        "t 45000 missing",
    }  # fmt: skip
    assert report.tables[0].chunks > 1
    pair.run_fix()
    assert pair.verify("app.t").is_equal
    assert execute(pair.target, "SELECT COUNT(*) FROM app.t") == [(30000,)]


WORDS = "CONCAT(ELT(1 + seq % 6, 'a', 'B', 'é', 'ß', 'Z', '''\\\\'), seq, IF(seq % 4, '', CHAR(9)))"
KEYS = [
    ("k INT", "CAST(seq AS SIGNED) - 300"),
    ("k BIGINT UNSIGNED", "18446744073709551615 - seq * 1000"),
    ("k DECIMAL(30,10)", "seq / 7 - 40"),
    ("k FLOAT", "seq / 3 - 50"),
    ("k DOUBLE", "(CAST(seq AS SIGNED) - 300) / 7"),
    ("k BIT(40)", "seq * 1000000"),
    ("k YEAR", "1900 + seq"),
    ("k ENUM('z','y''x','a')", "seq"),
    ("k SET('z','y','a','b','c','d','e','f','g','h')", "seq"),
    ("k DATE", "DATE('1990-01-01') + INTERVAL seq DAY"),
    ("k DATETIME(6)", "TIMESTAMP('1990-01-01') + INTERVAL seq * 7 MICROSECOND"),
    ("k TIMESTAMP(3)", "TIMESTAMP('2024-03-31') + INTERVAL seq * 999 MICROSECOND"),
    ("k TIME(3)", "SEC_TO_TIME((CAST(seq AS SIGNED) - 300) * 100.5)"),
    ("k BINARY(4)", "UNHEX(LPAD(HEX(seq * 256), 8, '0'))"),
    ("k VARBINARY(20)", "CONCAT(UNHEX('00'), UNHEX(MD5(seq)))"),
    ("k VARCHAR(20) COLLATE utf8mb4_bin", WORDS),
    ("k VARCHAR(20) COLLATE utf8mb4_nopad_bin", "IF(seq % 2, CONCAT('a', seq), CONCAT('a', seq - 1, ' '))"),
    ("k VARCHAR(20) COLLATE utf8mb4_general_ci", WORDS),
    ("k VARCHAR(20) COLLATE utf8mb4_unicode_ci", WORDS),
    ("k VARCHAR(20) COLLATE utf8mb4_unicode_520_nopad_ci", "IF(seq % 2, CONCAT('A', seq), CONCAT('a', seq - 1, ' '))"),
    ("k VARCHAR(20) CHARACTER SET latin1 COLLATE latin1_german2_ci", WORDS),
    ("k VARCHAR(20) CHARACTER SET gbk", "CONCAT('中', seq)"),
    ("k CHAR(20) CHARACTER SET utf8mb3", "CONCAT('中 ', seq)"),
]


def test_no_row_falls_between_two_ranges(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal tables are equal; a row that is lost, one that is new and one that changed are found wherever they are."""
    monkeypatch.setattr("bridge.verify.compare.key_ranges._MOST_ROWS", 100)
    monkeypatch.setattr("bridge.verify.compare.bisect.LEAF_ROWS", 10)
    sizes = [3 if "ENUM" in column else 250 for column, _ in KEYS]
    pair.both(
        "SET SESSION sql_mode = '', time_zone = '+00:00'; CREATE DATABASE app CHARACTER SET utf8mb4; USE app;"
        + "".join(
            f"CREATE TABLE t{i:02} ({column} NOT NULL, v INT, PRIMARY KEY (k));"
            f"INSERT INTO t{i:02} SELECT {value}, seq FROM seq_1_to_{size};"
            for i, ((column, value), size) in enumerate(zip(KEYS, sizes, strict=True))
        )
    )

    def damage(statement: str) -> None:
        pair.damage("USE app;" + "".join(statement.format(t=f"t{i:02}") + ";" for i in range(len(KEYS))))

    def verify() -> list[TableResult]:
        return sorted(pair.verify("app.*").tables, key=lambda table: table.name)

    assert [(t.rows, t.chunks >= t.rows // 100, t.is_equal) for t in verify()] == [(n, True, True) for n in sizes]
    changed, lost = {1, 97, 98, 202}, {2, 125, 250}
    damage(f"UPDATE {{t}} SET v = -v WHERE v IN ({','.join(map(str, changed))});"
           f"DELETE FROM {{t}} WHERE v IN ({','.join(map(str, lost))})")  # fmt: skip
    assert [(t.different, t.missing, t.extra) for t in verify()] == [(1, 1, 0) if n == 3 else (4, 3, 0) for n in sizes]
    damage("DELETE FROM {t}; INSERT INTO {t} (v) VALUES (5)")
    assert [(t.different + t.missing, t.different + t.extra) for t in verify()] == [(n, 1) for n in sizes]
    pair.run_fix()
    assert said(pair.verify("app.*")) == set()


def test_chunks_grow_and_shrink_to_their_time() -> None:
    """By a factor of 4 at most, since one slow query says little."""
    size = ChunkSize(0.5)
    size.adjust(0.001)
    assert size.rows == 40_000
    size.adjust(0.4)
    assert size.rows == 50_000
    size.adjust(60)
    assert size.rows == 12_500


def test_a_steady_server_is_met_exactly() -> None:
    """At 100,000 rows/s half a second is 50,000 rows."""
    size = ChunkSize(0.5)
    for _ in range(10):
        size.adjust(size.rows / 100_000)
    assert size.rows == 50_000
