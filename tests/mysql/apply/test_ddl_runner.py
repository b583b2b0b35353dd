"""Schema changes on a real target: what counts as done, what stops, and how the operator goes on."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import nullcontext
from datetime import UTC, datetime, timedelta

import pytest
from structlog.testing import capture_logs

from bridge.commands.ddl import release
from bridge.ddl.policy import DdlRules, ddl_rules
from bridge.ddl.rewrite import Rewritten, rewrite
from bridge.ddl.rule import Site
from bridge.ddl.server_features import Feature, named_capabilities
from bridge.errors import HeldError, SchemaChangeError
from bridge.model import SchemaChange
from bridge.mysql.apply.ddl_runner import COPIES_IN_A_PACKET
from bridge.mysql.apply.rewrite_context import OnTarget
from bridge.mysql.connection import Session, Target
from bridge.mysql.probe import probe
from bridge.mysql.state import ddl_journal
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import ProgressTable
from bridge.tso import ms_tso
from tests.support.command import bridge
from tests.support.pipelines import admin, drop_all, journal, opened, run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change

TS = ms_tso(1_700_000_000_000)
MOMENT = datetime.fromtimestamp(1_700_000_000, UTC).replace(tzinfo=None)


class Died(Exception):  # noqa: N818  # the end of a process, not an error
    """The process is gone."""


@pytest.fixture
def session(target: str) -> Iterator[Session]:
    with admin(target) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute("USE m")
        yield session


def run(url: str, *statements: str, ts: int = TS) -> None:
    """A pipeline that comes to these statements, all of one commit_ts, and to its end."""
    run_all(url, in_one_partition([*(schema_change(ts, text) for text in statements), boundary(ts + 1)]))


def outcome(session: Session) -> tuple[str, str]:
    ((state, words),) = session.rows("SELECT state, outcome FROM _bridge.schema_changes")
    return str(state), str(words)


FRACTIONS = {
    "DATETIME(6)": ("'2024-02-28 23:59:59.600000'", "DATETIME(0)", "2024-02-29 00:00:00", "2024-02-28 23:59:59"),
    "TIMESTAMP(6)": (
        "'2024-02-28 23:59:59.678951'",
        "TIMESTAMP(4)",
        "2024-02-28 23:59:59.6790",
        "2024-02-28 23:59:59.6789",
    ),
    "TIME(3)": ("'-00:00:00.600'", "TIME", "-00:00:01", "00:00:00"),
    "VARCHAR(30)": ("'2024-02-28 10:11:12.6'", "DATETIME", "2024-02-28 10:11:13", "2024-02-28 10:11:12"),
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


THERE_ALREADY = [
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
    ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY)", "CREATE TABLE t (id INT PRIMARY KEY, extra INT)"),
    (
        "CREATE TABLE t (id INT PRIMARY KEY) COLLATE utf8mb4_bin",
        "CREATE TABLE t (id INT PRIMARY KEY) COLLATE utf8mb4_bin",
    ),
    ("CREATE TABLE t LIKE s", "CREATE TABLE s (a INT, KEY (a)); CREATE TABLE t LIKE s"),
    ("CREATE VIEW v AS SELECT 1 AS x", "CREATE VIEW v AS SELECT 1 AS x"),
    ("CREATE DATABASE m", "DO 0"),
    ("CREATE SEQUENCE s START 3 NO CACHE", "CREATE SEQUENCE s START 3 NOCACHE"),
    ("ALTER TABLE t ADD COLUMN c INT", "CREATE TABLE t (id INT PRIMARY KEY, c INT)"),
    ("ALTER TABLE t ADD COLUMN c INT FIRST, ADD INDEX i (c)", "CREATE TABLE t (id INT PRIMARY KEY, c INT, KEY i (c))"),
    ("CREATE INDEX i ON t (a)", "CREATE TABLE t (a INT, KEY i (a))"),
    (
        "ALTER TABLE t ADD COLUMN c INT",
        "CREATE TABLE p (id INT PRIMARY KEY);"
        "CREATE TABLE t (id INT PRIMARY KEY, c INT, CONSTRAINT f FOREIGN KEY (id) REFERENCES p (id))",
    ),
]

SOMETHING_ELSE = [
    ("CREATE TABLE t (id INT PRIMARY KEY, v INT)", "CREATE TABLE t (id INT PRIMARY KEY, v BIGINT)"),
    ("CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE t (id INT)"),
    ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)", "CREATE TABLE t (id INT PRIMARY KEY)"),
    ("CREATE TABLE t (a VARCHAR(9)) COLLATE utf8mb4_bin", "CREATE TABLE t (a VARCHAR(9)) COLLATE utf8mb4_general_ci"),
    ("CREATE VIEW v AS SELECT 1 AS x", "CREATE VIEW v AS SELECT 2 AS x"),
    ("CREATE VIEW v AS SELECT 1 AS x", "CREATE TABLE v (x INT)"),
    ("CREATE SEQUENCE IF NOT EXISTS s START 3", "CREATE SEQUENCE s START 4"),
    ("DROP SEQUENCE s", "CREATE TABLE s (a INT)"),
    ("ALTER TABLE t ADD COLUMN c INT", "CREATE TABLE t (id INT PRIMARY KEY, c BIGINT)"),
    ("ALTER TABLE t ADD COLUMN c INT, DROP COLUMN d", "CREATE TABLE t (id INT PRIMARY KEY, c INT, d INT)"),
    ("ALTER TABLE t ADD COLUMN c INT, ADD COLUMN d INT", "CREATE TABLE t (id INT PRIMARY KEY, c INT)"),
    ("ALTER TABLE t ADD COLUMN c INT, DROP PRIMARY KEY", "CREATE TABLE t (id INT PRIMARY KEY, c INT)"),
    ("CREATE UNIQUE INDEX i ON t (a)", "CREATE TABLE t (a INT, KEY i (a))"),
    ("DROP TABLE t", "DO 0"),
    ("ALTER TABLE t DROP COLUMN c", "CREATE TABLE t (id INT PRIMARY KEY)"),
    ("RENAME TABLE t TO u", "CREATE TABLE t (id INT PRIMARY KEY); CREATE TABLE u (id INT PRIMARY KEY)"),
]


@pytest.mark.parametrize(("statement", "setup"), THERE_ALREADY)
def test_what_is_there_already_counts_as_made(target: str, session: Session, statement: str, setup: str) -> None:
    """A statement whose whole effect is on the target already, as after an earlier replay, is done."""
    for made in setup.split(";"):
        session.execute(made)
    before = session.rows("SELECT * FROM information_schema.columns WHERE table_schema = 'm'")
    run(target, statement)
    assert outcome(session)[0] == "done"
    assert session.rows("SELECT * FROM information_schema.columns WHERE table_schema = 'm'") == before
    assert session.rows("SHOW TABLES FROM _bridge LIKE 'probe%'") == []


@pytest.mark.parametrize(("statement", "setup"), SOMETHING_ELSE)
def test_something_else_of_that_name_stops(target: str, session: Session, statement: str, setup: str) -> None:
    """Where the target holds something else, or part of the effect only, the bridge stops, naming statement and
    position, and the target is unchanged."""
    for made in setup.split(";"):
        session.execute(made)
    with pytest.raises(SchemaChangeError) as raised:
        run(target, statement)
    assert statement.removeprefix("CREATE ") in str(raised.value)  # as it was sent
    assert "cdc/0/0" in raised.value.where
    assert outcome(session)[0] == "refused"
    assert session.rows("SHOW TABLES FROM _bridge LIKE 'probe%'") == []


FIXES = [
    ("ALTER TABLE t DROP COLUMN a", ["CREATE TABLE t (a INT, b INT, CONSTRAINT own CHECK (a > b))"],
     ["ALTER TABLE t DROP CONSTRAINT own"]),
    ("ALTER TABLE t ADD UNIQUE (a)", ["CREATE TABLE t (a INT)", "INSERT INTO t VALUES (1), (1)"],
     ["DELETE FROM t LIMIT 1", "ALTER TABLE t ADD UNIQUE (a)"]),
    ("DROP TABLE nosuch", [], []),
    ("RENAME TABLE t TO u", ["CREATE TABLE t (b INT)", "CREATE TABLE u (a INT)"], ["DROP TABLE u"]),
    ("ALTER TABLE nosuch.t ADD COLUMN c INT", [], ["CREATE DATABASE nosuch", "CREATE TABLE nosuch.t (a INT, c INT)"]),
]  # fmt: skip


def test_a_refusal_says_a_statement_once(target: str, session: Session) -> None:
    """As it was sent, since the target's words are about that; the list has both."""
    session.execute("CREATE TABLE t (a INT)")
    with pytest.raises(SchemaChangeError) as raised:
        run(target, "ALTER TABLE t ADD INDEX i (missing) INVISIBLE")
    assert "the statement is: ALTER TABLE t ADD INDEX i (missing) IGNORED (`bridge ddl list` shows" in raised.value.what
    assert "INVISIBLE" not in raised.value.what
    assert "INVISIBLE" in bridge("ddl", "list", "--target", target).out
    shown = bridge("status", "--target", target).out.splitlines()
    assert len([line for line in shown if "INVISIBLE" in line]) == 1
    assert any(line.startswith("still to run") and line.endswith(": is refused") for line in shown)


@pytest.mark.parametrize(("statement", "setup", "fix"), FIXES)
def test_the_fix_of_a_refusal_works(
    target: str, session: Session, statement: str, setup: list[str], fix: list[str]
) -> None:
    """A statement that the target refuses stops the bridge at every start, until the operator has taken away what is in
    its way, or has made by hand what it adds; then what follows runs."""
    for made in setup:
        session.execute(made)
    follow = "CREATE TABLE afterwards (a INT)"
    with pytest.raises(SchemaChangeError, match="the target refused"):
        run(target, statement, follow)
    if fix:
        with pytest.raises(SchemaChangeError, match="the target refused"):
            run(target, statement, follow)
    for made in fix:
        session.execute(made)
    run(target, statement, follow)
    assert {row[2] for row in journal(session)[:-1]} == {"done"}
    assert session.rows("SHOW TABLES LIKE 'afterwards'")


ROW = ["CREATE TABLE t (id INT PRIMARY KEY, v INT, w INT)", "INSERT INTO t VALUES (1, 10, 20)"]
OWN = ["ALTER TABLE t ADD CONSTRAINT own CHECK (id < v), ADD CONSTRAINT too CHECK (v < w)"]


def decide(target: str, session: Session, state: JournalState) -> None:
    """The operator's decision on the one open schema change."""
    open_one = session.value("SELECT commit_ts FROM _bridge.schema_changes WHERE state IN ('held', 'refused')")
    release(Target(target), ProgressTable("bridge"), str(open_one), state)


@pytest.mark.parametrize("released", [None, JournalState.APPROVED])
def test_a_statement_that_was_refused_is_not_taken_for_done(
    target: str, session: Session, released: JournalState | None
) -> None:
    """Whatever the operator changes in its table: it runs once nothing is in its way any more."""
    for made in (*ROW, *OWN):
        session.execute(made)
    statement = "ALTER TABLE t DROP COLUMN v, ADD COLUMN v INT DEFAULT 7"
    for constraint in ("own", "too"):
        with pytest.raises(SchemaChangeError, match="the target refused"):
            run(target, statement)
        session.execute(f"ALTER TABLE t DROP CONSTRAINT {constraint}")
        if released is not None:
            decide(target, session, released)
    run(target, statement)
    assert session.rows("SELECT id, v, w FROM t") == [(1, 7, 20)]
    assert {row[2] for row in journal(session)[:-1]} == {"done"}


def test_a_swap_that_was_refused_is_held(target: str, session: Session) -> None:
    """It may have been made by hand since then."""
    for made in (*ROW, *OWN):
        session.execute(made)
    statement = "ALTER TABLE t DROP COLUMN v, CHANGE w v INT, ADD COLUMN w INT"
    with pytest.raises(SchemaChangeError, match="the target refused"):
        run(target, statement)
    session.execute("ALTER TABLE t DROP CONSTRAINT own, DROP CONSTRAINT too")
    with pytest.raises(HeldError, match="the target refused it, and was changed by hand since then"):
        run(target, statement)
    decide(target, session, JournalState.APPROVED)
    run(target, statement)
    assert session.rows("SELECT id, v, w FROM t") == [(1, 20, None)]


@pytest.mark.parametrize(
    "statement",
    [
        "GRANT ALL ON *.* TO x",
        "DROP TABLE _bridge.progress",
        "TRUNCATE `_BRIDGE`.`owner`",
        "DROP TABLE `#mysql50#_bridge`.progress",
        "TRUNCATE `_br\u0130dge`.owner",
        "DROP TABLE `#mysql50#mysql`.global_priv",
        "DROP DATABASE `#mysql50#_bridge`",
        "CREATE TABLE k LIKE _bridge.owner",
        "ALTER TABLE t ADD FOREIGN KEY (v) REFERENCES _bridge.progress (name)",
    ],
)
def test_a_refused_statement_goes_on_once_skipped(target: str, session: Session, statement: str) -> None:
    """What the policy does not allow never runs; the statement that the error tells the operator lets the bridge go
    on."""
    follow = "CREATE TABLE afterwards (a INT)"
    with pytest.raises(SchemaChangeError, match="the bridge does not run this statement") as raised:
        run(target, statement, follow)
    with pytest.raises(SchemaChangeError):
        run(target, statement, follow)
    named = re.search(r"bridge ddl skip (\S+)", raised.value.fix)
    assert named
    release(Target(target), ProgressTable("bridge"), named[1], JournalState.SKIPPED)
    run(target, statement, follow)
    assert session.rows("SHOW TABLES LIKE 'afterwards'")


def test_defaults_take_the_upstream_moment(target: str, session: Session) -> None:
    """Existing rows get CURRENT_TIMESTAMP of a new column as upstream, at its commit_ts and in its zone; later
    statements do not."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (1)")
    events = [
        schema_change(TS, "ALTER TABLE t ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP"),
        boundary(TS + 1),
    ]
    with opened(target, [("cdc", 0)], ddl=DdlRules(timezone="+08:00")) as pipeline:
        pipeline.take(in_one_partition(events))
        assert session.rows("SELECT c FROM t") == [(MOMENT + timedelta(hours=8),)]
        control = pipeline.ownership.control
        assert control.rows("SELECT NOW() > '2025-01-01', @@SESSION.time_zone") == [(1, "+00:00")]


LOCAL_TIMES = [
    "ALTER TABLE t ADD COLUMN c DATETIME NOT NULL DEFAULT CURRENT_TIMESTAMP",
    "ALTER TABLE t ADD (n INT, c DATE DEFAULT (CURRENT_DATE))",
    "ALTER TABLE t ADD COLUMN c VARCHAR(30) DEFAULT (NOW())",
    "ALTER TABLE t ADD COLUMN c TIMESTAMP NOT NULL DEFAULT '2023-11-15 01:02:03'",
    "ALTER TABLE t ADD COLUMN c TIMESTAMP NOT NULL DEFAULT 20231115010203",
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
        run_all(target, events, ddl=DdlRules(timezone="Asia/Shanghai"))
    run_all(target, events, ddl=DdlRules(timezone="+08:00"))
    bounds = "SELECT COUNT(*) FROM {}.t" + (" PARTITION (p0)" if "PARTITION" in statement else "")
    for query in ("SELECT * FROM {}.t", bounds):
        assert session.rows(query.format("m")) == session.rows(query.format("u"))


def test_local_times_whose_zone_nobody_has_told(target: str, session: Session) -> None:
    """They are taken as UTC, and the log says so."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (1)")
    with capture_logs() as said:
        run(target, "ALTER TABLE t ADD COLUMN c DATETIME DEFAULT CURRENT_TIMESTAMP")
        run(target, "ALTER TABLE t ADD COLUMN d DATETIME DEFAULT '2020-01-01'", ts=TS + 2)
    assert session.rows("SELECT c FROM t") == [(MOMENT,)]
    warnings = [line for line in said if line["event"] == "local_times_in_utc"]
    assert [line["what"] for line in warnings] == ["the rows that are there get a local time in c"]


@pytest.mark.parametrize("statement", LOCAL_TIMES[:-1])
def test_local_times_of_no_row(target: str, session: Session, statement: str) -> None:
    """Without rows there is no value that depends on the zone."""
    session.execute("CREATE TABLE t (at TIMESTAMP NULL, day DATETIME)")
    run(target, statement)
    assert outcome(session) == ("done", "ran")


@pytest.mark.parametrize(
    "statement",
    [
        "ALTER TABLE t ADD COLUMN c TIMESTAMP(3) NOT NULL DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
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
    "statement", ["ALTER TABLE P TRUNCATE PARTITION p0", "ALTER TABLE `m`.`p` EXCHANGE PARTITION p0 WITH TABLE x"]
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
    with admin(mysql_target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
        events = [schema_change(TS, "ALTER TABLE t ADD COLUMN (j JSON NOT NULL)"), boundary(TS + 1)]
        run_all(mysql_target, in_one_partition(events), ddl=ddl_rules(source="mariadb"))
        session.execute("INSERT INTO m.t VALUES (1, '1')")
        events = [schema_change(TS + 2, "ALTER TABLE t ADD COLUMN k JSON NOT NULL"), boundary(TS + 3)]
        with pytest.raises(HeldError, match="which is no JSON"):
            run_all(
                mysql_target,
                in_one_partition([boundary(TS), boundary(TS + 1), *events]),
                ddl=ddl_rules(source="mariadb"),
            )


TIDB, MYSQL, MARIADB = "tidb", "mysql-8", "mariadb"
CONVERTED = [
    ("FLOAT", "16777216", "MODIFY v VARCHAR(40)", {TIDB}),
    ("DOUBLE UNSIGNED", "1e20", "CHANGE COLUMN v w TEXT", {TIDB}),
    ("YEAR", "0", "MODIFY COLUMN v CHAR(4)", {TIDB}),
    ("INT(6) UNSIGNED ZEROFILL", "7", "MODIFY v VARBINARY(9)", {TIDB}),
    ("DATETIME(6)", "'2024-02-29 23:59:59.6'", "MODIFY v DATE", {MYSQL}),
    ("TIME(3)", "'23:59:59.6'", "MODIFY v BIGINT", {TIDB, MYSQL}),
    ("FLOAT", "0.1", "MODIFY v JSON", {TIDB}),
    ("DOUBLE", "2.675", "MODIFY v DOUBLE(9, 2)", {TIDB}),
    ("DOUBLE(9,2)", "2.67", "MODIFY v DOUBLE (9, 2) NOT NULL", set[str]()),
    ("BIT(9)", "65", "MODIFY v TEXT", {TIDB}),
    ("VARCHAR(9) CHARACTER SET latin1", "'\u00e4'", "MODIFY v VARBINARY(9)", {TIDB}),
    ("VARCHAR(9) CHARACTER SET latin1", "'a'", "MODIFY v VARBINARY(9)", set[str]()),
    ("TEXT CHARACTER SET latin1", "'\u00e4'", "MODIFY v VARCHAR(9) CHARACTER SET binary", {TIDB}),
    ("JSON", "'{}'", "MODIFY v TEXT", {TIDB, MYSQL}),
    ("LONGTEXT", "'{}'", "MODIFY v TEXT", set[str]()),
    ("TIME", "'10:11:12'", "MODIFY v DATETIME", {TIDB}),
    ("DATETIME(3)", "'2024-12-31 23:59:59.9'", "MODIFY v BIGINT", {TIDB, MYSQL}),
    ("TIME(3)", "'10:11:12.5'", "MODIFY v BIT(40)", {TIDB, MYSQL}),
    ("DOUBLE", "1.5", "MODIFY v YEAR", {TIDB, MYSQL}),
    ("TIME(6)", "'23:59:59.6'", "MODIFY v DATE", {TIDB, MYSQL}),
    ("FLOAT", "1e20", "MODIFY v BIGINT", {MYSQL}),
    ("FLOAT", "1e9", "MODIFY v BIGINT", set[str]()),
    ("DATE", "'2024-00-10'", "MODIFY v TIME", {MYSQL}),
    ("DATE", "'2024-02-10'", "MODIFY v TIME", set[str]()),
    ("DECIMAL(20,6)", "12345678901234.123456", "MODIFY v JSON", {TIDB, MYSQL}),
    ("INT", "3", "MODIFY v ENUM('a', '3', 'c')", {MYSQL}),
    ("INT", "3", "MODIFY v ENUM('a', 'b', 'c')", set[str]()),
    ("BIT(64)", "b'1' << 63", "MODIFY v DOUBLE", {TIDB, MYSQL}),
    ("BIT(64)", "1", "MODIFY v DOUBLE", set[str]()),
    ("INT", "20240229", "MODIFY v TIME", {TIDB, MYSQL}),
    ("INT", "101112", "MODIFY v TIME", set[str]()),
    ("DECIMAL(9,1)", "1.5", "MODIFY v ENUM('a', 'b')", {MYSQL}),
    ("INT(6) ZEROFILL", "101", "MODIFY v DATE", {MYSQL}),
    ("VARCHAR(40)", "'-15'", "MODIFY v INT", set[str]()),
    ("VARCHAR(40)", "'2024-02-29T10:11:12'", "MODIFY v TIME", {TIDB, MYSQL}),
    ("VARCHAR(40)", "'2024-02-29 10:11:12.5'", "MODIFY v DATETIME(3)", set[str]()),
    ("DATETIME", "'2024-02-29 23:59:59'", "MODIFY v DATE", set[str]()),
    ("DATETIME(6)", "'2024-02-29 23:59:59.6'", "MODIFY v DATETIME", set[str]()),
    ("FLOAT", "16777216", "MODIFY v DOUBLE", set[str]()),
    ("INT COMMENT 'no zerofill'", "7", "MODIFY v VARCHAR(9)", set[str]()),
    ("DECIMAL(9,2)", "7", "MODIFY v VARCHAR(9)", set[str]()),
    ("FLOAT", "NULL", "ALTER v SET DEFAULT 5", set[str]()),
]
"""A column, its value, what it becomes, and the sources that make another value of it than MariaDB."""


@pytest.mark.parametrize(("before", "value", "statement", "held"), CONVERTED)
def test_values_that_servers_convert_otherwise(
    target: str, before: str, value: str, statement: str, held: set[str]
) -> None:
    """Where the upstream's server makes other values of them, the operator is asked; not where it makes the same, or
    where the table is empty."""
    for source, rows in [*((source, 1) for source in (TIDB, MYSQL, MARIADB)), (TIDB, 0)]:
        with admin(target) as session:
            session.execute("CREATE DATABASE m")
            session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v {before})")
            session.execute(f"INSERT INTO m.t SELECT 1, {value} FROM DUAL WHERE {rows}")
            events = in_one_partition([schema_change(TS, f"ALTER TABLE t {statement}"), boundary(TS + 1)])
            is_held = rows and source in held
            with pytest.raises(HeldError, match="makes other values of") if is_held else nullcontext():
                run_all(target, events, ddl=ddl_rules(source=source))
            drop_all(session)


SHORTENED = [
    ("DATETIME(6)", "'2024-02-29 23:59:59.6'", "DATETIME", True),
    ("DATETIME(6)", "'2024-02-29 23:59:59.123'", "TIMESTAMP(3) NULL", False),
    ("TIMESTAMP(6) NULL", "'2024-02-29 23:59:59.1235'", "DATETIME(3)", True),
    ("TIME(3)", "'10:11:12.5'", "TIME", True),
    ("TIME(3)", "'10:11:12.5'", "TIME(6)", False),
    ("VARCHAR(40)", "'2024-02-29 10:11:12.6'", "DATETIME", True),
    ("VARCHAR(40)", "'2024-02-29 10:11:12'", "DATETIME", False),
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
        with pytest.raises(HeldError, match="makes other values of v") if is_held else nullcontext():
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
        with pytest.raises(HeldError, match="makes other values of"):
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
]


@pytest.mark.parametrize(("statement", "is_held"), BY_MODE)
def test_expressions_that_mean_something_by_the_mode(
    target: str, session: Session, statement: str, is_held: bool
) -> None:
    """What || and double quotes mean depends on the upstream's session: the operator is asked, and may say that they
    mean what they do by default."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    session.execute("INSERT INTO t VALUES (1, 2)")
    with pytest.raises(HeldError, match="by the sql_mode of the upstream's session") if is_held else nullcontext():
        run(target, statement)
    if is_held:
        decide(target, session, JournalState.APPROVED)
        run(target, statement)
    assert outcome(session) == ("done", "ran")


NEW = [
    ("YEAR DEFAULT 0", 2000, 0),
    ("YEAR(4) NOT NULL DEFAULT FALSE", 2000, 0),
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


def test_names_without_a_collation_mean_the_source_s(target: str, session: Session) -> None:
    """A table created without a collation tells letters apart as TiDB does, so its keys do not collide."""
    events = [
        schema_change(TS, "CREATE DATABASE n", schema="n", table=""),
        schema_change(TS + 1, "CREATE TABLE t (k VARCHAR(9) PRIMARY KEY)", schema="n"),
        *(row_change(TS + 2, "t", ["k"], ["k"], after=[key], schema="n") for key in ("a", "A")),
        boundary(TS + 3),
    ]
    run_all(target, in_one_partition(events))
    assert session.rows("SELECT k FROM n.t ORDER BY 1") == [("A",), ("a",)]


def test_a_database_whose_collation_nobody_chose(target: str, session: Session) -> None:
    """In a database with the server's own default a table without a collation gets the source's; in one whose default
    somebody chose it takes that."""
    session.execute("CREATE DATABASE n")
    events = [
        schema_change(TS, "CREATE TABLE t (k VARCHAR(9))", schema="n"),
        schema_change(TS, "ALTER DATABASE n COLLATE utf8mb4_general_ci", schema="n"),
        schema_change(TS, "CREATE TABLE u (k VARCHAR(9))", schema="n"),
        schema_change(TS, "CREATE TABLE t (k VARCHAR(9))"),
        boundary(TS + 1),
    ]
    session.execute("ALTER DATABASE m COLLATE utf8mb4_unicode_ci")
    run_all(target, in_one_partition(events))
    query = "SELECT table_schema, table_name, table_collation FROM information_schema.tables"
    assert set(session.rows(f"{query} WHERE table_schema IN ('m', 'n')")) == {
        ("n", "t", "utf8mb4_bin"),
        ("n", "u", "utf8mb4_general_ci"),
        ("m", "t", "utf8mb4_unicode_ci"),
    }


def test_a_new_table_costs_the_same_after_many_others(
    target: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What ran before is not read again for each: the last of 10,000 would take a fifth of a second each."""
    session.execute("CREATE DATABASE n")
    made = [schema_change(TS, f"CREATE TABLE t{number} (k VARCHAR(9))", schema="n") for number in range(30)]
    read, entry = [], ddl_journal._entry
    monkeypatch.setattr(ddl_journal, "_entry", lambda row: read.append(row) or entry(row))
    run_all(target, in_one_partition([*made, boundary(TS + 1)]))
    assert len(session.rows("SELECT 1 FROM _bridge.schema_changes WHERE state = 'done'")) == 30
    assert len(read) < 30


def test_a_name_in_another_case(target: str, session: Session) -> None:
    """TiDB finds a table whatever the case of the letters; here it is found as long as no other one is meant."""
    session.execute("CREATE TABLE Mixed (id INT PRIMARY KEY)")
    run(target, "ALTER TABLE mixed ADD COLUMN c INT", "CREATE TABLE k LIKE MIXED")
    assert [name for (name, *_) in session.rows("SHOW COLUMNS FROM k")] == ["id", "c"]


CASES = [
    ("DROP TABLE `m`.`first`, m.SECOND", set()),
    ("RENAME TABLE first TO x, second TO first, x TO Second", {"first", "Second"}),
    ("RENAME TABLE `m`.`first` TO m.x, SECOND TO y", {"x", "y"}),
    ("RENAME TABLE first TO X, x TO y", {"y", "Second"}),
    ("ALTER TABLE second EXCHANGE PARTITION p WITH TABLE FIRST", {"First", "Second"}),
]


@pytest.mark.parametrize(("statement", "left"), CASES)
def test_every_name_in_another_case(target: str, session: Session, statement: str, left: set[str]) -> None:
    """Of several names each is put right, also those that the statement has given itself."""
    session.execute("CREATE TABLE First (id INT)")
    session.execute("CREATE TABLE Second (id INT) PARTITION BY HASH (id) (PARTITION p)")
    run(target, statement)
    assert {name for (name,) in session.rows("SHOW TABLES")} == left
    assert outcome(session)[0] == "done"


def test_views_in_another_case(target: str, session: Session) -> None:
    """So it is with views."""
    session.execute("CREATE VIEW First AS SELECT 1")
    session.execute("CREATE VIEW Second AS SELECT 1")
    run(target, "DROP VIEW m.FIRST, m.SECOND")
    assert session.rows("SHOW TABLES") == []


def test_a_drop_of_tables_that_were_not_all_given(target: str, session: Session) -> None:
    """Of several tables those are dropped that the target was given."""
    run_all(
        target,
        in_one_partition(
            [
                schema_change(TS, "CREATE TABLE t (id INT)"),
                schema_change(TS + 1, "CREATE GLOBAL TEMPORARY TABLE g (id INT) ON COMMIT DELETE ROWS"),
                schema_change(TS + 2, "DROP TABLE m.g, m.t"),
                boundary(TS + 3),
            ]
        ),
    )
    assert session.rows("SHOW TABLES") == []
    assert session.rows("SELECT run_text FROM _bridge.schema_changes WHERE commit_ts = %s", (TS + 2,)) == [
        ("DROP TABLE m.t",)
    ]


NOTHING_LEFT = [
    "ALTER DATABASE m PLACEMENT POLICY=DEFAULT",
    "ALTER DATABASE PLACEMENT POLICY p",
    "ALTER DATABASE m SET TIFLASH REPLICA 1",
    "ALTER TABLE t PARTITION p PLACEMENT POLICY=`x`",
    "ALTER TABLE t ENCRYPTION='N' AUTO_ID_CACHE=3",
]


@pytest.mark.parametrize("statement", NOTHING_LEFT)
def test_nothing_of_it_is_for_this_target(target: str, session: Session, statement: str) -> None:
    """A statement of which nothing is left runs nothing, and is on record as done."""
    session.execute("CREATE TABLE t (id INT)")
    run(target, statement, "CREATE TABLE afterwards (a INT)")
    said = session.rows(
        "SELECT state, outcome, run_text FROM _bridge.schema_changes WHERE statement = %s", (statement,)
    )
    assert said == [("done", "nothing to run: nothing of it is for this target", "")]
    assert session.rows("SHOW TABLES LIKE 'afterwards'")


def test_references_of_a_column(url: str) -> None:
    """TiDB and MySQL make no foreign key of REFERENCES behind a column; the target, which might, has none either."""
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        run(
            url,
            "CREATE TABLE p (id INT PRIMARY KEY)",
            "CREATE TABLE t (a INT REFERENCES p (id) ON DELETE CASCADE, b INT)",
            "ALTER TABLE t ADD COLUMN c INT REFERENCES m.p (id), MODIFY COLUMN b INT REFERENCES p (id)",
        )
        assert (
            session.rows(
                "SELECT * FROM information_schema.table_constraints WHERE table_schema = 'm' AND table_name = 't'"
            )
            == []
        )


def test_sequences(url: str) -> None:
    """Sequences are made, changed and dropped where the target has them; elsewhere they are left out, with the
    defaults that they give."""
    changes = [
        "CREATE SEQUENCE s START WITH 5 INCREMENT BY 2 NO CACHE NO CYCLE",
        "CREATE TABLE t (a INT DEFAULT NEXT VALUE FOR m.s, b INT DEFAULT (NEXTVAL(`other`)))",
        "ALTER SEQUENCE s INCREMENT BY 10",
        "CREATE SEQUENCE q",
        "DROP SEQUENCE q",
    ]
    events = [schema_change(TS + i, text) for i, text in enumerate(changes)]
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        run_all(url, in_one_partition([*events, boundary(TS + 9)]))
        has_them = probe(session).has(Feature.SEQUENCES)
        assert {name for (name,) in session.rows("SHOW TABLES FROM m")} == ({"s", "t"} if has_them else {"t"})
        create = session.rows("SHOW CREATE TABLE m.t")[0][1]
        assert ("nextval(`m`.`s`)" in create, "other" in create) == (has_them, False)
        if has_them:
            assert "increment by 10 nocache nocycle" in session.rows("SHOW CREATE SEQUENCE m.s")[0][1]


def test_anonymous_indexes_and_constraints_have_the_upstream_s_names(target: str, session: Session) -> None:
    """Later statements drop by name what was made without one: indexes by their first column, as all servers have it,
    foreign keys and checks as TiDB has them."""
    run(
        target,
        "CREATE TABLE p (id INT PRIMARY KEY)",
        "CREATE TABLE t (a INT, b INT UNIQUE, KEY (a), UNIQUE (a, b), FOREIGN KEY (a) REFERENCES p (id),"
        " CHECK (b > 0))",
        "ALTER TABLE t ADD INDEX (b), ADD FOREIGN KEY (b) REFERENCES p (id), ADD CHECK (a > 0)",
        "ALTER TABLE t DROP FOREIGN KEY fk_1, DROP FOREIGN KEY fk_2, DROP CHECK t_chk_1, DROP CHECK t_chk_2",
        "ALTER TABLE t DROP INDEX a, DROP INDEX a_2, DROP INDEX b, DROP INDEX b_2",
    )
    assert session.rows("SHOW INDEX FROM t") == []


def test_checks_of_columns_have_the_upstream_s_names(url: str) -> None:
    """MariaDB knows no names for checks of a column, and stops at one: they become checks of the table, which a later
    statement drops by the name that they have upstream."""
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        run(
            url,
            "CREATE TABLE t (a INT CHECK (a > 0), b INT CONSTRAINT k CHECK (b > 0) NOT NULL, CHECK (b > 1))",
            "ALTER TABLE t ADD COLUMN c INT CHECK (c > 0) AFTER a, ADD COLUMN (d INT CHECK (d > 1))",
        )
        create = session.rows("SHOW CREATE TABLE m.t")[0][1]
        found = {(name, check.strip("(), `")) for name, check in re.findall(r"CONSTRAINT `(\w+)` CHECK (.*)", create)}
        knows_checks = probe(session).has(Feature.CHECKS)
        named = [("t_chk_1", "a` > 0"), ("k", "b` > 0"), ("t_chk_2", "b` > 1"), ("t_chk_3", "c` > 0")]
        assert found == ({*named, ("t_chk_4", "d` > 1")} if knows_checks else set())


RENAMED = [
    "a INT(11) NOT NULL DEFAULT 3 COMMENT ', x'",
    "`o``dd` VARCHAR(9) CHARACTER SET latin1 DEFAULT 'it''s'",
    "a DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
    "a ENUM('x,','y') NOT NULL",
    "a BIGINT UNSIGNED AUTO_INCREMENT UNIQUE",
    "A BIT(3) DEFAULT b'101'",
    "a INT AS (v + 1) STORED",
]


@pytest.mark.parametrize("column", RENAMED)
def test_a_column_renamed_by_change(url: str, column: str) -> None:
    """For MySQL 5.7 RENAME COLUMN is CHANGE with the definition that the target's table has; on a server that knows
    both they do the same."""
    name = column.split()[0]
    renames = f"ALTER TABLE m.t RENAME COLUMN {name} TO `new`, RENAME COLUMN id TO {name}"
    created = []
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        site = Site(named_capabilities("mysql-5.7"), around=OnTarget(session, Journal("bridge", "_bridge")))
        knows_both = probe(session).has(Feature.RENAME_COLUMN)
        for by_change in (True, False) if knows_both else (True,):
            session.execute("DROP TABLE IF EXISTS m.t")
            session.execute(f"CREATE TABLE m.t (id INT PRIMARY KEY, v INT, {column}) DEFAULT CHARSET utf8mb4")
            found = rewrite(renames, "m", site)
            assert isinstance(found, Rewritten)
            assert "RENAME" not in str(found.text)
            session.execute(str(found.text) if by_change else renames)
            created.append(session.rows("SHOW CREATE TABLE m.t"))
        assert created[0] == created[-1]
        columns = [found for found, *_ in session.rows("SHOW COLUMNS FROM m.t")]
        assert columns == [name.strip("`").replace("``", "`"), "v", "new"]


def test_a_binary_default(target: str, session: Session) -> None:
    """SHOW CREATE TABLE of MariaDB 11.4 prints the bytes of a binary default as they are, which is no UTF-8."""
    run(target, "CREATE TABLE t (a VARBINARY(9) DEFAULT x'00ff')", "ALTER TABLE t ADD COLUMN b INT")
    assert len(session.rows("SHOW COLUMNS FROM t")) == 2


def test_a_drop_of_several_tables_cut_in_the_middle(target: str, session: Session) -> None:
    """A server that dies in DROP TABLE t, u may have dropped one of them: the restart drops the rest."""
    session.execute("CREATE TABLE t (id INT)")
    session.execute("CREATE TABLE u (id INT)")
    events = in_one_partition([schema_change(TS, "DROP TABLE `m`.`t`, `m`.`u`"), boundary(TS + 1)])

    def crash(step: str) -> None:
        if step == "ddl intent":
            raise Died

    with pytest.raises(Died):
        run_all(target, events, trace=crash)
    session.execute("DROP TABLE t")
    run_all(target, events)
    assert session.rows("SHOW TABLES") == []
    assert outcome(session)[0] == "done"


@pytest.fixture
def packet(session: Session) -> Iterator[int]:
    """The server reads no more than this at once."""
    before = session.value("SELECT @@global.max_allowed_packet")
    session.execute("SET GLOBAL max_allowed_packet = 1048576")
    yield 1048576
    session.execute(f"SET GLOBAL max_allowed_packet = {before}")


def test_a_statement_longer_than_a_packet(target: str, session: Session, packet: int) -> None:
    """What the server would not read, with its record, stops the bridge with the size it needs, and nothing is written;
    what is just short enough runs, however much of it must be escaped.  The fix works."""
    session.execute("CREATE TABLE t (a INT)")
    longest = packet // COPIES_IN_A_PACKET
    escaped = "'\"\\" * 99_999
    fits = f"ALTER TABLE t /*! COMMENT 'x' */ /*{escaped}"[: longest - 2] + "*/"
    too_long = f"ALTER TABLE t COMMENT 'y' /*{'x' * longest}*/"
    events = in_one_partition([schema_change(TS, fits), schema_change(TS + 1, too_long), boundary(TS + 2)])
    with pytest.raises(SchemaChangeError, match=r"max_allowed_packet of 1,048,576") as raised:
        run_all(target, events)
    assert "cdc/0/1" in raised.value.where
    assert len(str(raised.value)) < 1000
    assert [row[2] for row in journal(session)[:-1]] == ["done"]
    session.execute("SET GLOBAL max_allowed_packet = 4194304")
    run_all(target, events)
    assert "'y'" in session.rows("SHOW CREATE TABLE t")[0][1]


def test_a_lock_that_is_held_too_long_is_waited_for_again(target: str, session: Session) -> None:
    """A lock wait that times out refuses nothing for good: the schema change runs once the lock is gone."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    before = session.value("SELECT @@GLOBAL.lock_wait_timeout")
    session.execute("SET GLOBAL lock_wait_timeout = 1")
    tries: list[str] = []

    def trace(step: str) -> None:
        tries.extend([step] if step == "ddl intent" else [])
        if len(tries) == 2:
            session.execute("UNLOCK TABLES")

    try:
        session.execute("LOCK TABLES t WRITE")
        events = in_one_partition([schema_change(TS, "ALTER TABLE t ADD COLUMN c INT"), boundary(TS + 1)])
        run_all(target, events, trace=trace)
    finally:
        session.execute("UNLOCK TABLES")
        session.execute(f"SET GLOBAL lock_wait_timeout = {before}")
    assert len(tries) >= 2
    assert outcome(session) == ("done", "ran")


def test_statements_of_one_moment_are_told_apart() -> None:
    """Text and schema tell schema changes of one commit_ts apart; a copy at another position is the same one."""
    one = SchemaChange(TS, "m", "t", "DROP TABLE t", "cdc/0/1")
    assert one.statement_hash == SchemaChange(TS, "m", "t", "DROP TABLE t", "cdc/3/9").statement_hash
    assert one.statement_hash != SchemaChange(TS, "n", "t", "DROP TABLE t", "cdc/0/1").statement_hash
    assert one.statement_hash != SchemaChange(TS, "m", "u", "DROP TABLE u", "cdc/0/1").statement_hash
