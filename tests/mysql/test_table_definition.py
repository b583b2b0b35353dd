"""What a server says of its tables."""

from __future__ import annotations

import base64
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from bridge.commands.connections import warn_of_extra_keys
from bridge.filters.routes import Routes
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import find_limits
from bridge.mysql.table_definition import ColumnInfo, Definition, find_extra_keys, list_tables, load_definitions
from tests.support.captures import write_lines
from tests.support.command import bridge
from tests.support.pipelines import admin, sql
from tests.support.verify_servers import execute
from tests.support.wire import TSO, canal


def test_every_table_with_rows_is_listed(target: str) -> None:
    """A system-versioned one too, which MariaDB calls by a word of its own; views and sequences have no rows."""
    execute(
        target,
        "CREATE DATABASE app; CREATE TABLE app.plain (id INT PRIMARY KEY);"
        " CREATE TABLE app.versioned (id INT PRIMARY KEY) WITH SYSTEM VERSIONING;"
        " CREATE VIEW app.seen AS SELECT * FROM app.plain; CREATE SEQUENCE app.counted",
    )
    plain, versioned, seen = (TableName("app", name) for name in ("plain", "versioned", "seen"))
    with admin(target) as session:
        assert list_tables(session) == [plain, versioned]
        assert load_definitions(session, [plain, versioned, seen]).keys() == {plain, versioned}


@pytest.mark.parametrize("is_tidb", [False, True])
def test_bits_that_tidb_turns_around_are_written_anew(is_tidb: bool) -> None:
    """By verify's file of fixes too, whichever way a table was read: ON DUPLICATE KEY UPDATE would store other bits."""
    column = ColumnInfo("b", "bit", "bit(64)", "", "", nullable=True, generated=False, is_json=False)
    assert Definition(TableName("m", "t"), {"b": column}, is_tidb=is_tidb).table.writes_anew is is_tidb


SAME = "(id INT PRIMARY KEY, a INT, b INT, s VARCHAR(20), UNIQUE u (a)"


@pytest.mark.parametrize(
    ("theirs", "ours", "found"),
    [
        (f"{SAME})", f"{SAME})", []),
        (f"{SAME})", f"{SAME}, UNIQUE mine (b))", ["mine (b)"]),
        (f"{SAME})", f"{SAME}, UNIQUE mine (b, s(3)))", ["mine (b, s)"]),
        (f"{SAME})", f"{SAME}, UNIQUE mine (b, A))", []),  # no two rows can share a
        (f"{SAME})", f"{SAME}, KEY mine (b))", []),
        (f"{SAME}, UNIQUE v (s))", f"{SAME}, UNIQUE w (s))", []),  # of another name
        (f"{SAME}, UNIQUE v (s))", f"{SAME}, UNIQUE v (s(3)))", ["v (s)"]),
        (f"{SAME}, UNIQUE v (s(3)))", f"{SAME}, UNIQUE v (s(3), b))", []),
        ("(a INT, b INT)", "(a INT PRIMARY KEY, b INT)", ["PRIMARY (a)"]),
    ],
)
def test_which_are_the_targets_own(target: str, old_target: str, theirs: str, ours: str, found: list[str]) -> None:
    """By columns and prefixes, not by name; what cannot be taken unless it is upstream too does not count."""
    for url, columns in ((old_target, theirs), (target, ours)):
        sql(url, "CREATE DATABASE app", f"CREATE TABLE app.t {columns}")
    sql(target, "CREATE TABLE app.only_here (id INT PRIMARY KEY)")
    with admin(target) as here, admin(old_target) as there:
        keys = find_extra_keys(here, there, lambda name: name)
    assert [f"{each.key} ({each.columns})" for each in keys] == found
    assert {str(each.table) for each in keys} <= {"app.t"}


def test_a_key_that_not_all_shards_have(target: str, old_target: str) -> None:
    """It is the target's own, whichever shard comes last."""
    sql(target, "CREATE DATABASE app", f"CREATE TABLE app.t {SAME})")
    for schema, columns in (("s1", f"{SAME})"), ("s2", "(id INT PRIMARY KEY, a INT)"), ("s3", f"{SAME})")):
        sql(old_target, f"CREATE DATABASE {schema}", f"CREATE TABLE {schema}.t {columns}")
    with admin(target) as here, admin(old_target) as there:
        [found] = find_extra_keys(here, there, lambda name: name._replace(schema="app"))
    assert str(found) == "the unique key u (a) of app.t is the target's own"


def test_check_and_start_name_them(target: str, old_target: str, tmp_path: Path) -> None:
    """`check` with the fix, a start in its log; tables that are not replicated are left out."""
    for table in ("t", "other"):
        for url in (old_target, target):
            sql(url, "CREATE DATABASE IF NOT EXISTS app", f"CREATE TABLE app.{table} (id INT PRIMARY KEY, v INT)")
        sql(target, f"ALTER TABLE app.{table} ADD UNIQUE mine (v)")
    value = canal("INSERT", {"id": ("int", "1"), "v": ("int", "1")}, table="t", _tidb={"commitTs": TSO})
    line = {"partition": 0, "offset": 0, "key": None, "value": base64.b64encode(value).decode()}
    capture = str(write_lines(tmp_path / "c.jsonl", [line]))
    both = ("--target", target, "--source", old_target, "--input", capture, "--filter", "app.t")
    said = "the unique key mine (v) of app.t is the target's own"
    checked = bridge("check", *both).out
    assert f"{said}  -> drop it on the target" in checked
    assert "app.other" not in checked
    with capture_logs() as logged:
        warn_of_extra_keys(Target(target), Target(old_target), Routes(tables=TableFilter(("app.t",))))
        warn_of_extra_keys(Target(target), Target("mysql://root@127.0.0.1:1/"), Routes())
    assert [line["event"] for line in logged] == ["target_only_unique_key", "unique_keys_not_compared"]
    assert logged[0]["found"] == said


@pytest.mark.parametrize("url", ["target", "old_target", "mysql_target", "old_mysql_target"], indirect=True)
@pytest.mark.server
def test_one_server_has_no_limits(url: str) -> None:
    """Whatever it is."""
    with admin(url) as first, admin(url) as second:
        assert list(find_limits(first, second)) == []


def test_a_balancer_is_found(target: str, old_target: str) -> None:
    """Two connections that lead to two servers."""
    with admin(target) as first, admin(old_target) as second:
        (limit,) = find_limits(first, second)
    assert limit.is_fatal
    assert "two connections lead to two servers" in limit.what


def test_a_proxy_with_ids_of_its_own_is_found(target: str) -> None:
    """The id in the handshake is not that of the server."""
    with admin(target) as first, admin(target) as second:
        first.connection_id += 1_000_000
        (limit,) = find_limits(first, second)
    assert not limit.is_fatal
    assert "ProxySQL" in limit.what


@pytest.mark.parametrize(
    ("variable", "words"),
    [(("wsrep_on", "ON"), "a node of Galera"), (("group_replication_single_primary_mode", "OFF"), "several primaries")],
)
def test_a_cluster_is_named(variable: tuple[str, str], words: str) -> None:
    """By its variables.  test_galera.py shows a real node of Galera."""

    class Member:
        connection_id = 7

        def value(self, *_: Any) -> int:
            return 7

        def variables(self, *_: Any) -> dict[str, str]:
            return dict([variable])

    member: Any = Member()
    assert [limit.is_fatal for limit in find_limits(member, member) if words in limit.what] == [False]
