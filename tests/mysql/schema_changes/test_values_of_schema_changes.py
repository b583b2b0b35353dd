"""Schema changes on a real target: the values that rows have afterwards are the upstream's, or the change is held."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Final

import pytest
from structlog.testing import capture_logs

from bridge.commands.ddl import release
from bridge.ddl.policy import DdlRules, ddl_rules
from bridge.errors import HeldError, SchemaChangeError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state.ddl_journal import JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.protocols.values.event_time import SNAPSHOT_PLACE, place_in_binlog, place_in_gtid_set, place_of_sending
from bridge.tso import ms_tso
from tests.support.pipelines import admin, drop_all, opened, run_all, sql
from tests.support.schema_change_runs import MOMENT, TS, decide, outcome, run
from tests.support.upstreams import boundary, in_one_partition, schema_change

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
FRACTIONS = {
    "DATETIME(6)": ("'2024-02-28 23:59:59.600000'", "DATETIME(0)", "2024-02-29 00:00:00", "2024-02-28 23:59:59"),
    "TIMESTAMP(6)": (
        *("'2024-02-28 23:59:59.678951'", "TIMESTAMP(4)", "2024-02-28 23:59:59.6790", "2024-02-28 23:59:59.6789"),
    ),
    "TIME(3)": ("'00:00:00.600'", "TIME", "00:00:01", "00:00:00"),
}
"""By the type of a column: a value, the type that it becomes, and what MySQL and MariaDB make of the value."""


@pytest.mark.parametrize("before", FRACTIONS)
@pytest.mark.parametrize(
    ("server", "source", "cuts"),
    [
        *(("target", "tidb", False), ("old_target", "mysql-8", False), ("target", "mariadb", True)),
        *(("mysql_target", "tidb", False), ("mysql_target", "mariadb", True), ("old_mysql_target", "mysql-5.7", False)),
    ],
)
def test_fractions_of_times_end_as_upstream(
    request: pytest.FixtureRequest, server: str, source: str, cuts: bool, before: str
) -> None:
    """A column that holds fewer digits has the values of the upstream's server, which rounds them or cuts them."""
    url = request.getfixturevalue(server)
    value, after, rounded, cut = FRACTIONS[before]
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {before} NULL)")
        session.execute(f"INSERT INTO m.t VALUES (1, {value})")
        change = schema_change(TS, f"ALTER TABLE t MODIFY v {after} NULL")
        run_all(url, in_one_partition([change, boundary(TS + 1)]), ddl=ddl_rules(source=source))
        assert session.value("SELECT CONCAT(v) FROM m.t") == (cut if cuts else rounded)


def test_defaults_take_the_upstream_moment(target: str, session: Session) -> None:
    """Existing rows get CURRENT_TIMESTAMP of a new column as upstream, at its commit_ts and in its zone; later
    statements do not."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (1)")
    events = [schema_change(TS, "ALTER TABLE t ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP"), boundary(TS + 1)]
    rules = ddl_rules(source="mysql-8", timezone="+08:00")
    with opened(target, [("cdc", 0)], ddl=rules) as pipeline:
        pipeline.take(in_one_partition(events))
        assert session.rows("SELECT c FROM t") == [(MOMENT + timedelta(hours=8),)]
        control = pipeline.ownership.control
        assert control.rows("SELECT NOW() > '2025-01-01', @@SESSION.time_zone") == [(1, "+00:00")]


@pytest.mark.parametrize("server", ["target", "mysql_target"])
def test_what_mariadb_says_in_other_words(server: str, request: pytest.FixtureRequest) -> None:
    """Rows get the values that they have upstream."""
    url = request.getfixturevalue(server)
    sql(url, "CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)", "INSERT INTO m.t VALUES (1)")
    added = "a TEXT NOT NULL DEFAULT 'x'", "b JSON DEFAULT '{}'", "c CHAR(9) DEFAULT concat('a', 'b')"
    text = f"ALTER TABLE t ADD {', ADD '.join(added)}, ADD d INT AS (id + 1) PERSISTENT"
    run(url, text, ddl=ddl_rules(source="mariadb"))
    assert sql(url, "SELECT * FROM m.t") == [(1, "x", "{}", "ab", 2)]


LOCAL_TIMES = [
    "ALTER TABLE t ADD COLUMN c DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "ALTER TABLE t ADD (n INT, c DATE DEFAULT (CURRENT_DATE))",
    "ALTER TABLE t ADD COLUMN c VARCHAR(30) DEFAULT (NOW())",
    "ALTER TABLE t ADD COLUMN c VARCHAR(30) DEFAULT CONCAT('x', NOW())",
    "ALTER TABLE t ADD COLUMN c TIMESTAMP NOT NULL DEFAULT '2023-11-15 01:02:03'",
    "ALTER TABLE t ADD COLUMN c TIMESTAMP NOT NULL DEFAULT 20231115010203",
    "ALTER TABLE t ADD COLUMN c DATE DEFAULT (DATE(AT))",
    "ALTER TABLE t ADD COLUMN c INT DEFAULT (UNIX_TIMESTAMP(day))",
    "ALTER TABLE t ADD COLUMN c TIMESTAMP NULL DEFAULT (day)",
    "ALTER TABLE t ADD COLUMN c TIMESTAMP NULL DEFAULT (UTC_TIMESTAMP())",
    "ALTER TABLE t MODIFY at DATETIME",
    "ALTER TABLE `t` CHANGE COLUMN `at` `c` VARCHAR(30)",
    "ALTER TABLE T CHANGE day c TIMESTAMP NULL",
    "ALTER TABLE t PARTITION BY RANGE (UNIX_TIMESTAMP(must)) (PARTITION p0 VALUES LESS THAN"
    " (UNIX_TIMESTAMP('2023-11-15 00:00:00')), PARTITION p1 VALUES LESS THAN MAXVALUE)",
]


@pytest.mark.parametrize("statement", LOCAL_TIMES)
def test_local_times_of_the_upstream(target: str, session: Session, statement: str) -> None:
    """A statement that means local times makes of rows, and of partitions, what it made of them upstream.  Where the
    target does not know the zone, it is held."""
    session.execute("CREATE DATABASE u COLLATE utf8mb4_bin")
    for schema in ("u", "m"):
        session.execute(f"USE {schema}")
        session.execute("CREATE TABLE t (at TIMESTAMP NULL, day DATETIME, must TIMESTAMP NOT NULL)")
        for at in ("2023-11-14 15:59:59", "2023-11-14 16:00:01", "2023-11-15 00:00:01"):
            session.execute(f"INSERT INTO t VALUES ('{at}', '{at}', '{at}')")
    with admin(target) as upstream:
        upstream.execute("SET time_zone = '+08:00', timestamp = 1700000000")
        upstream.execute("USE u")
        upstream.execute(statement.replace("TABLE T", "TABLE t"))
    events = in_one_partition([schema_change(TS, statement), boundary(TS + 1)])
    with pytest.raises(HeldError, match="in the zone of the upstream's session"):
        run_all(target, events, ddl=ddl_rules(source="mysql-8", timezone="Asia/Shanghai"))
    run_all(target, events, ddl=ddl_rules(source="mysql-8", timezone="+08:00"))
    bounds = "SELECT COUNT(*) FROM {}.t" + (" PARTITION (p0)" if "PARTITION" in statement else "")
    for query in ("SELECT * FROM {}.t", bounds):
        assert session.rows(query.format("m")) == session.rows(query.format("u"))


def test_local_times_whose_zone_nobody_has_told(target: str, session: Session) -> None:
    """They are taken as UTC, and the log says so."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (1)")
    with capture_logs() as said:
        rules = ddl_rules(source="mysql-8")
        run(target, "ALTER TABLE t ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP", ddl=rules)
        run(target, "ALTER TABLE t ADD COLUMN d DATETIME DEFAULT '2020-01-01'", ts=TS + 2, ddl=rules)
    assert session.rows("SELECT c FROM t") == [(MOMENT,)]
    warnings = [line for line in said if line["event"] == "local_times_in_utc"]
    assert [line["what"] for line in warnings] == ["the rows that are there get a local time in c"]


@pytest.mark.parametrize(
    "statement",
    [
        "CREATE TABLE u (a TIMESTAMP NOT NULL DEFAULT '2023-11-15 01:02:03')",
        "ALTER TABLE t MODIFY at TIMESTAMP NOT NULL DEFAULT '2023-11-15 01:02:03'",
        "ALTER TABLE t ALTER COLUMN at SET DEFAULT '2023-11-15 01:02:03'",
    ],
)
def test_local_times_that_are_defaults(target: str, session: Session, statement: str) -> None:
    """A moment as the default of rows that come later is the upstream's as well."""
    session.execute("CREATE TABLE t (at TIMESTAMP NULL)")
    with pytest.raises(HeldError, match="in the zone of the upstream's session"):
        run(target, statement, ddl=DdlRules(timezone="Asia/Shanghai"))
    run(target, statement, ddl=DdlRules(timezone="+08:00"))
    query = (
        "SELECT column_default FROM information_schema.columns WHERE table_schema = 'm' AND column_name IN ('a', 'at')"
    )
    assert "'2023-11-14 17:02:03'" in {row[0] for row in session.rows(query)}


GENERATED = [
    ("CREATE TABLE u (at TIMESTAMP NULL, c DATE AS (DATE(at)) STORED)", True),
    ("ALTER TABLE t ADD c VARCHAR(30) GENERATED ALWAYS AS (CONCAT(`at`, n)) STORED UNIQUE", True),
    ("ALTER TABLE t ADD c DATETIME AS (FROM_UNIXTIME(n)) STORED", True),
    ("ALTER TABLE t ADD c TIMESTAMP AS (day) STORED", True),
    ("ALTER TABLE t ADD c DATE AS (DATE(at)) VIRTUAL, ADD d DATE AS (DATE(at))", False),
    ("ALTER TABLE t ADD c INT AS (IF(at IS NULL, 1, ISNULL(at))) STORED, ADD d TIMESTAMP AS (at) STORED", False),
    ("ALTER TABLE t ADD c DATE AS (DATE(day)) STORED", False),
]


@pytest.mark.parametrize(("statement", "is_held"), GENERATED)
def test_generated_columns_that_keep_local_times(mysql_target: str, statement: str, is_held: bool) -> None:
    """What a generated column keeps of a TIMESTAMP depends on the session that writes the row, and the bridge's are in
    UTC: the operator says whether the upstream's are."""
    with admin(mysql_target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("USE m")
        session.execute("CREATE TABLE t (at TIMESTAMP NULL, day DATETIME, n INT)")
        with pytest.raises(HeldError, match="keeps local times") if is_held else nullcontext():
            run(mysql_target, statement, ddl=DdlRules(timezone="+08:00"))
        with capture_logs() as said:
            run(mysql_target, statement, ts=TS + 2)
        assert [line["event"] == "local_times_in_utc" for line in said if line["log_level"] == "warning"] == [
            True
        ] * is_held


@pytest.mark.parametrize("statement", LOCAL_TIMES[:-1])
def test_local_times_of_no_row(target: str, session: Session, statement: str) -> None:
    """Without rows there is no value that depends on the zone."""
    session.execute("CREATE TABLE t (at TIMESTAMP NULL, day DATETIME)")
    run(target, statement)
    assert outcome(session) == ("done", "ran")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD c TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00', ADD d TIMESTAMP NULL DEFAULT NULL",
        "ALTER TABLE t ADD c TIMESTAMP DEFAULT 0 COMMENT '2020-01-01', ADD d DATETIME DEFAULT '2020-01-01'",
        "ALTER TABLE t ADD c DATETIME NULL ON UPDATE CURRENT_TIMESTAMP, MODIFY day DATETIME(3), MODIFY at TIMESTAMP(3)",
        "ALTER TABLE t PARTITION BY RANGE (UNIX_TIMESTAMP(at)) (PARTITION p VALUES LESS THAN (1700000000))",
    ],
)
def test_moments_that_are_the_same_everywhere(target: str, session: Session, statement: str) -> None:
    """What means the same moment in every zone needs none."""
    session.execute("CREATE TABLE t (at TIMESTAMP NOT NULL, day DATETIME)")
    session.execute("INSERT INTO t VALUES ('2020-01-01', '2020-01-01')")
    run(target, statement)
    assert outcome(session) == ("done", "ran")


HASHED = {
    "KEY": "PARTITION BY KEY (id) PARTITIONS 3",
    "LINEAR KEY": "PARTITION BY LINEAR KEY (id) PARTITIONS 3",
    "LINEAR HASH": "PARTITION BY LINEAR HASH (id) PARTITIONS 3",
    "HASH": "PARTITION BY HASH (id) PARTITIONS 3",
    "RANGE": "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9), PARTITION p1 VALUES LESS THAN (99))",
}


@pytest.mark.parametrize("source", ["tidb", "mysql-8"])
@pytest.mark.parametrize("method", HASHED)
@pytest.mark.parametrize(
    "statement", ["ALTER TABLE P TRUNCATE PARTITION p0", "ALTER TABLE `m`.`p` EXCHANGE PARTITION p0 WITH TABLE m.x"]
)
def test_partitions_by_a_hash_of_the_server(
    target: str, session: Session, statement: str, method: str, source: str
) -> None:
    """TiDB puts other rows into a partition by KEY, and does not know LINEAR: a partition of its own is neither emptied
    nor exchanged in silence where the target's holds other rows."""
    session.execute("CREATE TABLE x (id INT PRIMARY KEY)")
    session.execute(f"CREATE TABLE p (id INT PRIMARY KEY) {HASHED[method]}")
    session.execute("INSERT INTO p VALUES (1), (2), (3), (4), (5)")
    events = in_one_partition([schema_change(TS, statement), boundary(TS + 1)])
    if source == "tidb" and method not in {"HASH", "RANGE"}:
        with pytest.raises(HeldError, match=f"by {method} the target has other rows"):
            run_all(target, events, ddl=DdlRules(source=source))
        assert len(session.rows("SELECT * FROM p")) == 5
        release(Target(target), ProgressTable("bridge"), str(TS), JournalState.APPROVED)
    run_all(target, events, ddl=DdlRules(source=source))
    assert len(session.rows("SELECT * FROM p")) < 5


def test_all_partitions_by_a_hash(target: str, session: Session) -> None:
    """All of them together hold the same rows everywhere."""
    session.execute(f"CREATE TABLE p (id INT PRIMARY KEY) {HASHED['KEY']}")
    session.execute("INSERT INTO p VALUES (1), (2)")
    run(target, "ALTER TABLE p TRUNCATE PARTITION ALL")
    assert session.rows("SELECT * FROM p") == []


MADE_UP = [
    ("CREATE TABLE t (v INT)", "ALTER TABLE t ADD COLUMN id INT AUTO_INCREMENT PRIMARY KEY"),
    ("CREATE TABLE t (v INT)", "ALTER TABLE `m`.`t` ADD (w INT, id SERIAL)"),
    ("CREATE TABLE t (v INT)", "ALTER TABLE t ADD w INT, ADD COLUMN u VARCHAR(36) DEFAULT (UUID())"),
    ("CREATE TABLE t (v INT)", "ALTER TABLE t ADD COLUMN u DOUBLE NOT NULL DEFAULT (1 + RAND())"),
    ("CREATE TABLE t (v INT)", "ALTER TABLE t ADD COLUMN u VARCHAR(99) DEFAULT CURRENT_USER"),
    ("CREATE TABLE t (v INT)", "ALTER TABLE t ADD COLUMN u INT DEFAULT NEXT VALUE FOR s"),
    ("CREATE TABLE T (v INT)", "ALTER TABLE t ADD COLUMN u INT DEFAULT (NEXTVAL(s))"),
]


@pytest.mark.parametrize(("there", "statement"), MADE_UP)
def test_values_that_a_server_makes_up(target: str, session: Session, there: str, statement: str) -> None:
    """A new column whose values each server makes up for the rows that are there is held, until the operator says that
    they will be the same."""
    name = there.split()[2]
    session.execute(there)
    session.execute(f"INSERT INTO {name} VALUES (2), (1)")
    session.execute("CREATE SEQUENCE s")
    follow = "CREATE TABLE afterwards (a INT)"
    with pytest.raises(HeldError, match="each server makes up its own values"):
        run(target, statement, follow)
    assert outcome(session)[0] == "held"
    ((identity,),) = session.rows("SELECT CONCAT(commit_ts, '-', LEFT(statement_hash, 8)) FROM _bridge.schema_changes")
    release(Target(target), ProgressTable("bridge"), identity, JournalState.APPROVED)
    run(target, statement, follow)
    assert session.rows("SHOW TABLES LIKE 'afterwards'")
    assert len(session.rows(f"SHOW COLUMNS FROM {name}")) > 1


@pytest.mark.parametrize(("there", "statement"), MADE_UP)
def test_values_that_a_server_makes_up_for_nobody(target: str, session: Session, there: str, statement: str) -> None:
    """Without rows there is nothing that the server could make up: the statement runs."""
    session.execute(there)
    session.execute("CREATE SEQUENCE s")
    run(target, statement)
    assert outcome(session) == ("done", "ran")


MOMENTS_OF_BINLOGS = [
    ("DATETIME DEFAULT CURRENT_TIMESTAMP", 0, False),
    ("DATETIME NOT NULL DEFAULT NOW() ON UPDATE NOW()", 0, False),
    ("TIMESTAMP(3) NULL ON UPDATE CURRENT_TIMESTAMP(3)", 137, False),
    ("INT, ADD COLUMN now INT", 137, False),
    ("TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)", 0, True),
    ("DATETIME DEFAULT CURRENT_TIMESTAMP", 137, True),
]


TEXTS = [
    "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET binary)",
    "CREATE TABLE u (id INT PRIMARY KEY, v TEXT) DEFAULT CHARSET = binary",
    "ALTER TABLE t ADD COLUMN v CHAR(4) CHARSET binary",
    "ALTER TABLE t CONVERT TO CHARACTER SET binary",
    "CREATE DATABASE n CHARACTER SET 'binary'",
]


@pytest.mark.parametrize("statement", TEXTS)
@pytest.mark.parametrize(
    ("place", "is_held"),
    [
        (place_in_binlog("up", "binlog.000001", 4, 1), True),
        (place_in_binlog("up", "binlog.000001", 4, 1, f"{UUID}:7"), True),
        (place_in_gtid_set(f"{UUID}:1-7"), False),
        (place_of_sending(1_700_000_000_000, 7), False),
        (None, False),
    ],
)
def test_texts_of_the_character_set_binary(
    target: str, session: Session, statement: str, place: str | None, is_held: bool
) -> None:
    """Debezium's connector sends them as texts, which without a schema could be taken for the Base64 of other bytes;
    Canal and TiCDC send their bytes."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    change = schema_change(TS, statement)._replace(by_time=place is not None, place=place)
    events = in_one_partition([change, *([] if place else [boundary(TS + 1)])])
    with pytest.raises(HeldError, match="make them BINARY") if is_held else nullcontext():
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    if is_held:
        decide(target, session, JournalState.APPROVED)
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    assert outcome(session)[0] == "done"


RENAMES = {
    "RENAME COLUMN a TO b, RENAME COLUMN b TO a": True,
    "RENAME COLUMN b TO a, RENAME COLUMN a TO b": True,
    "CHANGE B a INT, CHANGE a `b` INT": True,
    "CHANGE a b INT AFTER c, CHANGE b a INT": True,
    "CHANGE a b INT, CHANGE b d INT": True,
    "CHANGE a b INT, DROP COLUMN b": True,
    "RENAME COLUMN b TO d, RENAME COLUMN a TO b, RENAME COLUMN c TO a": False,
    "DROP COLUMN b, CHANGE a b INT, ADD COLUMN a INT": False,
    "DROP COLUMN a, ADD COLUMN a INT AFTER b": False,
    "ADD COLUMN (d INT, e INT), RENAME COLUMN a TO f": False,
}
"""Actions of an ALTER TABLE, and whether one takes a name that a later one frees."""


@pytest.mark.parametrize("actions", RENAMES)
@pytest.mark.parametrize("place", [place_in_gtid_set(f"{UUID}:1-7"), place_of_sending(1_700_000_000_000, 7), None])
def test_columns_that_exchange_names_of_canal(target: str, session: Session, actions: str, place: str | None) -> None:
    """Canal 1.1.7 renames one column after the other among those that it knows, and finds the last of two that have
    one name by then: behind `RENAME COLUMN b TO a, RENAME COLUMN a TO b` its rows had each other's values."""
    session.execute("CREATE TABLE t (a INT, b INT, c INT)")
    change = schema_change(TS, f"ALTER TABLE t {actions}")._replace(by_time=place is not None, place=place)
    events = in_one_partition([change, *([] if place else [boundary(TS + 1)])])
    is_held = RENAMES[actions] and place is not None
    with pytest.raises(HeldError, match="Canal renames one column") if is_held else nullcontext():
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    if is_held:
        decide(target, session, JournalState.APPROVED)
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    assert outcome(session)[0] == "done"


@pytest.mark.parametrize("actions", ["RENAME u, DROP b", "DROP COLUMN b, RENAME TO u", "RENAME TO u", "DROP COLUMN b"])
@pytest.mark.parametrize("place", [place_in_gtid_set(f"{UUID}:1-7"), None])
def test_a_table_that_canal_forgets(target: str, session: Session, actions: str, place: str | None) -> None:
    """Canal 1.1.7 knows no table behind `ALTER TABLE k RENAME kb, DROP a`, and asks the server at its next row: one
    that was behind gave rows before a MODIFY ... FIRST the values of each other's columns."""
    session.execute("CREATE TABLE t (a INT, b INT)")
    change = schema_change(TS, f"ALTER TABLE t {actions}")._replace(by_time=place is not None, place=place)
    events = in_one_partition([change, *([] if place else [boundary(TS + 1)])])
    is_held = "," in actions and place is not None
    with pytest.raises(HeldError, match="Canal forgets a table") if is_held else nullcontext():
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    if is_held:
        decide(target, session, JournalState.APPROVED)
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    assert outcome(session)[0] == "done"


AFTERS: Final = {
    "ADD x INT AFTER y, CHANGE a y INT": True,
    "MODIFY c INT AFTER `Y`, ADD x INT, RENAME COLUMN a TO y": True,
    "CHANGE a y INT, ADD x INT AFTER y": False,
    "ADD x INT AFTER b, CHANGE a y INT AFTER x": False,
}
"""Actions of an ALTER TABLE, and whether one puts a column AFTER a name that a later one gives."""


@pytest.mark.parametrize("actions", AFTERS)
@pytest.mark.parametrize(
    "place", [place_in_binlog("up", "binlog.000001", 4, 1), place_in_gtid_set(f"{UUID}:1-7"), None]
)
def test_a_column_behind_a_later_name(target: str, session: Session, actions: str, place: str | None) -> None:
    """The parsers of Canal 1.1.7 and of Debezium 3.6.1 and 3.5.0 put x last, or first, where MySQL and MariaDB put it
    behind the renamed column."""
    session.execute("CREATE TABLE t (a INT, b INT, c INT)")
    change = schema_change(TS, f"ALTER TABLE t {actions}")._replace(by_time=place is not None, place=place)
    events = in_one_partition([change, *([] if place else [boundary(TS + 1)])])
    is_held = AFTERS[actions] and place is not None
    with pytest.raises(HeldError, match="AFTER a name that a later action gives") if is_held else nullcontext():
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    if is_held:
        decide(target, session, JournalState.APPROVED)
        run_all(target, events, ddl=ddl_rules(source="mysql-8"))
    assert outcome(session)[0] == "done"


THERE: Final = {
    "ADD COLUMN IF NOT EXISTS n INT": False,
    "ADD IF NOT EXISTS n INTEGER(5) DEFAULT 3 COMMENT 'n', ADD COLUMN IF NOT EXISTS new INT FIRST": False,
    "ADD COLUMN IF NOT EXISTS (j JSON, b BOOLEAN NOT NULL)": False,
    "ADD COLUMN IF NOT EXISTS v VARCHAR(9) CHARSET latin1, ADD INDEX IF NOT EXISTS n (n)": False,
    "DROP COLUMN IF EXISTS n, ADD COLUMN n VARCHAR(9) FIRST": False,
    "ADD COLUMN IF NOT EXISTS n INT FIRST": True,
    "ADD INDEX (v), ADD COLUMN IF NOT EXISTS `N` INT AFTER j": True,
    "ADD COLUMN IF NOT EXISTS n BIGINT": True,
    "ADD COLUMN IF NOT EXISTS n INT UNSIGNED": True,
    "ADD COLUMN IF NOT EXISTS n INT DEFAULT 0 NOT NULL": True,
    "ADD COLUMN IF NOT EXISTS (new INT, v VARCHAR(9))": True,
}
"""Actions of an ALTER TABLE, and whether one names a column that is there, with another place or definition."""


@pytest.mark.parametrize("actions", THERE)
@pytest.mark.parametrize("place", [place_in_binlog("up", "binlog.000001", 4, 1), place_in_gtid_set(f"{UUID}:1-7")])
def test_columns_that_are_there_of_debezium(target: str, session: Session, actions: str, place: str) -> None:
    """Debezium 3.5.0 gives a column that IF NOT EXISTS names the new definition and place, though it was there: its
    rows then had the values of each other's columns, or NULL."""
    columns = "id INT PRIMARY KEY, n INT, j JSON, b BOOL NOT NULL, v VARCHAR(9) CHARACTER SET latin1"
    session.execute(f"CREATE TABLE t ({columns}) CHARSET utf8mb4")
    change = schema_change(TS, f"ALTER TABLE t {actions}")._replace(by_time=True, place=place)
    is_held = THERE[actions] and not place.startswith("gtid")
    with pytest.raises(HeldError, match="was there upstream") if is_held else nullcontext():
        run_all(target, in_one_partition([change]), ddl=ddl_rules(source="mariadb"))
    if is_held:
        decide(target, session, JournalState.APPROVED)
        run_all(target, in_one_partition([change]), ddl=ddl_rules(source="mariadb"))
    assert outcome(session)[0] == "done"


@pytest.mark.parametrize(
    ("actions", "is_held"),
    [
        ("ADD COLUMN x INT AFTER `a``b`", True),
        ("ADD COLUMN `x``y` INT /* AFTER */", False),
        ("ADD COLUMN x INT AFTER v", False),
    ],
)
def test_places_that_debezium_does_not_find(target: str, session: Session, actions: str, is_held: bool) -> None:
    """Debezium 3.5.0 puts a column first that stands behind one whose name has a backquote: rows then had the values of
    each other's columns."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT, `a``b` INT)")
    change = schema_change(TS, f"ALTER TABLE t {actions}")._replace(
        by_time=True, place=place_in_binlog("up", "binlog.000001", 4, 1)
    )
    with pytest.raises(HeldError, match="backquote") if is_held else nullcontext():
        run_all(target, in_one_partition([change]), ddl=ddl_rules(source="mariadb"))
    assert outcome(session)[0] == ("held" if is_held else "done")


def test_defaults_of_a_server_that_is_set_up_otherwise(target: str, session: Session) -> None:
    """A database, a table and a column that name no collation have the upstream's, so that 'a' and 'A' stay two."""
    defaults = {"server": "utf8mb4_bin", "latin1": "latin1_bin"}
    statements = [
        *("CREATE DATABASE n", "CREATE TABLE n.t (k VARCHAR(9) PRIMARY KEY)", "CREATE TABLE u (k VARCHAR(9))"),
        "ALTER TABLE n.t ADD COLUMN v VARCHAR(9) CHARACTER SET latin1",
    ]
    changes = [schema_change(TS + at, text) for at, text in enumerate(statements)]
    rules = ddl_rules(source="mariadb", defaults=defaults)
    with capture_logs() as said:
        run_all(target, in_one_partition([*changes, boundary(TS + 9)]), ddl=rules)
        run_all(target, in_one_partition([boundary(TS + 20)]), ddl=rules)
    found = session.rows("SELECT collation_name FROM information_schema.columns WHERE table_schema IN ('m', 'n')")
    assert sorted(found) == [("latin1_bin",), ("utf8mb4_bin",), ("utf8mb4_bin",)]
    assert "collation_assumed" not in {line["event"] for line in said}


@pytest.mark.parametrize(("statement", "times"), [("CREATE DATABASE n", 1), ("CREATE DATABASE n CHARSET ascii", 0)])
def test_a_default_that_nobody_has_told_is_named_once(target: str, statement: str, times: int) -> None:
    """The server may be set up otherwise than it is built."""
    changes = [schema_change(TS, statement), schema_change(TS + 1, statement.replace(" n", " o"))]
    with capture_logs() as said:
        run_all(target, in_one_partition([*changes, boundary(TS + 9)]), ddl=ddl_rules(source="mariadb"))
    assert [line["event"] for line in said if line["log_level"] == "warning"] == ["collation_assumed"] * times


VERSIONS = "s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END"


@pytest.mark.parametrize(
    ("statement", "is_held"),
    [
        (f"CREATE TABLE u (id INT, {VERSIONS}, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING", True),
        ("CREATE TABLE u (id INT PRIMARY KEY) WITH SYSTEM VERSIONING", False),
        ("CREATE TABLE u (id INT PRIMARY KEY, row INT, start DATE, e DATE, PERIOD FOR p (start, e))", False),
    ],
)
def test_versions_of_rows_that_messages_have(target: str, session: Session, statement: str, is_held: bool) -> None:
    """Debezium 3.5.0 sends a deleted row as an update of its end, and the former version of a row as a new one: rows
    stayed that were deleted, as the target makes the columns of versions itself."""
    change = schema_change(TS, statement)._replace(by_time=True, place=place_in_binlog("up", "binlog.000001", 4, 1))
    with pytest.raises(HeldError, match="former versions") if is_held else nullcontext():
        run_all(target, in_one_partition([change]), ddl=ddl_rules(source="mariadb"))
    assert outcome(session)[0] == ("held" if is_held else "done")


@pytest.mark.parametrize(("column", "ms", "is_held"), MOMENTS_OF_BINLOGS)
def test_the_moment_of_a_statement_of_mysql(target: str, session: Session, column: str, ms: int, is_held: bool) -> None:
    """A binlog tells the second in which a statement began; Debezium's connector for MySQL 8 tells when it had ended,
    which may be minutes later: rows that are there would get another time than upstream."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (1)")
    change = schema_change(TS + ms_tso(ms), f"ALTER TABLE t ADD COLUMN c {column}")
    with pytest.raises(HeldError, match=r"made up|makes up") if is_held else nullcontext():
        run_all(target, in_one_partition([change, boundary(change.commit_ts + 1)]), ddl=ddl_rules(source="mysql-8"))


IMPLICIT = {
    "ADD c TIMESTAMP": True,
    "ADD v INT, ADD c TIMESTAMP(3) NOT NULL": True,
    "ADD c TIMESTAMP ON UPDATE CURRENT_TIMESTAMP": True,
    "ADD (v INT, c TIMESTAMP)": True,
    "ADD COLUMN IF NOT EXISTS c TIMESTAMP": True,
    "MODIFY COLUMN IF EXISTS t TIMESTAMP": True,
    "MODIFY t TIMESTAMP": True,
    "CHANGE t c TIMESTAMP DEFAULT '2020-01-01'": True,
    "ADD c TIMESTAMP NULL": False,
    "ADD c TIMESTAMP NOT NULL DEFAULT CURRENT_TIMESTAMP": False,
    "ADD c TIMESTAMP AS (t)": False,
    "ADD `TIMESTAMP` DATETIME": False,
    "MODIFY t TIMESTAMP NULL": False,
    "MODIFY id TIMESTAMP": False,
}
"""Actions of ALTER TABLE, and whether they are held."""


@pytest.mark.parametrize("source", ["mysql-5.7", "mariadb"])
@pytest.mark.parametrize("action", IMPLICIT)
def test_a_timestamp_that_does_not_say_null(target: str, session: Session, action: str, source: str) -> None:
    """MySQL 5.7 and older MariaDB make it NOT NULL unless explicit_defaults_for_timestamp is on, and give the rows that
    are there the moment, or a zero date, where the target has NULL."""
    session.execute("CREATE TABLE t (id DATETIME PRIMARY KEY, t DATETIME)")
    session.execute("INSERT INTO t VALUES ('2020-01-01', NULL)")
    events = in_one_partition([schema_change(TS, f"ALTER TABLE t {action}"), boundary(TS + 1)])
    with pytest.raises(HeldError, match="explicit_defaults") if IMPLICIT[action] else nullcontext():
        run_all(target, events, ddl=ddl_rules(source=source))
    if IMPLICIT[action]:
        decide(target, session, JournalState.APPROVED)
        run_all(target, events, ddl=ddl_rules(source=source))


NUMBERED = ["MODIFY v INT AUTO_INCREMENT", "CHANGE COLUMN v w BIGINT UNSIGNED NOT NULL AUTO_INCREMENT COMMENT 'x'"]


@pytest.mark.parametrize(("value", "is_held"), [("0", True), ("NULL", True), ("7", False)])
@pytest.mark.parametrize("change", NUMBERED)
def test_a_column_that_begins_to_count(target: str, session: Session, change: str, value: str, is_held: bool) -> None:
    """An upstream numbers the rows that hold 0 or NULL, which the bridge's sessions do with NULL only."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT NULL, UNIQUE (v))")
    session.execute(f"INSERT INTO t VALUES (1, {value})")
    with pytest.raises(HeldError, match="AUTO_INCREMENT") if is_held else nullcontext():
        run(target, f"ALTER TABLE t {change}")


def test_a_column_that_counts_already(target: str, session: Session) -> None:
    """Its rows with 0 keep it on every server."""
    session.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    session.execute("INSERT INTO t VALUES (0, 1)")
    run(target, "ALTER TABLE t MODIFY id BIGINT AUTO_INCREMENT")
    assert session.rows("SELECT id, v FROM t") == [(0, 1)]


@pytest.mark.parametrize("server", ["target", "old_target", "mysql_target"])
def test_a_new_json_column_that_takes_no_null(request: pytest.FixtureRequest, server: str) -> None:
    """The rows that are there get the JSON null, as in TiDB and MySQL."""
    url = request.getfixturevalue(server)
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        session.execute("INSERT INTO m.t VALUES (1)")
        run(url, "ALTER TABLE t ADD COLUMN (j JSON NOT NULL COMMENT 'DEFAULT')")
        assert session.rows("SELECT j FROM m.t") == [("null",)]


def test_a_new_json_column_whose_rows_are_no_json(mysql_target: str) -> None:
    """MariaDB gives them an empty text, which MySQL cannot have: the operator is asked, where there are rows."""
    url, rules = mysql_target, ddl_rules(source="mariadb")
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        events = [schema_change(TS, "ALTER TABLE t ADD COLUMN (j JSON NOT NULL COMMENT 'DEFAULT')"), boundary(TS + 1)]
        run_all(url, in_one_partition(events), ddl=rules)
        session.execute("INSERT INTO m.t VALUES (1, '1')")
        more = [schema_change(TS + 2, "ALTER TABLE t ADD COLUMN k JSON NOT NULL"), boundary(TS + 3)]
        with pytest.raises(HeldError, match="gives the rows that are there other values of k"):
            run_all(url, in_one_partition([boundary(TS), boundary(TS + 1), *more]), ddl=rules)


TIDB, MYSQL, MARIADB = "tidb", "mysql-8", "mariadb"


OTHERS, NONE = {TIDB, MYSQL}, set[str]()
CONVERTED = [
    *[
        (before, value, f"MODIFY v {after}", OTHERS)
        for before, value, after in (
            ("FLOAT", "16777216", "VARCHAR(40)"),
            ("YEAR", "0", "CHAR(4)"),
            ("INT(6) UNSIGNED ZEROFILL", "7", "VARBINARY(9)"),
            ("DATETIME(6)", "'2024-02-29 23:59:59.6'", "DATE"),
            *(("TIME(3)", "'23:59:59.6'", "BIGINT"), ("FLOAT", "0.1", "JSON"), ("DOUBLE", "2.675", "DOUBLE(9, 2)")),
            ("BIT(9)", "65", "TEXT"),
            ("VARCHAR(9) CHARACTER SET latin1", "'\u00e4'", "VARBINARY(9)"),
            ("TEXT CHARACTER SET latin1", "'\u00e4'", "VARCHAR(9) CHARACTER SET binary"),
            *(("JSON", "'{}'", "TEXT"), ("TIME", "'10:11:12'", "DATETIME"), ("TIME(3)", "'10:11:12.5'", "BIT(40)")),
            *(("DOUBLE", "1.5", "YEAR"), ("FLOAT", "1e20", "BIGINT"), ("DATE", "'2024-00-10'", "TIME")),
            ("DECIMAL(20,6)", "12345678901234.123456", "JSON"),
            *(("INT", "3", "ENUM('a', '3', 'c')"), ("BIT(64)", "1", "DOUBLE"), ("INT", "101112", "TIME")),
            ("DECIMAL(9,1)", "1.5", "ENUM('a', 'b')"),
            ("VARCHAR(9) CHARACTER SET latin1", "'\u00e4'", "LONG VARBINARY"),
            ("VARCHAR(9) CHARACTER SET latin1", "'\u00e4'", "CHAR(9) BYTE"),
            ("DOUBLE", "2.675", "FLOAT8(9, 2)"),
            ("VARCHAR(40)", "'15'", "INT"),
            ("VARCHAR(40)", "'2024-02-29 10:11:12'", "DATETIME"),
        )
    ],
    ("DOUBLE UNSIGNED", "1e20", "CHANGE COLUMN v w TEXT", OTHERS),
    ("TIME(3)", "'-00:00:00.5'", "MODIFY v TIME", {TIDB}),
    ("DOUBLE(9,2)", "2.67", "MODIFY v DOUBLE (9, 2) NOT NULL", NONE),
    ("LONGTEXT", "'{}'", "MODIFY v TEXT", NONE),
    ("DATETIME(6)", "'2024-02-29 23:59:59.6'", "MODIFY v DATETIME", NONE),
    ("DATE", "'2024-02-10'", "MODIFY v DATETIME", NONE),
    ("FLOAT", "16777216", "MODIFY v DOUBLE", NONE),
    ("FLOAT", "NULL", "MODIFY v TEXT", NONE),
    ("INT", "7", "MODIFY v BIGINT UNSIGNED", NONE),
    ("INT", "7", "MODIFY v INT8", NONE),
    ("SMALLINT", "7", "MODIFY v MIDDLEINT NOT NULL", NONE),
    ("FLOAT", "16777216", "MODIFY v FLOAT8", NONE),
    ("INT COMMENT 'no zerofill'", "7", "MODIFY v VARCHAR(9)", NONE),
    ("DECIMAL(9,2)", "7", "MODIFY v VARCHAR(9)", NONE),
    ("ENUM('a', 'b')", "'b'", "MODIFY v VARCHAR(9)", NONE),
    ("YEAR", "2024", "MODIFY v INT", NONE),
    ("FLOAT", "NULL", "ALTER v SET DEFAULT 5", NONE),
]
"""A column, its value, what it becomes, and the sources with which the operator is asked on MariaDB."""


@pytest.mark.parametrize(("before", "value", "statement", "held"), CONVERTED)
def test_values_that_servers_convert_otherwise(
    target: str, before: str, value: str, statement: str, held: set[str]
) -> None:
    """Where the upstream's server may make other values of them, the operator is asked; not where all servers make the
    same, or where no row has a value."""
    for source, rows in [*((source, 1) for source in (TIDB, MYSQL, MARIADB)), (TIDB, 0)]:
        with admin(target) as session:
            session.execute("CREATE DATABASE m")
            session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {before})")
            session.execute(f"INSERT INTO m.t SELECT 1, {value} FROM DUAL WHERE {rows}")
            events = in_one_partition([schema_change(TS, f"ALTER TABLE t {statement}"), boundary(TS + 1)])
            is_held = rows and source in held
            with pytest.raises(HeldError, match="make other values of") if is_held else nullcontext():
                run_all(target, events, ddl=ddl_rules(source=source))
            drop_all(session)


SHORTENED = [
    ("DATETIME(6)", "'2024-02-29 23:59:59.6'", "DATETIME", True),
    ("DATETIME(6)", "'2024-02-29 23:59:59.123'", "TIMESTAMP(3) NULL", False),
    ("TIMESTAMP(6) NULL", "'2024-02-29 23:59:59.1235'", "DATETIME(3)", True),
    ("TIME(3)", "'10:11:12.5'", "TIME", True),
    ("TIME(3)", "'10:11:12.5'", "TIME(6)", False),
]
"""What a column is, holds and becomes, and whether a server that cannot cut fractions makes another value of it."""


def convert(url: str, source: str, before: str, value: str, after: str, *, is_held: bool) -> None:
    """Has a column become another one, where the upstream made another value of what it holds, or the same."""
    with admin(url) as session:
        drop_all(session)
        session.execute("CREATE DATABASE m")
        session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {before})")
        session.execute(f"INSERT INTO m.t VALUES (1, {value})")
        events = in_one_partition([schema_change(TS, f"ALTER TABLE t MODIFY v {after}"), boundary(TS + 1)])
        with pytest.raises(HeldError, match="make other values of v") if is_held else nullcontext():
            run_all(url, events, ddl=ddl_rules(source=source))


def convert_shortened(url: str) -> None:
    """MariaDB cuts fractions of seconds, and this server rounds them."""
    for before, value, after, is_held in SHORTENED:
        convert(url, MARIADB, before, value, after, is_held=is_held)
    convert(url, MYSQL, *SHORTENED[0][:3], is_held=False)


def test_fractions_that_no_mode_cuts(old_mysql_target: str) -> None:
    """MySQL 5.7 has no TIME_TRUNCATE_FRACTIONAL."""
    convert_shortened(old_mysql_target)


WITHOUT_STRICT = [
    ("VARCHAR(9)", "'1.5'", "INT", 2),
    ("JSON", "'\"5\"'", "DECIMAL(9)", 5),
    ("CHAR(30)", "'2024-02-29T10:11:12'", "DATETIME", datetime(2024, 2, 29, 10, 11, 12)),
]


@pytest.mark.parametrize(("before", "value", "after", "made"), WITHOUT_STRICT)
def test_values_of_an_upstream_that_is_not_strict(
    mysql_target: str, before: str, value: str, after: str, made: object
) -> None:
    """MariaDB takes less of them than MySQL where its mode is not strict, which no message tells."""
    with admin(mysql_target) as session:
        session.execute("CREATE DATABASE m")
        session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {before})")
        session.execute(f"INSERT INTO m.t VALUES (1, {value})")
        events = in_one_partition([schema_change(TS, f"ALTER TABLE t MODIFY v {after}"), boundary(TS + 1)])
        with pytest.raises(HeldError, match="make other values of"):
            run_all(mysql_target, events, ddl=ddl_rules(source=MARIADB))
        drop_all(session)
        session.execute("CREATE DATABASE m")
        session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {before})")
        session.execute(f"INSERT INTO m.t VALUES (1, {value})")
        run_all(mysql_target, events, ddl=ddl_rules(source=MYSQL))
        assert session.value("SELECT v FROM m.t") == made


BY_MODE = [
    ("ALTER TABLE t ADD v VARCHAR(9) DEFAULT ('7' || 8)", True),
    ("ALTER TABLE t ADD v VARCHAR(9) AS (CONCAT(\"n\", 'x')) STORED", True),
    ('CREATE TABLE u (a INT, b VARCHAR(9) AS (concat("a", 1)))', True),
    ('CREATE TABLE u (a INT, CHECK (a <> "a"))', True),
    ("CREATE VIEW u AS SELECT 1 || n AS x FROM t", True),
    ('ALTER TABLE t ADD v VARCHAR(9) AS (CONCAT(n, "x||y")) STORED', False),
    ('ALTER TABLE t ADD v ENUM("n", \'x\') DEFAULT "n"', False),
    ('ALTER TABLE t ADD v INT AS (n | 1) STORED COMMENT "n"', False),
    (r"ALTER TABLE t ADD v VARCHAR(9) NOT NULL DEFAULT 'a\n'", True),
    (r"ALTER TABLE t MODIFY n ENUM('x', 'y\\')", True),
    (r"CREATE TABLE u (a INT, b SET('\'', 'x'))", True),
    (r"CREATE TABLE u (a VARCHAR(9) DEFAULT 'a\n')", True),
    (r"CREATE TABLE u (comment VARCHAR(9) CHECK (comment = '\r'))", True),
    (r"ALTER TABLE t ADD v INT AS (n REGEXP '\\d') STORED", True),
    (r"ALTER TABLE t ADD v VARCHAR(9), ALTER v SET DEFAULT 'a\n'", True),
    (r"CREATE TABLE u (a VARCHAR(9)) PARTITION BY LIST COLUMNS (a) (PARTITION p VALUES IN ('\n'))", True),
    (r"CREATE VIEW u AS SELECT id AS comment FROM t HAVING comment = '\\'", True),
    (r"CREATE TABLE u (a INT COMMENT 'it\'s', KEY (a) COMMENT '\\') COMMENT = '\n'", False),
    (r"ALTER TABLE t ADD v INT COMMENT 'it\'s', COMMENT = '\\'", False),
]


@pytest.mark.parametrize(("statement", "is_held"), BY_MODE)
def test_expressions_that_mean_something_by_the_mode(
    target: str, session: Session, statement: str, is_held: bool
) -> None:
    """What ||, double quotes and backslashes mean depends on the upstream's session: the operator is asked, and may say
    that they mean what they do by default."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    session.execute("INSERT INTO t VALUES (1, 2)")
    with pytest.raises(HeldError, match="by the sql_mode of the upstream's session") if is_held else nullcontext():
        run(target, statement, ddl=ddl_rules(source=MYSQL))
    if is_held:
        decide(target, session, JournalState.APPROVED)
        run(target, statement, ddl=ddl_rules(source=MYSQL))
    assert outcome(session) == ("done", "ran")


def test_a_backslash_that_tidb_sends(target: str, session: Session) -> None:
    """TiCDC's statements have been read by TiDB already."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    run(target, r"ALTER TABLE t ADD v ENUM('a\\b') DEFAULT 'a\\b'", ddl=ddl_rules(source=TIDB))
    assert outcome(session) == ("done", "ran")


def test_a_backslash_that_a_snapshot_shows(target: str, session: Session) -> None:
    """SHOW CREATE TABLE doubles it, whatever the sql_mode of the session that reads, and of the one that made it."""
    made = schema_change(TS, r"CREATE TABLE t (v ENUM('a\\b') DEFAULT 'a\\b')")._replace(by_time=True)
    of_log, of_snapshot = (made._replace(place=p) for p in (place_in_binlog("up", "b.000001", 4, 1), SNAPSHOT_PLACE))
    with pytest.raises(HeldError, match="an escape or a backslash"):
        run_all(target, in_one_partition([of_log]), ddl=ddl_rules(source=MARIADB))
    session.execute("DROP DATABASE _bridge")
    run_all(target, in_one_partition([of_snapshot]), ddl=ddl_rules(source=MARIADB))
    assert session.rows("SHOW COLUMNS FROM t")[0][:5] == ("v", r"enum('a\\b')", "YES", "", r"a\b")


def test_a_table_that_a_second_snapshot_shows_otherwise(target: str, session: Session) -> None:
    """The message and the journal say that it may be a second snapshot; of a CREATE TABLE of the log they do not."""
    first, other = (
        schema_change(TS + n, f"CREATE TABLE t (id INT{key})")._replace(by_time=True, place=SNAPSHOT_PLACE)
        for n, key in enumerate(("", ", KEY (id)"))
    )
    of_log = other._replace(place=place_in_binlog("up", "b.000001", 4, 1))
    for second, is_told in ((other, True), (of_log, False)):
        session.execute("DROP DATABASE IF EXISTS _bridge")
        session.execute("DROP TABLE IF EXISTS t")
        with pytest.raises(SchemaChangeError, match="already exists") as refused:
            run_all(target, in_one_partition([first, second]), ddl=ddl_rules(source=MYSQL))
        told = (
            str(refused.value),
            str(session.value("SELECT outcome FROM _bridge.schema_changes WHERE state = 'refused'")),
        )
        assert ["of an earlier snapshot" in words for words in told] == [is_told, is_told]


@pytest.mark.parametrize("server", ["target", "old_target", "mysql_target", "old_mysql_target"])
def test_servers_show_backslashes_alike_in_every_mode(request: pytest.FixtureRequest, server: str) -> None:
    """In defaults, members, expressions, partitions and comments."""
    statement = r"""CREATE TABLE t (v VARCHAR(9) DEFAULT 'a\\b' COMMENT '\\', e ENUM('x\\y'), s SET('\\') DEFAULT '\\',
        g VARCHAR(9) AS (CONCAT(v, '\\')) STORED) PARTITION BY LIST COLUMNS (v) (PARTITION p VALUES IN ('c\\d'))"""
    shown = set()
    with admin(request.getfixturevalue(server)) as session:
        for made_in in ("", "NO_BACKSLASH_ESCAPES"):
            drop_all(session)
            session.execute("CREATE DATABASE m")
            session.execute("USE m")
            session.execute(f"SET sql_mode = '{made_in}'")
            session.execute(statement.replace(r"\\", "\\") if made_in else statement)
            for read_in in ("", "NO_BACKSLASH_ESCAPES"):
                session.execute(f"SET sql_mode = '{read_in}'")
                shown.add(session.rows("SHOW CREATE TABLE t")[0][1])
        session.execute("SET sql_mode = ''")
    [text] = shown
    assert text.count(r"\\") * 2 == text.count("\\") == 2 * 7


NEW = [
    ("YEAR DEFAULT 0", None, 0),
    ("YEAR(4) NOT NULL DEFAULT FALSE", None, 0),
    ("YEAR DEFAULT '0' COMMENT 'DEFAULT 0'", 2000, 2000),
    ("DOUBLE(9,2) DEFAULT 2.675", None, 2.67),
    ("VARBINARY(9) DEFAULT 0x00E4", None, b"\0\xe4"),
    ("BINARY(1) DEFAULT b'11100100'", None, b"\xe4"),
    ("VARBINARY(9) DEFAULT 0xE441", None, b"\xe4A"),
    ("VARBINARY(9) DEFAULT 0x0041", b"\0A", b"\0A"),
    ("INT DEFAULT 0xE4", 228, 228),
    ("DATE DEFAULT '2024-02-29 23:59:59.9'", None, None),
]
"""A new column, and what the rows that are there have of it in TiDB and in MySQL; None where the target makes another
value of it."""


@pytest.mark.parametrize(("column", "of_tidb", "of_mysql"), NEW)
@pytest.mark.parametrize("source", [TIDB, MYSQL])
def test_a_default_that_servers_take_otherwise(
    target: str, session: Session, source: str, column: str, of_tidb: object, of_mysql: object
) -> None:
    """The rows that are there get the upstream's value, or the operator is asked."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (1)")
    events = in_one_partition([schema_change(TS, f"ALTER TABLE t ADD COLUMN v {column}"), boundary(TS + 1)])
    expected = of_tidb if source == TIDB else of_mysql
    if expected is None:
        with pytest.raises(HeldError, match="gives the rows that are there other values"):
            run_all(target, events, ddl=ddl_rules(source=source))
    else:
        run_all(target, events, ddl=ddl_rules(source=source))
        assert session.value("SELECT v FROM t") == expected
