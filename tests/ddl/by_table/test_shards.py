"""Schema changes of shards: which may run at the first, and what the journal says of the others."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.by_table.shards import Ruling, ShardStatement, ShardVerdict, shard_statement
from bridge.ddl.by_table.shards import ruling as ruled
from bridge.filters.routes import Routes, parse_route

ROUTES = Routes((parse_route("s*.t => s.t"), parse_route("s*.u => s.u"), parse_route("plain.* -> other.*")))
R, C, S = (True, "ran"), (False, "confirmed"), (False, "skipped")
RUN, CONFIRM, COMPARE, HOLD = ShardVerdict.RUN, ShardVerdict.CONFIRM, ShardVerdict.COMPARE, ShardVerdict.HOLD


def read(text: str, schema: str = "s1") -> ShardStatement:
    found = shard_statement(text, schema, ROUTES)
    assert found is not None
    return found


@pytest.mark.parametrize(
    "text",
    [
        "ALTER TABLE t ADD COLUMN c INT",
        "ALTER TABLE t ADD c BIGINT(20) UNSIGNED NOT NULL DEFAULT 0 COMMENT 'x' AFTER b, ADD d VARCHAR(9) FIRST",
        "ALTER TABLE t ADD c DECIMAL(5,2) DEFAULT -1.5",
        "ALTER TABLE t ADD c ENUM('a','b') CHARACTER SET utf8mb4 COLLATE utf8mb4_bin NULL DEFAULT 'a'",
        "ALTER TABLE t ADD c TIMESTAMP NULL",
        "ALTER TABLE t ADD c TIMESTAMP DEFAULT '2020-01-01'",
        *("ALTER TABLE t ADD INDEX i (c), ADD KEY (d)", "CREATE INDEX i ON t (c)", "ALTER TABLE t COMMENT = 'x'"),
        "ALTER TABLE t /*!50000 ADD c INT */",
    ],
)
def test_runs_at_the_first_shard(text: str) -> None:
    """Rows that know nothing of it can go on being written; for the others it has nothing left to do."""
    assert read(text).runs_first
    assert read(text).is_confirmed


@pytest.mark.parametrize(
    ("text", "is_confirmed"),
    [
        ("ALTER TABLE t ADD COLUMN c INT NOT NULL", False),
        ("ALTER TABLE t ADD COLUMN c INT UNIQUE", False),
        ("ALTER TABLE t ADD COLUMN c INT AUTO_INCREMENT PRIMARY KEY", False),
        ("ALTER TABLE t ADD COLUMN c SERIAL", False),
        ("ALTER TABLE t ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP", False),
        ("ALTER TABLE t ADD COLUMN c DATETIME DEFAULT '2020-01-01' ON UPDATE CURRENT_TIMESTAMP", False),
        ("ALTER TABLE t ADD COLUMN c VARCHAR(36) DEFAULT (uuid())", False),
        ("ALTER TABLE t ADD COLUMN c INT AS (a + 1) STORED", False),
        ("ALTER TABLE t ADD COLUMN c INT REFERENCES u (id)", False),
        ("ALTER TABLE t ADD COLUMN c TIMESTAMP", False),
        ("ALTER TABLE t ADD COLUMN c TIMESTAMP NOT NULL", False),
        ("ALTER TABLE t ADD COLUMN (c INT, d INT)", False),
        ("ALTER TABLE t ADD COLUMN c INT, DROP COLUMN d", False),
        *(("ALTER TABLE t DROP COLUMN d", False), ("ALTER TABLE t CHANGE a b INT", False)),
        *(("ALTER TABLE t RENAME COLUMN a TO b", False), ("ALTER TABLE t ADD PRIMARY KEY (id)", False)),
        ("ALTER TABLE t DROP PRIMARY KEY", False),
        ("ALTER TABLE t ADD PARTITION (PARTITION p VALUES LESS THAN (9))", False),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS c INT DEFAULT 1", True),
        *(("ALTER TABLE t MODIFY c BIGINT", True), ("ALTER TABLE t ADD UNIQUE (c)", True)),
        *(("CREATE UNIQUE INDEX i ON t (c)", True), ("DROP INDEX i ON t", True)),
        ("ALTER TABLE t ALTER c SET DEFAULT 5", True),
    ],
)
def test_is_left_to_the_operator_at_the_first_shard(text: str, is_confirmed: bool) -> None:
    """And where a second run would do something to rows, at each."""
    assert not read(text).runs_first
    assert not read(text).why_never
    assert read(text).is_confirmed is is_confirmed


@pytest.mark.parametrize(
    "text",
    [
        *("DROP TABLE t", "DROP TABLE other, t", "TRUNCATE TABLE t", "RENAME TABLE t TO old"),
        *("RENAME TABLE fresh TO t", "ALTER TABLE t RENAME TO old", "ALTER TABLE t DROP PARTITION p"),
        "ALTER TABLE t TRUNCATE PARTITION p",
        "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE x",
        "CREATE OR REPLACE TABLE t (id INT PRIMARY KEY)",
        "CREATE TABLE x LIKE t",
    ],
)
def test_is_never_run_as_it_came(text: str) -> None:
    """One shard's statement would be done to the rows of all shards."""
    assert read(text).why_never
    assert ruled(read(text), []).verdict is HOLD


@pytest.mark.parametrize("text", ["DROP TABLE x", "CREATE TABLE x (id INT)", "CREATE VIEW v AS SELECT 1", "nonsense"])
def test_concerns_no_shard(text: str) -> None:
    """Neither what touches no merged table, nor what cannot be read."""
    assert shard_statement(text, "s1", ROUTES) is None
    assert shard_statement("DROP TABLE t", "plain", ROUTES) is None
    assert shard_statement("DROP TABLE t", "s1", Routes((parse_route("s1.* -> s.*"),))) is None


def test_texts_are_compared_without_the_name() -> None:
    """Names, blanks and the case of words do not count; names in quotes and texts do."""
    texts = {
        read("ALTER TABLE t ADD c INT").text,
        read("alter  table `s1`.t add c int;").text,
        read("ALTER TABLE s2.t ADD C INT", "").text,
    }
    assert len(texts) == 1
    assert read("ALTER TABLE t ADD c INT DEFAULT 1").text != read("ALTER TABLE t ADD c INT DEFAULT 2").text
    assert read("ALTER TABLE t COMMENT 'a'").text != read("ALTER TABLE t COMMENT 'A'").text


def test_a_database_that_is_merged() -> None:
    """It is made under the target's name, and not altered by one of its shards."""
    routes = Routes((parse_route("s?.* => s.*"),))
    assert target_statement("CREATE DATABASE s1", "", routes) == ("CREATE DATABASE `s`", "")
    assert target_statement("ALTER DATABASE s1 CHARACTER SET utf8mb4", "s1", routes) is None
    assert target_statement("DROP DATABASE s1", "", routes) is None


ADD_A, ADD_B = "ALTER TABLE t ADD a INT", "ALTER TABLE t ADD b INT"
MAKE, MAKE_WITH_A = "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY, a INT)"
DROP_A, WIDEN, RENAME = "ALTER TABLE t DROP COLUMN a", "ALTER TABLE t MODIFY a BIGINT", "ALTER TABLE t CHANGE a b INT"
TRUNCATE, INDEX = "TRUNCATE TABLE t", "ALTER TABLE t ADD INDEX (a)"

Past = Sequence[tuple[str, str, tuple[bool, str]]]
CASES: list[tuple[Past, str, str, ShardVerdict]] = [
    ([], "s1", ADD_A, RUN),
    ([("s1", ADD_A, R)], "s2", ADD_A, CONFIRM),
    ([("s1", ADD_A, R), ("s2", ADD_A, C)], "s3", ADD_A, CONFIRM),
    ([("s1", ADD_A, R), ("s2", ADD_A, C)], "s1", ADD_B, RUN),
    ([("s1", ADD_A, R), ("s1", ADD_B, R)], "s2", ADD_A, CONFIRM),
    ([("s1", ADD_A, R), ("s1", ADD_B, R)], "s2", ADD_B, CONFIRM),
    ([("s1", ADD_A, R)], "s2", ADD_B, RUN),
    ([("s1", ADD_A, R), ("s1", DROP_A, R)], "s1", ADD_A, RUN),
    # What a shard has a second time runs, or is held, whatever others had.
    ([("s1", ADD_A, R), ("s1", DROP_A, R), ("s1", ADD_A, R), ("s2", ADD_A, C)], "s2", ADD_A, RUN),
    ([("s1", WIDEN, R), ("s1", WIDEN, R), ("s2", WIDEN, C)], "s2", WIDEN, HOLD),
    # Of another merged table.
    ([("s1", "ALTER TABLE u ADD a INT", R)], "s2", ADD_A, RUN),
    ([("s1", ADD_A, R), ("s1", ADD_B, R), ("s2", ADD_A, C)], "s2", ADD_B, CONFIRM),
    # The order of different statements is no matter.
    ([("s1", ADD_A, R), ("s1", ADD_B, R), ("s2", ADD_B, S)], "s2", ADD_A, CONFIRM),
    ([("s1", ADD_A, R), ("s1", ADD_B, R), ("s2", ADD_B, S), ("s2", ADD_A, C)], "s2", INDEX, RUN),
    ([("s1", ADD_A, R), ("s2", WIDEN, R)], "s2", INDEX, RUN),
    ([("s1", ADD_A, R), ("s2", WIDEN, R)], "s1", INDEX, RUN),
    ([("s1", ADD_A, R), ("s2", WIDEN, S)], "s2", ADD_A, CONFIRM),
    # What is not additive is approved once, and confirmed for the others.
    ([], "s1", WIDEN, HOLD),
    ([("s1", WIDEN, R)], "s2", WIDEN, CONFIRM),
    ([("s1", WIDEN, S)], "s2", WIDEN, HOLD),
    # What takes something away is skipped for all but the last.
    ([], "s1", DROP_A, HOLD),
    ([("s1", DROP_A, S)], "s2", DROP_A, HOLD),
    ([("s1", DROP_A, S), ("s2", DROP_A, R)], "s1", ADD_B, RUN),
    ([("s1", DROP_A, S), ("s2", DROP_A, R)], "s2", ADD_B, RUN),
    ([("s1", DROP_A, R)], "s2", DROP_A, HOLD),
    ([("s1", DROP_A, R), ("s2", DROP_A, S)], "s2", ADD_B, RUN),
    ([("s1", RENAME, R)], "s2", RENAME, HOLD),
    # What is about one shard is never run, and changes nothing of what is expected.
    ([("s1", ADD_A, R)], "s2", TRUNCATE, HOLD),
    ([("s1", ADD_A, R), ("s2", TRUNCATE, S)], "s2", ADD_A, CONFIRM),
    # Shards that are made.
    ([], "s1", MAKE, COMPARE),
    ([("s1", MAKE, R)], "s2", MAKE, CONFIRM),
    ([("s1", MAKE, R)], "s2", MAKE_WITH_A, COMPARE),
    ([("s1", MAKE, R), ("s1", ADD_A, R), ("s2", MAKE, C)], "s2", ADD_A, CONFIRM),
    ([("s1", MAKE, R), ("s1", ADD_A, R), ("s2", MAKE, C)], "s2", ADD_B, RUN),
    ([("s1", MAKE, R), ("s1", ADD_A, R), ("s2", MAKE_WITH_A, C)], "s2", ADD_B, RUN),
    ([("s1", MAKE, R), ("s1", ADD_A, R), ("s2", MAKE_WITH_A, C)], "s2", ADD_A, CONFIRM),
    ([("s1", MAKE, R), ("s1", WIDEN, R), ("s2", MAKE_WITH_A, C)], "s2", WIDEN, CONFIRM),
    ([("s1", MAKE, R), ("s1", ADD_A, R)], "s2", "CREATE TABLE t LIKE s1.t", CONFIRM),
    ([("s1", MAKE, R), ("s1", ADD_A, R), ("s2", "CREATE TABLE t LIKE s1.t", C)], "s2", ADD_B, RUN),
    ([("s1", MAKE, R), ("s2", MAKE, C), ("s1", ADD_A, R), ("s3", "CREATE TABLE t LIKE s2.t", C)], "s3", ADD_A, CONFIRM),
    ([("s1", MAKE, R), ("s2", MAKE, S), ("s1", ADD_A, R)], "s2", ADD_A, CONFIRM),
    ([("s1", MAKE, R), ("s1", ADD_A, R), ("s2", MAKE, R), ("s3", MAKE, C)], "s3", ADD_A, RUN),
]  # fmt: skip


def ruling(past: Past, shard: str, text: str) -> Ruling:
    return ruled(read(text, shard), [(read(one, where), did_run) for where, one, (did_run, _) in past])


@pytest.mark.parametrize(("past", "shard", "text", "verdict"), CASES)
def test_rulings(past: Past, shard: str, text: str, verdict: ShardVerdict) -> None:
    """What ran for one shard is confirmed for the others, once."""
    assert ruling(past, shard, text).verdict is verdict


def test_words() -> None:
    """A ruling says whose schema change it follows, and what to do."""
    assert ruling([("s1", ADD_A, R)], "s2", ADD_A).why == "confirmed, as run for s1.t"
    assert "may not fit what it makes of the table (modify column)" in ruling([], "s1", WIDEN).why
    assert "skip it for each shard but the last, and approve it for the last" in ruling([], "s1", DROP_A).why
