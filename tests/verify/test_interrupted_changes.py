"""Verify, and a retry from the quarantine, where the bridge has ended in the middle of a schema change."""

from __future__ import annotations

from contextlib import suppress
from itertools import count
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.config import Settings
from bridge.ddl.policy import ddl_rules
from bridge.errors import HeldError, SchemaChangeError, StoppedError
from bridge.filters.table_filter import TableFilter
from bridge.tso import ms_tso
from bridge.verify import snapshots
from tests.generated.verifying import verify_events
from tests.support.command import bridge
from tests.support.dying import Died, DyingAtNumber, dying_at
from tests.support.pipelines import admin, drop_all, run_all, sql
from tests.support.selection import some_of
from tests.support.upstreams import boundary, events_table, in_one_partition, row_change, schema_change

BEFORE = [
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)"),
    *(row_change(11, "t", ["id", "v", "w"], ["id"], after=[n, n, n]) for n in range(3)),
]
CHANGES = {
    "what empties it": "TRUNCATE TABLE t",
    "a column that goes": "ALTER TABLE t DROP COLUMN w",
    "a column that comes": "ALTER TABLE t ADD COLUMN x INT DEFAULT 4",
    "a table that goes": "DROP TABLE t",
    "a table that comes": "CREATE TABLE u (id INT PRIMARY KEY)",
    "names that are swapped": "ALTER TABLE t CHANGE v w INT, CHANGE w v INT",
}


@pytest.mark.parametrize("case", some_of(CHANGES, "what empties it", "names that are swapped"))
def test_what_may_have_run_is_not_compared(
    target: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    """A statement may be on the target and the progress before it.  Verify took it for not run: it called right rows
    missing, and the fix file would have put rows back that a TRUNCATE had removed.  At each other step it is equal."""
    monkeypatch.setattr(snapshots, "_PENDING_SECONDS", 0.0)
    after = [boundary(12), schema_change(20, CHANGES[case]), boundary(30)]
    events = in_one_partition([*BEFORE, *after])
    refused = 0
    for crash_at in count(1):
        with admin(target) as session:
            drop_all(session)
            session.execute("CREATE DATABASE m")
        run_all(target, in_one_partition([*BEFORE, boundary(12)]))
        dying = DyingAtNumber(crash_at)
        with suppress(Died):
            run_all(target, events, trace=dying)
        try:
            is_equal = verify_events(target, events, fixes=tmp_path / "fix.sql").is_equal
        except StoppedError as error:
            is_equal, refused = "may be on the target" in error.what, refused + 1
        assert is_equal, f"after a crash at step {crash_at}"
        if dying.steps < crash_at:
            break
    assert refused in {1, 2, 3}
    assert verify_events(target, events).is_equal


def held_after_it_ran(target: str) -> pa.Table:
    """Events whose schema change ran on the target, which nothing shows."""
    swap = schema_change(20, "ALTER TABLE t CHANGE v w INT, CHANGE w v INT AFTER id")
    row = row_change(11, "t", ["id", "v", "w"], ["id"], after=[7, 8, 9])
    events = in_one_partition([*BEFORE, row, boundary(12), swap, boundary(30)])
    sql(target, "CREATE DATABASE m")

    def trace(step: str) -> None:
        if step == "ddl executed" and sql(target, "SELECT COUNT(*) FROM m.t") == [(4,)]:
            raise Died

    with pytest.raises(Died):
        run_all(target, events, trace=trace)
    with pytest.raises(HeldError, match="nothing shows whether it ran"):
        run_all(target, events)
    return events


@pytest.mark.parametrize("decision", [("approve",), ("replace", "ALTER TABLE m.t ADD COLUMN x INT")])
def test_a_decision_does_not_tell_whether_it_ran(
    target: str, monkeypatch: pytest.MonkeyPatch, decision: tuple[str, ...]
) -> None:
    """What was held as nothing shows whether it ran may be on the target also when the operator has decided what is to
    run: verify called all rows different until the bridge was started."""
    monkeypatch.setattr(snapshots, "_PENDING_SECONDS", 0.0)
    events = held_after_it_ran(target)
    what, *text = decision
    assert bridge("ddl", what, "20", *text, "--target", target).code == 0
    with pytest.raises(StoppedError, match="may be on the target"):
        verify_events(target, events)


def test_no_row_is_put_behind_a_change_that_may_have_run(target: str) -> None:
    """A row that was quarantined before a TRUNCATE is not retried once that may have run."""
    refused = row_change(12, "t", ["id", "v", "w"], ["id"], after=[7, 1 << 40, 7])
    events = in_one_partition([*BEFORE, refused, boundary(13), schema_change(20, "TRUNCATE TABLE t"), boundary(30)])
    sql(target, "CREATE DATABASE m")

    def trace(step: str) -> None:
        if step == "ddl executed" and sql(target, "SELECT COUNT(*) FROM _bridge.quarantine") == [(1,)]:
            raise Died

    with pytest.raises(Died):
        run_all(target, events, quarantine=True, trace=trace)
    sql(target, "ALTER TABLE m.t MODIFY v BIGINT")
    tried = bridge("quarantine", "retry", "--all", "--target", target)
    assert "a schema change runs, or was interrupted" in tried.out
    assert sql(target, "SELECT * FROM m.t") == []


def test_what_ran_instead_is_what_verify_follows(target: str) -> None:
    """The operator's statement ran in place of a TRUNCATE: verify called all rows extra, and the fix file would have
    deleted them."""
    events = in_one_partition([*BEFORE, boundary(12), schema_change(20, "TRUNCATE TABLE t"), boundary(30)])
    sql(target, "CREATE DATABASE m")
    with pytest.raises(HeldError):
        run_all(target, events, ddl=ddl_rules(hold=["truncate table"]))
    assert bridge("ddl", "replace", "20", "ALTER TABLE m.t ADD COLUMN x INT", "--target", target).code == 0
    run_all(target, events)
    assert sql(target, "SELECT COUNT(*), COUNT(x) FROM m.t") == [(3, 0)]
    assert verify_events(target, events).is_equal


def test_a_decision_on_what_ran_instead_is_about_that(target: str) -> None:
    """A statement that the operator gave was interrupted, and nothing shows whether it ran: to approve it runs that,
    not the statement in whose place it is."""
    truncate = schema_change(20, "TRUNCATE TABLE t")
    row = row_change(11, "t", ["id", "v", "w"], ["id"], after=[7, 8, 9])
    events = in_one_partition([*BEFORE, row, boundary(12), truncate, boundary(30)])
    sql(target, "CREATE DATABASE m")
    held = ddl_rules(hold=["truncate table"])
    with pytest.raises(HeldError):
        run_all(target, events, ddl=held)
    swap = "ALTER TABLE m.t CHANGE v w INT, CHANGE w v INT AFTER id"
    assert bridge("ddl", "replace", "20", swap, "--target", target).code == 0
    with pytest.raises(Died):
        run_all(target, events, ddl=held, trace=dying_at("ddl intent"))
    for _ in range(2):
        with pytest.raises(HeldError, match="nothing shows whether it ran"):
            run_all(target, events, ddl=held)
    assert bridge("ddl", "approve", "20", "--target", target).code == 0
    run_all(target, events, ddl=held)
    assert sql(target, "SELECT v, w FROM m.t WHERE id = 7") == [(9, 8)]
    assert verify_events(target, events).is_equal


def test_what_is_to_run_instead_and_is_refused_is_named_each_time(target: str) -> None:
    """A start after that does not turn to the statement that the operator has replaced."""
    events = in_one_partition([*BEFORE, boundary(12), schema_change(20, "TRUNCATE TABLE t"), boundary(30)])
    sql(target, "CREATE DATABASE m")
    with pytest.raises(HeldError):
        run_all(target, events, ddl=ddl_rules(hold=["truncate table"]))
    assert bridge("ddl", "replace", "20", "DROP TABLE _bridge.progress", "--target", target).code == 0
    for _ in range(2):
        with pytest.raises(SchemaChangeError, match=r"the statement is: DROP TABLE _bridge\.progress"):
            run_all(target, events)
    assert sql(target, "SELECT COUNT(*) FROM m.t") == [(3,)]


MOMENT = 1_790_000_000_000
RENAMED = "RENAME TABLE m.t TO other.u"
EVENTS_OF_BOTH = [
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)"),
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)", schema="other"),
    *(row_change(11, "t", ["id"], ["id"], after=[n], schema=schema) for n in range(3) for schema in ("m", "other")),
]
EVENTS = in_one_partition([
    *EVENTS_OF_BOTH,
    schema_change(20, "RENAME TABLE t TO other.u", schema="other"),
    row_change(21, "u", ["id"], ["id"], after=[9], schema="other"),
    boundary(30),
])  # fmt: skip


@pytest.mark.parametrize("words", [("replace", RENAMED), ("done", RENAMED), ("done",)], ids=" ".join)
def test_a_name_without_a_database(target: str, words: tuple[str, ...]) -> None:
    """What the operator says is followed; the tables that it meant, or may have meant, are not covered before it, and
    are not called different."""
    sql(target, "CREATE DATABASE m", "CREATE DATABASE other")
    with pytest.raises(HeldError):
        run_all(target, EVENTS)
    if words[0] == "done":
        sql(target, RENAMED)
    word, *more = words
    assert bridge("ddl", word, "20", *more, "--target", target).code == 0
    run_all(target, EVENTS)
    assert {table.name.table: table.not_covered for table in verify_events(target, EVENTS).tables}["u"] == 3
    sql(target, "DELETE FROM other.u WHERE id = 1")
    assert verify_events(target, EVENTS).is_equal
    sql(target, "DELETE FROM other.u WHERE id = 9")
    assert not verify_events(target, EVENTS).is_equal


@pytest.mark.parametrize("second", [4, 5, 9])
def test_a_table_that_the_operator_may_have_renamed_is_not_missing(target: str, second: int) -> None:
    """Though another partition has rows of which nothing tells the side, as its statement is dated by its start."""
    told = [(0, 1, event) for event in EVENTS_OF_BOTH]
    told += [(1, second, row_change(0, "t", ["id"], ["id"], after=[7]))]
    told += [(0, 5, schema_change(0, "RENAME TABLE t TO other.u", schema="other"))]
    placed = [
        (partition, at, event._replace(commit_ts=ms_tso(MOMENT + 1000 * after), by_time=True))
        for at, (partition, after, event) in enumerate(told)
    ]
    events = events_table(placed)
    sql(target, "CREATE DATABASE m", "CREATE DATABASE other")
    run_all(target, events_table(placed[:-1]), boundary_seconds=0)
    with pytest.raises(HeldError, match="it names t without a database"):
        run_all(target, events, boundary_seconds=0)
    sql(target, RENAMED, "DO 0")
    assert bridge("ddl", "done", str(ms_tso(MOMENT + 5000)), "--target", target).code == 0
    run_all(target, events, boundary_seconds=0)
    report = verify_events(target, events)
    assert report.is_equal
    assert [table.result for table in report.tables if str(table.name) == "m.t"] == ["not covered"] * (second >= 5)


ONLY = Settings.model_validate({"filter": ["m.t"], "timezone": "UTC"})
MIGRATED = in_one_partition([
    schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)"),
    row_change(11, "t", ["id"], ["id"], after=[1]),
    schema_change(12, "CREATE TABLE _t_gho (id INT PRIMARY KEY, c INT)"),
    schema_change(20, "RENAME TABLE t TO _t_del, _t_gho TO t"),
    row_change(21, "t", ["id", "c"], ["id"], after=[9, 9]),
    boundary(30),
])  # fmt: skip


@pytest.mark.parametrize("word", ["replace", "done"])
def test_a_migration_half_outside_of_the_filter(target: str, word: str) -> None:
    """Its rename moved tables upstream, and none here."""
    run: dict[str, Any] = {"tables": TableFilter(("m.t",)), "ddl": ONLY.ddl_rules()}
    by_hand = "ALTER TABLE m.t ADD COLUMN c INT"
    sql(target, "CREATE DATABASE m")
    with pytest.raises(HeldError):
        run_all(target, MIGRATED, **run)
    if word == "done":
        sql(target, by_hand)
    assert bridge("ddl", word, "20", *([by_hand] if word == "replace" else []), "--target", target).code == 0
    run_all(target, MIGRATED, **run)
    assert verify_events(target, MIGRATED, settings=ONLY).is_equal
    sql(target, "DELETE FROM m.t WHERE id = 9")
    assert not verify_events(target, MIGRATED, settings=ONLY).is_equal
