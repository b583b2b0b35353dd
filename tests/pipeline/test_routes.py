"""Routes in a pipeline: what stops it, what is held, what its journal says."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from bridge.config import DdlSection, Settings
from bridge.ddl.policy import DdlRules
from bridge.errors import HeldError, UsageError
from bridge.events import RowChange
from bridge.filters.routes import RowRules
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.pipeline.truncated_rows import CutRows
from bridge.protocols import DecodeOptions, make_decoder
from bridge.protocols.batch_decode import ruled
from tests.pipeline.test_bad_messages import capture
from tests.pipeline.test_truncated_rows import History, cut
from tests.support.captures import row, watermark
from tests.support.command import bridge
from tests.support.pipelines import run_all, session_after, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

SETTINGS = Settings(route=("m.* -> r.*", "n.t -> r.of_n"), filter=("*.*", "!m.of_n"))
RULES, DDL = SETTINGS.row_rules, SETTINGS.ddl_rules()


session = session_after("CREATE DATABASE r")


def run(target: str, events: pa.Table, **options: Any) -> None:
    run_all(target, ruled(events, RULES), ddl=DDL, **options)


def insert(ts: int, table: str, *, schema: str = "m", by_time: bool = False) -> RowChange:
    return row_change(ts, table, ["id"], ["id"], after=[ts])._replace(schema=schema, by_time=by_time)


def test_rows_and_schema_changes_go_to_the_target(target: str, session: Session) -> None:
    """The journal has the statement as it came, and as it ran."""
    events = [
        schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)"),
        insert(11, "t"),
        schema_change(12, "RENAME TABLE t TO t2"),
        insert(13, "t2"),
        boundary(20),
    ]
    run(target, in_one_partition(events), batch=2)
    assert session.rows("SELECT id FROM r.t2 ORDER BY id") == [(11,), (13,)]
    assert session.rows("SELECT statement, schema_name, state FROM _bridge.schema_changes ORDER BY 1") == [
        ("CREATE TABLE t (id INT PRIMARY KEY)", "m", "done"),
        ("RENAME TABLE t TO t2", "m", "done"),
    ]
    [(ran,)] = session.rows("SELECT run_text FROM _bridge.schema_changes WHERE commit_ts = 12")
    assert ran == "RENAME TABLE `r`.`t` TO `r`.`t2`"


@pytest.mark.parametrize("word", ["skip", "done"])
def test_a_key_that_stays_is_seen_by_its_name_on_the_target(target: str, session: Session, word: str) -> None:
    """The decision goes by the routes on record, which need not be given."""
    events = [
        schema_change(10, "CREATE TABLE t (id INT PRIMARY KEY)"),
        schema_change(12, "ALTER TABLE t DROP PRIMARY KEY"),
    ]
    holds = SETTINGS.model_copy(update={"ddl": DdlSection(hold=("drop primary key",))}).ddl_rules()
    with pytest.raises(HeldError):
        run_all(target, ruled(in_one_partition([*events, boundary(20)]), RULES), ddl=holds, rules=RULES)
    ended = bridge("ddl", word, "12", "--target", target)
    assert (ended.code, "primary key (id)" in ended.err) == (2, True)
    session.execute("ALTER TABLE r.t DROP PRIMARY KEY")
    assert bridge("ddl", word, "12", "--target", target).code == 0


@pytest.mark.parametrize("by_time", [False, True])
def test_two_tables_with_one_target_stop_it(target: str, session: Session, by_time: bool) -> None:
    """Before anything of the micro-batch is written, with the names of both."""
    session.execute("CREATE TABLE r.t (id INT PRIMARY KEY)")
    rows = [insert(10, "t", by_time=by_time), insert(11, "t", schema="r", by_time=by_time)]
    with pytest.raises(UsageError) as raised:
        run(target, in_one_partition([*rows, *([] if by_time else [boundary(20)])]))
    assert "r.t and m.t would both be written to r.t" in str(raised.value)
    assert session.rows("SELECT * FROM r.t") == []


def test_names_in_another_case_are_two_tables(target: str, session: Session) -> None:
    """MySQL may tell them apart, but the route does not: they are not mixed.  Two targets leave them alone."""
    session.execute("CREATE TABLE r.of_n (id INT PRIMARY KEY)")
    rows = [insert(10, "t", schema="n"), insert(11, "T", schema="n"), boundary(20)]
    with pytest.raises(UsageError, match=r"n\.[tT] and n\.[tT] would both be written to r\.of_n"):
        run(target, in_one_partition(rows))
    assert session.rows("SELECT * FROM r.of_n") == []
    apart = ruled(in_one_partition([insert(10, "t"), insert(11, "T")]), RULES)
    assert (apart["schema"].to_pylist(), apart["table"].to_pylist()) == (["r", "r"], ["t", "T"])


def test_what_has_no_name_there_is_held_and_never_runs_as_it_came(target: str, session: Session) -> None:
    """Neither approved nor replaced by a statement that leaves the database open; replaced by the target's names it
    runs."""
    for statement in ("CREATE DATABASE m", "CREATE TABLE m.mine (id INT)", "CREATE TABLE r.t (id INT PRIMARY KEY)"):
        session.execute(statement)
    events = in_one_partition([schema_change(10, "DROP DATABASE m"), insert(11, "t"), boundary(20)])
    with pytest.raises(HeldError, match="tables of m have other names"):
        run(target, events)
    assert bridge("ddl", "approve", "10", "--target", target).code == 0
    with pytest.raises(HeldError, match="tables of m have other names"):
        run(target, events)
    assert session.rows("SHOW TABLES FROM m") == [("mine",)]
    assert bridge("ddl", "replace", "10", "DROP TABLE r.nothing, r.t", "--target", target).code == 0
    session.execute("CREATE TABLE r.nothing (id INT)")
    with pytest.raises(Exception, match=r"the target has no table|r\.t"):
        run(target, events)
    assert session.rows("SHOW TABLES FROM r") == []
    assert session.rows("SHOW TABLES FROM m") == [("mine",)]


def test_what_the_target_has_no_words_for_is_not_approved_with_the_upstreams_names(
    target: str, session: Session
) -> None:
    """It would be about another table of the target."""
    for statement in ("CREATE DATABASE m", *(f"CREATE TABLE {schema}.t (id INT PRIMARY KEY)" for schema in "mr")):
        session.execute(statement)
    text = "ALTER TABLE m.t ADD COLUMN v VARCHAR(9) DEFAULT _latin1'é'"
    events = in_one_partition([schema_change(10, text), boundary(20)])
    for _ in range(2):
        with pytest.raises(HeldError, match="bytes of another character set"):
            run(target, events)
        assert bridge("ddl", "approve", "10", "--target", target).code == 0
    assert [len(session.rows(f"SHOW COLUMNS FROM {schema}.t")) for schema in "mr"] == [1, 1]


def test_rows_that_are_read_back(target: str, session: Session, tmp_path: Path) -> None:
    """They are read by the upstream's name, and written to the target's."""
    session.execute("CREATE TABLE r.t (id INT PRIMARY KEY, v VARCHAR(9), w INT DEFAULT 5)")
    events = capture(tmp_path, [cut(10, 1), row(11, 2), watermark(20)])
    decoder = make_decoder("canal-json", DecodeOptions("UTC", cut_rows=True, row_rules=RULES))
    run(target, events, cut_rows=CutRows(History({(10, "1"): "'a'"}), decoder))
    assert session.rows("SELECT id, v FROM r.t ORDER BY id") == [(1, "a"), (2, None)]


def test_a_row_that_is_read_back_can_share_its_target(target: str, session: Session, tmp_path: Path) -> None:
    """It stops the bridge like any other."""
    session.execute("CREATE TABLE r.t (id INT PRIMARY KEY, v VARCHAR(9))")
    rules = RowRules(routes=Settings(route=("x.* -> m.*",)).table_routes)
    decoder = make_decoder("canal-json", DecodeOptions("UTC", cut_rows=True, row_rules=rules))
    with pytest.raises(UsageError, match=r"m\.t and x\.t would both be written to m\.t"):
        run_all(target, capture(tmp_path, [cut(10, 1), watermark(20)]), cut_rows=CutRows(History({}), decoder))


def test_the_quarantine(target: str, session: Session, tmp_path: Path) -> None:
    """A message and a refused row are written to the target's table by a retry, each once."""
    session.execute("CREATE TABLE r.t (id INT PRIMARY KEY CHECK (id < 9), at TIMESTAMP NULL)")
    at = ("timestamp", "2024-01-01 08:00:00")
    events = capture(tmp_path, [row(10, 1, at=at), row(11, 9), watermark(90)], timezone=None)
    run(target, events, quarantine=True)
    session.execute("ALTER TABLE r.t MODIFY id INT")
    retry = ("quarantine", "retry", "--all", "--target", target, "--timezone", "UTC", "--json", "--route", "m.* -> r.*")
    ended = bridge(*retry)
    assert [outcome["done"] for outcome in json.loads(ended.out)] == [True, True], ended.out
    assert [id_ for (id_,) in session.rows("SELECT id FROM r.t ORDER BY id")] == [1, 9]
    assert sql(target, "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'm'") == [(0,)]


def test_rules_without_routes_leave_names_alone() -> None:
    """A pipeline without routes has none of their costs."""
    assert not DecodeOptions("UTC").row_rules
    assert DdlRules().routes.target(TableName("m", "t")) == ("m", "t")


def test_the_collation_that_a_database_was_given_counts_under_its_other_name(target: str, session: Session) -> None:
    """A database that the upstream gave its server's default was given one: tables without a collation take it."""
    session.execute("DROP DATABASE r")
    collation = session.value("SELECT @@collation_server")
    charset = str(collation).partition("_")[0]
    events = [
        schema_change(10, f"CREATE DATABASE m CHARACTER SET {charset} COLLATE {collation}"),
        schema_change(11, "CREATE TABLE t (id INT PRIMARY KEY, v VARCHAR(9))"),
        boundary(20),
    ]
    run_all(target, in_one_partition(events), ddl=Settings(route=("m.* -> r.*",)).ddl_rules())
    columns = "SELECT collation_name FROM information_schema.columns WHERE table_schema = 'r' AND column_name = 'v'"
    assert session.rows(columns) == [(collation,)]
