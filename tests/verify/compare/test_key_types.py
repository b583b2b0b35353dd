"""Ranges of keys of every type and collation, cut as finely as can be: nothing is left out between two of them, and
nothing is in two."""

from __future__ import annotations

import pytest

from bridge.verify.report import TableResult
from tests.support.verify_servers import Pair, said

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
