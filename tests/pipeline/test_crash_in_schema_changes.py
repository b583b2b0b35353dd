"""A process that dies at any step around a schema change of any class: the next one gives it its one effect."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.commands.ddl import release
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.parser import Classified, classify
from bridge.ddl.policy import ddl_rules
from bridge.errors import HeldError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.tso import ms_tso
from tests.support.pipelines import admin, contents, drop_all, journal, run_all
from tests.support.upstreams import boundary, in_one_partition, schema_change
from tests.support.victims import Victims

T = "CREATE TABLE m.t (id INT PRIMARY KEY, v INT, w VARCHAR(9), KEY kv (v)) COLLATE utf8mb4_bin"
FILLED = "INSERT INTO m.t VALUES (1, 1, 'x'), (2, 2, 'y')"
P = (
    "CREATE TABLE m.p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id)"
    " (PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
)
IN_P = "INSERT INTO m.p VALUES (1, 1), (11, 11)"
NO_KEY = "CREATE TABLE m.n (id INT NOT NULL, v INT)"
CHILD = "CREATE TABLE m.c (id INT PRIMARY KEY, pid INT, KEY (pid))"

CHANGES: list[tuple[C, list[str], str]] = [
    (C.CREATE_DATABASE, [], "CREATE DATABASE n"),
    (C.ALTER_DATABASE, [], "ALTER DATABASE m COLLATE utf8mb4_unicode_ci"),
    (C.DROP_DATABASE, [T, FILLED], "DROP DATABASE m"),
    (C.CREATE_TABLE, [], "CREATE TABLE k (id INT PRIMARY KEY)"),
    (C.CREATE_TABLE, [T], "CREATE TABLE k LIKE t"),
    (C.DROP_TABLE, [T, FILLED], "DROP TABLE m.t"),
    (C.TRUNCATE_TABLE, [T, FILLED], "TRUNCATE TABLE t"),
    (C.RENAME_TABLE, [T, FILLED], "RENAME TABLE m.t TO m.k"),
    (C.RENAME_TABLE, [T, FILLED, "CREATE DATABASE n"], "RENAME TABLE m.t TO n.t"),
    (C.CREATE_VIEW, [T], "CREATE OR REPLACE VIEW w AS SELECT id FROM t"),
    (C.DROP_VIEW, ["CREATE VIEW m.w AS SELECT 1"], "DROP VIEW m.w"),
    (C.ADD_COLUMN, [T, FILLED], "ALTER TABLE t ADD COLUMN c TIMESTAMP DEFAULT CURRENT_TIMESTAMP"),
    (C.DROP_COLUMN, [T, FILLED], "ALTER TABLE t DROP COLUMN w"),
    (C.MODIFY_COLUMN, [T, FILLED], "ALTER TABLE t CHANGE COLUMN v vv BIGINT"),
    (C.MODIFY_COLUMN, [T, FILLED], "ALTER TABLE t RENAME COLUMN v TO vv"),
    (C.COLUMN_DEFAULT, [T], "ALTER TABLE t ALTER COLUMN v SET DEFAULT 5"),
    (C.ADD_INDEX, [T, FILLED], "ALTER TABLE t ADD UNIQUE (v)"),
    (C.ADD_INDEX, [T, FILLED], "CREATE INDEX i ON t (w)"),
    (C.ADD_INDEX, [T, FILLED], "ALTER TABLE t ADD INDEX e ((v + 1))"),
    (C.DROP_INDEX, [T], "DROP INDEX kv ON t"),
    (C.RENAME_INDEX, [T], "ALTER TABLE t RENAME INDEX kv TO kw"),
    (C.INDEX_VISIBILITY, [T], "ALTER TABLE t ALTER INDEX kv INVISIBLE"),
    (C.ADD_PRIMARY_KEY, [NO_KEY], "ALTER TABLE n ADD PRIMARY KEY (id)"),
    (C.DROP_PRIMARY_KEY, [T, FILLED], "ALTER TABLE t DROP PRIMARY KEY"),
    (C.ADD_FOREIGN_KEY, [T, CHILD], "ALTER TABLE c ADD FOREIGN KEY (pid) REFERENCES t (id)"),
    (C.DROP_FOREIGN_KEY, [T, CHILD, "ALTER TABLE m.c ADD CONSTRAINT f FOREIGN KEY (pid) REFERENCES m.t (id)"],
     "ALTER TABLE c DROP FOREIGN KEY f"),
    (C.ADD_CHECK, [T], "ALTER TABLE t ADD CHECK (v > 0)"),
    (C.DROP_CONSTRAINT, [T, "ALTER TABLE m.t ADD CONSTRAINT k CHECK (v > 0)"], "ALTER TABLE t DROP CHECK k"),
    (C.ALTER_CHECK, [T, "ALTER TABLE m.t ADD CONSTRAINT k CHECK (v > 0)"], "ALTER TABLE t ALTER CHECK k NOT ENFORCED"),
    (C.ADD_PARTITION, [P, IN_P], "ALTER TABLE p ADD PARTITION (PARTITION p2 VALUES LESS THAN (30))"),
    (C.DROP_PARTITION, [P, IN_P], "ALTER TABLE p DROP PARTITION p0"),
    (C.TRUNCATE_PARTITION, [P, IN_P], "ALTER TABLE p TRUNCATE PARTITION p0"),
    (C.REORGANIZE_PARTITION, [P, IN_P],
     "ALTER TABLE p REORGANIZE PARTITION p0, p1 INTO (PARTITION a VALUES LESS THAN (20))"),
    (C.PARTITIONING, [T, FILLED], "ALTER TABLE t PARTITION BY HASH (id) PARTITIONS 3"),
    (C.PARTITIONING, [P, IN_P], "ALTER TABLE p REMOVE PARTITIONING"),
    (C.TABLE_COMMENT, [T], "ALTER TABLE t COMMENT = 'x'"),
    (C.TABLE_CHARSET, [T, FILLED], "ALTER TABLE t CONVERT TO CHARACTER SET utf8mb4 COLLATE utf8mb4_general_ci"),
    (C.AUTO_ID, ["CREATE TABLE m.a (id INT AUTO_INCREMENT PRIMARY KEY)"], "ALTER TABLE a AUTO_INCREMENT = 1000"),
    (C.TABLE_OPTION, [T], "ALTER TABLE t ROW_FORMAT = COMPRESSED"),
    (C.TTL, [T], "ALTER TABLE t /*T![ttl] TTL = `c` + INTERVAL 1 DAY */ COMMENT 'kept'"),
    (C.REMOVE_TTL, [T], "ALTER TABLE t REMOVE TTL"),
    (C.NOTHING, [T, FILLED], "ALTER TABLE `t`"),
]  # fmt: skip

REPEATABLE = {C.AUTO_ID, C.TRUNCATE_TABLE, C.TRUNCATE_PARTITION}
"""Its definition does not tell whether it ran, and running it again changes nothing."""

COUNTERS = (
    *("alter_table", "alter_db", "create_index", "create_view", "drop_index", "drop_view"),
    *("rename_table", "truncate"),
)
COMMITTED = 4
STEPS = {5: "ddl intent", 6: "ddl executed"}
"""Between them it depends on the class whether the target tells that it ran; the steps before and behind are the same
for all (`test_crash_points`)."""
TS = ms_tso(1_700_000_000_000)


def statements_run(session: Session) -> int:
    """How many statements of the kinds that the bridge itself never uses the server has run."""
    counted = dict(session.rows("SHOW GLOBAL STATUS LIKE 'Com\\_%'"))
    return sum(int(counted[f"Com_{name}"]) for name in COUNTERS)


def begin(session: Session, setup: list[str]) -> int:
    drop_all(session)
    session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
    for statement in setup:
        session.execute(statement)
    return statements_run(session)


@pytest.mark.parametrize(("change", "setup", "statement"), CHANGES, ids=[text for _, _, text in CHANGES])
def test_one_effect(target: str, victims: Victims, change: C, setup: list[str], statement: str) -> None:
    """Wherever the process dies, the next one ends where an uninterrupted run does, and the statement was sent once."""
    events = in_one_partition([schema_change(TS, statement), boundary(TS + 1)])
    kept = victims.keep(events)
    with admin(target) as session:
        before = begin(session, setup)
        run_all(target, events)
        expected, sent = (contents(session), journal(session)), statements_run(session) - before
        for crash_at, doomed in STEPS.items():
            before = begin(session, setup)
            step = victims.run(target, kept, crash_at)
            assert step == doomed or sent == 0
            run_all(target, events)
            assert (contents(session), journal(session)) == expected, f"after a crash at {step!r}"
            again = change in REPEATABLE and step == "ddl executed"
            assert statements_run(session) - before == sent + again, f"after a crash at {step!r}"


IN_X = [P, IN_P, "CREATE TABLE m.x (id INT PRIMARY KEY, v INT)", "INSERT INTO m.x VALUES (5, 5)"]
RUN = ["ddl intent", "ddl executed", "ddl recorded"]
RELEASES = [
    ("RECOVER TABLE `t`", JournalState.SKIPPED, "", []),
    ("RECOVER TABLE `t`", JournalState.REPLACED, "ALTER TABLE t RENAME TO recovered", RUN),
    ("ALTER TABLE t ADD COLUMN c TIMESTAMP DEFAULT CURRENT_TIMESTAMP", JournalState.APPROVED, "", RUN),
    ("DROP TABLE t, p", JournalState.APPROVED, "", RUN),
    ("TRUNCATE TABLE x", JournalState.REPLACED, "DROP TABLE x", RUN),
]


@pytest.mark.parametrize(("statement", "state", "replacement", "run"), RELEASES)
def test_one_effect_of_what_was_held(
    target: str, victims: Victims, statement: str, state: JournalState, replacement: str, run: list[str]
) -> None:
    """What is held, by the settings or since only TiDB has it, waits for the operator through any crash; what the
    operator has decided has its one effect through any crash."""
    events = in_one_partition([schema_change(TS, statement), boundary(TS + 1)])
    kept = victims.keep(events)
    hold: dict[str, Any] = {"default": "hold"}
    with admin(target) as session:
        expected = None
        for crash_at, doomed in enumerate([*run, "ddl taken off"], 1):
            before = begin(session, [T, FILLED, *IN_X])
            assert victims.run(target, kept, COMMITTED, ddl=hold) == "committed"
            with pytest.raises(HeldError, match="a schema change is held"):
                run_all(target, events, ddl=ddl_rules(**hold))
            release(Target(target), ProgressTable("bridge"), str(TS), state, replacement)
            assert victims.run(target, kept, crash_at, ddl=hold) == doomed
            run_all(target, events, ddl=ddl_rules(**hold))
            found = contents(session), journal(session), statements_run(session) - before
            assert found == (expected or found), f"after a crash at {doomed!r}"
            expected = found


def test_every_class_is_tried() -> None:
    """The list holds every class there is, as it is classified, but for the one that is held on MariaDB, and the one
    that is held after a crash."""
    for change, _, statement in CHANGES:
        known = classify(statement.replace("/*T![ttl] ", "").replace("*/", ","), "m")
        assert isinstance(known, Classified)
        assert change in known.classes, statement
    assert set(C) - {change for change, _, _ in CHANGES} == {C.RECOVER_TABLE, C.EXCHANGE_PARTITION}
