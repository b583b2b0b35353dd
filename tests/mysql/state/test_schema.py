"""The bridge's own tables: a crash while they are made is made good, those of another form are refused."""

from __future__ import annotations

from typing import Any

import pytest

from bridge.commands.status import read_status
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
