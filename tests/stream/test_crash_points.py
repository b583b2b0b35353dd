"""A process that dies at any step of its work leaves a target from which the next one ends up right."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pymysql
import pytest

from bridge.events import Event
from bridge.target.session import Session
from bridge.target.writer import Writer
from tests.stream.pipelines import Pipeline, admin, contents, decoded, drop_all, journal, opened, run_all
from tests.stream.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.stream.victims import Victims


def t_row(ts: int, id_: int, v: int, **fields: Any) -> Event:
    return row_change(ts, "t", ["id", "v", *fields], ["id"], after=[id_, v, *fields.values()])


def k_row(ts: int, a: int) -> Event:
    return row_change(ts, "k", ["a"], [], after=[a])


T = "CREATE TABLE m.t (id INT PRIMARY KEY, v INT)"
K = "CREATE TABLE m.k (a INT)"
PARTITIONED = (
    "CREATE TABLE m.p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (100))"
)

SCENARIOS: dict[str, tuple[list[str], list[Event]]] = {
    "add column": (
        [T, K],
        [
            t_row(10, 1, 1), k_row(10, 1), k_row(10, 1),
            schema_change(11, "ALTER TABLE t ADD COLUMN c INT NOT NULL DEFAULT 7"),
            t_row(12, 2, 2, c=5), k_row(12, 1),
            schema_change(13, "ALTER TABLE t DROP COLUMN c"),
            t_row(14, 3, 3),
        ],
    ),
    "create": (
        [],
        [
            schema_change(10, "CREATE DATABASE IF NOT EXISTS `m`", table=""),
            schema_change(11, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
            t_row(12, 1, 1),
            schema_change(12, "CREATE TABLE k LIKE t", table="k"),
            schema_change(13, "CREATE VIEW w AS SELECT id FROM t", table="w"),
            schema_change(13, "ALTER TABLE k RENAME TO k2", table="k2"),
        ],
    ),
    "swap by three renames of one commit_ts": (
        [T, "CREATE TABLE m.u LIKE m.t", "INSERT INTO m.u VALUES (9, 9)"],
        [
            t_row(10, 1, 1),
            schema_change(11, "RENAME TABLE `m`.`t` TO `m`.`tmp`;", table="tmp"),
            schema_change(11, "RENAME TABLE `m`.`u` TO `m`.`t`;", table="t"),
            schema_change(11, "RENAME TABLE `m`.`tmp` TO `m`.`u`;", table="u"),
            t_row(12, 2, 2),
        ],
    ),
    "swap by one rename": (
        [T, "CREATE TABLE m.u LIKE m.t", "INSERT INTO m.u VALUES (9, 9)"],
        [
            t_row(10, 1, 1),
            schema_change(11, "RENAME TABLE `m`.`t` TO `m`.`tmp`, `m`.`u` TO `m`.`t`, `m`.`tmp` TO `m`.`u`"),
            t_row(12, 2, 2),
        ],
    ),
    "truncate": (
        [T, K],
        [
            t_row(10, 1, 1), k_row(10, 1),
            schema_change(10, "TRUNCATE TABLE t"),
            t_row(11, 2, 2), k_row(11, 2),
            schema_change(12, "TRUNCATE TABLE k", table="k"),
            k_row(13, 3),
        ],
    ),
    "drop and create of one name": (
        [T],
        [
            t_row(10, 1, 1),
            schema_change(11, "DROP TABLE `m`.`t`"),
            schema_change(12, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
            t_row(13, 2, 2),
            schema_change(14, "DROP TABLE `m`.`t`"),
            schema_change(14, "CREATE TABLE t (id INT PRIMARY KEY, v INT, c INT)"),
            t_row(15, 3, 3, c=3),
        ],
    ),
    "drop of two": ([T, K], [t_row(10, 1, 1), schema_change(11, "DROP TABLE `m`.`t`, `m`.`k`")]),
    "exchange partition": (
        [T, PARTITIONED, "INSERT INTO m.p VALUES (9, 9)"],
        [
            t_row(10, 1, 1),
            schema_change(11, "ALTER TABLE `m`.`p` EXCHANGE PARTITION `p0` WITH TABLE `m`.`t`"),
            t_row(12, 2, 2),
            schema_change(12, "ALTER TABLE `m`.`p` EXCHANGE PARTITION `p0` WITH TABLE `m`.`t` WITHOUT VALIDATION"),
            t_row(13, 3, 3),
        ],
    ),
    "several of one commit_ts": (
        [T],
        [
            t_row(11, 1, 1),
            schema_change(11, "ALTER TABLE t ADD COLUMN c INT"),
            schema_change(11, "ALTER TABLE t ADD COLUMN d INT AFTER c"),
            schema_change(11, "ALTER TABLE t ADD COLUMN c INT"),
            schema_change(12, "ALTER TABLE t ADD UNIQUE (v)"),
            t_row(13, 2, 2, c=1, d=1),
        ],
    ),
    "drop database": (
        [T],
        [
            t_row(10, 1, 1),
            schema_change(11, "DROP DATABASE m", table=""),
            schema_change(12, "CREATE DATABASE m", table=""),
            schema_change(13, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
            t_row(14, 2, 2),
        ],
    ),
}  # fmt: skip


def begin(session: Session, setup: list[str]) -> None:
    drop_all(session)
    if setup:
        session.execute("CREATE DATABASE m")
    for statement in setup:
        session.execute(statement)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_crash_at_every_step_around_schema_changes(target: str, victims: Victims, scenario: str) -> None:
    """Wherever a process dies among rows and schema changes, the next one ends where an uninterrupted run does, each
    schema change with exactly one effect and one entry in the journal."""
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
            step = victims.run(target, kept, crash_at)
            if step is None:
                break
            crashes.append(step)
            run_all(target, events)
            assert (contents(session), journal(session)) == expected, f"after a crash at step {crash_at}, {step!r}"
    assert {"begun", "advanced", "before commit", "committed", "ddl intent", "ddl executed", "ddl recorded",
            "ddl taken off"} <= set(crashes)  # fmt: skip


@pytest.fixture(scope="module")
def bank(golden: Path) -> pa.Table:
    """The first messages of a genuine capture of transfers between accounts, spread over four partitions."""
    events = decoded(golden / "canal-ext" / "bank.jsonl", "canal-json")
    return events.filter(pc.less(events["offset"], 120))


def test_crash_at_every_step_of_every_transaction(target: str, victims: Victims, bank: pa.Table) -> None:
    """A process after the other dies one step further into the transaction in hand; the sums of the bank are right
    whenever anybody looks, and the last process ends where an uninterrupted run does."""
    options = {"batch": 150, "rows_per_transaction": 60}
    kept = victims.keep(bank)
    with admin(target) as session:
        run_all(target, bank, **options)
        expected = contents(session), journal(session)
        drop_all(session)
        crash_at, deaths = 1, 0
        while (step := victims.run(target, kept, crash_at, **options)) is not None:
            deaths += 1
            crash_at = 1 if step in {"committed", "ddl taken off"} else crash_at + 1
            assert bank_total(session) in {None, 60_000, 120_000, 180_000}  # they open in three transactions
            if journal(session) == expected[1]:
                break
        assert (contents(session), journal(session)) == expected
    assert deaths > 60


def bank_total(session: Session) -> int | None:
    """The money in the bank, None before all accounts are open."""
    if session.value("SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'bank'") < 3:
        return None
    sums = [f"(SELECT COALESCE(SUM(balance), 0) FROM bank.{table})" for table in ("acc_a", "acc_b", "acc_c")]
    total = int(session.value("SELECT " + "+".join(sums)))
    return total or None


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
        where = (nth if step == "statement" else 0, pipelines[0].applier.applied_ts, pipelines[0].changes_run)
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
    setup, changes = SCENARIOS["add column"]
    events = in_one_partition([*changes, boundary(changes[-1].commit_ts + 1)])
    with admin(target) as session:
        begin(session, setup)
        run_all(target, events)
        expected = contents(session), journal(session)
        begin(session, setup)
        assert kill_at(target, events, step, connections_of) >= 2
        assert (contents(session), journal(session)) == expected
