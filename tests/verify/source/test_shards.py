"""Shards that are merged: the target's table is compared with the rows of all of them."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.config import Settings
from bridge.errors import HeldError, UsageError
from bridge.filters.routes import RowRules
from tests.support.pipelines import run_all
from tests.support.upstreams import boundary, in_one_partition, schema_change
from tests.support.verify_servers import Pair, execute, portable, said

RULES = RowRules(routes=Settings(route=("s?.t => s.t", "s?.n => s.n")).table_routes)
COLUMNS = "(id INT PRIMARY KEY, e ENUM('b','a'), v VARCHAR(9), f FLOAT, UNIQUE (e, id)) COLLATE utf8mb4_bin"


def fill(shard: str, start: int, rows: int) -> str:
    return portable(
        f"CREATE DATABASE IF NOT EXISTS {shard}; CREATE TABLE {shard}.t {COLUMNS};"
        f"INSERT INTO {shard}.t SELECT 2 * seq + {start}, 1 + seq % 2, seq, seq / 3 FROM seq_1_to_{rows};"
    )


def test_rows_of_all_shards(pair: Pair) -> None:
    """In ranges of keys that go through all of them; what differs is found, shown and fixed under the target's name."""
    execute(pair.source, fill("s1", 0, 3000) + fill("s2", 1, 1500))
    made = fill("s", 0, 1) + fill("s1", 0, 3000) + fill("s2", 1, 1500)
    union = "DELETE FROM s.t; INSERT INTO s.t SELECT * FROM s1.t UNION ALL SELECT * FROM s2.t;"
    execute(pair.target, f"{made}{union} DROP DATABASE s1; DROP DATABASE s2")
    [table] = pair.verify(row_rules=RULES).tables
    assert (str(table.name), table.rows, table.is_equal) == ("s.t", 4500, True)
    assert "merged from s1.t, s2.t" in table.notes
    execute(pair.target, "UPDATE s.t SET e = 'a' WHERE id = 2; DELETE FROM s.t WHERE id = 2001;"
                         "INSERT INTO s.t (id, v) VALUES (3002, 'x') ON DUPLICATE KEY UPDATE v = 'x';"
                         "INSERT INTO s.t (id) VALUES (9999)")  # fmt: skip
    before = said(pair.verify(row_rules=RULES))
    assert {words.removesuffix(" e") for words in before} >= {"t 2001 missing", "t 3002 different v", "t 9999 extra"}
    pair.run_fix()
    assert all(table.is_equal for table in pair.verify(row_rules=RULES).tables)
    execute(pair.target, "DROP TABLE s.t")
    assert "t: the table is missing" in said(pair.verify(row_rules=RULES))
    pair.run_fix()
    assert all(table.is_equal for table in pair.verify(row_rules=RULES).tables)


def test_keys_that_meet_are_found(pair: Pair) -> None:
    """The target has one of two rows."""
    execute(pair.source, fill("s1", 0, 3) + fill("s2", 4, 3))
    execute(pair.target, fill("s", 0, 5))
    report = pair.verify(row_rules=RULES)
    assert not report.tables[0].is_equal
    assert {finding for words in said(report) for finding in words.split() if finding in {"missing", "extra"}} == {
        "missing"
    }


def test_shards_that_differ(pair: Pair) -> None:
    """What not all of them have alike is not compared; what the target lacks of one is named."""
    execute(pair.source, fill("s1", 0, 3) + fill("s2", 1, 3) + "ALTER TABLE s1.t ADD w INT DEFAULT 3, ADD x INT;")
    execute(pair.target, fill("s", 0, 3) + fill("s2", 1, 3) + "INSERT INTO s.t SELECT * FROM s2.t; DROP DATABASE s2;"
                         "ALTER TABLE s.t ADD w INT DEFAULT 5")  # fmt: skip
    [table] = pair.verify(row_rules=RULES).tables
    assert table.schema == ("column x is missing (s1.t)",)
    assert "column w is not alike in all shards: its values are not compared" in table.notes
    assert (table.rows, table.different, table.missing, table.extra) == (6, 0, 0, 0)


def test_shards_of_another_server(pair: Pair) -> None:
    """Their rows are none too many: they are named, and nothing is fixed, unless the operator leaves them out or their
    last statement took them away."""
    execute(pair.source, fill("s1", 0, 3))
    execute(pair.target, "CREATE DATABASE s")
    made = [schema_change(11 + n, f"CREATE TABLE t {COLUMNS}", schema=f"s{n}") for n in (1, 2)]
    options: dict[str, Any] = {"ddl": Settings(route=("s?.t => s.t",)).ddl_rules(), "rules": RULES}
    run_all(pair.target, in_one_partition([*made, boundary(20)]), **options)
    execute(pair.target, portable("INSERT INTO s.t SELECT seq + 1, 1 + seq % 2, seq, seq / 3 FROM seq_1_to_6"))
    [table] = pair.verify(row_rules=RULES).tables
    assert (str(table.name), table.extra, table.is_equal) == ("s.t", 0, False)
    assert "the source has no s2.t, whose rows are in this table too" in table.schema[0]
    assert "DELETE" not in pair.fix.read_text()
    [table] = pair.verify("s1.*", row_rules=RULES).tables
    assert table.extra == 3
    with pytest.raises(HeldError):
        run_all(
            pair.target, in_one_partition([schema_change(30, "DROP TABLE t", schema="s2"), boundary(40)], 3), **options
        )
    execute(pair.target, "UPDATE _bridge.schema_changes SET state = 'skipped' WHERE state = 'held'")
    [table] = pair.verify(row_rules=RULES).tables
    assert table.extra == 3


def test_shards_without_a_key(pair: Pair) -> None:
    """Their rows are counted together."""
    rows = "CREATE DATABASE {0}; CREATE TABLE {0}.n (a INT, b VARCHAR(9)); INSERT INTO {0}.n VALUES {1};"
    execute(pair.source, rows.format("s1", "(1,'x'),(2,'y')") + rows.format("s2", "(1,'x'),(3,'z')"))
    execute(pair.target, rows.format("s", "(1,'x'),(1,'x'),(2,'y'),(3,'z')") + "ALTER TABLE s.n COLLATE utf8mb4_bin")
    [table] = pair.verify(row_rules=RULES).tables
    assert (table.rows, table.missing, table.extra) == (4, 0, 0)
    execute(pair.target, "DELETE FROM s.n WHERE a = 1 LIMIT 1; INSERT INTO s.n VALUES (4, 'x')")
    [table] = pair.verify(row_rules=RULES).tables
    assert (table.missing, table.extra) == (1, 1)


def test_a_table_of_the_merged_name_that_is_no_shard(pair: Pair) -> None:
    """It cannot be compared."""
    execute(pair.source, fill("s1", 0, 3) + fill("s", 1, 3))
    execute(pair.target, fill("s", 0, 3))
    with pytest.raises(UsageError, match="would both be written to"):
        pair.verify(row_rules=RULES)
