"""Unique keys of the target's own, which lead to rows being deleted."""

from __future__ import annotations

import base64
from pathlib import Path

import pytest
from structlog.testing import capture_logs

from bridge.commands.connections import warn_of_extra_keys
from bridge.filters.routes import Routes
from bridge.filters.table_filter import TableFilter
from bridge.mysql.connection.target import Target
from bridge.mysql.table_definition import find_extra_keys
from tests.support.captures import write_lines
from tests.support.command import bridge
from tests.support.pipelines import admin, sql
from tests.support.wire import TSO, canal

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
