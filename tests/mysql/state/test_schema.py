"""The bridge's own tables: earlier forms are brought forward with what they hold, later ones refused."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.commands.status import forget_pipeline, read_status
from bridge.errors import TargetError
from bridge.model import Advance, PartitionStart, SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state import schema
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import ProgressTable
from tests.support.pipelines import admin, sql

SCHEMA = "_bridge"
FIRST_FORM = """
CREATE DATABASE _bridge;
CREATE TABLE _bridge.progress (
    name VARCHAR(128) COLLATE utf8mb4_bin PRIMARY KEY,
    epoch BIGINT UNSIGNED NOT NULL,
    applied_ts BIGINT UNSIGNED NOT NULL,
    start_ts BIGINT UNSIGNED NOT NULL,
    positions LONGTEXT NOT NULL,
    pending LONGTEXT NOT NULL,
    updated_at TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)
) DEFAULT CHARSET = utf8mb4;
CREATE TABLE _bridge.owner (
    name VARCHAR(128) COLLATE utf8mb4_bin PRIMARY KEY,
    epoch BIGINT UNSIGNED NOT NULL,
    host VARCHAR(255) NOT NULL,
    pid BIGINT NOT NULL,
    connections VARCHAR(255) NOT NULL,
    started_at TIMESTAMP(3) NOT NULL,
    heartbeat_at TIMESTAMP(3) NOT NULL,
    state LONGTEXT NOT NULL
) DEFAULT CHARSET = utf8mb4;
CREATE TABLE _bridge.schema_changes (
    name VARCHAR(128) COLLATE utf8mb4_bin NOT NULL,
    commit_ts BIGINT UNSIGNED NOT NULL,
    statement_hash CHAR(40) CHARACTER SET ascii NOT NULL,
    schema_name VARCHAR(255) NOT NULL,
    statement LONGTEXT NOT NULL,
    position VARCHAR(400) NOT NULL,
    state VARCHAR(16) NOT NULL,
    fingerprint CHAR(40) CHARACTER SET ascii NOT NULL,
    outcome TEXT NOT NULL,
    started_at TIMESTAMP(3) NOT NULL,
    finished_at TIMESTAMP(3) NULL,
    PRIMARY KEY (name, commit_ts, statement_hash)
) DEFAULT CHARSET = utf8mb4;
INSERT INTO _bridge.progress (name, epoch, applied_ts, start_ts, positions, pending)
    VALUES ('bridge', 7, 500, 3, '{"cdc":{"0":[12,490,15]}}', '[]'), ('other', 1, 20, 0, '{}', '[]');
INSERT INTO _bridge.owner VALUES ('bridge', 7, 'h', 1, '', NOW(3), NOW(3), '{}');
INSERT INTO _bridge.schema_changes VALUES
    ('bridge', 400, REPEAT('a', 40), 'app', 'CREATE TABLE t (id INT)', 'cdc/0/3', 'done', 'f', 'ran', NOW(3), NOW(3)),
    ('bridge', 450, REPEAT('b', 40), 'app', 'ALTER TABLE t ADD b INT', 'cdc/0/9', 'refused', 'f', '1146', NOW(3), NULL)
"""
"""As the first version made them."""
SECOND_FORM = f"""{FIRST_FORM};
ALTER TABLE _bridge.owner MODIFY connections TEXT NOT NULL;
ALTER TABLE _bridge.schema_changes ADD classes TEXT NOT NULL AFTER fingerprint,
    ADD run_text LONGTEXT NOT NULL AFTER classes, ADD rewrites LONGTEXT NOT NULL AFTER run_text,
    ADD left_out LONGTEXT NOT NULL AFTER rewrites, ADD replacement LONGTEXT NOT NULL AFTER left_out;
UPDATE _bridge.schema_changes SET classes = IF(commit_ts = 400, 'create table', 'add column'), run_text = statement,
    rewrites = '[]', left_out = '[]', fingerprint = '';
ALTER TABLE _bridge.progress ADD applying_ts BIGINT UNSIGNED NOT NULL AFTER applied_ts;
UPDATE _bridge.progress SET applying_ts = applied_ts
"""
"""With schema changes in the target's words, and steps in parts; before the table `version`."""


THIRD_FORM = f"""{SECOND_FORM};
ALTER TABLE _bridge.progress ADD topics LONGTEXT NOT NULL AFTER positions;
UPDATE _bridge.progress SET topics = '{{}}';
CREATE TABLE _bridge.version (one TINYINT PRIMARY KEY, version INT UNSIGNED NOT NULL) DEFAULT CHARSET = utf8mb4;
INSERT INTO _bridge.version VALUES (1, 1)
"""
"""With the table `version`; before the operator could steer."""


def make_form(url: str, form: str) -> None:
    sql(url, *form.split(";"))


def columns(url: str) -> list[tuple[Any, ...]]:
    """Every column of the bridge's own tables, whatever its place and comment."""
    query = "SELECT table_name, column_name, column_type, is_nullable, collation_name FROM information_schema.columns"
    return sql(url, f"{query} WHERE table_schema = '{SCHEMA}' ORDER BY 1, 2")


def run_on(url: str) -> None:
    """One transaction, and one schema change, of the pipeline."""
    target, table = Target(url), ProgressTable("bridge")
    ownership = Ownership(target, table)
    try:
        ownership.acquire(0, take_over=False)
        step = Advance(500, 600, {("cdc", 0): PartitionStart(20, 600, 20)})
        assert table.advance(ownership.control, ownership.epoch, step)
        change = SchemaChange(550, "app", "", "DROP TABLE t", "cdc/0/18")
        Journal("bridge", SCHEMA).record(ownership.control, change, JournalState.DONE, classes="drop table")
    finally:
        ownership.release()


@pytest.mark.parametrize("form", [FIRST_FORM, SECOND_FORM, THIRD_FORM])
def test_an_earlier_form_goes_on(target: str, form: str) -> None:
    """Nothing of what it holds is lost, and its columns are those of tables made now."""
    make_form(target, form)
    run_on(target)
    found = read_status(Target(target), ProgressTable("bridge"))
    assert found is not None
    assert (found.progress.epoch, found.progress.applied_ts, found.progress.start_ts) == (8, 600, 3)
    assert (found.progress.in_parts, found.schema_changes) == (False, {"done": 2, "refused": 1})
    with admin(target) as session:
        first, second, _ = Journal("bridge", SCHEMA).entries(session)
        assert (first.classes, first.run_text, first.rewrites) == ("create table", "CREATE TABLE t (id INT)", ())
        assert (second.classes, second.fingerprint, second.state) == ("add column", "", JournalState.REFUSED)
        assert ProgressTable("other").read(session) is not None
    brought = columns(target)
    sql(target, "DROP DATABASE _bridge")
    run_anew(target)
    assert brought == columns(target)


def run_anew(url: str) -> None:
    with admin(url) as session:
        ProgressTable("bridge").create(session)


class Crash(Exception):  # noqa: N818  # the end of a process, not an error
    pass


class Crashing(Session):
    """A session that ends before its n-th statement that writes."""

    def __init__(self, session: Session, statements: int) -> None:
        self.__dict__.update(session.__dict__)
        self._left = statements

    def execute(self, sql: str, args: Any = ()) -> int:
        if self._left == 0:
            raise Crash
        self._left -= 1
        return super().execute(sql, args)


@pytest.mark.parametrize("form", [None, FIRST_FORM, SECOND_FORM, THIRD_FORM])
def test_a_crash_anywhere_is_made_good_by_the_next_start(target: str, form: str | None) -> None:
    """Whatever is there after it, the next start ends it; until then nobody takes it for whole."""
    for statements in range(30):
        sql(target, "DROP DATABASE IF EXISTS _bridge")
        if form:
            make_form(target, form)
        crashed = made_until_crash(target, statements)
        with admin(target) as session:
            if not is_usable(session):
                schema.make(session, SCHEMA)
            assert is_usable(session)
            entries = Journal("bridge", SCHEMA).entries(session)
        assert [entry.classes for entry in entries] == (["create table", "add column"] if form else [])
        if not crashed:
            assert statements > 3
            return
    raise AssertionError("it never came to an end")


def made_until_crash(url: str, statements: int) -> bool:
    """Whether it came so far that it crashed."""
    with admin(url) as session:
        try:
            schema.make(Crashing(session, statements), SCHEMA)
        except Crash:
            return True
    return False


def is_usable(session: Session) -> bool:
    try:
        return schema.are_usable(session, SCHEMA)
    except TargetError:
        return False


def test_a_later_form_is_refused(target: str) -> None:
    """By who would write and by who only looks; the sentence says which forms."""
    run_anew(target)
    sql(target, f"UPDATE _bridge.version SET version = {schema.VERSION + 1}")
    with pytest.raises(TargetError, match=f"later version.*form {schema.VERSION + 1}, this is {schema.VERSION}"):
        run_on(target)
    with pytest.raises(TargetError, match="later version"):
        read_status(Target(target), ProgressTable("bridge"))


def test_who_looks_does_not_bring_forward(target: str) -> None:
    """It says what does."""
    make_form(target, FIRST_FORM)
    with pytest.raises(TargetError, match="earlier version") as refused:
        read_status(Target(target), ProgressTable("bridge"))
    assert "start the pipeline once" in refused.value.fix


def test_a_bridge_of_the_earlier_version_that_runs_is_not_cut_off(target: str) -> None:
    """Another pipeline's owner writes the tables as it knows them: it is named."""
    make_form(target, FIRST_FORM)
    with admin(target) as other:
        assert other.value("SELECT GET_LOCK(%s, 0)", (schema.pipeline_lock(SCHEMA, "other"),)) == 1
        with pytest.raises(TargetError, match="other running bridges write to them: other"):
            run_on(target)
    run_on(target)


def test_a_schema_change_interrupted_under_the_first_form_is_not_guessed_at(target: str) -> None:
    """Its fingerprint says nothing now; nothing is altered, so that the earlier version can end it."""
    make_form(target, FIRST_FORM)
    sql(target, "UPDATE _bridge.schema_changes SET state = 'running' WHERE commit_ts = 450")
    before = columns(target)
    with pytest.raises(TargetError, match="interrupted under an earlier version") as refused:
        run_on(target)
    assert "ALTER TABLE t ADD b INT" in refused.value.what
    made = {"controls", "quarantine", "routes", "version"}
    assert [column for column in columns(target) if column[0] not in made] == before
    sql(target, "UPDATE _bridge.schema_changes SET state = 'done' WHERE commit_ts = 450")
    run_on(target)


def test_reset_forgets_a_pipeline_of_an_earlier_form(target: str) -> None:
    """Only that one."""
    make_form(target, FIRST_FORM)
    assert forget_pipeline(Target(target), ProgressTable("bridge"))
    assert not forget_pipeline(Target(target), ProgressTable("bridge"))
    assert sql(target, "SELECT name FROM _bridge.progress") == [("other",)]
