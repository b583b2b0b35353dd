"""MySQL as the source, and as the target, of a comparison with MariaDB."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.verify_servers import Pair, execute, portable, said
from tests.verify.test_damage import DAMAGE, TABLES

SERVERS = [
    *(("mysql_target", "target"), ("old_mysql_target", "target"), ("old_target", "mysql_target")),
    ("target", "old_mysql_target"),
]
MYSQL_TABLES = portable(TABLES.replace(", j = '[1e400]'", ""))
"""MySQL's JSON has no number beyond a double, and of a name that comes twice one value."""
VALUES = [
    case
    for case in DAMAGE
    if case[1].startswith("t 3 different ") and len(case) == 2 and '"a": 4' not in case[0] and case[1][-2:] != "gb"
]
"""A value of each type, changed; and those that collations and padding take for equal."""
KEYLESS = [
    ("INSERT INTO keyless VALUES (0, 'b0', '{\"k\": 1}')", "keyless 0 'b0' '{\"k\": 1}' extra"),
    ("DELETE FROM keyless WHERE a = 1 AND b = 'b0' LIMIT 2", "keyless 1 'b0' '{\"k\": 1}' missing x2"),
    ("UPDATE by_name SET name = LOWER(name) WHERE v = 1", "by_name 'B_1' different name"),
    ("DELETE FROM many WHERE v IN (1, 2999)", "many 1,'B1' missing", "many 3,'J2999' missing"),
]


@pytest.mark.parametrize(("upstream", "downstream"), SERVERS)
def test_equal_damaged_and_fixed(
    upstream: str, downstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Types that servers print otherwise are equal; each value that is not is found and named, and the fix SQL makes
    it equal."""
    pair = Pair(request.getfixturevalue(upstream), request.getfixturevalue(downstream), tmp_path)
    pair.both(MYSQL_TABLES)
    assert said(pair.verify("app.*")) == set()
    columns: dict[str, set[str]] = {}
    for number, (damage, found) in enumerate(VALUES):
        row = str(1 + number % 18)
        pair.damage("USE app; " + damage.removesuffix("3") + row)
        columns.setdefault(row, set()).update(found.removeprefix("t 3 different ").split())
    for damage, *_ in KEYLESS:
        pair.damage(f"USE app; {damage}")
    named = said(pair.verify("app.*"))
    pair.run_fix()
    assert {line for line in named if not line.startswith("t ")} == {line for _, *found in KEYLESS for line in found}
    assert {row: set(c) for _, row, _, *c in (line.split() for line in named if line.startswith("t "))} == columns
    assert said(pair.verify("app.*")) == set()


@pytest.mark.parametrize(("upstream", "downstream"), SERVERS)
def test_tables_that_are_missing(
    upstream: str, downstream: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """The fix SQL makes them in the words of the target, with their foreign keys, and their rows."""
    pair = Pair(request.getfixturevalue(upstream), request.getfixturevalue(downstream), tmp_path)
    execute(pair.source, MYSQL_TABLES + FOREIGN)
    pair.verify("app.*")
    pair.run_fix()
    assert said(pair.verify("app.*")) == set()
    assert execute(pair.target, "SELECT COUNT(*) FROM app.a_child") == [(2,)]


FOREIGN = """
CREATE TABLE a_child (id INT PRIMARY KEY, p INT, d BINARY(4) DEFAULT x'00ff8027', c VARCHAR(9) DEFAULT 'it''s'
COMMENT 'a\\r\\nb \\\\', CONSTRAINT f FOREIGN KEY (p) REFERENCES parent (id) ON DELETE CASCADE);
CREATE TABLE parent (id INT PRIMARY KEY);
INSERT INTO parent VALUES (1), (2); INSERT INTO a_child (id, p) VALUES (1, 1), (2, 2);
"""
FOREIGN = "SET foreign_key_checks = 0;" + FOREIGN


TEXTS = """
CREATE DATABASE app CHARACTER SET utf8mb4; USE app;
CREATE TABLE k (k VARCHAR(20) COLLATE utf8mb4_0900_ai_ci PRIMARY KEY, v INT);
INSERT INTO k VALUES ('a', 1), ('a ', 2), ('B', 3), ('ß', 4), ('é!', 5), ('😀', 6), ('😁', 7), ('', 8), (' ', 9);
CREATE TABLE c (k CHAR(20) COLLATE utf8mb4_0900_as_cs PRIMARY KEY, v INT);
INSERT INTO c VALUES ('a', 1), ('A', 2), ('á', 3), ('ab ', 4);
"""


def test_collations_of_mysql_8(mysql_target: str, target: str, tmp_path: Path) -> None:
    """0900 collations, which pad nothing and tell characters beyond the BMP apart, are compared byte by byte."""
    pair = Pair(mysql_target, target, tmp_path)
    pair.both(TEXTS)
    assert said(pair.verify("app.*")) == set()
    pair.damage(
        "USE app; UPDATE k SET k = 'A' WHERE v = 1; DELETE FROM k WHERE v = 9; UPDATE c SET k = 'Á' WHERE v = 3"
    )
    assert said(pair.verify("app.*")) == {*("k 'a' different k", "k ' ' missing", "c 'á' missing", "c 'Á' extra")}
    pair.run_fix()
    assert said(pair.verify("app.*")) == set()
    assert execute(target, "SELECT COUNT(*) FROM app.k") == [(9,)]
