"""The routes and filters of a pipeline, which are fixed once it has written something."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from typing import Any

import pytest

from bridge.commands.status import read_status
from bridge.config import Settings
from bridge.ddl.by_table.event_filters import EventFilterTable
from bridge.errors import TargetError, UsageError
from bridge.events import Kind, Position
from bridge.filters.routes import Routes, RowRules
from bridge.model import Advance, Entry, PartitionStart, SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state import schema
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.ownership import Ownership
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import add_entries
from bridge.mysql.state.routes_record import keep_rules, read_rules
from tests.support.command import bridge
from tests.support.pipelines import admin, ran_with, sql
from tests.support.upstreams import row_change

BEGUN = Progress("bridge", 1, 50, 10, {}, ())
EVERY = ("m.*", "n.*")


def rules(*routes: str, tables: tuple[str, ...] = EVERY, ignored: tuple[str, ...] = ()) -> RowRules:
    given = [EventFilterTable.model_validate({"matcher": ["m.t"], "ignore-event": ignored})] if ignored else []
    return Settings(route=routes, filter=tables, event_filters=tuple(given)).row_rules


def accept(session: Session, now: RowRules, progress: Progress = BEGUN) -> None:
    keep_rules(session, "_bridge", progress, now, accepts_change=True)


@pytest.mark.parametrize(
    ("now", "what"),
    [
        (rules("m.x -> r.x"), "routes"),
        (rules(tables=("m.*",)), "filter"),
        (rules(ignored=("delete",)), "event filters"),
        (rules("m.x -> r.x", tables=("*.*",)), "routes and filter"),
    ],
)
def test_others_have_to_be_accepted(target: str, now: RowRules, what: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Once: then they are those of the pipeline, and the former ones are others.  A pipeline that has written nothing
    takes any."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        keep_rules(session, "_bridge", replace(BEGUN, applied_ts=10), now)
        keep_rules(session, "_bridge", replace(BEGUN, applied_ts=10), rules())
        keep_rules(session, "_bridge", BEGUN, rules())
        with pytest.raises(UsageError, match=f"ran with other {what};") as refused:
            keep_rules(session, "_bridge", BEGUN, now)
        assert "--accept-change" in refused.value.fix
        assert "filters_changed" not in capsys.readouterr().out
        accept(session, now)
        said = capsys.readouterr().out
        assert "filters_changed" in said
        assert "not read again" in said
        keep_rules(session, "_bridge", BEGUN, now)
        with pytest.raises(UsageError, match=f"ran with other {what};"):
            keep_rules(session, "_bridge", BEGUN, rules())


def test_from_when_event_filters_hold(target: str) -> None:
    """It stays on record for verify, with all those before."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        keep_rules(session, "_bridge", BEGUN, rules())
        accept(session, rules(ignored=("delete",)), replace(BEGUN, applied_ts=60))
        accept(session, rules("m.x -> r.x", ignored=("delete",)), replace(BEGUN, applied_ts=70))
        record = read_rules(session, "_bridge", "bridge")
        assert record is not None
        assert record.former is not None
        assert (len(record.rules.ignored), len(record.former.ignored)) == (1, 0)
        for ignored in (("insert",), ()):
            accept(session, rules("m.x -> r.x", ignored=ignored), replace(BEGUN, applied_ts=80))
        record = read_rules(session, "_bridge", "bridge")
        assert record is not None
        assert record.former is not None
        assert record.former.ignored_kinds("m", "t") == {Kind.DELETE, Kind.INSERT}


@pytest.mark.parametrize(
    ("before", "now", "what"),
    [
        (rules("m.t -> r.t"), rules(), "m.t went to r.t, and would go to m.t"),
        (rules("m.t -> r.t"), rules("m.t -> s.t", "m.* -> r.*"), "m.t went to r.t, and would go to s.t"),
        (rules("m.t => r.t"), rules("m.t -> r.t"), "shards went to r.t"),
        (rules("m.t -> r.t", tables=("m.t",)), rules("m.u -> r.t", tables=("m.u",)), "m.u would go there"),
        (rules("m.t -> r.t"), rules("m.* => r.t"), "shards would go there"),
    ],
)
def test_rows_are_never_divided_nor_mixed(target: str, before: RowRules, now: RowRules, what: str) -> None:
    """Not even when that is accepted, until what is there was moved; parts of a step count as well."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        session.execute("CREATE DATABASE r")
        session.execute("CREATE TABLE r.t (id INT PRIMARY KEY)")
        keep_rules(session, "_bridge", BEGUN, before)
        with pytest.raises(UsageError, match=what) as refused:
            accept(session, now)
        assert refused.value.where == "pipeline bridge"
        session.execute("RENAME TABLE r.t TO r.old")
        accept(session, now)


def test_within_a_step_nothing_changes(target: str) -> None:
    """Parts of it are on the target, as the rules were when it began."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        progress = replace(BEGUN, applied_ts=10, applying_ts=20)
        keep_rules(session, "_bridge", progress, rules())
        with pytest.raises(UsageError, match="began to write a step") as refused:
            accept(session, rules("m.x -> r.x"), progress)
        assert "at least 20" in refused.value.fix


def test_routes_stay_while_names_of_the_target_are_kept(target: str) -> None:
    """Of row changes in the quarantine, and in what operators wrote: another table may come to their place."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        keep_rules(session, "_bridge", BEGUN, rules())
        change = row_change(9, "t", ("a",), ("a",), after=(1,))
        add_entries(session, "_bridge", "bridge", [Entry(Position("cdc", 0, 1), "refused", "x", 9, change=change)])
        with pytest.raises(UsageError, match="the routes cannot change any more"):
            accept(session, rules("m.t -> m.moved"))
        accept(session, rules(tables=("m.*",)))
        session.execute("DELETE FROM _bridge.quarantine")
        journal = Journal("bridge", "_bridge")
        journal.record(session, SchemaChange(20, "m", "t", "ALTER TABLE t ADD a INT", "cdc/0/1"), JournalState.HELD)
        accept(session, rules("m.x -> m.y", tables=("m.*",)))
        journal.release(session, journal.entries(session)[0], JournalState.REPLACED, "", "ALTER TABLE t ADD b INT")
        with pytest.raises(UsageError, match="the routes cannot change any more"):
            accept(session, rules("m.t -> m.moved", tables=("m.*",)))


def test_no_comparison_takes_routes_that_divide(target: str) -> None:
    """It says which table would be divided.  A pipeline that is not known has no routes."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        ran_with(session, Routes())
    verify = ("verify", "--against", "upstream", "--upstream", target, "--filter", "m.*", "--target", target)
    ended = bridge(*verify, "--route", "m.t -> r.t")
    assert ended.code == 2, ended.err
    assert "that the pipeline ran with: m.t went to m.t, and would go to r.t; at pipeline bridge" in ended.last_line
    assert bridge(*verify).code == 0
    assert bridge(*verify, "--route", "m.t -> r.t", "--name", "other").code == 1


SCHEMA = "_bridge"


def run_on(url: str) -> None:
    """One transaction, and one schema change, of the pipeline."""
    target, table = Target(url), ProgressTable("bridge")
    ownership = Ownership(target, table)
    try:
        ownership.acquire(0, take_over=False)
        step = Advance(500, 600, {("cdc", 0): PartitionStart(20, 600, 20)})
        assert table.advance(ownership.control, ownership.epoch, step)
        change = SchemaChange(550, "app", "", "DROP TABLE t", "cdc/0/18")
        Journal("bridge", SCHEMA).record(ownership.control, change, JournalState.DONE)
    finally:
        ownership.release()


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


def test_a_crash_anywhere_is_made_good_by_the_next_start(target: str) -> None:
    """Whatever is there after it, the next start ends it; until then nobody takes it for whole."""
    for statements in range(30):
        sql(target, "DROP DATABASE IF EXISTS _bridge")
        crashed = made_until_crash(target, statements)
        with admin(target) as session:
            if not schema.are_usable(session, SCHEMA):
                schema.make(session, SCHEMA)
            assert schema.are_usable(session, SCHEMA)
        if not crashed:
            assert statements > 3
            return
    raise AssertionError("it never came to an end")


def test_several_make_them_at_once(target: str) -> None:
    """As when all pipelines of a target are started."""

    def make(_: int) -> bool:
        with admin(target) as session:
            schema.make(session, SCHEMA)
            return schema.are_usable(session, SCHEMA)

    for _ in range(5):
        sql(target, "DROP DATABASE IF EXISTS _bridge")
        with ThreadPoolExecutor(6) as pool:
            assert all(pool.map(make, range(6)))


def made_until_crash(url: str, statements: int) -> bool:
    """Whether it came so far that it crashed."""
    with admin(url) as session:
        try:
            schema.make(Crashing(session, statements), SCHEMA)
        except Crash:
            return True
    return False


@pytest.mark.parametrize(("by", "word"), [(1, "later"), (-1, "earlier")])
def test_another_form_is_refused(target: str, by: int, word: str) -> None:
    """By who would write and by who only looks; the sentence says which forms.  Nothing is altered."""
    run_anew(target)
    sql(target, f"UPDATE _bridge.version SET version = {schema.VERSION + by}")
    with pytest.raises(TargetError, match=f"{word} version.*form {schema.VERSION + by}, this is {schema.VERSION}"):
        run_on(target)
    with pytest.raises(TargetError, match=f"{word} version"):
        read_status(Target(target), ProgressTable("bridge"))


def test_tables_without_a_form_are_refused(target: str) -> None:
    """They are from before there was a table that names it."""
    sql(target, "CREATE DATABASE _bridge", "CREATE TABLE _bridge.progress (name INT)")
    with pytest.raises(TargetError, match=r"earlier version.*form 0"):
        run_on(target)
