"""`parallel` consistency: parts commit by themselves, the end is the same, and nothing may not be is written twice."""

from __future__ import annotations

import os
import signal
from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from hypothesis import given
from hypothesis import strategies as st

from bridge.target.catalog import TableName
from bridge.target.parallel import units
from bridge.target.render import Sharing, Stage, Statement
from bridge.target.session import Session
from tests.stream.pipelines import admin, contents, decoded, drop_all, journal, opened, run_all
from tests.stream.test_crash_points import SCENARIOS, K, T, begin, k_row, t_row
from tests.stream.upstreams import boundary, in_one_partition, row_change
from tests.stream.victims import Victims

STATEMENTS = st.lists(
    st.builds(
        lambda table, sharing, size: Statement(Stage.WRITE, TableName("m", table), "x" * size, None, sharing),
        st.sampled_from("abc"), st.sampled_from([Sharing.ANY, Sharing.TABLE]), st.integers(1, 9),
    ),
    max_size=12,
)  # fmt: skip
MARKED = "SELECT applying_ts > applied_ts FROM _bridge.progress"


@given(STATEMENTS)
def test_units_hold_every_statement_once_and_tables_that_are_not_split_in_order(statements: list[Statement]) -> None:
    """One connection runs the statements of a table whose rows may conflict with each other, in their order."""
    found = units(statements)
    assert sorted((s for unit in found for s in unit), key=repr) == sorted(statements, key=repr)
    for unit in found:
        assert len(unit) == 1 or {s.sharing for s in unit} == {Sharing.TABLE}
        if unit[0].sharing is Sharing.TABLE:
            assert unit == [s for s in statements if s.table == unit[0].table and s.sharing is Sharing.TABLE]
    tables = [unit[0].table for unit in found if unit[0].sharing is Sharing.TABLE]
    assert len(tables) == len(set(tables))


@pytest.mark.parametrize("scenario", ["add column", "swap by one rename", "exchange partition"])
def test_crash_at_every_step_around_schema_changes(target: str, victims: Victims, scenario: str) -> None:
    """Wherever a process dies among parts, progress and schema changes, the next one ends where an uninterrupted run
    does, also with rows of a table without a key."""
    setup, changes = SCENARIOS[scenario]
    events = in_one_partition([*changes, boundary(changes[-1].commit_ts + 1)])
    kept = victims.keep(events)
    with admin(target) as session:
        begin(session, setup)
        run_all(target, events)
        expected = contents(session), journal(session)
        crashes = []
        for crash_at in range(1, 1000):
            begin(session, setup)
            step = victims.run(target, kept, crash_at, writers=2)
            if step is None:
                break
            crashes.append(step)
            run_all(target, events, writers=2)
            assert (contents(session), journal(session)) == expected, f"after a crash at step {crash_at}, {step!r}"
    assert {"marked", "part begun", "before part commit", "part committed", "committed"} <= set(crashes)


@pytest.fixture(scope="module")
def bank(golden: Path) -> pa.Table:
    """The first messages of a genuine capture of transfers between accounts, spread over four partitions."""
    events = decoded(golden / "canal-ext" / "bank.jsonl", "canal-json")
    return events.filter(pc.less(events["offset"], 120))


def test_crash_after_crash(target: str, victims: Victims, bank: pa.Table) -> None:
    """A process after the other dies a step further; the last one ends where an uninterrupted atomic run does."""
    options = {"batch": 150, "rows_per_transaction": 60}
    kept = victims.keep(bank)
    with admin(target) as session:
        run_all(target, bank, **options)
        expected = contents(session), journal(session)
        drop_all(session)
        crash_at, parts_only = 1, 0
        while (step := victims.run(target, kept, crash_at, writers=3, **options)) is not None:
            parts_only += bool(session.value(MARKED))
            crash_at = 1 if step in {"committed", "ddl taken off"} else crash_at + 1
            if journal(session) == expected[1]:
                break
        assert (contents(session), journal(session)) == expected
    assert parts_only > 10


def test_an_owner_that_slept_in_a_part_cannot_commit_it(target: str, victims: Victims) -> None:
    """A take-over ends the parts of the one before; when that one wakes it stops, and the target is the new one's."""
    events = in_one_partition([t_row(10, 1, 1), k_row(10, 1), boundary(11)])
    with admin(target) as session:
        begin(session, [T, K])
        sleeper = victims.stop_at(target, victims.keep(events), "before part commit", writers=2)
        run_all(target, events, take_over=True)
        expected = contents(session)
        os.kill(sleeper, signal.SIGCONT)
        assert victims.exit_code() == 5
        assert contents(session) == expected


def _rows(session: Session) -> list[tuple[object, ...]]:
    return session.rows("SELECT id, u FROM m.t ORDER BY id")


def test_what_a_part_cannot_write_is_left_to_one_transaction(target: str) -> None:
    """A target ahead of the log makes a part fail on a unique value: the whole step is written again, in safe mode."""
    update = row_change(10, "t", ["id", "u"], ["id"], before=[1, 1], after=[1, 2])
    with admin(target) as session:
        begin(session, ["CREATE TABLE m.t (id INT PRIMARY KEY, u INT UNIQUE)", "INSERT INTO m.t VALUES (1, 1), (2, 2)"])
        with opened(target, [("cdc", 0)], writers=2) as pipeline:
            pipeline.take(in_one_partition([update, boundary(11)]))
            assert pipeline.writer.counts.safe_mode == 1
        assert _rows(session) == [(1, 2)]


def test_a_step_is_written_by_all_connections(target: str) -> None:
    """Several statements of one table go over several connections; afterwards nothing is marked as being written."""
    steps: list[str] = []
    rows = [t_row(10 + i, i, i) for i in range(3)] + [
        row_change(20, "u", ["id", "v"], ["id"], after=[i, i]) for i in range(3)
    ]
    with admin(target) as session:
        begin(session, [T, "CREATE TABLE m.u LIKE m.t"])
        with opened(target, [("cdc", 0)], writers=2, trace=steps.append) as pipeline:
            pipeline.take(in_one_partition([*rows, boundary(30)]))
            assert len(pipeline.writer.connections) == 4
        assert session.value("SELECT (SELECT COUNT(*) FROM m.t) + (SELECT COUNT(*) FROM m.u)") == 6
        assert session.value(MARKED) == 0
    assert steps.count("part committed") == 2
    assert steps.index("before commit") > max(i for i, step in enumerate(steps) if step == "part committed")
