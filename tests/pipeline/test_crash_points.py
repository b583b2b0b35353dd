"""A process that dies at any step of its work leaves a target from which the next one ends up right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

import pyarrow as pa
import pymysql
import pytest
from pymysql.constants import ER

from bridge.mysql.apply.writer import Writer
from bridge.mysql.connection.session import Session
from tests.support.pipelines import Pipeline, admin, opened, run_all
from tests.support.scenarios import SCENARIOS, begin, setup_and_events
from tests.support.sweeps import BANK_OPTIONS, die_again_and_again, die_everywhere, state
from tests.support.victims import Victims

LIKE_OTHERS = {"drop database", "create", "truncate", "drop of two"}
"""Their steps are those of a schema change that is tried each time."""


@pytest.mark.parametrize(
    "scenario", [pytest.param(one, marks=pytest.mark.soak) if one in LIKE_OTHERS else one for one in SCENARIOS]
)
def test_crash_at_every_step_around_schema_changes(target: str, victims: Victims, scenario: str) -> None:
    """Wherever a process dies among rows and schema changes, the next one ends where an uninterrupted run does, each
    schema change with exactly one effect and one entry in the journal."""
    setup, events = setup_and_events(scenario)
    died_at = die_everywhere(target, victims, events, lambda session: begin(session, setup))
    assert {"begun", "advanced", "before commit", "committed", "ddl intent", "ddl executed", "ddl recorded",
            "ddl taken off"} <= died_at  # fmt: skip


def test_crash_at_every_step_of_every_transaction(target: str, victims: Victims, bank: pa.Table) -> None:
    """A process after the other dies one step further into the transaction in hand; the sums of the bank are right
    whenever anybody looks, and the last process ends where an uninterrupted run does."""
    totals = []

    def look(session: Session) -> None:
        totals.append(bank_total(session))

    die_again_and_again(target, victims, bank, look, **BANK_OPTIONS)
    assert set(totals) <= {None, 60_000, 120_000, 180_000}  # they open in three transactions
    assert len(totals) > 60


SUMS = "+".join(f"(SELECT COALESCE(SUM(balance), 0) FROM bank.{table})" for table in ("acc_a", "acc_b", "acc_c"))


def bank_total(session: Session, condition: str = "TRUE") -> int | None:
    """The money in the bank, None before all accounts are open, and where the condition is false."""
    try:
        total = session.value(f"SELECT {SUMS} FROM (SELECT 1) one WHERE {condition}")
    except pymysql.err.MySQLError as error:
        if error.args[0] not in (ER.NO_SUCH_TABLE, ER.BAD_DB_ERROR):
            raise
        return None
    return int(total or 0) or None


ROW_STEPS = ("begun", "advanced", "statement", "before commit", "committed")
DDL_STEPS = ("ddl intent", "ddl executed", "ddl recorded", "ddl taken off")


def kill_at(url: str, events: pa.Table, doomed: str, connections_of: Callable[[Writer], list[int]]) -> int:
    """Runs a pipeline whose connections are killed whenever it comes to this step, but not at a retry of it."""
    seen: set[tuple[int, int, int]] = set()
    pipelines: list[Pipeline] = []
    nth = 0

    def trace(step: str) -> None:
        nonlocal nth
        nth = 0 if step == "begun" else nth + 1
        where = (nth if step == "statement" else 0, pipelines[0].applier.order.applied_ts, pipelines[0].changes_run)
        if step != doomed or where in seen:
            return
        seen.add(where)
        for connection in connections_of(pipelines[0].writer):
            with admin(url) as session, suppress(pymysql.err.OperationalError):  # it may be gone already
                session.execute(f"KILL {connection}")

    with opened(url, {("cdc", p) for p in events["partition"].to_pylist()}, trace=trace) as pipeline:
        pipelines.append(pipeline)
        pipeline.take(events)
        pipeline.applier.finish()
    return len(seen)


@pytest.mark.parametrize(
    ("step", "which", "connections_of"),
    [
        *((step, "both", lambda writer: writer.connections) for step in (*ROW_STEPS, *DDL_STEPS)),
        *((step, "writer", lambda writer: writer.connections[1:]) for step in ROW_STEPS),
        *((step, "control", lambda writer: writer.connections[:1]) for step in DDL_STEPS),
    ],
)
def test_connections_cut_at_every_step(
    target: str, step: str, which: str, connections_of: Callable[[Writer], list[int]]
) -> None:
    """A writer whose connections are killed at any step goes on by itself and ends where an undisturbed run does."""
    del which
    setup, events = setup_and_events("add column")
    with admin(target) as session:
        begin(session, setup)
        run_all(target, events)
        expected = state(session)
        begin(session, setup)
        assert kill_at(target, events, step, connections_of) >= 2
        assert state(session) == expected
