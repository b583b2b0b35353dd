"""What is done with schema changes by class, as settings say it, and how the operator releases those that wait."""

from __future__ import annotations

import threading
import time
from typing import Any

import pytest

from bridge.commands.ddl import release
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.policy import Decision, Policy, Verdict, ddl_rules
from bridge.errors import BridgeError, HeldError, SchemaChangeError, UsageError
from bridge.filters.table_filter import TableFilter
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import DONE_BY_HAND, Journal, JournalEntry, JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.settings.load import load_settings
from tests.support.pipelines import opened, run_all, session_after, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.waiting import wait_for

DROP = schema_change(10, "DROP TABLE `m`.`t`")
ADD = schema_change(10, "ALTER TABLE t ADD COLUMN c INT, ADD INDEX (c)")
AFTER = [row_change(11, "u", ["id"], ["id"], after=[1]), boundary(12)]

POLICIES: list[tuple[dict[str, Any], tuple[C, ...], Verdict]] = [
    ({}, (C.DROP_DATABASE,), Verdict.ALLOW),
    ({"hold": ["drop table"]}, (C.DROP_TABLE,), Verdict.HOLD),
    ({"hold": ["drop table"]}, (C.ADD_COLUMN,), Verdict.ALLOW),
    ({"refuse": ["Drop Column"]}, (C.ADD_COLUMN, C.DROP_COLUMN), Verdict.REFUSE),
    ({"hold": ["add column"], "refuse": ["drop column"]}, (C.ADD_COLUMN, C.DROP_COLUMN), Verdict.REFUSE),
    ({"ignore": ["add index"]}, (C.ADD_INDEX,), Verdict.IGNORE),
    ({"ignore": ["add index"]}, (C.ADD_INDEX, C.ADD_COLUMN), Verdict.HOLD),
    ({"default": "hold", "allow": ["add column"]}, (C.ADD_COLUMN,), Verdict.ALLOW),
    ({"default": "hold", "allow": ["add column"]}, (C.DROP_COLUMN,), Verdict.HOLD),
    ({"default": "refuse"}, (C.CREATE_TABLE,), Verdict.REFUSE),
]


@pytest.mark.parametrize(("settings", "classes", "verdict"), POLICIES)
def test_verdicts(settings: dict[str, Any], classes: tuple[C, ...], verdict: Verdict) -> None:
    """The strictest verdict on any class of a statement counts, and says which; what is ignored in part is held."""
    decision = ddl_rules(**settings).policy.decide(classes)
    assert decision.verdict is verdict
    assert bool(decision.reason) == (verdict is not Verdict.ALLOW)


def test_by_default_the_target_follows() -> None:
    """Without settings everything is allowed."""
    assert all(Policy().decide([change]) == Decision(Verdict.ALLOW) for change in C)


WRONG: list[tuple[dict[str, Any], str]] = [
    ({"hold": ["drop tabel"]}, "did you mean drop table?"),
    ({"hold": ["drop table"], "refuse": ["drop table"]}, "is in two lists"),
    ({"source": "oracle"}, "one of tidb"),
    ({"defaults": {"server": "utf8mb4_bin"}}, "say which with ddl.source"),
    ({"defaults": {"serve": "utf8mb4_bin"}, "source": "mariadb"}, "ddl.defaults.serve is no character set"),
]


@pytest.mark.parametrize(("settings", "words"), WRONG)
def test_wrong_settings(settings: dict[str, Any], words: str) -> None:
    """A class or source that is not known, or a class in two lists, is a usage error that helps."""
    with pytest.raises(UsageError) as raised:
        ddl_rules(**settings)
    assert words in str(raised.value)


def test_settings_from_flags() -> None:
    """`--set` takes lists by class and collations by name."""
    settings = load_settings(
        None, {}, {}, ["ddl.hold=drop table,drop database", "ddl.collations.utf8mb4_0900_ai_ci=utf8mb4_unicode_ci"]
    )
    rules = settings.ddl.rules(TableFilter())
    assert rules.policy.decide([C.DROP_DATABASE]).verdict is Verdict.HOLD
    assert rules.collations.mapped == {"utf8mb4_0900_ai_ci": "utf8mb4_unicode_ci"}


session = session_after(
    "CREATE DATABASE m COLLATE utf8mb4_bin",
    "USE m",
    "CREATE TABLE t (id INT PRIMARY KEY)",
    "CREATE TABLE u (id INT PRIMARY KEY)",
)


def entry(session: Session) -> JournalEntry:
    [found] = Journal("bridge", "_bridge").entries(session)
    return found


def tables(session: Session) -> set[str]:
    return {str(name) for (name,) in session.rows("SHOW TABLES FROM m")}


def rows(session: Session) -> list[tuple[Any, ...]]:
    return session.rows("SELECT id FROM m.u")


def test_ignored(target: str, session: Session) -> None:
    """What is ignored leaves the target alone, and what follows is applied."""
    run_all(target, in_one_partition([DROP, *AFTER]), ddl=ddl_rules(ignore=["drop table"]))
    assert tables(session) == {"t", "u"}
    assert rows(session) == [(1,)]
    assert entry(session).state is JournalState.IGNORED


@pytest.mark.parametrize(
    ("dropped", "made"),
    [
        ("DROP TABLE t", "CREATE TABLE t (id INT)"),
        ("ALTER TABLE t DROP COLUMN v", "ALTER TABLE t ADD COLUMN v INT"),
        ("DROP TABLE t", "CREATE TABLE IF NOT EXISTS t (id INT, v INT)"),
    ],
)
def test_what_an_ignored_statement_kept_is_not_taken_for_made(
    target: str, session: Session, dropped: str, made: str
) -> None:
    """Its rows, and its keys, are from before: rows that come behind it would be mixed with them, or overwrite each
    other."""
    session.execute("ALTER TABLE m.t ADD COLUMN v INT")
    events = in_one_partition(
        [
            schema_change(10, dropped, schema="m", table="t"),
            schema_change(20, made, schema="m", table="t"),
            boundary(99),
        ]
    )
    with pytest.raises(BridgeError, match=r"with what it held before, as 10-\w+ was ignored"):
        run_all(target, events, ddl=ddl_rules(ignore=["drop table", "drop column"]))


@pytest.mark.parametrize(
    "statement",
    [
        "RENAME TABLE t TO x, u TO t, x TO u",
        "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE x",
        "ALTER TABLE t CHANGE a b INT, CHANGE b a INT",
        "ALTER TABLE t MODIFY e ENUM('w','x','y')",
        "ALTER TABLE t MODIFY at DATETIME",
    ],
)
def test_what_rows_would_be_wrong_without_is_not_ignored(target: str, session: Session, statement: str) -> None:
    """Rows behind it would go to another table or column, or be read as other values, and no server would refuse them;
    the operator may not skip it either."""
    session.execute("ALTER TABLE m.t ADD a INT, ADD b INT, ADD e ENUM('x','y'), ADD at TIMESTAMP NULL")
    classes = ["rename table", "exchange partition", "modify column"]
    rules = ddl_rules(ignore=classes, source="mysql-8", timezone="+08:00")
    events = in_one_partition([schema_change(10, statement, schema="m", table="t"), boundary(99)])
    with pytest.raises(HeldError, match=r"the settings ignore .+ \(ddl.ignore\), but .+ nothing would tell"):
        run_all(target, events, ddl=rules)
    harmless = ["RENAME TABLE u TO v", "ALTER TABLE t MODIFY a BIGINT"]
    changes = [schema_change(10 + at, text, schema="m", table="t") for at, text in enumerate(harmless)]
    run_all(target, in_one_partition([*changes, boundary(99)]), ddl=rules, name="other")
    assert tables(session) == {"t", "u"}


def test_refused(target: str, session: Session) -> None:
    """What is refused stops the bridge, with statement and position, before anything behind it."""
    with pytest.raises(SchemaChangeError) as raised:
        run_all(target, in_one_partition([DROP, *AFTER]), ddl=ddl_rules(refuse=["drop table"]))
    assert raised.value.exit_code == 3
    assert "cdc/0/0" in raised.value.where
    assert rows(session) == []


RELEASES: list[tuple[JournalState, str, set[str], JournalState]] = [
    (JournalState.APPROVED, "", {"u"}, JournalState.DONE),
    (JournalState.SKIPPED, "", {"t", "u"}, JournalState.SKIPPED),
    (JournalState.DONE, "", {"t", "u"}, JournalState.DONE),
    (JournalState.REPLACED, "RENAME TABLE t TO t_old", {"t_old", "u"}, JournalState.DONE),
]


@pytest.mark.parametrize(("state", "replacement", "left", "end"), RELEASES)
def test_held_in_a_replay(
    target: str, session: Session, state: JournalState, replacement: str, left: set[str], end: JournalState
) -> None:
    """A replay ends with 4 at a schema change that is held, its rows before applied, those behind not; released, the
    next replay goes on."""
    events = in_one_partition([row_change(9, "u", ["id"], ["id"], after=[7]), DROP, *AFTER])
    rules = ddl_rules(hold=["drop table"])
    for _ in range(2):
        with pytest.raises(HeldError) as raised:
            run_all(target, events, ddl=rules)
        assert raised.value.exit_code == 4
        assert "bridge ddl approve, skip, replace or done 10-" in raised.value.fix
    assert rows(session) == [(7,)]
    assert entry(session).state is JournalState.HELD
    release(Target(target), ProgressTable("bridge"), "10", state, replacement)
    run_all(target, events, ddl=rules)
    assert tables(session) == left
    assert sorted(rows(session)) == [(1,), (7,)]
    assert entry(session).state is end
    [on_record] = Journal("bridge", "_bridge").between(session, 10, 11)
    assert (on_record.doubt == DONE_BY_HAND) == (state is JournalState.DONE)


@pytest.mark.parametrize(("state", "replacement", "left", "end"), RELEASES)
def test_a_running_bridge_waits_and_notices(
    target: str, session: Session, state: JournalState, replacement: str, left: set[str], end: JournalState
) -> None:
    """A running bridge stays at the commit_ts of a held schema change, says what for, and goes on when it is released
    through the target's tables."""
    events = in_one_partition([DROP, *AFTER])
    with opened(target, [("cdc", 0)], ddl=ddl_rules(hold=["drop table"]), waits_for_operator=True) as pipeline:
        worker = threading.Thread(target=pipeline.take, args=(events,))
        worker.start()
        wait_for(lambda: "a schema change is held" in pipeline.applier.waiting_for(), "it is not held")
        assert "the settings hold drop table (ddl.hold)" in pipeline.applier.waiting_for()
        time.sleep(0.7)
        assert worker.is_alive()
        assert (tables(session), rows(session)) == ({"t", "u"}, [])
        release(Target(target), ProgressTable("bridge"), "10", state, replacement)
        worker.join(20)
        assert not worker.is_alive()
        assert "held" not in pipeline.applier.waiting_for()
    assert (tables(session), rows(session)) == (left, [(1,)])
    assert entry(session).state is end


def test_settings_that_changed_count_at_the_next_start(target: str, session: Session) -> None:
    """What was held runs when the bridge starts with settings that allow it."""
    events = in_one_partition([DROP, *AFTER])
    with pytest.raises(HeldError):
        run_all(target, events, ddl=ddl_rules(default="hold"))
    run_all(target, events)
    assert tables(session) == {"u"}


def test_a_replacement_is_a_schema_change_too(target: str, session: Session) -> None:
    """The operator cannot put anything else into its place; what is not open cannot be released."""
    events = in_one_partition([DROP, *AFTER])
    with pytest.raises(HeldError):
        run_all(target, events, ddl=ddl_rules(hold=["drop table"]))
    for named, replacement in (("10", "DELETE FROM t"), ("10", "DROP TABLE t; DROP TABLE u"), ("11", "DROP TABLE t")):
        with pytest.raises(UsageError):
            release(Target(target), ProgressTable("bridge"), named, JournalState.REPLACED, replacement)
    assert entry(session).state is JournalState.HELD


def test_left_out_in_part(target: str, session: Session) -> None:
    """What the target has nothing like is left out with all that names it later, also under another table's name."""
    changes = [
        "CREATE TABLE e (id INT PRIMARY KEY, a INT, KEY x ((a + 1)), CONSTRAINT k CHECK (a > 0) NOT ENFORCED)",
        "ALTER TABLE e RENAME TO f",
        "ALTER TABLE f RENAME INDEX x TO y",
        "ALTER TABLE f ALTER INDEX y INVISIBLE",
        "ALTER TABLE f DROP INDEX y, DROP CHECK k, ADD COLUMN b INT",
        "CREATE GLOBAL TEMPORARY TABLE g (id INT) ON COMMIT DELETE ROWS",
        "DROP TABLE m.g",
        "ALTER TABLE f ADD INDEX ((a + 2))",
        "ALTER TABLE f DROP INDEX expression_index",
    ]
    events = [schema_change(10 + i, text) for i, text in enumerate(changes)]
    run_all(target, in_one_partition([*events, boundary(99)]))
    assert [name for (name, *_) in session.rows("SHOW COLUMNS FROM f")] == ["id", "a", "b"]
    with pytest.raises(SchemaChangeError):
        run_all(target, in_one_partition([schema_change(100, "ALTER TABLE f DROP INDEX z"), boundary(101)], 20))


def test_a_check_whose_name_the_upstream_chose(target: str, session: Session) -> None:
    """It is known by the form of that name when it is dropped in words that other constraints have, too."""
    changes = [
        "CREATE TABLE e (id INT PRIMARY KEY, CHECK (id > 0))",
        "ALTER TABLE e ADD CHECK (id > 1), ADD CONSTRAINT own CHECK (id > 2)",
        "ALTER TABLE e DROP CONSTRAINT e_chk_1, DROP CONSTRAINT e_chk_2, DROP CONSTRAINT own, ADD COLUMN b INT",
    ]
    events = [schema_change(10 + i, text) for i, text in enumerate(changes)]
    run_all(target, in_one_partition([*events, boundary(99)]), ddl=ddl_rules(source="mysql-8"))
    assert [name for (name, *_) in session.rows("SHOW COLUMNS FROM e")] == ["id", "b"]


@pytest.mark.parametrize(
    ("given", "sender", "source"),
    [
        *(("tidb", "", "tidb"), ("tidb", "mysql", "mysql"), ("tidb", "mariadb", "mariadb")),
        *(("tidb-old-collations", "mysql", "mysql"), ("mysql-5.7", "mysql", "mysql-5.7")),
        *(("mysql-8", "mariadb", "mysql-8"), ("mysql-8", "", "mysql-8")),
    ],
)
def test_messages_of_a_binlog_never_mean_the_defaults_of_tidb(given: str, sender: str, source: str) -> None:
    """What the settings say of another server holds."""
    assert ddl_rules(source=given).sent_by(sender).source == source


@pytest.mark.parametrize(
    ("statement", "is_held"),
    [
        ("CREATE DATABASE d", True),
        ("CREATE DATABASE d CHARACTER SET utf8mb4", True),
        ("CREATE DATABASE d CHARACTER SET utf8mb4 COLLATE utf8mb4_bin", False),
        ("CREATE TABLE m.t (a INT) CHARSET utf8mb4", True),
        ("CREATE TABLE m.t (a INT) CHARSET latin1", False),
        ("CREATE TABLE m.t (a INT) COLLATE utf8mb4_unicode_ci", False),
        ("ALTER TABLE m.u ADD a INT CHECK (a > 0)", False),
    ],
)
def test_a_default_that_nobody_has_told_is_held(target: str, statement: str, is_held: bool) -> None:
    """Of messages from a binlog whose server is not known, a statement that means the server's default collation
    waits until `ddl.source` names it; any other runs, and its checks hold."""
    sql(target, "CREATE DATABASE m", "CREATE TABLE m.u (id INT)")
    events = in_one_partition([schema_change(10, statement), boundary(12)])
    with opened(target, [("cdc", 0)]) as pipeline:
        pipeline.writer.note_source("mysql")
        if is_held:
            with pytest.raises(HeldError, match=r"set ddl\.source to mysql-8, mysql-5\.7 or mariadb"):
                pipeline.take(events)
        else:
            pipeline.take(events)
            assert pipeline.changes_run == 1
    run_all(target, events, ddl=ddl_rules(source="mysql-8"))
