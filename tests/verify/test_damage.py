"""Targets damaged on purpose, one case for each type and for each way in which a tool of this kind is known to be
fooled."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest

from tests.support.verify_servers import Pair, said

TABLES = """
SET SESSION sql_mode = '', time_zone = '+00:00';
CREATE DATABASE app CHARACTER SET utf8mb4 COLLATE utf8mb4_bin;
USE app;
CREATE TABLE t (
    id BIGINT UNSIGNED PRIMARY KEY, u INT UNIQUE, i INT ZEROFILL, big BIGINT UNSIGNED, de DECIMAL(30,10), f FLOAT,
    d DOUBLE, bi BIT(64), y YEAR, e ENUM('a','b','c d'), s SET('x','y','z'), ch CHAR(10), v VARCHAR(40), w VARCHAR(40),
    ci VARCHAR(40) COLLATE utf8mb4_general_ci, la VARCHAR(40) CHARACTER SET latin1,
    gb VARCHAR(9) CHARACTER SET gbk, tx TEXT, lo LONGTEXT,
    bn BINARY(6), vb VARBINARY(20), bl BLOB, da DATE, ti TIME(3), dt DATETIME(6), ts TIMESTAMP(3) NULL, j JSON,
    g BIGINT AS (id + 1) STORED, KEY on_v (v), KEY on_tx (tx(10))
);
INSERT INTO t (id, u, i, big, de, f, d, bi, y, e, s, ch, v, w, ci, la, gb, tx, lo, bn, vb, bl, da, ti, dt, ts, j)
    SELECT seq, seq, seq, 18446744073709551615 - seq, seq / 7, seq / 3, seq / 7, 18446744073709551615 - seq,
    2000 + seq, 1 + seq % 3, seq % 8, CONCAT('ch', seq), CONCAT('v,', seq), CONCAT('w', seq), CONCAT('Ci', seq),
    CONCAT('é', seq), CONCAT('中', seq), CONCAT('text', seq),
    REPEAT(CONCAT('lo', seq), 20000), UNHEX(CONCAT('00', HEX(seq))),
    UNHEX('00FF'), UNHEX(MD5(seq)), DATE('2024-01-01') + INTERVAL seq DAY, SEC_TO_TIME(seq),
    TIMESTAMP('2024-01-01') + INTERVAL seq
    SECOND, TIMESTAMP('2024-06-01') + INTERVAL seq HOUR, CONCAT('{"a": ', seq, ', "b": [1, 2.5]}') FROM seq_1_to_20;
INSERT INTO t (id) VALUES (21);
UPDATE t SET f = 0, d = 0, v = '', w = '', i = 0, da = '0000-00-00', bl = '' WHERE id = 20;
UPDATE t SET gb = _gbk x'FEFE41', j = '[1e400]' WHERE id = 19;
CREATE TABLE many (a INT, b VARCHAR(20) COLLATE utf8mb4_general_ci, v INT NOT NULL, PRIMARY KEY (a, b));
INSERT INTO many SELECT seq % 7, CONCAT(CHAR(65 + seq % 26), seq), seq FROM seq_1_to_3000;
CREATE TABLE by_name (name VARCHAR(30) COLLATE utf8mb4_unicode_ci PRIMARY KEY, v INT);
INSERT INTO by_name SELECT CONCAT(CHAR(65 + seq % 58), '_', seq), seq FROM seq_1_to_2500;
CREATE TABLE keyless (a INT, b VARCHAR(10), j JSON);
INSERT INTO keyless SELECT seq % 3, CONCAT('b', seq % 2), '{"k": 1}' FROM seq_1_to_600;
CREATE TABLE pairs (a VARCHAR(10) NOT NULL, b VARCHAR(10), v INT, UNIQUE KEY pk (a));
INSERT INTO pairs VALUES ('a,b', 'c', 1), ('d', 'e', 2);
"""

DAMAGE = [
    # a value of each type
    ("UPDATE t SET u = 99 WHERE id = 3", "t 3 different u"),
    ("UPDATE t SET i = i + 1 WHERE id = 3", "t 3 different i"),
    ("UPDATE t SET big = big - 1 WHERE id = 3", "t 3 different big"),
    ("UPDATE t SET de = de + 0.0000000001 WHERE id = 3", "t 3 different de"),
    ("UPDATE t SET f = f * 1.0000002 WHERE id = 3", "t 3 different f"),
    ("UPDATE t SET d = d * 1.0000000000000003 WHERE id = 3", "t 3 different d"),
    ("UPDATE t SET bi = bi - 1 WHERE id = 3", "t 3 different bi"),
    ("UPDATE t SET y = 1999 WHERE id = 3", "t 3 different y"),
    ("UPDATE t SET e = 'b' WHERE id = 3", "t 3 different e"),
    ("UPDATE t SET s = 'x' WHERE id = 3", "t 3 different s"),
    ("UPDATE t SET ch = 'other' WHERE id = 3", "t 3 different ch"),
    ("UPDATE t SET la = 'e3' WHERE id = 3", "t 3 different la"),
    ("UPDATE t SET tx = 'other' WHERE id = 3", "t 3 different tx"),
    ("UPDATE t SET lo = CONCAT('L', SUBSTRING(lo, 2)) WHERE id = 3", "t 3 different lo"),
    ("UPDATE t SET bn = UNHEX('0133') WHERE id = 3", "t 3 different bn"),
    ("UPDATE t SET vb = UNHEX('00FE') WHERE id = 3", "t 3 different vb"),
    ("UPDATE t SET bl = UNHEX(MD5('x')) WHERE id = 3", "t 3 different bl"),
    ("UPDATE t SET da = da + INTERVAL 1 DAY WHERE id = 3", "t 3 different da"),
    ("UPDATE t SET ti = '00:00:03.001' WHERE id = 3", "t 3 different ti"),
    ("UPDATE t SET dt = dt + INTERVAL 1 MICROSECOND WHERE id = 3", "t 3 different dt"),
    ("UPDATE t SET ts = ts + INTERVAL 8 HOUR WHERE id = 3", "t 3 different ts"),
    ('UPDATE t SET j = \'{"a": 3, "b": [1, "2.5"]}\' WHERE id = 3', "t 3 different j"),
    ("UPDATE t SET gb = '中4' WHERE id = 3", "t 3 different gb"),
    ('UPDATE t SET j = \'{"a": 4, "a": 3, "b": [1, 2.5]}\' WHERE id = 3', "t 3 different j"),
    ("UPDATE t SET j = '[1e401]' WHERE id = 19", "t 19 different j"),
    ("UPDATE t SET gb = _gbk x'3F41' WHERE id = 19", "t 19 different gb"),
    ("UPDATE t SET gb = _gbk x'FEFD41' WHERE id = 19", "t 19 different gb"),
    # what NULL, zero and the empty string are taken for
    ("UPDATE t SET v = NULL WHERE id = 20", "t 20 different v"),
    ("UPDATE t SET bl = NULL WHERE id = 20", "t 20 different bl"),
    ("UPDATE t SET i = NULL WHERE id = 20", "t 20 different i"),
    ("UPDATE t SET f = NULL WHERE id = 20", "t 20 different f"),
    ("UPDATE t SET d = NULL, f = NULL WHERE id = 20", "t 20 different f d"),
    ("UPDATE t SET da = NULL WHERE id = 20", "t 20 different da"),
    ("UPDATE t SET i = 0 WHERE id = 21", "t 21 different i"),
    ("UPDATE t SET v = 'NULL' WHERE id = 21", "t 21 different v"),
    ("UPDATE t SET v = 'N' WHERE id = 21", "t 21 different v"),
    ("UPDATE t SET e = 'none such' WHERE id = 21", "t 21 different e"),
    ("UPDATE t SET s = '' WHERE id = 21", "t 21 different s"),
    # text that a collation, or padding, takes for equal
    ("UPDATE t SET v = CONCAT(v, ' ') WHERE id = 3", "t 3 different v"),
    ("UPDATE t SET ci = LOWER(ci) WHERE id = 3", "t 3 different ci"),
    ("UPDATE t SET ci = 'Cí3' WHERE id = 3", "t 3 different ci"),
    ("UPDATE many SET b = LOWER(b) WHERE v = 77", "many 0,'Z77' different b"),
    ("UPDATE by_name SET name = LOWER(name) WHERE v = 1", "by_name 'B_1' different name"),
    # values that move between columns and rows
    ("UPDATE pairs SET a = 'a', b = 'b,c' WHERE v = 1", "pairs 'a' extra", "pairs 'a,b' missing"),
    ("UPDATE t SET v = w, w = 'v,3' WHERE id = 3", "t 3 different v w"),
    ("UPDATE t SET v = IF(id = 3, 'v,4', 'v,3') WHERE id IN (3, 4)", "t 3 different v", "t 4 different v"),
    ("UPDATE t SET u = NULL WHERE id = 3; UPDATE t SET u = 3 WHERE id = 4; UPDATE t SET u = 4 WHERE id = 3",
     "t 3 different u", "t 4 different u"),
    ("UPDATE t SET id = 300 WHERE id = 3", "t 3 missing", "t 300 extra"),
    # rows
    ("DELETE FROM t WHERE id = 3", "t 3 missing"),
    ("INSERT INTO t (id, v) VALUES (0, 'v')", "t 0 extra"),
    ("DELETE FROM many WHERE v IN (1, 2999)", "many 1,'B1' missing", "many 3,'J2999' missing"),
    ("INSERT INTO keyless VALUES (0, 'b0', '{\"k\": 1}')", "keyless 0 'b0' '{\"k\": 1}' extra"),
    ("INSERT INTO keyless SELECT 0, 'b0', '{\"k\": 1}' FROM seq_1_to_2", "keyless 0 'b0' '{\"k\": 1}' extra x2"),
    ("DELETE FROM keyless WHERE a = 0 AND b = 'b0' LIMIT 2", "keyless 0 'b0' '{\"k\": 1}' missing x2"),
    ("UPDATE keyless SET b = 'b1' WHERE a = 0 AND b = 'b0' LIMIT 1",
     "keyless 0 'b0' '{\"k\": 1}' missing", "keyless 0 'b1' '{\"k\": 1}' extra"),
    # schemas
    ("ALTER TABLE pairs DROP COLUMN v", "pairs: column v is missing"),
    ("ALTER TABLE t DROP KEY on_v", "t: index on_v (v) is missing"),
    ("ALTER TABLE t DROP KEY on_tx, ADD KEY on_tx (tx(9))", "t: index on_tx (tx) is missing"),
    ("ALTER TABLE t DROP KEY u", "t: unique index u (u) is missing"),
    ("ALTER TABLE many DROP PRIMARY KEY", "many: the primary key (a, b) is missing"),
    ("ALTER TABLE pairs MODIFY b VARCHAR(20)", "pairs: column b is varchar(20) instead of varchar(10)"),
    ("ALTER TABLE t MODIFY dt DATETIME(3)", "t: column dt is datetime(3) instead of datetime(6)"),
    ("ALTER TABLE t MODIFY g BIGINT AS (id + 2) STORED", "t: column g is computed as `id` + 2 instead of `id` + 1"),
    ("ALTER TABLE t MODIFY g BIGINT; UPDATE t SET g = 9 WHERE id = 3", "t 3 different g"),
    ("ALTER TABLE many MODIFY v INT NULL", "many: column v is NULL instead of NOT NULL"),
    ("ALTER TABLE pairs MODIFY b VARCHAR(10) COLLATE utf8mb4_general_ci",
     "pairs: column b has the collation utf8mb4_general_ci instead of utf8mb4_bin"),
    ("ALTER TABLE pairs CHANGE COLUMN v n INT NOT NULL",
     "pairs: column v is missing", "pairs: column n is the target's own, NOT NULL and without a default"),
    ("DROP TABLE pairs", "pairs: the table is missing", "pairs 'a,b' missing", "pairs 'd' missing"),
]  # fmt: skip


TABLE = re.compile(r"\b(t|many|by_name|keyless|pairs)\b")
FEW = {"t": "WHERE id IN (3, 4, 19, 20, 21)"}


def copied(number: int, damage: str) -> str:
    """The table of a case, which is its own: nothing else is wrong with it."""
    name = TABLE.findall(damage)[0]
    own = f"{name}_{number}"
    return f"CREATE TABLE {own} LIKE {name}; INSERT INTO {own} SELECT * FROM {name} {FEW.get(name, '')};"


@pytest.fixture(scope="module")
def findings(mariadb: Any, old_mariadb: Any, tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[set[str]]]:
    """What verify says once all is damaged, after the fixes, and after the fixes of that."""
    pair = Pair(old_mariadb.url, mariadb.url, tmp_path_factory.mktemp("fix"))
    pair.both(TABLES)
    pair.both("SET SESSION sql_mode = ''; USE app;" + "".join(copied(n, case[0]) for n, case in enumerate(DAMAGE)))
    assert said(pair.verify("app.*")) == set()
    for number, (damage, *_) in enumerate(DAMAGE):
        pair.damage("USE app; " + TABLE.sub(rf"\1_{number}", damage))
    found = []
    for _ in range(3):
        report = pair.verify("app.*")
        found.append(said(report))
        assert report.is_equal == (not found[-1])
        pair.run_fix()
    yield found
    pair.both("DROP DATABASE app")


@pytest.mark.parametrize("number", range(len(DAMAGE)), ids=[case[0][:70] for case in DAMAGE])
def test_damage_is_found_named_and_fixed(findings: list[set[str]], number: int) -> None:
    """Exactly what was damaged is named, and after the fix SQL nothing differs; the next one where columns did."""
    damage, *expected = DAMAGE[number]
    first, second, third = (
        {re.sub(rf"_{number}\b", "", words) for words in found if re.match(rf"[a-z_]+_{number}\b", words)}
        for found in findings
    )
    assert first == set(expected)
    if " COLUMN v" in damage:
        assert {words.rpartition(" ")[0] for words in second} >= {"pairs 'a,b' different"}
    else:
        assert second == set()
    assert third == set()
