"""Schema changes on a real target: the values that rows have afterwards are the upstream's, or the change is held."""

from __future__ import annotations

from contextlib import nullcontext
from datetime import datetime, timedelta

import pytest
from structlog.testing import capture_logs

from bridge.ddl.policy import DdlRules, ddl_rules
from bridge.errors import HeldError, SchemaChangeError
from bridge.mysql.connection.session import Session
from bridge.protocols.values.event_time import SNAPSHOT_PLACE, place_in_binlog
from tests.support.pipelines import admin, drop_all, opened, run_all, sql
from tests.support.schema_change_runs import MOMENT, TS, run
from tests.support.upstreams import boundary, in_one_partition, schema_change

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


@pytest.mark.parametrize("url", ["target", "mysql_target"], indirect=True)
def test_what_mariadb_says_in_other_words(url: str) -> None:
    """Rows get the values that they have upstream."""
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


def test_a_column_that_counts_already(target: str, session: Session) -> None:
    """Its rows with 0 keep it on every server."""
    session.execute("CREATE TABLE t (id INT AUTO_INCREMENT PRIMARY KEY, v INT)")
    session.execute("INSERT INTO t VALUES (0, 1)")
    run(target, "ALTER TABLE t MODIFY id BIGINT AUTO_INCREMENT")
    assert session.rows("SELECT id, v FROM t") == [(0, 1)]


@pytest.mark.parametrize("url", ["target", "old_target", "mysql_target"], indirect=True)
def test_a_new_json_column_that_takes_no_null(url: str) -> None:
    """The rows that are there get the JSON null, as in TiDB and MySQL."""
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
