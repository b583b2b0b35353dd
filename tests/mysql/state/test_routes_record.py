"""The routes that a pipeline ran with, in the target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.errors import UsageError
from bridge.filters.routes import Routes
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.routes_record import keep_routes
from tests.support.command import bridge
from tests.support.pipelines import admin, sql

BEGUN = Progress("bridge", 1, 50, 10, {}, ())


def routes(*texts: str) -> Routes:
    return Settings(route=texts, filter=("m.*", "n.*")).table_routes


def test_routes_that_would_divide_a_table(target: str) -> None:
    """Are refused until what is there was moved.  A pipeline that has written nothing takes any; so does one without
    routes on record."""
    with admin(target) as session:
        table = ProgressTable("bridge")
        table.create(session)
        session.execute("CREATE DATABASE r")
        session.execute("CREATE TABLE r.t (id INT PRIMARY KEY)")
        keep_routes(session, "_bridge", BEGUN, routes("m.t -> x.t"))
        keep_routes(session, "_bridge", replace(BEGUN, applied_ts=10), routes("m.t -> r.t"))
        keep_routes(session, "_bridge", BEGUN, routes("m.t -> r.t", "n.t -> r.of_n"))
        for other in (routes(), routes("m.t -> s.t", "m.* -> r.*")):
            with pytest.raises(UsageError, match=r"m\.t went to r\.t, and would go to [ms]\.t") as refused:
                keep_routes(session, "_bridge", BEGUN, other)
            assert refused.value.where == "pipeline bridge"
        session.execute("CREATE DATABASE s")
        session.execute("RENAME TABLE r.t TO s.t")
        keep_routes(session, "_bridge", BEGUN, routes("m.t -> s.t"))
        with pytest.raises(UsageError):
            keep_routes(session, "_bridge", BEGUN, routes())
        keep_routes(session, "_bridge", replace(BEGUN, name="other"), routes())
        table.begin(session, 10)
        assert table.forget(session)
        assert sql(target, "SELECT name FROM _bridge.routes") == [("other",)]


def test_a_pipeline_does_not_start_with_them(target: str, tmp_path: Path) -> None:
    """It ends before Spark starts, and says which table would be divided."""
    with admin(target) as session:
        table = ProgressTable("bridge")
        table.create(session)
        table.begin(session, 10)
        session.execute("UPDATE _bridge.progress SET applied_ts = 50")
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        keep_routes(session, "_bridge", BEGUN, Routes())
    (tmp_path / "one.jsonl").write_text('{"partition":0,"offset":0,"timestamp":0,"key":null,"value":null}\n')
    flags = ("--input", str(tmp_path), "--protocol", "canal-json", "--route", "m.t -> r.t")
    ended = bridge("replay", "--target", target, *flags)
    assert (ended.code, "m.t went to m.t, and would go to r.t" in ended.last_line) == (2, True), ended.err
