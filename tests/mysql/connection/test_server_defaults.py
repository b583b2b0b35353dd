"""What a server, or a table there, is set to be must not change what the bridge's sessions do."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pymysql
import pytest
from sqlalchemy import make_url

from bridge.config import Settings
from bridge.errors import RefusedRowsError, SchemaChangeError, TargetError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.rows.sql import render
from tests.generated.verifying import verify_events
from tests.support.dying import Died, dying_at
from tests.support.least_account import least_account
from tests.support.pipelines import admin, opened, run_all
from tests.support.upstreams import Literal, boundary, in_one_partition, row_change, schema_change

DEFAULTS = (
    *("sql_select_limit = 1", "sql_safe_updates = 1", "completion_type = 1", "autocommit = 0"),
    *("unique_checks = 0", "default_storage_engine = MyISAM", "group_concat_max_len = 4", "sql_quote_show_create = 0"),
    "max_join_size = 1",
)
SILENCING = ("sql_notes = 0", "max_error_count = 0", "max_error_count = 1", "note_verbosity = ''")
"""Defaults with which a server does not say, or no longer says when it is asked, that a column cut a value."""


@pytest.fixture(params=["target", "mysql_target"])
def url(request: pytest.FixtureRequest) -> str:
    return str(request.getfixturevalue(request.param))


@pytest.fixture(params=DEFAULTS)
def server_default(url: str, request: pytest.FixtureRequest) -> Iterator[str]:
    """The server with one of them for all new sessions; skips where it knows no such variable."""
    name = request.param.split()[0]
    place = make_url(url)
    account: dict[str, Any] = {"user": place.username, "password": place.password or "", "autocommit": True}
    with (
        pymysql.connect(host=place.host, port=place.port or 3306, **account) as connection,
        connection.cursor() as cursor,
    ):
        if not cursor.execute(f"SHOW GLOBAL VARIABLES LIKE '{name}'"):
            pytest.skip(f"this server has no {name}")
        cursor.execute(f"SELECT @@GLOBAL.{name}")
        [before] = cursor.fetchone() or [None]
        cursor.execute(f"SET GLOBAL {request.param}")
        yield request.param
        cursor.execute(f"SET GLOBAL {name} = %s", (before,))


@contextmanager
def short_keys(session: Session) -> Iterator[None]:
    """The server makes tables whose keys have 767 bytes at most, unless they are told otherwise."""
    before = session.value("SELECT @@GLOBAL.innodb_default_row_format")
    session.execute("SET GLOBAL innodb_default_row_format = 'compact'")
    try:
        yield
    finally:
        session.execute(f"SET GLOBAL innodb_default_row_format = '{before}'")


def test_short_keys(url: str) -> None:
    """The bridge's own tables, and those in which verify keeps what it expects, have keys as long as they need; a
    schema change that the server refuses for that says what to set."""
    with admin(url) as session, short_keys(session):
        key = "id VARCHAR(255) CHARACTER SET utf8mb4 COLLATE utf8mb4_bin PRIMARY KEY"
        session.execute("CREATE DATABASE m")
        session.execute(f"CREATE TABLE m.t ({key}, v INT) ROW_FORMAT=DYNAMIC")
        events = [row_change(10, "t", ["id", "v"], ["id"], after=["a", 1]), boundary(11)]
        run_all(url, in_one_partition(events))
        assert verify_events(url, in_one_partition(events), "canal-json").is_equal
        events += [schema_change(12, f"CREATE TABLE w ({key})"), boundary(13)]
        with pytest.raises(SchemaChangeError, match=r"1071|1709") as raised:
            run_all(url, in_one_partition(events))
        assert "SET GLOBAL innodb_default_row_format = DYNAMIC" in raised.value.fix


@pytest.mark.parametrize("before", [None, [1]])
def test_a_column_without_a_default(url: str, before: list[int] | None) -> None:
    """Only the target has it: the server takes no row without it, nor one that is there; the error says what to do."""
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, mine INT NULL DEFAULT 7)")
        session.execute("INSERT INTO m.t VALUES (1, 5)")
        session.execute("ALTER TABLE m.t ALTER COLUMN mine DROP DEFAULT")
        change = row_change(10, "t", ["id"], ["id"], before=before, after=[1 if before else 2])
        events = in_one_partition([change, boundary(11)])
        with pytest.raises(RefusedRowsError, match=r"1364.*mine") as raised:
            run_all(url, events)
        assert "give it a default on the target (ALTER TABLE" in raised.value.fix
        session.execute("ALTER TABLE m.t ALTER COLUMN mine SET DEFAULT 8")
        run_all(url, events)
        assert session.rows("SELECT * FROM m.t") == ([(1, 5)] if before else [(1, 5), (2, 8)])


@pytest.mark.parametrize("engine", ["MyISAM", "MEMORY"])
def test_a_table_without_transactions(url: str, engine: str) -> None:
    """It is refused before anything is written to it; once it has them, the bridge goes on."""
    with admin(url) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY) ENGINE={engine}")
        session.execute("CREATE TABLE m.u (id INT PRIMARY KEY)")
        rows = [row_change(10, table, ["id"], ["id"], after=[1]) for table in "ut"]
        events = in_one_partition([*rows, boundary(11)])
        with pytest.raises(TargetError, match=f"no transactions, since its engine is {engine}") as raised:
            run_all(url, events)
        assert session.rows("SELECT * FROM m.t UNION ALL SELECT * FROM m.u") == []
        session.execute(raised.value.fix.partition(" on the target")[0])
        run_all(url, events)
        assert session.rows("SELECT * FROM m.t UNION ALL SELECT * FROM m.u") == [(1,), (1,)]


@pytest.mark.parametrize(("url", "server_default"), [("target", "enforce_storage_engine = Aria")], indirect=True)
@pytest.mark.usefixtures("server_default")
def test_a_server_that_chooses_the_engine(url: str) -> None:
    """It makes the bridge's own tables without transactions: progress would stay where a crash takes its rows back.
    They are refused before anything is written; once they have them, a crash loses nothing."""
    die = dying_at("before commit")
    with admin(url) as session:
        session.execute("SET SESSION enforce_storage_engine = NULL")
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        events = in_one_partition([row_change(10, "t", ["id"], ["id"], after=[1]), boundary(11)])
        with pytest.raises(TargetError, match="without its rows: the engine of controls is Aria") as raised:
            run_all(url, events, trace=die)
        for statement in raised.value.fix.removeprefix("on the target ").split("; "):
            session.execute(statement.partition(" where it is set")[0]) if statement[:3] in {"SET", "ALT"} else None
        with pytest.raises(Died):
            run_all(url, events, trace=die)
        run_all(url, events)
        assert session.rows("SELECT * FROM m.t") == [(1,)]


def test_a_table_that_keeps_nothing(mysql_target: str) -> None:
    """A BLACKHOLE table, which only passes rows on to replicas, takes them, although its engine has no transactions."""
    with admin(mysql_target) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY) ENGINE=BLACKHOLE")
    run_all(mysql_target, in_one_partition([row_change(10, "t", ["id"], ["id"], after=[1]), boundary(11)]))


@pytest.mark.usefixtures("server_default")
def test_a_run_is_the_same(url: str) -> None:
    """Tables with and without a key, and schema changes between their rows, end as upstream; each table has
    transactions; in what is committed nothing waits for a lock."""
    columns = ["id", "u", "v"]
    events = [
        schema_change(9, "CREATE TABLE t (id INT PRIMARY KEY, u VARCHAR(9) COLLATE utf8mb4_general_ci UNIQUE, v INT)"),
        schema_change(9, "CREATE TABLE n (id INT, u VARCHAR(9), v INT)"),
        *(row_change(10 + n, "t", columns, ["id"], after=[n, f"u{n}", n]) for n in range(5)),
        *(row_change(20 + n, "n", columns, [], after=[n, "same", n]) for n in range(3)),
        boundary(30),
        row_change(31, "t", columns, ["id"], before=[0, "u0", 0], after=[0, "U1", 0]),
        row_change(31, "t", columns, ["id"], before=[1, "u1", 1], after=[1, "u0", 1]),
        row_change(31, "t", columns, ["id"], before=[2, "u2", 2]),
        row_change(31, "n", columns, [], before=[1, "same", 1]),
        boundary(32),
        schema_change(33, "ALTER TABLE t ADD COLUMN w INT DEFAULT 7"),
        row_change(34, "t", [*columns, "w"], ["id"], before=[3, "u3", 3, 7], after=[3, "x", 3, 8]),
        boundary(40),
    ]
    with admin(url) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
    with opened(url, [("cdc", 0)]) as pipeline:
        for number, event in enumerate(events):
            pipeline.take(in_one_partition([event], start=number))
        pipeline.applier.finish()
    with admin(url) as session:
        found = {table: session.rows(f"SELECT * FROM m.{table} ORDER BY id") for table in "tn"}
        engines = session.rows(
            "SELECT DISTINCT engine FROM information_schema.tables WHERE table_schema IN ('m', '_bridge')"
        )
    assert found["t"] == [(0, "U1", 0, 7), (1, "u0", 1, 7), (3, "x", 3, 8), (4, "u4", 4, 7)]
    assert found["n"] == [(0, "same", 0), (2, "same", 2)]
    assert engines == [("InnoDB",)]


SHAPING = [("mysql_target", "sql_generate_invisible_primary_key = 1"), ("target", "sql_if_exists = 1")]
"""Defaults by which a statement makes another table than upstream, or none."""


@pytest.mark.parametrize(("url", "server_default"), SHAPING, indirect=True)
@pytest.mark.usefixtures("server_default")
def test_tables_are_made_as_upstream(url: str) -> None:
    """A table has the columns and keys of its statement alone: rows without a key are found, also where a message that
    lacks a column would be a part of a row, and a key may come later."""
    columns = ["id", "v"]
    events = [
        schema_change(5, "CREATE TABLE t (id INT, v INT)"),
        row_change(6, "t", columns, [], after=[1, 1])._replace(by_time=True),
        row_change(7, "t", columns, [], before=[1, 1], after=[1, 2])._replace(by_time=True),
        schema_change(8, "CREATE TABLE u LIKE t"),
        row_change(9, "u", columns, [], after=[1, 5])._replace(by_time=True),
        schema_change(10, "ALTER TABLE t ADD PRIMARY KEY (id)"),
        row_change(11, "t", columns, ["id"], before=[1, 2], after=[1, 3])._replace(by_time=True),
    ]
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        run_all(url, in_one_partition(events), boundary_seconds=None)
        assert session.rows("SELECT * FROM m.t UNION ALL SELECT * FROM m.u") == [(1, 3), (1, 5)]
        assert session.rows("SHOW COLUMNS FROM m.u LIKE 'my_row_id'") == []


@pytest.mark.parametrize(
    ("url", "server_default"), [("mysql_target", "sql_generate_invisible_primary_key = 1")], indirect=True
)
@pytest.mark.usefixtures("server_default")
def test_a_table_that_must_have_a_key(url: str) -> None:
    """It gets the server's own where it has no other, since the server would refuse it."""
    events = [schema_change(5, "CREATE TABLE t (v INT)"), row_change(6, "t", ["v"], [], after=[1])]
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        session.execute("SET GLOBAL sql_require_primary_key = 1")
        try:
            run_all(url, in_one_partition([*events, boundary(7)]))
        finally:
            session.execute("SET GLOBAL sql_require_primary_key = 0")
        assert session.rows("SELECT v FROM m.t") == [(1,)]


COLLATIONS = [
    ("target", "character_set_collations = 'utf8mb4=utf8mb4_bin'", "tidb", "utf8mb4_bin"),
    ("target", "character_set_collations = 'utf8mb4=utf8mb4_bin'", "mysql-5.7", "utf8mb4_general_ci"),
    ("mysql_target", "default_collation_for_utf8mb4 = utf8mb4_general_ci", "mysql-8", "utf8mb4_0900_ai_ci"),
    ("mysql_target", "default_collation_for_utf8mb4 = utf8mb4_general_ci", "tidb", "utf8mb4_bin"),
]
"""A default collation, and the one that utf8mb4 means at a source."""


@pytest.mark.parametrize(
    ("url", "server_default", "source", "collation"), COLLATIONS, indirect=["url", "server_default"]
)
@pytest.mark.usefixtures("server_default")
def test_the_collation_that_a_character_set_means(url: str, source: str, collation: str) -> None:
    """It is the source's: by another one, two rows of a key that is a text would become one."""
    changes = [
        schema_change(5, "CREATE TABLE t (k VARCHAR(9) PRIMARY KEY) DEFAULT CHARSET=utf8mb4"),
        schema_change(6, "CREATE TABLE u (k VARCHAR(9) CHARACTER SET utf8mb4 PRIMARY KEY)"),
        schema_change(7, "ALTER TABLE u ADD COLUMN v VARCHAR(9) CHARSET utf8mb4"),
    ]
    rules = Settings.model_validate({"ddl": {"source": source}}).ddl_rules()
    with admin(url) as session:
        session.execute("CREATE DATABASE m CHARACTER SET latin1")
        run_all(url, in_one_partition([*changes, boundary(8)]), ddl=rules)
        found = session.rows("SELECT DISTINCT collation_name FROM information_schema.columns WHERE table_schema = 'm'")
    assert found == [(collation,)]


@pytest.mark.parametrize("server_default", SILENCING, indirect=True)
@pytest.mark.usefixtures("server_default")
def test_what_a_column_cuts_is_noticed(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Lost digits and blanks are in notes alone, whether rows come by INSERT or by LOAD DATA: they are refused, and
    nothing of them is written."""
    with admin(url) as session:
        local_infile = session.value("SELECT @@GLOBAL.local_infile")
        session.execute("SET GLOBAL local_infile = ON")
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.d (id INT PRIMARY KEY, v DECIMAL(4,1))")
        session.execute("CREATE TABLE m.c (id INT PRIMARY KEY, v VARCHAR(2))")
    try:
        for least in (1 << 30, 0):
            monkeypatch.setattr(render, "MIN_BYTES", least)
            for table, value in (("d", Literal("1.23")), ("c", "ab ")):
                row = row_change(10, table, ["id", "v"], ["id"], after=[1, value])
                with pytest.raises(RefusedRowsError, match="Data truncated for column 'v'"):
                    run_all(url, in_one_partition([row, boundary(11)]))
                with admin(url) as session:
                    assert session.rows(f"SELECT * FROM m.{table}") == []
    finally:
        with admin(url) as session:
            session.execute("SET GLOBAL local_infile = %s", (local_infile,))


@pytest.mark.parametrize(("url", "server_default"), [("mysql_target", "max_error_count = 2")], indirect=True)
@pytest.mark.usefixtures("server_default")
def test_where_the_user_may_not_have_warnings_kept(url: str) -> None:
    """MySQL 8 lets few set max_error_count.  A statement whose warnings are not all kept stops the bridge; it has one
    for each column, since MySQL advises against VALUES()."""
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, u INT, v DECIMAL(4,1))")
    rows = [row_change(10, "t", ["id", "v"], ["id"], after=[1, Literal("1.2")]), boundary(11)]
    wide = [row_change(12, "t", ["id", "u", "v"], ["id"], after=[2, 1, Literal("1.23")]), boundary(13)]
    with least_account(url, ["m"]) as least:
        run_all(least, in_one_partition(rows))
        with pytest.raises(TargetError, match="has kept 2 of the 3 warnings") as raised:
            run_all(least, in_one_partition([*rows, *wide]))
    with admin(url) as session:
        assert session.rows("SELECT id FROM m.t") == [(1,)]
        session.execute(raised.value.fix.partition(" on the target")[0])
    with least_account(url, ["m"]) as least, pytest.raises(RefusedRowsError, match="Data truncated"):
        run_all(least, in_one_partition([*rows, *wide]))


PASSWORD = "pä 'ß 密"


@pytest.fixture
def account(mysql: Any) -> Iterator[str]:
    """The URL of an account with a password, on a server without TLS that has seen no login of it."""
    with admin(mysql.url) as session:
        session.execute("CREATE USER guest@'%%' IDENTIFIED WITH caching_sha2_password BY %s", [PASSWORD])
        yield str(make_url(mysql.url).set(username="guest"))
        session.execute("DROP USER guest@'%'")


def test_a_password_is_sent_encrypted(account: str) -> None:
    """Without TLS the password goes by the server's public key, as long as the server has not cached it."""
    for _ in ("not cached", "cached"):
        session = Target(account, password=PASSWORD).connect()
        assert session.value("SELECT CURRENT_USER()") == "guest@%"
        session.close()


def test_a_wrong_password(account: str) -> None:
    """It is told as what it is."""
    with pytest.raises(TargetError, match="the target refused the login: 1045"):
        Target(account, password="other").connect()
