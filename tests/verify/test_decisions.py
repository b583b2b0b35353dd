"""Verify against the log, where the operator has decided about schema changes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.config import Settings
from bridge.ddl.policy import ddl_rules
from bridge.errors import HeldError, SchemaChangeError
from bridge.protocols.batch_decode import ruled
from tests.generated.verifying import verify_events
from tests.support.clients import run_file
from tests.support.command import bridge
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

COLUMNS = ["id", "v"]
BEFORE = [
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
    *(row_change(11, "t", COLUMNS, ["id"], after=[n, n]) for n in range(3)),
    boundary(12),
]


def held(target: str, statement: str, *behind: Any) -> pa.Table:
    """Events whose last schema change waits."""
    events = in_one_partition([*BEFORE, schema_change(20, statement), *behind, boundary(30)])
    sql(target, "CREATE DATABASE m")
    with pytest.raises(HeldError):
        run_all(target, events, ddl=HELD)
    return events


HELD = ddl_rules(hold=["truncate table", "drop table", "drop column", "modify column", "rename table"])


@pytest.mark.parametrize(
    ("statement", "by_hand", "told"),
    [
        ("TRUNCATE TABLE t", "TRUNCATE TABLE m.t", ""),
        ("TRUNCATE TABLE t", "DELETE FROM m.t", ""),
        ("DROP TABLE t", "DROP TABLE m.t", ""),
        ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE m.t DROP COLUMN v", ""),
        ("ALTER TABLE t MODIFY v VARCHAR(9)", "ALTER TABLE m.t MODIFY v VARCHAR(9)", ""),
        ("RENAME TABLE t TO u", "RENAME TABLE m.t TO m.u", ""),
        ("RENAME TABLE t TO u", "RENAME TABLE m.t TO m.w", "RENAME TABLE m.t TO m.w"),
        ("TRUNCATE TABLE t", "ALTER TABLE m.t RENAME COLUMN v TO w", "ALTER TABLE m.t RENAME COLUMN v TO w"),
    ],
)
def test_what_was_done_by_hand_is_followed(target: str, statement: str, by_hand: str, told: str) -> None:
    """The operator ran it, or something else, and said so: verify called right rows, or the table, different, as
    nothing but `skip` could be said."""
    events = held(target, statement)
    sql(target, by_hand)
    assert bridge("ddl", "done", "20", *filter(None, [told]), "--target", target).code == 0
    run_all(target, events, ddl=HELD)
    assert sql(target, "SELECT state FROM _bridge.schema_changes WHERE commit_ts = 20") == [("done",)]
    assert verify_events(target, events).is_equal


def test_a_table_that_is_not_for_the_target_is_not_missing(target: str) -> None:
    """What the bridge leaves out, as a global temporary table, was called missing, and the target different."""
    made = schema_change(13, "CREATE GLOBAL TEMPORARY TABLE g (id INT) ON COMMIT DELETE ROWS")
    events = in_one_partition([*BEFORE, made, boundary(30)])
    sql(target, "CREATE DATABASE m")
    run_all(target, events)
    assert verify_events(target, events).is_equal


def test_a_change_of_names_in_a_circle_is_not_skipped(target: str) -> None:
    """Rows behind it went to the other table, which verify called equal."""
    held(target, "RENAME TABLE t TO old, new TO t")
    refused = bridge("ddl", "skip", "20", "--target", target)
    assert refused.code == 2
    assert "rows behind it would go to each other's tables" in refused.err


@pytest.mark.parametrize("deleted", ["1=0", "id < 2", "1=1"])
def test_rows_that_a_skipped_statement_would_remove_may_be_gone(target: str, tmp_path: Path, deleted: str) -> None:
    """Who skips a TRUNCATE may delete rows by hand: verify called them missing, and its fix file put them back.  A row
    that came later is found all the same."""
    late = row_change(21, "t", COLUMNS, ["id"], after=[9, 9])
    events, fixes = held(target, "TRUNCATE TABLE t", late), tmp_path / "fix.sql"
    assert bridge("ddl", "skip", "20", "--target", target).code == 0
    run_all(target, events, ddl=HELD)
    sql(target, f"DELETE FROM m.t WHERE {deleted} AND id <> 9")
    rows = sql(target, "SELECT * FROM m.t")
    assert verify_events(target, events).is_equal
    sql(target, "DELETE FROM m.t WHERE id = 9")
    assert not verify_events(target, events, fixes=fixes).is_equal
    run_file(target, fixes)
    assert sql(target, "SELECT * FROM m.t") == rows


SHARDS = Settings.model_validate({"route": ["s?.t => s.t"], "timezone": "UTC", "ddl": {"hold": ["add column"]}})
MERGED = [
    *(schema_change(ts, "CREATE TABLE t (id INT PRIMARY KEY, v INT)", schema=f"s{ts - 9}") for ts in (10, 11)),
    *(row_change(12, "t", COLUMNS, ["id"], after=[n, n], schema=f"s{n}") for n in (1, 2)),
    schema_change(13, "ALTER TABLE t ADD COLUMN a INT DEFAULT 5", schema="s1"),
    schema_change(14, "ALTER TABLE t ADD COLUMN a INT DEFAULT 7", schema="s2"),
    row_change(15, "t", [*COLUMNS, "a"], ["id"], after=[4, 4, 8], schema="s2"),
    boundary(20),
]


def run_merged(target: str) -> pa.Table:
    """The messages of two shards, one after the other."""
    events: pa.Table = ruled(in_one_partition(MERGED), SHARDS.row_rules)
    run_all(target, events, ddl=SHARDS.ddl_rules())
    return events


def test_rows_of_one_shard_do_not_get_the_default_of_another(target: str, tmp_path: Path) -> None:
    """A column came with one default in one shard and with another one in the next: after a skip the rows of the next
    kept the first one's default in silence.  Now they are given theirs, which verify does not call different."""
    sql(target, "CREATE DATABASE s")
    config = tmp_path / "bridge.toml"
    config.write_text('route = ["s?.t => s.t"]')
    routed = ("--target", target, "--config", str(config))
    with pytest.raises(HeldError, match="add column"):
        run_merged(target)
    assert bridge("ddl", "approve", "13", *routed).code == 0
    with pytest.raises(HeldError):
        run_merged(target)
    refused = bridge("ddl", "skip", "14", *routed)
    assert refused.code == 2
    assert "the target has a already, where rows may hold another value" in refused.err
    sql(target, "UPDATE s.t SET a = 7 WHERE id = 2")
    assert bridge("ddl", "done", "14", *routed).code == 0
    events = run_merged(target)
    assert sql(target, "SELECT * FROM s.t ORDER BY id") == [(1, 1, 5), (2, 2, 7), (4, 4, 8)]
    assert verify_events(target, events, settings=SHARDS).is_equal


ANEW = [
    ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v INT", "ALTER TABLE m.t DROP COLUMN v"),
    ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v VARCHAR(9)", "ALTER TABLE m.t DROP COLUMN v"),
    ("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v INT)", "DROP TABLE m.t"),
    ("DROP TABLE t", "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))", "DROP TABLE m.t"),
]


@pytest.mark.parametrize(("gone", "anew", "by_hand"), ANEW)
def test_what_was_kept_is_not_what_comes_anew(target: str, gone: str, anew: str, by_hand: str) -> None:
    """A column, or a table, that was kept on the target counted as the one that the upstream made later under its name,
    with all values from before.  It stops the bridge until it is gone."""
    events = held(target, gone, boundary(22), schema_change(23, anew))
    assert bridge("ddl", "skip", "20", "--target", target).code == 0
    for _ in range(2):
        with pytest.raises(SchemaChangeError, match=r"with what it held before, as 20-\w+ was skipped"):
            run_all(target, events, ddl=HELD)
    sql(target, by_hand)
    run_all(target, events, ddl=HELD)
    assert sql(target, "SELECT COUNT(v) FROM m.t") == [(0,)]
    assert verify_events(target, events).is_equal
