"""Statements that carry more than one schema change, or another than they seem to."""

from __future__ import annotations

import pytest

from bridge.ddl.parser import Classified, Refused, classify
from tests.support.ddl_words import M11, MY8, TIDB, on

ATTACKS = [
    "DROP TABLE t; DROP TABLE u",
    "DROP TABLE t /*!; DROP TABLE u */",
    "ALTER TABLE t ADD COLUMN a INT /*T! ; DROP TABLE u */",
    "ALTER TABLE t ADD COLUMN a INT /*T![x] , RENAME TO mysql.user */",
    "CREATE TABLE t (a INT) /*!50003 /*!50003 SELECT 1 */ */",
    "CREATE TABLE t (a INT) /*!50003 ENGINE=CONNECT */",
    "CREATE TABLE t (a INT) /*M! ENGINE=CONNECT */",
    "CREATE TABLE t (a INT) /*!999 COMMENT 'x' */",
    "CREATE TABLE t (a INT) /*!50003COMMENT 'x' */",
    *("CREATE TABLE t (a INT) /* COMMENT 'x'", "CREATE TABLE t (a INT) */ COMMENT 'x'"),
    *("CREATE TABLE t (a INT) /*! COMMENT 'x'", "CREATE TABLE t (a INT COMMENT 'x)"),
    *('CREATE TABLE t (a INT COMMENT "x)', "CREATE TABLE `t (a INT)", "CREATE TABLE t (a INT COMMENT 'x\\')"),
    *("CREATE TABLE t (a INT)\0", "CREATE TABLE t (a INT COMMENT 'x\0y')", "DROP TABLE t\x01"),
    *("CREATE TABLE t TABLE mysql.user", "CREATE TABLE t (a INT) AS VALUES ROW(1)"),
    "CREATE TABLE t (a INT) IGNORE TABLE u",
    "CREATE TABLE t (a INT) WITH x AS (SELECT 1) SELECT * FROM x",
    "CREATE VIEW v AS SELECT 1 INTO DUMPFILE '/tmp/x'",
    *("ALTER TABLE t DROP COLUMN a, SELECT 1", "ALTER TABLE t UNION=(u)", "ALTER TABLE t CONNECTION='mysql://h/d/t'"),
    "CREATE TABLE app2.t LIKE u",
    # a query that fills the table, in parentheses
    *("CREATE TABLE t (a INT) (TABLE u)", "CREATE TABLE t (a INT) ((TABLE u))", "CREATE TABLE t (TABLE u)"),
    "CREATE TABLE t (a INT) (VALUES ROW(1))",
    "CREATE TABLE t (a INT) (WITH x AS (TABLE u) TABLE x)",
    # a function is one by whatever name it is quoted
    "CREATE TABLE t (a TEXT DEFAULT (`LOAD_FILE`('/etc/passwd')))",
    "CREATE VIEW v AS SELECT `load_file` ('/etc/passwd')",
    "ALTER TABLE t ADD COLUMN a TEXT AS (load_file/**/('/etc/passwd'))",
    # rows that would be elsewhere
    "CREATE TABLE t (a INT) ENGINE=MERGE UNION=(u, b.v)",
    "CREATE TABLE t (a INT) UNION (u)",
    "ALTER TABLE t ENGINE = `mrg_myisam`",
    "ALTER TABLE t ENGINE /*!= */ BLACKHOLE",
    "CREATE TABLE t (a INT) PARTITION BY HASH (a) (PARTITION p STORAGE ENGINE = FEDERATED)",
    # files, behind the names of a list
    "ALTER TABLE t REMOVE PARTITIONING, IMPORT PARTITION p TABLESPACE",
    "ALTER TABLE t DROP PARTITION p, DISCARD PARTITION q TABLESPACE",
    "CREATE TABLESPACE ts ADD DATAFILE '/tmp/x.ibd'",
    "ALTER DATABASE x UPGRADE DATA DIRECTORY NAME",
    "ALTER DATABASE x READ ONLY = 1",
    # what runs a text, or hides one
    "SET STATEMENT max_statement_time=1 FOR DROP TABLE t",
    *("EXECUTE IMMEDIATE 'DROP TABLE t'", "BEGIN NOT ATOMIC DROP TABLE t; END", "DELIMITER //"),
    *("DROP TABLE t /* /* */ , u */", "/*!99999 DROP TABLE mysql.user */", "DROP TABLE mysql/**/./**/user"),
    "DROP TABLE .t",
    "ALTER DEFINER=a EVENT e ON SCHEDULE EVERY 1 DAY",
    "ALTER DEFINER=a PROCEDURE p COMMENT 'VIEW'",
    "CREATE TEMPORARY TABLE t (a INT)",
]


@pytest.mark.parametrize("statement", ATTACKS)
@pytest.mark.parametrize("flavour", [M11, MY8, TIDB])
def test_attacks_are_refused(statement: str, flavour: str) -> None:
    """What servers read differently from one another, or what carries more than one schema change, never runs."""
    assert isinstance(on(flavour, statement), Refused)


BEYOND = {
    "DROP TABLE t /*!99999 , u */": ("drop table", {"t", "u"}),
    "CREATE OR REPLACE TABLE t (a INT)": ("drop table, create table", {"t"}),
    "ALTER TABLE t ADD COLUMN (a INT, UNIQUE (a), CONSTRAINT f FOREIGN KEY (a) REFERENCES u (a), CHECK (a > 0))": (
        "add column, add index, add foreign key, add check", {"t"},
    ),
    "ALTER TABLE t DROP \u0131NDEX": ("drop column", {"t"}),
    "ALTER TABLE t ADD (PRIMARY KEY (a))": ("add primary key", {"t"}),
    "ALTER TABLE t ADD `INDEX` INT, DROP `PRIMARY`": ("add column, drop column", {"t"}),
    "ALTER TABLE t COMMENT 'a\\'; DROP TABLE u; -- '": ("alter table comment", {"t"}),
    "CREATE TABLE t (a INT COMMENT 'it''s; DROP TABLE u')": ("create table", {"t"}),
}  # fmt: skip


@pytest.mark.parametrize("statement", BEYOND)
def test_a_policy_sees_all_of_it(statement: str) -> None:
    """Whatever a statement does besides has its class, whatever it touches its name."""
    known = classify(statement, "app")
    assert isinstance(known, Classified)
    classes, touched = BEYOND[statement]
    assert (", ".join(known.classes), {table.table for table in known.tables}) == (classes, touched)


def test_long_statements() -> None:
    """Length costs no more than its share: of parentheses, of escapes, of comments, of a string without an end."""
    depth = 20_000
    doubled = "x''" * depth
    assert not isinstance(on(M11, f"ALTER TABLE t COMMENT '{doubled}'"), Refused)
    assert not isinstance(on(M11, f"DROP TABLE t {'/* */' * depth}"), Refused)
    assert isinstance(on(M11, f"ALTER TABLE t COMMENT '{'x' * depth}"), Refused)
    assert not isinstance(on(M11, f"ALTER TABLE t ADD COLUMN a INT DEFAULT {'(' * depth}"), Refused)
