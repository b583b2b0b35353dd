"""What a restart makes of an interrupted schema change, by its two looks at the target."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import pytest
from sqlalchemy import make_url

from bridge.commands.ddl import release
from bridge.ddl.parser import Swap
from bridge.errors import HeldError, SchemaChangeError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.schema_changes.ddl_fingerprint import Evidence, Ran, conclude
from bridge.mysql.state.ddl_journal import JournalState
from bridge.mysql.state.progress import ProgressTable
from tests.support.dying import Died, dying_at
from tests.support.pipelines import admin, run_all
from tests.support.upstreams import boundary, in_one_partition, schema_change

NEW_SETTING, OLD_SETTING = "SET GLOBAL sql_quote_show_create = 0", "SET GLOBAL sql_quote_show_create = 1"
SETUP = [
    "CREATE TABLE t (id INT PRIMARY KEY, v INT)",
    "INSERT INTO t VALUES (1, 10)",
    "CREATE TABLE u (id INT PRIMARY KEY, v INT)",
    "CREATE TABLE p (id INT PRIMARY KEY, v INT) PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9))",
    "INSERT INTO p VALUES (2, 20)",
]
ADD = "ALTER TABLE t ADD COLUMN c INT"
EXCHANGE = "ALTER TABLE p EXCHANGE PARTITION p0 WITH TABLE t"
RENAMES = "RENAME TABLE m.t TO m.x, m.u TO m.t, m.x TO m.u"
CUT_OVER = "RENAME TABLE m.t TO m.x, m.u TO m.t"
COLUMNS = "ALTER TABLE t CHANGE id v INT NOT NULL, CHANGE v id INT NOT NULL FIRST"


@pytest.fixture(params=["target", "mysql_target"], ids=["mariadb", "mysql"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture
def session(url: str) -> Iterator[Session]:
    with admin(url) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute("USE m")
        for made in SETUP:
            session.execute(made)
        session.execute("CREATE USER humble@'%' IDENTIFIED BY 'x'")
        session.execute("GRANT ALL ON m.* TO humble@'%'")
        session.execute("GRANT ALL ON _bridge.* TO humble@'%'")
        yield session
        session.execute("DROP USER humble@'%'")
        session.execute(OLD_SETTING)


@pytest.fixture
def humble(url: str) -> str:
    """A target user with rights on databases alone."""
    return make_url(url).set(username="humble", password="x").render_as_string(hide_password=False)


def test_what_ran_before_on_the_session_is_not_in_the_way(url: str, session: Session) -> None:
    """The session sees the target as a new one does, whatever an earlier statement needed."""
    texts = ("ALTER TABLE t MODIFY v BIGINT", ADD)
    events = in_one_partition([*(schema_change(10 + n, text) for n, text in enumerate(texts)), boundary(12)])
    done = 0

    def trace(step: str) -> None:
        nonlocal done
        done += step == "ddl executed"
        if done == len(texts):
            raise Died

    with pytest.raises(Died):
        run_all(url, events, trace=trace)
    run_all(url, events)
    assert session.rows("SELECT * FROM t") == [(1, 10, None)]


def crash(url: str, statement: str, step: str) -> Callable[..., Any]:
    """The bridge dies at a step of the statement; what starts it again."""
    events = in_one_partition([schema_change(10, statement), boundary(11)])
    with pytest.raises(Died):
        run_all(url, events, trace=dying_at(step))
    return lambda **options: run_all(url, events, **options)


def columns(session: Session, table: str = "t") -> list[str]:
    return [str(name) for name, *_ in session.rows(f"SHOW COLUMNS FROM {table}")]


def contents(session: Session) -> dict[str, list[tuple[Any, ...]]]:
    return {table: session.rows(f"SELECT * FROM {table}") for table in ("t", "u", "p")}


@pytest.mark.parametrize("step", ["ddl intent", "ddl executed"])
@pytest.mark.parametrize("statement", [EXCHANGE, RENAMES])
def test_a_swap_that_nothing_shows_is_held(session: Session, humble: str, statement: str, step: str) -> None:
    """What may swap contents is held with the reason through any restart; approved it runs, skipped it counts as
    run."""
    untouched = contents(session)
    again = crash(humble, statement, step)
    found = contents(session)
    assert (found == untouched) == (step == "ddl intent")
    for _ in range(2):
        with pytest.raises(HeldError, match="nothing shows whether it ran: it swaps contents of tables") as held:
            again()
        assert "if it ran, skip it; if it did not, approve it" in str(held.value)
    ran = step == "ddl executed"
    release(Target(humble), ProgressTable("bridge"), "10", JournalState.SKIPPED if ran else JournalState.APPROVED)
    again()
    assert contents(session) != untouched
    assert session.rows("SELECT state FROM _bridge.schema_changes") == [("done",)]


@pytest.mark.parametrize("step", ["ddl intent", "ddl executed"])
def test_a_rename_after_which_a_name_is_gone(session: Session, humble: str, step: str) -> None:
    """Shows whether it ran, as where a copy takes the place of a table."""
    untouched = contents(session)
    crash(humble, CUT_OVER, step)()
    assert session.rows("SELECT * FROM t") == untouched["u"]
    assert session.rows("SELECT * FROM x") == untouched["t"]
    assert session.rows("SELECT state FROM _bridge.schema_changes") == [("done",)]


def test_a_swap_of_columns_is_held(session: Session, humble: str) -> None:
    """Two columns that change their names and places leave the definition as it was: run a second time the statement
    would undo itself."""
    session.execute("ALTER TABLE t DROP PRIMARY KEY, MODIFY v INT NOT NULL")
    again = crash(humble, COLUMNS, "ddl executed")
    swapped = session.rows("SELECT id, v FROM t")
    assert swapped == [(10, 1)]
    with pytest.raises(HeldError, match="it swaps names of columns"):
        again()
    assert session.rows("SELECT id, v FROM t") == swapped


@pytest.mark.parametrize("step", ["ddl intent", "ddl executed"])
@pytest.mark.parametrize(
    ("statement", "is_clear"),
    [
        ("ALTER TABLE t DROP v, CHANGE w v INT AFTER id, ADD w INT", False),
        ("ALTER TABLE t DROP COLUMN v, RENAME COLUMN w TO `v`, ADD (w INT)", False),
        ("ALTER TABLE t DROP COLUMN v, CHANGE COLUMN w v INT AFTER id", True),
        ("ALTER TABLE t DROP v, ADD v INT DEFAULT 7 AFTER id", True),
    ],
)
def test_a_column_with_the_name_of_a_dropped_one(
    session: Session, humble: str, statement: str, step: str, is_clear: bool
) -> None:
    """When its own name is given to a new column, too, the definition stays as it was: run a second time, the statement
    would lose the column.  It is held only where nothing shows whether it ran."""
    session.execute("ALTER TABLE t ADD COLUMN w INT DEFAULT NULL")
    session.execute("UPDATE t SET w = 20")
    session.execute("CREATE TABLE once AS SELECT * FROM t")
    session.execute(statement.replace("TABLE t", "TABLE once"))
    again = crash(humble, statement, step)
    definition = session.rows("SHOW CREATE TABLE t")
    if not is_clear:
        with pytest.raises(HeldError, match="it swaps names of columns"):
            again()
        assert session.rows("SHOW CREATE TABLE t") == definition
        ran = step == "ddl executed"
        release(Target(humble), ProgressTable("bridge"), "10", JournalState.SKIPPED if ran else JournalState.APPROVED)
    again()
    assert session.rows("SELECT * FROM t") == session.rows("SELECT * FROM once")


def test_a_server_that_prints_otherwise(session: Session, humble: str) -> None:
    """A definition in other words, by a server of another version or with other settings, is no sign that a statement
    ran: it is held."""
    again = crash(humble, ADD, "ddl intent")
    session.execute(NEW_SETTING)
    with pytest.raises(HeldError, match="may show the same one in other words"):
        again()
    release(Target(humble), ProgressTable("bridge"), "10", JournalState.APPROVED)
    session.execute(NEW_SETTING)
    again()
    assert columns(session) == ["id", "v", "c"]


def test_a_statement_that_was_refused_runs_on_a_server_that_prints_otherwise(session: Session, humble: str) -> None:
    """The server may have been upgraded for it: whatever the looks see, it has not run."""
    session.execute("ALTER TABLE t ADD CONSTRAINT own CHECK (v > id)")
    events = in_one_partition([schema_change(10, "ALTER TABLE t DROP COLUMN v"), boundary(11)])
    with pytest.raises(SchemaChangeError, match="the target refused"):
        run_all(humble, events)
    session.execute("ALTER TABLE t DROP CONSTRAINT own")
    session.execute(NEW_SETTING)
    run_all(humble, events)
    assert columns(session) == ["id"]


def test_an_intent_of_another_version_of_the_bridge(session: Session, humble: str) -> None:
    """A fingerprint by other rules says nothing: what it belongs to is held."""
    again = crash(humble, ADD, "ddl intent")
    session.execute("UPDATE _bridge.schema_changes SET fingerprint = SHA1('x')")
    with pytest.raises(HeldError, match="another version of the bridge"):
        again()


@pytest.mark.parametrize("url", ["target"], indirect=True)  # MySQL 8 drops all or none
def test_several_views_dropped_in_part(session: Session, humble: str) -> None:
    """A server that dies in DROP VIEW v, w may have dropped one of them: the restart drops the rest."""
    session.execute("CREATE VIEW v AS SELECT 1 AS x")
    session.execute("CREATE VIEW w AS SELECT 1 AS x")
    again = crash(humble, "DROP VIEW m.v, m.w", "ddl intent")
    session.execute("DROP VIEW v")
    again()
    assert session.rows("SELECT table_name FROM information_schema.views WHERE table_schema = 'm'") == []
    assert session.rows("SELECT state FROM _bridge.schema_changes") == [("done",)]


LOOK = Evidence("a definition", "8.0.31")
LOOKS = [
    (LOOK, None, Ran.NO),
    (LOOK, Swap.TABLES, Ran.UNCLEAR),
    (LOOK._replace(definitions="another"), None, Ran.YES),
    (LOOK._replace(definitions="another", printed_by="8.0.36"), None, Ran.UNCLEAR),
    (LOOK._replace(printed_by="8.0.36"), None, Ran.NO),
    (LOOK, Swap.COLUMNS, Ran.UNCLEAR),
]


@pytest.mark.parametrize(("now", "swaps", "ran"), LOOKS)
def test_two_looks(now: Evidence, swaps: Swap | None, ran: Ran) -> None:
    """A definition that changed says that it ran, unless another version shows it; of a swap it says nothing."""
    assert conclude(LOOK.fingerprint, now, swaps).ran is ran
