"""Shards whose columns mean something else: the number of one member never becomes the name of another, nor a time in
UTC a local one."""

from __future__ import annotations

import re
from dataclasses import replace

import pytest

from bridge.errors import HeldError
from bridge.events import DdlStatement, Event
from bridge.mysql.connection.session import Session
from bridge.protocols.batch_decode import ruled
from bridge.protocols.values.event_time import SNAPSHOT_PLACE
from tests.pipeline.test_shards import DDL, RULES, ddl, insert, run
from tests.support.command import bridge
from tests.support.pipelines import run_all, session_after
from tests.support.upstreams import boundary, in_one_partition

session = session_after("CREATE DATABASE s")


def make(definition: str) -> str:
    return f"CREATE TABLE t (id INT PRIMARY KEY, v {definition})"


MADE = make("ENUM('a','b','c')")
HELD = {
    "another order": (MADE, MADE, "MODIFY v ENUM('b','a','c')"),
    "one less": (MADE, MADE, "MODIFY COLUMN v ENUM('a','c')"),
    "one in between, and another name": (MADE, MADE, "CHANGE v w ENUM('a','x','b','c')"),
    "a SET": (make("SET('a','b')"), make("SET('a','b')"), "MODIFY v SET('b','a')"),
    "a shard that is made otherwise": (MADE, make("ENUM('b','a','c')"), ""),
    "a shard that is made with one more": (MADE, make("ENUM('a','b','c','d')"), ""),
}
"""How the first and the second shard are made, and what the first does then."""
APPROVED = {
    "one more": (MADE, "MODIFY v ENUM('a' , 'b','c ','d')"),
    "the same": (MADE, "MODIFY v ENUM('a','b','c') NOT NULL"),
    "a quote": (make("ENUM('a''b')"), "MODIFY v ENUM(\"a'b\",'c')"),
    "a text": (make("ENUM('a')"), "MODIFY v VARCHAR(9)"),
}


def history(first: str, second: str, alter: str) -> list[Event]:
    made = [ddl(10, "s1", first), ddl(11, "s2", second), insert(12, "s1", 1, 1), insert(12, "s2", 101, 1)]
    return [*made, *(ddl(ts, shard, f"ALTER TABLE t {alter}") for ts, shard in ((13, "s1"), (14, "s2")) if alter)]


def held(target: str, log: list[Event]) -> str:
    with pytest.raises(HeldError) as found:
        run(target, *log)
    return found.value.what


@pytest.mark.parametrize("case", HELD)
def test_numbers_that_mean_others_are_never_approved(target: str, session: Session, case: str) -> None:
    """Rows of the other shard would get other values in silence.  What the operator writes instead runs, also when it
    is the same; then it is confirmed at the other shard."""
    log = history(*HELD[case])
    assert "other members of v" in held(target, log)
    [(ts, text)] = session.rows("SELECT commit_ts, statement FROM _bridge.schema_changes WHERE state = 'held'")
    assert bridge("ddl", "approve", str(ts), "--target", target).code == 0
    assert "other members of v" in held(target, log)
    if "MODIFY" in text:
        replacement = re.sub(r"\bt\b", "s.t", text, count=1)
        assert bridge("ddl", "replace", str(ts), replacement, "--target", target).code == 0
        run(target, *log)
        assert session.rows("SELECT state FROM _bridge.schema_changes WHERE commit_ts = 14") == [("confirmed",)]


@pytest.mark.parametrize("case", APPROVED)
def test_numbers_that_stay_are_approved(target: str, session: Session, case: str) -> None:
    """As any other change of a column."""
    made, alter = APPROVED[case]
    log = history(made, made, alter)
    assert "may not fit" in held(target, log)
    assert bridge("ddl", "approve", "13", "--target", target).code == 0
    run(target, *log)
    assert session.rows("SELECT state FROM _bridge.schema_changes WHERE commit_ts > 12") == [("done",), ("confirmed",)]


OF_CONNECTOR = {
    "the scale of a DECIMAL": (make("DECIMAL(9,2)"), make("DECIMAL(9,2)"), "MODIFY v DECIMAL(9,4)"),
    "a shard of another scale": (make("DECIMAL(9,2)"), make("DECIMAL(9,4)"), ""),
    "microseconds": (make("DATETIME(3)"), make("DATETIME(3)"), "MODIFY v DATETIME(6)"),
    "days": (make("DATE"), make("DATE"), "MODIFY v DATETIME"),
    "bytes": (make("VARBINARY(9)"), make("VARBINARY(9)"), "MODIFY v VARCHAR(9)"),
}


@pytest.mark.parametrize("case", OF_CONNECTOR)
def test_values_of_another_type_are_never_approved(target: str, session: Session, case: str) -> None:
    """Debezium's connector may write its messages without schemas: the type of the target's column alone says then
    whether 250 is 2.50 or 0.0250, and rows of the shard that has not had the change yet are read as its own."""
    changes = [event for event in history(*OF_CONNECTOR[case]) if isinstance(event, DdlStatement)]
    events = ruled(in_one_partition([one._replace(by_time=True, place=SNAPSHOT_PLACE) for one in changes]), RULES)
    with pytest.raises(HeldError, match="had another type"):
        run_all(target, events, ddl=DDL)
    [(ts,)] = session.rows("SELECT commit_ts FROM _bridge.schema_changes WHERE state = 'held'")
    assert bridge("ddl", "approve", str(ts), "--target", target).code == 0
    with pytest.raises(HeldError, match="had another type"):
        run_all(target, events, ddl=DDL)


@pytest.mark.parametrize(("zone", "is_held"), [("+08:00", True), ("UTC", False)])
@pytest.mark.parametrize(
    ("was", "becomes", "why"),
    [
        ("TIMESTAMP NULL", "DATETIME", "come in UTC"),
        ("DATETIME", "TIMESTAMP NULL", "taken for UTC"),
        ("VARCHAR(30)", "TIMESTAMP(3) NULL", "taken for UTC"),
    ],
)
def test_times_in_utc_stay_apart_from_local_ones(
    target: str, session: Session, zone: str, was: str, becomes: str, why: str, *, is_held: bool
) -> None:
    """A shard whose column is a TIMESTAMP still would write UTC among local times of a DATETIME, and the reverse."""
    made, alter = make(was), f"ALTER TABLE t MODIFY v {becomes}"
    log = [ddl(10, "s1", made), ddl(11, "s2", made), ddl(13, "s1", alter), ddl(14, "s2", alter)]
    rules = replace(DDL, timezone=zone)
    events = ruled(in_one_partition([*log, boundary(20)]), RULES)
    with pytest.raises(HeldError):
        run_all(target, events, ddl=rules)
    assert bridge("ddl", "approve", "13", "--target", target).code == 0
    if is_held:
        with pytest.raises(HeldError, match=why):
            run_all(target, events, ddl=rules)
        assert bridge("ddl", "replace", "13", f"ALTER TABLE s.t MODIFY v {becomes}", "--target", target).code == 0
    run_all(target, events, ddl=rules)
    assert session.rows("SELECT state FROM _bridge.schema_changes WHERE commit_ts > 12") == [("done",), ("confirmed",)]
