"""An account with exactly the grants that the manual lists does everything that a pipeline does.

`apply/test_golden_schema_changes.py` runs every schema change of TiCDC with it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from bridge.commands.check import Level, grants
from bridge.errors import TargetError
from bridge.mysql.connection.session import Session
from tests.support.command import bridge
from tests.support.golden import differences, replay_arguments
from tests.support.least_account import least_account
from tests.support.pipelines import admin, decoded, opened, run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import Pair

ROWS = 3000
"""Enough for a load, also in each of two parts."""
COLUMNS = ("id", "v")


@pytest.fixture(params=["target", "mysql_target", pytest.param("tidb_target", marks=pytest.mark.soak)])
def server(request: pytest.FixtureRequest) -> str:
    """A server, as its administrator reaches it."""
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def session(server: str) -> Iterator[Session]:
    """With two tables, on a server that takes LOAD DATA LOCAL."""
    with admin(server) as session:
        session.execute("CREATE DATABASE m")
        for table in ("a", "b"):
            session.execute(f"CREATE TABLE m.{table} (id INT PRIMARY KEY, v VARCHAR(499))")
        if not session.is_tidb:
            before = session.value("SELECT @@GLOBAL.local_infile")
            session.execute("SET GLOBAL local_infile = ON")
        yield session
        if not session.is_tidb:
            session.execute(f"SET GLOBAL local_infile = {before}")


@pytest.fixture
def least(server: str, session: Session) -> Iterator[str]:
    """The same server, as the account reaches it."""
    del session
    with least_account(server, ["m", "ks"]) as url:
        yield url


def loads(session: Session) -> int:
    return int(session.rows("SHOW GLOBAL STATUS LIKE 'Com_load'")[0][1])


@pytest.mark.parametrize("writers", [0, 2], ids=["atomic", "parallel"])
def test_rows(server: str, least: str, session: Session, tmp_path: Path, writers: int) -> None:
    """Loads, patches of rows, deletes, a row for the quarantine, a take-over from a bridge that is alive; the end is
    equal."""
    many = [
        row_change(10, table, COLUMNS, ["id"], after=(number, "x" * 490)) for table in "ab" for number in range(ROWS)
    ]
    changed = [row_change(20, "a", COLUMNS, ["id"], before=(1, "x"), after=(ROWS, "y"))]
    gone = [row_change(20, "b", COLUMNS, ["id"], before=(2, "x" * 490))]
    refused = [row_change(21, "b", COLUMNS, ["id"], after=(3, "z" * 500))]
    events = in_one_partition([*many, boundary(15), *changed, *gone, *refused, boundary(30)])
    before = None if session.is_tidb else loads(session)
    with opened(least, [("cdc", 0)], writers=writers, quarantine=True) as first:
        first.take(events.slice(0, len(many) + 1))
        run_all(least, events, writers=writers, quarantine=True, take_over=True)
    assert before is None or loads(session) > before
    assert session.rows("SELECT COUNT(*), MAX(v) FROM m.a") == [(ROWS, "y")]
    assert session.rows("SELECT COUNT(*), MAX(LENGTH(v)) FROM m.b") == [(ROWS - 1, 490)]
    assert session.rows("SELECT code, state FROM _bridge.quarantine") == [("target-refused", "held")]
    if not session.is_tidb:  # which keeps no rows of moments like these
        assert Pair(server, least, tmp_path).verify("m.*").is_equal


def test_commands(server: str, least: str, golden: Path) -> None:
    """check finds nothing that is missing; status and ddl list can be read."""
    capture = golden / "canal-ext" / "keys.jsonl"
    run_all(least, decoded(capture, "canal-json"))
    assert differences(server, golden, "keys", "canal-ext") == []
    checked = bridge("check", "--target", least, "--input", str(capture), "--timezone", "UTC", "--json")
    said = {line["what"]: line["level"] for line in json.loads(checked.out) if line["check"] == "grants"}
    assert checked.code == 0, checked.out
    assert set(said.values()) == {"ok"}
    assert bridge("status", "--target", least).code == 0
    assert bridge("ddl", "list", "--target", least).code == 0


def test_each_grant_by_itself(least: str, session: Session) -> None:
    """Taken away on a real server, it is the one that check names, with the GRANT that gives it back; with all of them
    nothing is missing."""
    places = [("`m`.*", grants.REPLICATED), ("`_bridge`.*", grants.OWN)]

    def lacking() -> list[str]:
        with admin(least) as account:
            found = grants.judge(grants.gather(account), "_bridge", ["m"])
            return [one.fix for one in found if one.level is not Level.OK]

    assert lacking() == []
    for place, needs in places:
        for need in needs:
            session.execute(f"REVOKE {need} ON {place} FROM least@'%'")
            assert lacking() == [f"GRANT {need} ON {place} TO 'least'@'%'"]
            session.execute(f"GRANT {need} ON {place} TO least@'%'")


@pytest.mark.soak
@pytest.mark.usefixtures("spark")
def test_verify_against_the_messages(least: str, golden: Path) -> None:
    """A replay, and what it should have made, in temporary tables of the bridge's own database."""
    replay = replay_arguments(golden, "canal-ext", "keys", least)
    assert bridge(*replay).code == 0
    ended = bridge("verify", *replay[1:])
    assert ended.code == 0, ended.out + ended.err


def test_a_timestamp_column_is_made_as_upstream_or_not_at_all(old_mysql_target: str) -> None:
    """MySQL 5.7 lets only SUPER say that TIMESTAMP columns are what a statement says: without, nothing is made; once
    the server itself says so, the same statement runs."""
    change = schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY, at TIMESTAMP)")
    events = in_one_partition([change, boundary(11)])
    sql(old_mysql_target, "CREATE DATABASE m")
    with least_account(old_mysql_target, ["m"]) as least, admin(old_mysql_target) as session:
        with pytest.raises(TargetError, match="would make its TIMESTAMP columns NOT NULL"):
            run_all(least, events)
        assert session.rows("SHOW TABLES IN m") == []
        session.execute("SET GLOBAL explicit_defaults_for_timestamp = ON")
        try:
            run_all(least, events)
        finally:
            session.execute("SET GLOBAL explicit_defaults_for_timestamp = OFF")
        assert session.rows("SHOW COLUMNS IN m.t LIKE 'at'")[0][2] == "YES"
