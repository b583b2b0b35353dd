"""Whole logs, as events, against real targets: hashes first, then values."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from bridge.errors import HeldError, SourceError
from bridge.sources.source import TopicNow
from tests.generated.verifying import InMemory, verify_events
from tests.support.clients import run_file
from tests.support.command import bridge
from tests.support.pipelines import run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import execute


def test_rows_count_once(target: str) -> None:
    """Also those that hashes call equal and that lie between others that have to be loaded."""
    spelled = ["1.00", "2.0", "3.00", "4.00", "5.00", "6.0", "7.0", "8.00", "9.0"]
    log = [schema_change(5, "CREATE TABLE t (id INT PRIMARY KEY, v DECIMAL(9,2))")]
    log += [row_change(10, "t", ["id", "v"], ["id"], after=[n, Literal(v)]) for n, v in enumerate(spelled)]
    events = in_one_partition([*log, boundary(11)])
    execute(target, "CREATE DATABASE m")
    run_all(target, events)
    [table] = verify_events(target, events).tables
    assert (table.is_equal, table.rows) == (True, len(spelled))


def test_executors_do_without_clients_of_databases() -> None:
    """To load SQLAlchemy took half of the time in which an executor gets ready."""
    code = "import sys, bridge.verify.log.recompute; print('sqlalchemy' in sys.modules, 'numpy' in sys.modules)"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True)
    assert found.stdout == "False True\n"


def test_a_table_that_was_altered_before_its_first_row(target: str) -> None:
    """The log holds every row of it, so that another one is extra; once there are older rows, it does not."""
    execute(target, "CREATE DATABASE m")
    log = [schema_change(5, "CREATE TABLE t (id INT NOT NULL, v INT)")]
    log += [schema_change(6, "ALTER TABLE t ADD PRIMARY KEY (id)"), schema_change(7, "ALTER TABLE t MODIFY v BIGINT")]
    row = row_change(10, "t", ["id", "v"], ["id"], after=[1, 1])
    events = in_one_partition([*log, row, boundary(91)])
    run_all(target, events)
    [table] = verify_events(target, events).tables
    assert (table.is_equal, table.rows, table.notes) == (True, 1, ())
    execute(target, "INSERT INTO m.t VALUES (2, 2)")
    assert verify_events(target, events).tables[0].extra == 1
    [table] = verify_events(
        target, in_one_partition([*log[:2], row._replace(commit_ts=6), *log[2:], boundary(91)])
    ).tables
    assert (table.is_equal, table.not_covered) == (True, 2)


def test_a_topic_that_was_made_anew(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its messages tell of another history, by which verify would call right rows different, and put others in their
    place: it says so instead."""
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY)")
    old = in_one_partition([row_change(10, "t", ["id"], ["id"], after=[1]), boundary(11)])
    new = in_one_partition([row_change(9, "t", ["id"], ["id"], before=[1]), boundary(11)])
    run_all(target, old)
    execute(target, """UPDATE _bridge.progress SET topics = '{"cdc": "one", "gone": "two"}'""")
    for now in ({}, {"cdc": TopicNow("one", 1)}, {"cdc": TopicNow("", 1)}):
        monkeypatch.setattr(InMemory, "topics", lambda _, now=now: now)
        assert verify_events(target, old).is_equal
    monkeypatch.setattr(InMemory, "topics", lambda _: {"cdc": TopicNow("another", 1)})
    with pytest.raises(SourceError, match=r"whose id was one and is now another; fix: .* --against upstream"):
        verify_events(target, new)


def test_fixes_of_parts_of_a_table(target: str, tmp_path: Path) -> None:
    """A table that was compared in parts is fixed as one: its own column stays in rows of all of them."""
    log = [row_change(10 + n, "t", ["id", "u"], ["id"], after=[n, n]) for n in range(9)]
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m; CREATE TABLE m.t (id INT PRIMARY KEY, u INT UNIQUE, own INT DEFAULT 5)")
    run_all(target, events)
    execute(target, "UPDATE m.t SET u = u + 100, own = id WHERE id IN (1, 7)")
    [table] = verify_events(target, events, fixes=tmp_path / "fix.sql").tables
    assert [(one.commit_ts, one.position) for one in table.first_rows] == [(11, "cdc/0/1"), (17, "cdc/0/7")]
    run_file(target, tmp_path / "fix.sql")
    assert verify_events(target, events).is_equal
    assert execute(target, "SELECT id, own FROM m.t WHERE own <> 5") == [(1, 1), (7, 7)]


@pytest.mark.parametrize("key", ["PRIMARY KEY (g)", "PRIMARY KEY (g, w)", "UNIQUE KEY (g)"])
def test_keys_of_generated_columns(mysql_target: str, tmp_path: Path, key: str) -> None:
    """They tell rows apart as the messages have them; a fix file does not write them."""
    table = f"CREATE TABLE t (v INT, g INT AS (v * 2) STORED NOT NULL, w INT NOT NULL, {key})"
    handle = ["g", "w"] if "w" in key else ["g"]
    log = [schema_change(5, table)]
    log += [row_change(10 + n, "t", ["v", "g", "w"], handle, after=[n, 2 * n, n]) for n in range(5)]
    log.append(row_change(20, "t", ["v", "g", "w"], handle, before=[1, 2, 1]))
    log.append(row_change(21, "t", ["v", "g", "w"], handle, before=[2, 4, 2], after=[7, 14, 2]))
    events = in_one_partition([*log, boundary(91)])
    execute(mysql_target, "CREATE DATABASE m")
    run_all(mysql_target, events)
    assert execute(mysql_target, "SELECT v, g FROM m.t ORDER BY v") == [(0, 0), (3, 6), (4, 8), (7, 14)]
    assert verify_events(mysql_target, events).is_equal
    execute(
        mysql_target, "UPDATE m.t SET w = 9 WHERE v = 3; DELETE FROM m.t WHERE v = 7; INSERT m.t (v, w) VALUES (1, 1)"
    )
    [found] = verify_events(mysql_target, events, fixes=tmp_path / "fix.sql").tables
    assert found.different + found.missing + found.extra == (4 if "w" in key else 3)
    run_file(mysql_target, tmp_path / "fix.sql")
    assert verify_events(mysql_target, events).is_equal


def test_members_that_became_bytes(target: str) -> None:
    """What came before that is not covered: no message tells the name that an ENUM's number stood for."""
    log = [
        schema_change(5, "CREATE TABLE t (k ENUM('a','b') PRIMARY KEY)"),
        row_change(10, "t", ["k"], ["k"], after=[Literal("2")]),
        schema_change(20, "ALTER TABLE t MODIFY k VARBINARY(9) NOT NULL"),
        row_change(21, "t", ["k"], ["k"], after=[Literal("x'63'")]),
    ]
    events = in_one_partition([*log, boundary(91)])
    execute(target, "CREATE DATABASE m")
    with pytest.raises(HeldError):
        run_all(target, events)
    assert bridge("ddl", "approve", "20", "--target", target).code == 0
    run_all(target, events)
    assert execute(target, "SELECT k FROM m.t ORDER BY k") == [(b"b",), (b"c",)]
    [found] = verify_events(target, events).tables
    assert (found.is_equal, found.rows, found.not_covered) == (True, 1, 1)
