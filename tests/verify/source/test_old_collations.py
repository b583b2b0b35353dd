"""A real TiDB whose collations compare bytes, as those of clusters do that were first started before version 6.0."""

from __future__ import annotations

import time
from collections.abc import Iterator
from pathlib import Path

import pyarrow as pa
import pytest

from bridge.commands.check import upstream
from bridge.ddl.policy import ddl_rules
from bridge.mysql.connection.target import Target
from bridge.tso import ms_tso
from tests.support import tidb as tidb_server
from tests.support.pipelines import run_all, sql
from tests.support.tidb import TiDB
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.verify_servers import Pair, said

TABLE = "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT) COLLATE utf8mb4_general_ci"
ROWS = [("a", 1), ("A", 2), ("a ", 3)]


def log() -> pa.Table:
    """What the upstream has done, up to now."""
    now = ms_tso(int(time.time() * 1000))
    changes = [row_change(now + 10 + at, "t", ["k", "v"], ["k"], after=row) for at, row in enumerate(ROWS)]
    return in_one_partition([schema_change(now + 5, TABLE), *changes, boundary(now + 90)])


@pytest.fixture(scope="module")
def server() -> Iterator[TiDB]:
    """One that was told so, and started again: it reads that from mysql.tidb."""
    if not tidb_server.is_built():
        pytest.skip("TiDB is not built")
    one = TiDB().start()
    try:
        sql(one.url, "UPDATE mysql.tidb SET variable_value = 'False' WHERE variable_name = 'new_collation_enabled'")
        one.restart()
        yield one
    finally:
        one.stop()


@pytest.fixture
def old_tidb(server: TiDB) -> Iterator[str]:
    """It, with the rows of the log."""
    sql(server.url, "CREATE DATABASE m")
    sql(server.url, TABLE.replace(" t ", " m.t "))
    for key, value in ROWS:
        sql(server.url, f"INSERT INTO m.t VALUES ('{key}', {value})")
    yield server.url
    sql(server.url, "DROP DATABASE IF EXISTS m", "DROP DATABASE IF EXISTS _bridge")


def test_check_finds_it_out(old_tidb: str) -> None:
    """mysql.tidb tells."""
    assert upstream.gather(Target(old_tidb)).new_collations is False


@pytest.mark.parametrize("target_name", ["target", "mysql_target"])
def test_its_rows_are_equal_where_the_target_compares_bytes(
    old_tidb: str, target_name: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    """Tables that the setting made hold all rows, and verify agrees, definitions included."""
    url = request.getfixturevalue(target_name)
    sql(url, "CREATE DATABASE m")
    run_all(url, log(), ddl=ddl_rules(source="tidb-old-collations"))
    report = Pair(old_tidb, url, tmp_path).verify()
    assert said(report) == set()
    assert report.is_equal
    sql(url, "DELETE FROM m.t WHERE v = 2")
    assert not Pair(old_tidb, url, tmp_path).verify().is_equal


def test_rows_that_became_one_are_found(old_tidb: str, target: str, tmp_path: Path) -> None:
    """Where an earlier version, or another tool, wrote them under a collation that takes them for one."""
    sql(target, "CREATE DATABASE m")
    run_all(target, log(), ddl=ddl_rules(source="mysql-8"))
    assert len(sql(target, "SELECT * FROM m.t")) == 1
    assert not Pair(old_tidb, target, tmp_path).verify().is_equal


def test_it_is_a_target_as_any(server: TiDB) -> None:
    """For an upstream like itself nothing is written otherwise."""
    sql(server.url, "CREATE DATABASE m")
    try:
        run_all(server.url, log(), ddl=ddl_rules(source="tidb-old-collations"))
        assert sorted(sql(server.url, "SELECT k, v FROM m.t")) == sorted(ROWS)
        assert "utf8mb4_general_ci" in sql(server.url, "SHOW CREATE TABLE m.t")[0][1]
    finally:
        sql(server.url, "DROP DATABASE IF EXISTS m", "DROP DATABASE IF EXISTS _bridge")


def test_a_latin1_of_tidb_is_equal_as_utf8mb4(tidb_target: str, mysql_target: str, tmp_path: Path) -> None:
    """The target's column holds what TiDB's holds, which is more than Latin-1; verify takes that for the same."""
    table = "CREATE TABLE t (k VARCHAR(20) PRIMARY KEY, v INT) CHARSET latin1"
    sql(tidb_target, "CREATE DATABASE m")
    sql(tidb_target, table.replace(" t ", " m.t "))
    sql(tidb_target, "INSERT INTO m.t VALUES ('你好é', 1)")
    now = ms_tso(int(time.time() * 1000))
    row = row_change(now + 10, "t", ["k", "v"], ["k"], after=["你好é", 1])
    sql(mysql_target, "CREATE DATABASE m")
    run_all(mysql_target, in_one_partition([schema_change(now + 5, table), row, boundary(now + 90)]))
    assert sql(mysql_target, "SELECT k FROM m.t") == [("你好é",)]
    report = Pair(tidb_target, mysql_target, tmp_path).verify()
    assert said(report) == set()
    assert report.is_equal
