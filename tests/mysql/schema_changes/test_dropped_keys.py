"""Keys that are gone upstream, while the target still has them."""

from __future__ import annotations

from contextlib import nullcontext

import pytest

from bridge.commands.ddl import release
from bridge.ddl.policy import ddl_rules
from bridge.errors import ApplyError, HeldError, SchemaChangeError, UsageError
from bridge.events import NO_KEY, NO_PRIMARY_KEY
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import JournalState
from bridge.mysql.state.progress import ProgressTable
from tests.support.pipelines import run_all
from tests.support.schema_change_runs import TS, outcome
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

DROPS = [
    ("drop primary key", "ALTER TABLE t DROP PRIMARY KEY"),
    ("drop index", "DROP INDEX m ON t"),
    ("drop constraint", "ALTER TABLE t DROP CONSTRAINT m"),
    ("drop column", "ALTER TABLE t DROP COLUMN mail"),
]


@pytest.mark.parametrize(("ignored", "statement"), DROPS)
def test_the_drop_of_a_key_is_not_left_out(target: str, session: Session, ignored: str, statement: str) -> None:
    """Neither the settings nor the operator leave it out while the target has the key, nor is it done then: rows that
    differ upstream would overwrite each other.  Without the key on the target, the settings leave it out again."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, mail VARCHAR(9), UNIQUE m (mail))")
    rules = ddl_rules(ignore=[ignored], source="mysql-8")
    events = in_one_partition([schema_change(TS, statement), boundary(TS + 1)])
    with pytest.raises(HeldError) as raised:
        run_all(target, events, ddl=rules)
    assert "which the upstream drops" in str(raised.value)
    for state in (JournalState.SKIPPED, JournalState.DONE):
        with pytest.raises(UsageError, match="overwrite each other"):
            release(Target(target), ProgressTable("bridge"), str(TS), state)
    assert outcome(session)[0] == "held"
    session.execute(statement)
    run_all(target, events, ddl=rules)
    assert outcome(session)[0] == "ignored"


def test_an_index_that_is_not_unique_may_stay(target: str, session: Session) -> None:
    """It tells no rows apart."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, KEY m (v))")
    events = in_one_partition([schema_change(TS, "DROP INDEX m ON t"), boundary(TS + 1)])
    run_all(target, events, ddl=ddl_rules(ignore=["drop index"]))
    assert outcome(session)[0] == "ignored"


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        *(("id INT PRIMARY KEY, v INT", NO_KEY), ("id INT PRIMARY KEY, v INT", NO_PRIMARY_KEY)),
        *(("id INT NOT NULL UNIQUE, v INT", NO_KEY), ("id INT PRIMARY KEY, v INT", "v")),
        ("id INT, v INT, PRIMARY KEY (v)", "id\0v"),
    ],
)
def test_rows_of_a_key_that_the_target_has_alone(target: str, session: Session, columns: str, key: str) -> None:
    """A message that says that the upstream has no such key stops the pipeline, before a row is written."""
    session.execute(f"CREATE TABLE t ({columns})")
    row = row_change(TS, "t", ["id", "v"], [], after=(1, 1))._replace(key=key)
    with pytest.raises(ApplyError, match="overwrite each other"):
        run_all(target, in_one_partition([row, boundary(TS + 1)]))
    assert session.rows("SELECT * FROM t") == []


@pytest.mark.parametrize(
    ("columns", "key"),
    [
        ("id INT NOT NULL UNIQUE, v INT", NO_PRIMARY_KEY),
        ("id INT, v INT", NO_KEY),
        ("id INT, v INT, PRIMARY KEY (id, v)", "id"),
        ("id INT PRIMARY KEY, v INT", ""),
    ],
)
def test_rows_of_a_key_that_the_upstream_may_have(target: str, session: Session, columns: str, key: str) -> None:
    """They are written: the message does not show that the keys differ, or the target's tells more rows apart."""
    session.execute(f"CREATE TABLE t ({columns})")
    row = row_change(TS, "t", ["id", "v"], [], after=(1, 1))._replace(key=key)
    run_all(target, in_one_partition([row, boundary(TS + 1)]))
    assert session.rows("SELECT * FROM t") == [(1, 1)]


@pytest.mark.parametrize(
    ("statement", "may_drop"), [("ALTER TABLE t FOO BAR, DROP PRIMARY KEY", True), ("ALTER TABLE t FOO BAR", False)]
)
def test_a_drop_that_is_not_understood(target: str, session: Session, statement: str, may_drop: bool) -> None:
    """It is not skipped, whatever it drops."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    with pytest.raises(SchemaChangeError):
        run_all(target, in_one_partition([schema_change(TS, statement), boundary(TS + 1)]))
    with pytest.raises(UsageError, match="overwrite each other") if may_drop else nullcontext():
        release(Target(target), ProgressTable("bridge"), str(TS), JournalState.SKIPPED)
