"""Schema changes behind which rows would have other values than upstream: they are held, and no others are.

What a pipeline decides is asked on a real target, where the statements do not run.
"""

from __future__ import annotations

from itertools import product
from typing import Final, NamedTuple

import pytest

from bridge.ddl.policy import DdlRules, ddl_rules
from bridge.errors import HeldError
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import JournalState
from bridge.protocols.values.event_time import place_in_binlog, place_in_gtid_set, place_of_sending
from bridge.tso import ms_tso
from tests.mysql.schema_changes.test_values_of_schema_changes import LOCAL_TIMES
from tests.support.pipelines import run_all
from tests.support.schema_change_runs import TS, Decisions, decide, outcome, run
from tests.support.upstreams import in_one_partition, schema_change

UUID = "3e11fa47-71ca-11e1-9e33-c80aa9429562"
DEBEZIUM = tuple(place_in_binlog("up", "binlog.000001", 4, 1, gtid) or "" for gtid in (None, f"{UUID}:7"))
CANAL = (place_in_gtid_set(f"{UUID}:1-7") or "", place_of_sending(1_700_000_000_000, 7) or "")
TICDC = ("",)
"""The places of messages, by their senders."""


class Rule(NamedTuple):
    """What a sender takes otherwise than the upstream.

    columns: of the table t; places: of the senders that do; words: of the reason.
    statements: or the actions of an ALTER TABLE, and whether they are held.
    """

    columns: str
    places: tuple[str, ...]
    words: str
    statements: dict[str, bool]
    source: str = "mysql-8"


VERSIONS = "s TIMESTAMP(6) GENERATED ALWAYS AS ROW START, e TIMESTAMP(6) GENERATED ALWAYS AS ROW END"
RULES: Final = {
    # Without a schema, they could be taken for the Base64 of other bytes.
    "texts of the character set binary are texts to Debezium": Rule(
        "id INT PRIMARY KEY", DEBEZIUM, "make them BINARY",
        {
            "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(9) CHARACTER SET binary)": True,
            "CREATE TABLE u (id INT PRIMARY KEY, v TEXT) DEFAULT CHARSET = binary": True,
            "ADD COLUMN v CHAR(4) CHARSET binary": True,
            "CONVERT TO CHARACTER SET binary": True,
            "CREATE TABLE u (id INT PRIMARY KEY, v VARCHAR(9) BYTE)": True,
            "ADD COLUMN v LONG VARCHAR BYTE FIRST": True,
            "ADD COLUMN byte INT AFTER id": False,
            "CREATE DATABASE n CHARACTER SET 'binary'": True,
        },
    ),
    # Canal 1.1.7 renames one column after the other among those that it knows, and finds the last of two that have one
    # name by then: behind `RENAME COLUMN b TO a, RENAME COLUMN a TO b` its rows had each other's values.
    "columns that exchange names, to Canal": Rule(
        "a INT, b INT, c INT", CANAL, "Canal renames one column",
        {
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
        },
    ),
    # Canal 1.1.7 knows no table behind `ALTER TABLE k RENAME kb, DROP a`, and asks the server at its next row: one that
    # was behind gave rows before a MODIFY ... FIRST the values of each other's columns.
    "a table that Canal forgets": Rule(
        "a INT, b INT", CANAL, "Canal forgets a table",
        {"RENAME u, DROP b": True, "DROP COLUMN b, RENAME TO u": True, "RENAME TO u": False, "DROP COLUMN b": False},
    ),
    # The parsers of Canal 1.1.7 and of Debezium 3.6.1 and 3.5.0 put x last, or first, where MySQL and MariaDB put it
    # behind the renamed column.
    "a column behind a later name": Rule(
        "a INT, b INT, c INT", (*DEBEZIUM, *CANAL), "AFTER a name that a later action gives",
        {
            "ADD x INT AFTER y, CHANGE a y INT": True,
            "MODIFY c INT AFTER `Y`, ADD x INT, RENAME COLUMN a TO y": True,
            "CHANGE a y INT, ADD x INT AFTER y": False,
            "ADD x INT AFTER b, CHANGE a y INT AFTER x": False,
        },
    ),
    # Debezium 3.5.0 gives a column that IF NOT EXISTS names the new definition and place, though it was there: its rows
    # then had the values of each other's columns, or NULL.
    "columns that are there, to Debezium": Rule(
        "id INT PRIMARY KEY, n INT, j JSON, b BOOL NOT NULL, v VARCHAR(9) CHARACTER SET latin1", DEBEZIUM,
        "was there upstream",
        {
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
        },
        "mariadb",
    ),
    # Debezium 3.5.0 puts a column first that stands behind one whose name has a backquote: rows then had the values of
    # each other's columns.
    "places that Debezium does not find": Rule(
        "id INT PRIMARY KEY, v INT, `a``b` INT", DEBEZIUM, "backquote",
        {
            "ADD COLUMN x INT AFTER `a``b`": True,
            "ADD COLUMN `x``y` INT /* AFTER */": False,
            "ADD COLUMN x INT AFTER v": False,
        },
        "mariadb",
    ),
    # Debezium 3.5.0 sends a deleted row as an update of its end, and the former version of a row as a new one: rows
    # stayed that were deleted, as the target makes the columns of versions itself.
    "versions of rows": Rule(
        "id INT", (*DEBEZIUM, *CANAL, *TICDC), "former versions",
        {
            f"CREATE TABLE u (id INT, {VERSIONS}, PERIOD FOR SYSTEM_TIME (s, e)) WITH SYSTEM VERSIONING": True,
            "CREATE TABLE u (id INT PRIMARY KEY) WITH SYSTEM VERSIONING": False,
            "CREATE TABLE u (id INT PRIMARY KEY, row INT, start DATE, e DATE, PERIOD FOR p (start, e))": False,
        },
        "mariadb",
    ),
}  # fmt: skip


def whole(statement: str) -> str:
    return statement if statement.startswith("CREATE") else f"ALTER TABLE t {statement}"


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_a_sender_takes_otherwise(session: Session, rule: Rule) -> None:
    """Rows behind it would come with the values of each other's columns, or as other rows; not so of other senders."""
    session.execute(f"CREATE TABLE t ({rule.columns}) CHARSET utf8mb4")
    decisions = Decisions(session, ddl_rules(source=rule.source))
    for (statement, is_held), place in product(rule.statements.items(), (*DEBEZIUM, *CANAL, *TICDC)):
        why = decisions.why(whole(statement), place)
        assert rule.words in why if is_held and place in rule.places else why == "", (statement, place, why)


LOST_LETTERS = {
    "ADD COLUMN v VARCHAR(9) DEFAULT '\ufffd'": True,
    "ADD COLUMN v ENUM('a', '\ufffd')": True,
    "ADD COLUMN `gr\ufffd` INT": True,
    "ADD COLUMN v VARCHAR(9) DEFAULT '\u00e4' COMMENT 'gr\ufffd', COMMENT = '\ufffd'": False,
}


def test_letters_that_the_sender_lost(session: Session) -> None:
    """Debezium's connector reads statements as UTF-8, also those of sessions with SET NAMES latin1 (seen with 3.6.1):
    rows that are there would get U+FFFD.  TiDB's are UTF-8, as is what a snapshot shows."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY) CHARSET utf8mb4")
    decisions = Decisions(session, ddl_rules(source="mysql-8"))
    for statement, is_held in LOST_LETTERS.items():
        why = decisions.why(whole(statement), DEBEZIUM[0])
        assert ("U+FFFD" in why) == is_held, (statement, why)
    from_tidb = Decisions(session, ddl_rules(source="tidb"))
    assert from_tidb.why(whole(next(iter(LOST_LETTERS))), "") == ""


@pytest.mark.parametrize("rule", RULES.values(), ids=RULES)
def test_what_is_held_runs_when_the_operator_says_so(target: str, session: Session, rule: Rule) -> None:
    """The pipeline stops at it, and goes on behind it."""
    session.execute(f"CREATE TABLE t ({rule.columns}) CHARSET utf8mb4")
    statement = next(text for text, is_held in rule.statements.items() if is_held)
    events = in_one_partition([schema_change(TS, whole(statement))._replace(by_time=True, place=rule.places[0])])
    rules = ddl_rules(source=rule.source)
    with pytest.raises(HeldError, match=rule.words):
        run_all(target, events, ddl=rules)
    decide(target, session, JournalState.APPROVED)
    run_all(target, events, ddl=rules)
    assert outcome(session)[0] == "done"


def test_local_times_of_no_row(session: Session) -> None:
    """Without rows there is no value that depends on the zone, but the default of those that come later."""
    session.execute("CREATE TABLE t (at TIMESTAMP NULL, day DATETIME)")
    decisions = Decisions(session, DdlRules(timezone="Asia/Shanghai"))
    defaults = [text for text in LOCAL_TIMES[:-1] if "ADD COLUMN c TIMESTAMP" in text]
    assert [text for text in LOCAL_TIMES[:-1] if decisions.why(text)] == defaults
    session.execute("INSERT INTO t VALUES ('2020-01-01', '2020-01-01')")
    assert all("in the zone of the upstream's session" in decisions.why(text) for text in LOCAL_TIMES[:-1])


def test_moments_that_are_the_same_everywhere(session: Session) -> None:
    """What means the same moment in every zone needs none."""
    session.execute("CREATE TABLE t (at TIMESTAMP NOT NULL, day DATETIME)")
    session.execute("INSERT INTO t VALUES ('2020-01-01', '2020-01-01')")
    decisions = Decisions(session, DdlRules(timezone="Asia/Shanghai"))
    for actions in (
        "ADD c TIMESTAMP NOT NULL DEFAULT '0000-00-00 00:00:00', ADD d TIMESTAMP NULL DEFAULT NULL",
        "ADD c TIMESTAMP DEFAULT 0 COMMENT '2020-01-01', ADD d DATETIME DEFAULT '2020-01-01'",
        "ADD c DATETIME NULL ON UPDATE CURRENT_TIMESTAMP, MODIFY day DATETIME(3), MODIFY at TIMESTAMP(3)",
        "PARTITION BY RANGE (UNIX_TIMESTAMP(at)) (PARTITION p VALUES LESS THAN (1700000000))",
    ):
        assert decisions.why(f"ALTER TABLE t {actions}") == "", actions


HASHED = {
    "KEY": "PARTITION BY KEY (id) PARTITIONS 3",
    "LINEAR KEY": "PARTITION BY LINEAR KEY (id) PARTITIONS 3",
    "LINEAR HASH": "PARTITION BY LINEAR HASH (id) PARTITIONS 3",
    "HASH": "PARTITION BY HASH (id) PARTITIONS 3",
    "RANGE": "PARTITION BY RANGE (id) (PARTITION p0 VALUES LESS THAN (9), PARTITION p1 VALUES LESS THAN (99))",
}


def test_partitions_by_a_hash_of_the_server(target: str, session: Session) -> None:
    """TiDB puts other rows into a partition by KEY, and does not know LINEAR: a partition of its own is neither emptied
    nor exchanged in silence where the target's holds other rows; all of them together hold the same everywhere."""
    session.execute("CREATE TABLE x (id INT PRIMARY KEY)")
    for number, method in enumerate(HASHED.values()):
        session.execute(f"CREATE TABLE p{number} (id INT PRIMARY KEY) {method}")
        session.execute(f"INSERT INTO p{number} VALUES (1), (2), (3), (4), (5)")
    for source in ("tidb", "mysql-8"):
        decisions = Decisions(session, DdlRules(source=source))
        for number, method in enumerate(HASHED):
            words = f"by {method} the target has other rows"
            is_held = source == "tidb" and method not in {"HASH", "RANGE"}
            for change in (f"P{number} TRUNCATE PARTITION p0", f"`m`.`p{number}` EXCHANGE PARTITION p0 WITH TABLE m.x"):
                why = decisions.why(f"ALTER TABLE {change}")
                assert words in why if is_held else why == "", (source, change, why)
            assert decisions.why(f"ALTER TABLE p{number} TRUNCATE PARTITION ALL") == ""
    session.execute("DROP DATABASE _bridge")
    with pytest.raises(HeldError):
        run(target, "ALTER TABLE P0 TRUNCATE PARTITION p0")
    assert len(session.rows("SELECT * FROM p0")) == 5
    decide(target, session, JournalState.APPROVED)
    run(target, "ALTER TABLE P0 TRUNCATE PARTITION p0")
    assert len(session.rows("SELECT * FROM p0")) < 5


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
def test_values_that_a_server_makes_up(session: Session, there: str, statement: str) -> None:
    """A new column whose values each server makes up for the rows that are there is held; without rows there is nothing
    that the server could make up."""
    session.execute(there)
    session.execute("CREATE SEQUENCE s")
    decisions = Decisions(session, DdlRules())
    assert decisions.why(statement) == ""
    session.execute(f"INSERT INTO {there.split()[2]} VALUES (2), (1)")
    assert "each server makes up its own values" in decisions.why(statement)


def test_values_that_will_be_the_same(target: str, session: Session) -> None:
    """The operator says so: the statement runs, and what stands behind it."""
    session.execute("CREATE TABLE t (v INT)")
    session.execute("INSERT INTO t VALUES (2), (1)")
    statements = MADE_UP[0][1], "CREATE TABLE afterwards (a INT)"
    with pytest.raises(HeldError, match="each server makes up its own values"):
        run(target, *statements)
    assert outcome(session)[0] == "held"
    decide(target, session, JournalState.APPROVED)
    run(target, *statements)
    assert session.rows("SHOW TABLES LIKE 'afterwards'")
    assert len(session.rows("SHOW COLUMNS FROM t")) > 1


def test_the_moment_of_a_statement_of_mysql(session: Session) -> None:
    """A binlog tells the second in which a statement began; Debezium's connector for MySQL 8 tells when it had ended,
    which may be minutes later: rows that are there would get another time than upstream."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY)")
    session.execute("INSERT INTO t VALUES (1)")
    decisions = Decisions(session, ddl_rules(source="mysql-8"))
    for column, ms, is_held in (
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", 0, False),
        ("DATETIME NOT NULL DEFAULT NOW() ON UPDATE NOW()", 0, False),
        ("TIMESTAMP(3) NULL ON UPDATE CURRENT_TIMESTAMP(3)", 137, False),
        ("INT, ADD COLUMN now INT", 137, False),
        ("TIMESTAMP(6) NOT NULL DEFAULT CURRENT_TIMESTAMP(6)", 0, True),
        ("DATETIME DEFAULT CURRENT_TIMESTAMP", 137, True),
    ):
        why = decisions.why(f"ALTER TABLE t ADD COLUMN c {column}", ts=TS + ms_tso(ms))
        assert "makes up" in why if is_held else why == "", (column, why)


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
def test_a_timestamp_that_does_not_say_null(target: str, session: Session, source: str) -> None:
    """MySQL 5.7 and older MariaDB make it NOT NULL unless explicit_defaults_for_timestamp is on, and give the rows that
    are there the moment, or a zero date, where the target has NULL."""
    session.execute("CREATE TABLE t (id DATETIME PRIMARY KEY, t DATETIME)")
    session.execute("INSERT INTO t VALUES ('2020-01-01', NULL)")
    rules = ddl_rules(source=source)
    decisions = Decisions(session, rules)
    for action, is_held in IMPLICIT.items():
        why = decisions.why(f"ALTER TABLE t {action}")
        assert "explicit_defaults" in why if is_held else why == "", (action, why)
    session.execute("DROP DATABASE _bridge")
    with pytest.raises(HeldError, match="explicit_defaults"):
        run(target, "ALTER TABLE t ADD c TIMESTAMP", ddl=rules)
    decide(target, session, JournalState.APPROVED)
    run(target, "ALTER TABLE t ADD c TIMESTAMP", ddl=rules)
    assert session.rows("SELECT c FROM t") == [(None,)]


def test_a_column_that_begins_to_count(session: Session) -> None:
    """An upstream numbers the rows that hold 0 or NULL, which the bridge's sessions do with NULL only."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, v INT NULL, UNIQUE (v))")
    decisions = Decisions(session, DdlRules())
    for value, is_held in (("0", True), ("NULL", True), ("7", False)):
        session.execute(f"REPLACE INTO t VALUES (1, {value})")
        for change in ("MODIFY v INT", "CHANGE COLUMN v w BIGINT UNSIGNED NOT NULL"):
            why = decisions.why(f"ALTER TABLE t {change} AUTO_INCREMENT COMMENT 'x'")
            assert "AUTO_INCREMENT" in why if is_held else why == "", (value, why)


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
    session: Session, before: str, value: str, statement: str, held: set[str]
) -> None:
    """Where the upstream's server may make other values of them, the operator is asked; not where all servers make the
    same, or where no row has a value."""
    session.execute(f"CREATE TABLE t (id INT PRIMARY KEY, v {before})")
    assert Decisions(session, ddl_rules(source=TIDB)).why(f"ALTER TABLE t {statement}") == ""
    session.execute(f"INSERT INTO t VALUES (1, {value})")
    for source in (TIDB, MYSQL, MARIADB):
        why = Decisions(session, ddl_rules(source=source)).why(f"ALTER TABLE t {statement}")
        assert "make other values of" in why if source in held else why == "", (source, why)


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


def test_expressions_that_mean_something_by_the_mode(target: str, session: Session) -> None:
    """What ||, double quotes and backslashes mean depends on the upstream's session: the operator is asked, and may say
    that they mean what they do by default.  TiCDC's statements have been read by TiDB already."""
    session.execute("CREATE TABLE t (id INT PRIMARY KEY, n INT)")
    session.execute("INSERT INTO t VALUES (1, 2)")
    of_mysql, of_tidb = (Decisions(session, ddl_rules(source=source)) for source in (MYSQL, TIDB))
    for statement, is_held in BY_MODE:
        why = of_mysql.why(statement)
        assert "by the sql_mode of the upstream's session" in why if is_held else why == "", (statement, why)
    assert of_tidb.why(r"ALTER TABLE t ADD v ENUM('a\\b') DEFAULT 'a\\b'") == ""
    session.execute("DROP DATABASE _bridge")
    with pytest.raises(HeldError, match="by the sql_mode of the upstream's session"):
        run(target, BY_MODE[0][0], ddl=ddl_rules(source=MYSQL))
    decide(target, session, JournalState.APPROVED)
    run(target, BY_MODE[0][0], ddl=ddl_rules(source=MYSQL))
    assert outcome(session) == ("done", "ran")
