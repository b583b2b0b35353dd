"""Ranges of keys of every type and collation, cut as finely as can be: nothing is left out between two of them, and
nothing is in two."""

from __future__ import annotations

import pytest

from tests.verify.servers import Pair, said

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


@pytest.mark.parametrize(("column", "value"), KEYS, ids=[key[0] for key in KEYS])
def test_no_row_falls_between_two_ranges(pair: Pair, column: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Equal tables are equal; a row that is lost, one that is new and one that changed are found wherever they are."""
    monkeypatch.setattr("bridge.verify.chunks._MOST_ROWS", 100)
    monkeypatch.setattr("bridge.verify.drill_down.LEAF_ROWS", 10)
    rows = 3 if "ENUM" in column else 255 if "YEAR" in column else 600
    pair.both(
        "SET SESSION sql_mode = '', time_zone = '+00:00'; CREATE DATABASE app CHARACTER SET utf8mb4; USE app;"
        f"CREATE TABLE t ({column} NOT NULL, v INT, PRIMARY KEY (k));"
        f"INSERT INTO t SELECT {value}, seq FROM seq_1_to_{rows}"
    )
    report = pair.verify("app.*")
    assert said(report) == set()
    assert (report.tables[0].rows, report.tables[0].chunks >= rows // 100) == (rows, True)
    changed, lost = {1, *range(97, rows, 97)}, {2, rows // 2, rows}
    pair.damage(f"USE app; UPDATE t SET v = -v WHERE v IN ({','.join(map(str, changed))});"
                f"DELETE FROM t WHERE v IN ({','.join(map(str, lost))})")  # fmt: skip
    [table] = pair.verify("app.*").tables
    assert (table.different, table.missing, table.extra) == (len(changed - {-v for v in lost}), len(lost - changed), 0)
    pair.damage("USE app; DELETE FROM t; INSERT INTO t (v) VALUES (5)")
    [table] = pair.verify("app.*").tables
    assert table.different + table.missing == rows
    assert table.different + table.extra == 1
    pair.mend()
    assert said(pair.verify("app.*")) == set()
