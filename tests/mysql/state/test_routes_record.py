"""The routes that a pipeline ran with, in the target."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from bridge.config import Settings
from bridge.ddl.by_table.table_settings import EventFilterTable
from bridge.errors import UsageError
from bridge.events import Position
from bridge.filters.routes import Routes
from bridge.filters.row_rules import RowRules
from bridge.model import Entry, SchemaChange
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import QuarantineState, add_entries, list_entries
from bridge.mysql.state.routes_record import keep_routes
from tests.support.command import bridge
from tests.support.pipelines import admin, ran_with, sql
from tests.support.upstreams import row_change

BEGUN = Progress("bridge", 1, 50, 10, {}, ())


def routes(*texts: str) -> RowRules:
    return Settings(route=texts, filter=("m.*", "n.*")).row_rules


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


def test_a_step_that_was_interrupted_counts(target: str) -> None:
    """Parts of the first step of several connections are on the target, although progress has not moved."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        session.execute("CREATE DATABASE r")
        session.execute("CREATE TABLE r.t (id INT PRIMARY KEY)")
        begun = replace(BEGUN, applied_ts=10)
        keep_routes(session, "_bridge", begun, routes("m.t -> r.t"))
        with pytest.raises(UsageError, match="would go to"):
            keep_routes(session, "_bridge", replace(begun, applying_ts=20), routes())


def test_tables_that_a_filter_left_out(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are named at the start with a filter that wants them, where the target has them and the pipeline has begun:
    what came of them until then is not read again."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        for statement in (
            "CREATE DATABASE m",
            "CREATE DATABASE r",
            "CREATE TABLE r.t (id INT)",
            "CREATE TABLE m.u (a INT)",
        ):
            session.execute(statement)

        def kept(*rules: str, progress: Progress = BEGUN) -> list[str]:
            keep_routes(session, "_bridge", progress, Settings(route=("m.t -> r.t",), filter=rules).row_rules)
            lines = capsys.readouterr().out.splitlines()
            return [name for line in lines if "tables_were_left_out" in line for name in ("m.t", "m.u") if name in line]

        assert kept("m.u", progress=replace(BEGUN, applied_ts=10)) == []
        assert kept("m.*", progress=replace(BEGUN, applied_ts=10)) == []
        assert kept("m.u") == []
        assert kept("m.u", "m.t") == ["m.t"]
        assert kept("m.u", "m.t") == []
        assert kept("*.*", "!m.*", "!r.*") == []
        assert kept("*.*", "!r.*") == ["m.t", "m.u"]


def test_the_quarantine_follows_a_table_that_was_moved(target: str) -> None:
    """Row changes that are held there have the names of the target; another table may come to the former place."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (a INT PRIMARY KEY, b INT)")
        session.execute("CREATE TABLE m.u (a INT PRIMARY KEY, b INT)")
        keep_routes(session, "_bridge", BEGUN, routes())
        for offset, table in enumerate("tu"):
            change = row_change(9, table, ("a", "b"), ("a",), after=(1, 2))
            position = Position("cdc", 0, offset)
            add_entries(session, "_bridge", "bridge", [Entry(position, "refused", "too long", 9, change=change)])

        def places() -> list[str]:
            entries = list_entries(session, "_bridge", "bridge", [*QuarantineState])
            return [f"{one.change.schema}.{one.change.table}" for one in entries if one.change]

        assert places() == ["m.t", "m.u"]
        session.execute("RENAME TABLE m.t TO m.moved")
        keep_routes(session, "_bridge", BEGUN, routes("m.t -> m.moved"))
        assert places() == ["m.moved", "m.u"]
        session.execute("RENAME TABLE m.u TO m.t")
        keep_routes(session, "_bridge", BEGUN, routes("m.t -> m.moved", "m.u -> m.t"))
        assert places() == ["m.moved", "m.t"]


def test_a_place_that_another_table_would_take(target: str) -> None:
    """It is refused while rows of a table are there that was left out, now or by an earlier start; a copy may come
    once the bridge has seen that nothing was there."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.a (id INT)")

        def keep(*rules: str, route: str = "m.b -> m.a") -> None:
            keep_routes(session, "_bridge", BEGUN, Settings(route=(route,), filter=rules).row_rules)

        keep("m.a", "m.c")
        for _ in range(2):
            with pytest.raises(
                UsageError, match=r"m\.a holds the rows of m\.a, which is left out, and m\.b would go there"
            ):
                keep("m.b", "m.c")
            keep("m.c")
        keep("m.a", "m.c")
        keep("m.c")
        session.execute("RENAME TABLE m.a TO m.old")
        keep("m.c")
        session.execute("CREATE TABLE m.a (id INT)")
        keep("m.b", "m.c")
        keep("m.b", "m.c")


def test_rows_that_an_event_filter_left_out(target: str, capsys: pytest.CaptureFixture[str]) -> None:
    """They are named in the same way, by table and kind, at the start without the filter or with a narrower one."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        session.execute("CREATE DATABASE m")
        session.execute("CREATE DATABASE r")
        session.execute("CREATE TABLE r.t (id INT)")
        session.execute("CREATE TABLE m.u (a INT)")

        def kept(*filters: tuple[str, list[str]], progress: Progress = BEGUN, rules: tuple[str, ...] = ()) -> list[str]:
            given = tuple(
                EventFilterTable.model_validate({"matcher": [of], "ignore-event": events}) for of, events in filters
            )
            settings = Settings(route=("m.t -> r.t",), filter=rules, event_filters=given)
            keep_routes(session, "_bridge", progress, settings.row_rules)
            lines = [line for line in capsys.readouterr().out.splitlines() if "rows_were_left_out" in line]
            return [
                name for line in lines for name in ("m.t: delete", "m.t: update", "m.u: update, delete") if name in line
            ]

        every = ("m.*", ["delete", "update", "truncate table"])
        assert kept(every, progress=replace(BEGUN, applied_ts=10)) == []
        assert kept(progress=replace(BEGUN, applied_ts=10)) == []
        assert kept(every) == []
        assert kept(every) == []
        assert kept(("m.t", ["delete"])) == ["m.t: update", "m.u: update, delete"]
        assert kept(("m.t", ["truncate table"])) == ["m.t: delete"]
        assert kept() == []
        assert kept(every, rules=("m.t",)) == []
        assert kept(rules=("m.u",)) == []


def test_no_command_takes_them(target: str, tmp_path: Path) -> None:
    """Neither a start nor a comparison with the upstream; it says which table would be divided.  A pipeline that is not
    known has no routes."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        ran_with(session, Routes())
    (tmp_path / "one.jsonl").write_text('{"partition":0,"offset":0,"timestamp":0,"key":null,"value":null}\n')
    replay = ("replay", "--input", str(tmp_path), "--protocol", "canal-json")
    verify = ("verify", "--against", "upstream", "--upstream", target, "--filter", "m.*")
    for command in (replay, verify):
        ended = bridge(*command, "--target", target, "--route", "m.t -> r.t")
        said = "bridge: the routes are not those that the pipeline ran with: m.t went to m.t, and would go to"
        assert ended.code == 2, ended.err
        assert f"{said} r.t; at pipeline bridge" in ended.last_line
        assert "(--route, or the settings file of the pipeline)" in ended.last_line
    assert bridge(*verify, "--target", target).code == 0
    assert bridge(*verify, "--target", target, "--route", "m.t -> r.t", "--name", "other").code == 1


@pytest.mark.parametrize(
    ("before", "after", "written", "now"),
    [
        ((), ("m.t -> r.t",), "ALTER TABLE t ADD b INT", "ALTER TABLE `r`.`t` ADD b INT"),
        (("m.t -> r.t",), ("m.t -> r.u",), "ALTER TABLE r.t ADD b INT", "ALTER TABLE `r`.`u` ADD b INT"),
        (("m.* -> r.*",), ("m.t -> m.gone", "m.gone -> r.other"), "RENAME TABLE r.t TO r.gone",
         "RENAME TABLE `m`.`gone` TO `r`.`other`"),
        (("m.t -> r.t",), ("m.t -> r.u",), "ALTER TABLE r.helper ADD b INT", "ALTER TABLE r.helper ADD b INT"),
        (("m.t -> r.t",), ("m.t -> r.t", "n.t -> r.n"), "ALTER TABLE r.t ADD b INT", "ALTER TABLE r.t ADD b INT"),
    ],
)  # fmt: skip
def test_what_an_operator_wrote_follows_a_table(
    target: str, before: tuple[str, ...], after: tuple[str, ...], written: str, now: str
) -> None:
    """It still has to run, or verify reads it as a part of the table's history; what was sent stays as it was."""
    statement = "RENAME TABLE m.t TO m.gone" if written.startswith("RENAME") else "ALTER TABLE t ADD a INT"
    change, journal = SchemaChange(20, "m", "t", statement, "cdc/0/1"), Journal("bridge", "_bridge")
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        keep_routes(session, "_bridge", BEGUN, routes(*before))
        journal.record(session, change, JournalState.HELD)
        journal.release(session, journal.entries(session)[0], JournalState.REPLACED, "", written)
        keep_routes(session, "_bridge", BEGUN, routes(*after))
        [entry] = journal.entries(session)
        assert (entry.replacement, entry.run_text, entry.statement) == (now, "", statement)


def test_tables_that_trade_places(target: str) -> None:
    """Nothing tells whether they have done so: it is refused, and the error says the way by a third name, each step of
    which is taken and moves what is held."""
    with admin(target) as session:
        ProgressTable("bridge").create(session)
        session.execute("CREATE DATABASE m")
        for table in "ab":
            session.execute(f"CREATE TABLE m.{table} (id INT PRIMARY KEY, of_{table} INT)")
        keep_routes(session, "_bridge", BEGUN, routes("m.a -> m.b", "m.b -> m.a"))
        for offset, table in enumerate("ba"):
            change = row_change(9, table, ("id",), ("id",), after=(1,))
            add_entries(session, "_bridge", "bridge", [Entry(Position("cdc", 0, offset), "x", "x", 9, change=change)])

        def places() -> list[str]:
            entries = list_entries(session, "_bridge", "bridge", [*QuarantineState])
            return [one.change.table for one in entries if one.change]

        with pytest.raises(UsageError, match=r"m\.\w went to m\.\w, and would go to m\.\w") as refused:
            keep_routes(session, "_bridge", BEGUN, routes())
        assert "As m.b is there, too, nothing tells whether" in refused.value.fix
        assert "start once with a route from m.b to that name" in refused.value.fix
        steps = (("a", "c", ("m.a -> m.b", "m.b -> m.c")), ("b", "a", ("m.b -> m.c",)), ("c", "b", ()))
        for was, now, given in steps:
            session.execute(f"RENAME TABLE m.{was} TO m.{now}")
            keep_routes(session, "_bridge", BEGUN, routes(*given))
        assert places() == ["a", "b"]
        keep_routes(session, "_bridge", BEGUN, routes())
