"""Statements that change no table are passed over; what may change one is not."""

from __future__ import annotations

import pytest

from bridge.ddl.parser import PassedOver, Refused, classify
from tests.support.ddl_words import ALL, NOTHING, words

PASSED_OVER = [
    # as a real Canal 1.1.7 and a real Debezium 3.6.1 sent them
    *("ALTER USER 'bob'@'%' ACCOUNT LOCK", "REPAIR TABLE tx1", "FLUSH TABLES", "DROP EVENT ev"),
    "CREATE DEFINER=`root`@`%` EVENT ev ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    # others
    *("ANALYZE TABLE t", "ANALYZE NO_WRITE_TO_BINLOG TABLE a.t, u", "ANALYZE LOCAL TABLES t", "OPTIMIZE TABLE t, u"),
    *(
        *("OPTIMIZE LOCAL TABLE `t`", "REPAIR TABLE t QUICK", "REPAIR VIEW v", "CHECK TABLE t FOR UPGRADE"),
        "CHECKSUM TABLE t",
    ),
    *(
        "ANALYZE INCREMENTAL TABLE t INDEX",
        "ANALYZE TABLE t PERSISTENT FOR ALL",
        "ANALYZE TABLE t UPDATE HISTOGRAM ON c",
    ),
    *("FLUSH PRIVILEGES", "FLUSH NO_WRITE_TO_BINLOG LOGS", "RESET MASTER", "PURGE BINARY LOGS TO 'x'"),
    *(
        *("GRANT ALL ON *.* TO x", "REVOKE ALL ON *.* FROM x", "GRANT r TO 'a'@'b' WITH ADMIN OPTION"),
        "RENAME USER a TO b",
    ),
    *("CREATE USER IF NOT EXISTS 'x'@'%' IDENTIFIED BY 'y'", "DROP USER a, b"),
    *(
        *("CREATE OR REPLACE USER x", "CREATE ROLE r", "DROP ROLE IF EXISTS r", "SET DEFAULT ROLE r TO x"),
        "SET PASSWORD = 'x'",
    ),
    *(
        *("SET GLOBAL a = 1", "SET @a = 1, @b = 2", "SET NAMES utf8mb4", "SET TRANSACTION READ ONLY", "USE `tr`"),
        "DO SLEEP(1)",
    ),
    *(
        *("LOCK TABLES t WRITE, u READ", "LOCK TABLE t READ", "UNLOCK TABLES", "LOCK INSTANCE FOR BACKUP"),
        "UNLOCK STATS t",
    ),
    *("BEGIN", "BEGIN WORK", "START TRANSACTION", "COMMIT", "SAVEPOINT `s`", "RELEASE SAVEPOINT s", "XA START 'a'"),
    *(
        *("XA END X'31',X'',1", "XA PREPARE 'a'", "XA COMMIT 'a' ONE PHASE", "START SLAVE", "STOP REPLICA"),
        "CHANGE MASTER TO x=1",
    ),
    "CREATE DEFINER=`root`@`10.0.%` TRIGGER x BEFORE INSERT ON t FOR EACH ROW BEGIN SET @a = 1; DELETE FROM u; END",
    "CREATE OR REPLACE DEFINER = CURRENT_USER() PROCEDURE p() BEGIN DROP TABLE t; END",
    "CREATE AGGREGATE FUNCTION f RETURNS INT SONAME 'x.so'",
    "CREATE /*!50020 DEFINER=`a`@`b`*/ FUNCTION f() RETURNS INT RETURN 1",
    "CREATE DEFINER=`a`@`b` FUNCTION IF NOT EXISTS f() RETURNS INT DETERMINISTIC BEGIN RETURN 1; END",
    *(
        "ALTER EVENT e DISABLE",
        "ALTER DEFINER=a EVENT e ON SCHEDULE EVERY 1 DAY",
        "DROP EVENT IF EXISTS e",
        "DROP TRIGGER x",
    ),
    *("ALTER PROCEDURE p COMMENT 'VIEW'", "DROP PROCEDURE p", "DROP FUNCTION IF EXISTS f", "CREATE PACKAGE p AS END"),
    *(
        "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h')",
        *(
            "CREATE OR REPLACE SEQUENCE IF NOT EXISTS s START 3",
            "ALTER SEQUENCE IF EXISTS s RESTART 9",
            "DROP SEQUENCE s, q",
        ),
        "ALTER SERVER s OPTIONS (HOST 'h')",
        "DROP SERVER s",
    ),
    *(
        "CREATE TABLESPACE ts ADD DATAFILE 'x.ibd'",
        "DROP TABLESPACE ts",
        "CREATE UNDO TABLESPACE u ADD DATAFILE 'u.ibu'",
    ),
    *("ALTER INSTANCE ROTATE INNODB MASTER KEY", "CREATE RESOURCE GROUP g TYPE = USER", "DROP RESOURCE GROUP g"),
    *(
        *("INSTALL PLUGIN x SONAME 'x.so'", "UNINSTALL COMPONENT 'file://x'", "KILL 1", "SHUTDOWN"),
        "PREPARE s FROM 'DROP TABLE t'",
    ),
    *(
        *("ADMIN CHECK TABLE t", "SPLIT TABLE t BETWEEN (0) AND (9) REGIONS 3", "LOAD STATS 'x'"),
        "CREATE PLACEMENT POLICY p F=1",
    ),
    *("CREATE GLOBAL BINDING FOR SELECT 1 USING SELECT 1", "DROP STATS t", "ALTER RANGE g PLACEMENT POLICY p"),
    *(
        *("CREATE TEMPORARY TABLE t (a INT)", "CREATE TEMPORARY TABLE t SELECT 1", "FLUSH TABLES;", "/* nothing */"),
        "-- x",
    ),
]

NOT_PASSED_OVER = [
    # other statements in them
    *(
        *("GRANT ALL ON *.* TO x; DROP TABLE t", "FLUSH TABLES; FLUSH LOGS", "SET @a = 1; DROP TABLE t"),
        "DROP USER x; DROP TABLE t",
    ),
    *(
        "SET STATEMENT max_statement_time=1 FOR DROP TABLE t",
        "ANALYZE UPDATE t SET a = 1",
        "ANALYZE FORMAT=JSON DELETE FROM t",
    ),
    *("BEGIN NOT ATOMIC DROP TABLE t; END", "EXECUTE s", "CALL p()", "EXECUTE IMMEDIATE 'DROP TABLE t'"),
    # rows
    *(
        *("INSERT INTO t VALUES (1)", "UPDATE t SET a = 1", "DELETE FROM t", "REPLACE INTO t VALUES (1)"),
        "LOAD DATA INFILE 'x' INTO TABLE t",
    ),
    *("XA ROLLBACK 'a'", "ROLLBACK", "ROLLBACK TO SAVEPOINT s", "IMPORT TABLE FROM 'x'", "RESTORE DATABASE * FROM 'x'"),
    *("SELECT 1", "CREATE TABLE t AS SELECT 1", "HANDLER t OPEN", "BINLOG 'x'"),
]


@pytest.mark.parametrize("statement", PASSED_OVER)
def test_what_is_passed_over(statement: str) -> None:
    """Maintenance, accounts, programs, sessions: whatever follows, no table and no row is another one behind it."""
    assert isinstance(classify(statement, "app"), PassedOver)


@pytest.mark.parametrize("statement", NOT_PASSED_OVER)
def test_what_is_not(statement: str) -> None:
    """Whatever may run another statement, or change rows, stops the pipeline."""
    found = classify(statement, "app")
    assert isinstance(found, Refused)
    assert not isinstance(found, PassedOver)


@pytest.mark.parametrize("flavour", ALL)
@pytest.mark.parametrize(
    "action",
    [
        *("ANALYZE PARTITION p", "CHECK PARTITION ALL", "OPTIMIZE PARTITION p, `q`", "REBUILD PARTITION p"),
        *("REPAIR PARTITION p, q QUICK", "COMPACT TIFLASH REPLICA"),
    ],
)
def test_maintenance_of_partitions(flavour: str, action: str) -> None:
    """Nothing of it runs: the target's partitions are its own."""
    assert words(flavour, f"ALTER TABLE t {action}") == NOTHING
