"""Schema changes as text: what class they are, what they touch, and what is refused."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import pytest
from pymysql.err import MySQLError

from bridge.ddl.classes import ColumnNames
from bridge.ddl.classes import StatementKind as C
from bridge.ddl.clauses import column_names_in
from bridge.ddl.lexer import read_tokens
from bridge.ddl.parser import Classified, Refused, Swap, Unclear, classify
from bridge.ddl.rewrite import Rewritten, rewrite
from bridge.ddl.rule import Site, UnsupportedError
from bridge.events import Kind
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.probe import probe
from bridge.mysql.server_errors import error_code
from tests.support.ddl_grammar import Grammar
from tests.support.ddl_words import ALL, on
from tests.support.pipelines import admin, decoded

T, U = TableName("app", "t"), TableName("app", "u")

TABLE_CHANGES: list[tuple[str, C, tuple[TableName, ...]]] = [
    ("CREATE TABLE t (a INT)", C.CREATE_TABLE, (T,)),
    ("create table if not exists `t` (a int)", C.CREATE_TABLE, (T,)),
    ("CREATE TABLE t LIKE u", C.CREATE_TABLE, (T,)),
    ("CREATE OR REPLACE TABLE t (a INT)", C.CREATE_TABLE, (T,)),
    ("CREATE GLOBAL TEMPORARY TABLE t (a INT) ON COMMIT DELETE ROWS", C.CREATE_TABLE, (T,)),
    ("CREATE TABLE `we``ird na.me` (a INT)", C.CREATE_TABLE, (TableName("app", "we`ird na.me"),)),
    ("CREATE TABLE 表 (a INT)", C.CREATE_TABLE, (TableName("app", "表"),)),
    ("CREATE TABLE b.t (`select` INT COMMENT 'SELECT')", C.CREATE_TABLE, (TableName("b", "t"),)),
    ("ALTER TABLE `b` . `t` ADD COLUMN c INT", C.ALTER_TABLE, (TableName("b", "t"),)),
    ("ALTER TABLE `t`", C.ALTER_TABLE, (T,)),
    ("ALTER TABLE t RENAME TO u", C.ALTER_TABLE, (T, U)),
    ("ALTER TABLE t ADD COLUMN c INT, RENAME AS u", C.ALTER_TABLE, (T, U)),
    ("ALTER TABLE t RENAME = u", C.ALTER_TABLE, (T, U)),
    ("ALTER TABLE t RENAME u", C.ALTER_TABLE, (T, U)),
    ("ALTER TABLE t RENAME COLUMN a TO u, RENAME INDEX i TO j, RENAME KEY k TO l", C.ALTER_TABLE, (T,)),
    ("ALTER TABLE t ADD COLUMN x INT COMMENT 'RENAME TO mysql.x'", C.ALTER_TABLE, (T,)),
    ("ALTER TABLE t /* RENAME TO v */ RENAME /*!40000 TO */ u # RENAME TO w", C.ALTER_TABLE, (T, U)),
    ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE u WITHOUT VALIDATION", C.EXCHANGE_PARTITION, (T, U)),
    ("ALTER TABLE t TRUNCATE PARTITION p", C.ALTER_TABLE, (T,)),
    ("ALTER TABLE t /*T![ttl] TTL=`a` + INTERVAL 1 DAY */", C.ALTER_TABLE, (T,)),
    ("DROP TABLE t", C.DROP_TABLE, (T,)),
    ("DROP TABLE IF EXISTS `app`.`t`, app.u;", C.DROP_TABLE, (T, U)),
    ("RENAME TABLE t TO u", C.RENAME_TABLE, (T, U)),
    ("RENAME TABLES t TO u", C.RENAME_TABLE, (T, U)),
    ("DROP TABLES t, u", C.DROP_TABLE, (T, U)),
    ("ALTER SQL SECURITY DEFINER VIEW t AS SELECT 1", C.CREATE_VIEW, (T,)),
    ("RENAME TABLE t TO b.x, u TO t;", C.RENAME_TABLE, (T, TableName("b", "x"), U, T)),
    ("TRUNCATE TABLE t", C.TRUNCATE_TABLE, (T,)),
    ("TRUNCATE t", C.TRUNCATE_TABLE, (T,)),
    ("RECOVER TABLE t", C.RECOVER_TABLE, (T,)),
    ("FLASHBACK TABLE t TO u", C.RECOVER_TABLE, (T, U)),
    ("CREATE VIEW t AS SELECT 1", C.CREATE_VIEW, (T,)),
    ("CREATE OR REPLACE ALGORITHM=UNDEFINED DEFINER=`root`@`%` SQL SECURITY INVOKER VIEW `t` (x) AS SELECT 1",
     C.CREATE_VIEW, (T,)),
    ("DROP VIEW IF EXISTS t, u", C.DROP_VIEW, (T, U)),
    ("CREATE VIEW t AS SELECT sys.a FROM u sys", C.CREATE_VIEW, (T,)),
    ("CREATE TABLE sys (a INT, b INT AS (sys.a + 1))", C.CREATE_TABLE, (TableName("app", "sys"),)),
    ("CREATE UNIQUE INDEX i ON t (a)", C.CREATE_INDEX, (T,)),
    ("CREATE INDEX `on` USING BTREE ON t (a)", C.CREATE_INDEX, (T,)),
    ("DROP INDEX i ON t", C.DROP_INDEX, (T,)),
    ("ALTER TABLE t PARTITION `p` PLACEMENT POLICY=`x`", C.ALTER_TABLE, (T,)),
]  # fmt: skip

DATABASE_CHANGES = [
    ("CREATE DATABASE IF NOT EXISTS `my-db` CHARACTER SET utf8mb4", C.CREATE_DATABASE, "my-db"),
    ("CREATE SCHEMA x", C.CREATE_DATABASE, "x"),
    ("ALTER DATABASE x COLLATE utf8mb4_bin", C.ALTER_DATABASE, "x"),
    ("ALTER DATABASE CHARACTER SET utf8mb4", C.ALTER_DATABASE, "app"),
    ("ALTER DATABASE `default` CHARACTER SET utf8mb4", C.ALTER_DATABASE, "default"),
    ("ALTER DATABASE PLACEMENT POLICY = p", C.ALTER_DATABASE, "app"),
    ("ALTER DATABASE placement PLACEMENT POLICY = p", C.ALTER_DATABASE, "placement"),
    ("ALTER DATABASE encryption COLLATE utf8mb4_bin", C.ALTER_DATABASE, "encryption"),
    ("ALTER DATABASE ENCRYPTION 'Y'", C.ALTER_DATABASE, "app"),
    ("DROP DATABASE IF EXISTS x", C.DROP_DATABASE, "x"),
]

REFUSED = [
    # rows
    *("INSERT INTO t VALUES (1)", "REPLACE INTO t VALUES (1)", "UPDATE t SET a = 1", "DELETE FROM t", "SELECT 1"),
    *("WITH x AS (SELECT 1) SELECT * FROM x", "LOAD DATA INFILE '/etc/passwd' INTO TABLE t"),
    *("LOAD XML INFILE 'x' INTO TABLE t", "CALL p()", "DO SLEEP(1)", "CREATE TABLE t AS SELECT 1"),
    *("CREATE TABLE t (a INT) SELECT 1", "HANDLER t OPEN"),
    # accounts, settings, the server
    *("GRANT ALL ON *.* TO x", "REVOKE ALL ON *.* FROM x", "CREATE USER x", "DROP USER x", "ALTER USER x ACCOUNT LOCK"),
    *("RENAME USER x TO y", "CREATE ROLE x", "SET GLOBAL read_only = 1", "SET @a = 1", "USE mysql", "FLUSH TABLES"),
    *("KILL 1", "SHUTDOWN", "INSTALL PLUGIN x SONAME 'x.so'", "INSTALL SONAME 'x'"),
    "CREATE SERVER s FOREIGN DATA WRAPPER mysql OPTIONS (HOST 'h')",
    *("LOCK TABLES t WRITE", "ANALYZE TABLE t", "OPTIMIZE TABLE t", "XA START 'x'", "COMMIT"),
    "PREPARE s FROM 'DROP TABLE t'",
    # programs
    "CREATE TRIGGER x BEFORE INSERT ON t FOR EACH ROW SET @a = 1",
    "CREATE OR REPLACE DEFINER=`a`@`b` TRIGGER `view` BEFORE INSERT ON t FOR EACH ROW SET @a = 1",
    "CREATE DEFINER='a'@'b' FUNCTION f() RETURNS INT RETURN 1",
    "CREATE PROCEDURE view() SELECT 1",
    "CREATE DEFINER=x PROCEDURE p() CREATE VIEW v AS SELECT 1",
    "CREATE AGGREGATE FUNCTION f RETURNS INT SONAME 'x.so'",
    "CREATE EVENT e ON SCHEDULE EVERY 1 DAY DO SELECT 1",
    *("ALTER EVENT e DISABLE", "DROP TRIGGER x", "DROP FUNCTION f", "CREATE TEMPORARY SEQUENCE s"),
    *("CREATE SEQUENCE mysql.s", "DROP SEQUENCE s, mysql.s", "ALTER TABLE t PARTITION p FOO"),
    "CREATE PACKAGE p AS END",
    # several statements
    *("DROP TABLE t; DROP TABLE u", "CREATE TABLE t (a INT) -- x\n; DROP TABLE u", "DROP TABLE t;;"),
    "DROP TABLE t /*!; DROP TABLE u */",
    # system schemas
    *("DROP TABLE mysql.user", "TRUNCATE `MySQL`.`user`", "CREATE DATABASE IF NOT EXISTS mysql", "DROP SCHEMA sys"),
    *("ALTER TABLE t RENAME TO mysql.x", "RENAME TABLE mysql.user TO t", "DROP TABLE t /*!, mysql.user */"),
    *("DROP TABLE t /*M!100000 , mysql.user */", "DROP TABLE t, information_schema.x"),
    *("CREATE VIEW mysql.v AS SELECT 1", "CREATE TABLE t (a INT, b INT AS (sys.a))", "CREATE TABLE t LIKE mysql.user"),
    "ALTER TABLE t ADD FOREIGN KEY (a) REFERENCES mysql.x (a)",
    # files and other servers
    "CREATE TABLE t (a INT) DATA DIRECTORY=CONCAT('/tmp')",
    "ALTER TABLE t PARTITION BY HASH (a) (PARTITION p INDEX DIRECTORY = x)",
    "CREATE TABLE t (a INT DEFAULT (LOAD_FILE('/etc/passwd')))",
    "CREATE VIEW v AS SELECT 1 INTO OUTFILE '/tmp/x'",
    "ALTER TABLE t IMPORT TABLESPACE",
    "ALTER TABLE t DISCARD TABLESPACE",
    "CREATE TABLE t (a INT) ENGINE=CONNECT TABLE_TYPE=CSV FILE_NAME='/etc/passwd'",
    "CREATE TABLE t (a INT) ENGINE = 'federated' CONNECTION='mysql://u@h/d/t'",
    "ALTER TABLE t ENGINE SPIDER",
    # what would hide a table from the bridge
    "CREATE TEMPORARY TABLE t (a INT)",
    # text that only looks like a comment: to the server a no-break space is a letter
    "CREATE TABLE t (`\u00a0` INT, a INT DEFAULT (1--\u00a0)) SELECT * FROM u",
    # nothing
    *("", ";", "-- DROP TABLE t", "/* DROP TABLE t */", "CREATE", "DROP TABLE", "RENAME TABLE t"),
    "ALTER TABLE t EXCHANGE PARTITION p",
]


@pytest.mark.parametrize(("statement", "kind", "tables"), TABLE_CHANGES)
def test_table_changes(statement: str, kind: C, tables: tuple[TableName, ...]) -> None:
    """Class and tables are read from the tokens a server reads; unqualified names lie in the current database."""
    classified = classify(statement, "app")
    assert isinstance(classified, Classified)
    assert (classified.kind, classified.tables, classified.database) == (kind, tables, "")


@pytest.mark.parametrize(
    ("renames", "swaps"),
    [
        ("a TO x, b TO a, x TO b", Swap.TABLES),
        ("a TO tmp, b TO a, c TO b, tmp TO c", Swap.TABLES),
        ("t TO t_old, t_new TO t", None),
        ("a TO b", None),
        ("Users TO users", None),
    ],
)
def test_renames_in_a_circle(renames: str, swaps: Swap | None) -> None:
    """They may leave all definitions as they were, so that these do not tell whether they ran."""
    known = classify(f"RENAME TABLE {renames}", "m")
    assert isinstance(known, Classified)
    assert known.swaps is swaps


@pytest.mark.parametrize(("statement", "kind", "database"), DATABASE_CHANGES)
def test_database_changes(statement: str, kind: C, database: str) -> None:
    """Changes of a database name it, or mean the current one."""
    classified = classify(statement, "app")
    assert isinstance(classified, Classified)
    assert (classified.kind, classified.tables, classified.database) == (kind, (), database)


@pytest.mark.parametrize("statement", REFUSED)
def test_refused(statement: str) -> None:
    """Whatever is not one schema change of a known class, or reaches beyond the replicated tables, is refused."""
    assert isinstance(classify(statement, "app"), Refused)


@pytest.mark.parametrize("schema", ["mysql", "SYS", "information_schema", "performance_schema"])
def test_system_schema_as_current_database(schema: str) -> None:
    """An unqualified name is refused when the message's database is a system schema."""
    refused = classify("DROP TABLE user", schema)
    assert isinstance(refused, Refused)
    assert refused.reason == "it touches a system schema"


def test_spans_are_the_names() -> None:
    """Where names stand in the text lets a probe be made under another name."""
    for statement in ("CREATE TABLE IF NOT EXISTS `a` . `b` (c INT)", "CREATE VIEW a.b AS SELECT 1"):
        classified = classify(statement, "app")
        assert isinstance(classified, Classified)
        start, end = classified.touched[0].span
        assert [t.name for t in read_tokens(statement[start:end]) if t.name] == ["a", "b"]
        assert statement[end] == " "


def test_genuine_script(golden: Path) -> None:
    """Of the upstream's script every schema change is classified, except of kinds that TiCDC does not send."""
    kinds = ("PLACEMENT", "RESOURCE", "USER", "TEMPORARY", "SEQUENCE")
    not_sent = (*(f"{verb} {kind}" for verb in ("CREATE", "ALTER", "DROP") for kind in kinds),
                "LOCK", "UNLOCK", "ANALYZE", "GRANT", "SET")  # fmt: skip
    rows = ("INSERT", "UPDATE", "DELETE", "USE", "--")
    for line in (golden / "scripts" / "ddl.sql").read_text(encoding="utf-8").splitlines():
        is_change = bool(line.strip()) and not line.startswith((*not_sent, *rows))
        assert isinstance(classify(line, "app"), Classified) == is_change, line


def test_genuine_messages(golden: Path) -> None:
    """All 118 statements that TiCDC sent are classified, and touch the table or database that the message names."""
    events = decoded(golden / "canal-ext" / "ddl.jsonl", "canal-json").to_pylist()
    changes = [event for event in events if event["kind"] == Kind.SCHEMA_CHANGE]
    assert len(changes) == 118
    for change in changes:
        classified = classify(change["text"], change["schema"])
        assert isinstance(classified, Classified), change["text"]
        named = TableName(change["schema"], change["table"])
        is_swap = change["text"] == "RENAME TABLE `app`.`ra` TO `app`.`rtmp`;"  # TiCDC names the last of three renames
        assert is_swap or named in classified.tables or classified.database == named.schema, change["text"]


CASES = [
    ("ALTER TABLE t ADD COLUMN a INT", {}, set()),
    ("ALTER TABLE t DROP COLUMN a", {}, {"a"}),
    ("ALTER TABLE `s`.`t` DROP A, DROP COLUMN IF EXISTS `b`", {}, {"a", "b"}),
    ("ALTER TABLE t DROP INDEX a, DROP PRIMARY KEY, DROP FOREIGN KEY f, DROP CHECK d", {}, set()),
    ("ALTER TABLE t DROP `index`", {}, {"index"}),
    ("ALTER TABLE t RENAME COLUMN A TO b", {"a": "b"}, set()),
    ("ALTER TABLE t RENAME COLUMN a TO b, RENAME COLUMN b TO a", {"a": "b", "b": "a"}, set()),
    ("ALTER TABLE t RENAME COLUMN IF EXISTS a TO b, DROP c", {"a": "b"}, {"c"}),
    ("ALTER TABLE t /*T! SHARD_ROW_ID_BITS = 4 */, DROP a, /*T![ttl] REMOVE TTL */, DROP b", {}, {"a", "b"}),
    ("ALTER TABLE t RENAME INDEX a TO b", {}, set()),
    ("ALTER TABLE t RENAME TO u", {}, set()),
    ("ALTER TABLE t CHANGE a b DECIMAL(10,2) NOT NULL", {"a": "b"}, set()),
    ("ALTER TABLE t CHANGE COLUMN a A BIGINT", {}, set()),
    ("ALTER TABLE t MODIFY COLUMN a ENUM('x,y','z') AFTER b, MODIFY c INT", {}, set()),
    ("ALTER TABLE t ADD (a INT, b DECIMAL(5,2)), DROP c", {}, {"c"}),
    ("ALTER TABLE t DROP PARTITION p0, p1", {}, set()),
    ("ALTER TABLE t /* DROP COLUMN a */ COMMENT = 'x, DROP COLUMN a'", {}, set()),
]  # fmt: skip


def names_in(statement: str) -> ColumnNames:
    """The names of a statement."""
    classified = classify(statement, "s")
    assert isinstance(classified, Classified)
    return column_names_in(statement, classified)


@pytest.mark.parametrize("case", CASES, ids=[case[0] for case in CASES])
def test_columns_that_are_renamed_or_dropped(case: tuple[str, dict[str, str], set[str]]) -> None:
    """Whatever else the statement does."""
    statement, renamed, dropped = case
    found = names_in(statement)
    assert (dict(found.renamed), found.dropped) == (renamed, dropped)


@pytest.mark.parametrize(
    ("change", "gone", "come"),
    [
        ("ADD COLUMN a INT, ADD b INT FIRST, ADD COLUMN IF NOT EXISTS C INT", set(), {"a", "b", "c"}),
        ("ADD COLUMN (a INT, b DECIMAL(5,2) NOT NULL)", set(), {"a", "b"}),
        ("ADD INDEX (a), ADD CONSTRAINT c CHECK (a > 0), ADD PARTITION (PARTITION p VALUES IN (1))", set(), set()),
        ("DROP a, DROP COLUMN b", {"a", "b"}, set()),
        ("DROP a, ADD a BIGINT", set(), {"a"}),
        ("RENAME COLUMN a TO b, CHANGE c d INT, CHANGE e e INT", {"a", "c"}, {"b", "d"}),
        ("RENAME COLUMN a TO b, RENAME COLUMN b TO a", set(), {"a", "b"}),
    ],
)  # fmt: skip
def test_names_that_come_and_go(change: str, gone: set[str], come: set[str]) -> None:
    """By which a row shows on which side of the statement it is."""
    found = names_in(f"ALTER TABLE t {change}")
    assert (found.gone, found.given) == (gone, come)


SEEDS = [pytest.param(range(100), id="some"), pytest.param(range(1000, 8000), id="many", marks=pytest.mark.soak)]
SYNTAX_ERRORS = {1064, 1149, 1911, 1912, 3776}
"""No SQL; an option or its value that nobody knows."""


@cache
def statements(seeds: range) -> list[str]:
    return sorted({Grammar(seed).statement() for seed in seeds})


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("flavour", ALL)
def test_a_second_pass_changes_nothing(flavour: str, seeds: range) -> None:
    """What a flavour is sent, it would be sent again as it is; nothing is refused."""
    held, said_again = set(), []
    for statement in statements(seeds):
        try:
            found = on(flavour, statement)
        except UnsupportedError as error:
            held.add(str(error)[:40])
            continue
        if isinstance(found, Unclear):  # as "DROP VIEW app.v, v2", which is held
            continue
        assert isinstance(found, Rewritten), (statement, found)
        again = found if found.text is None else on(flavour, found.text)
        if not isinstance(again, Rewritten) or again.text != found.text:
            said_again.append((statement, found.text, again))
    assert said_again == []
    assert len(held) <= 7


@pytest.mark.parametrize("seeds", SEEDS)
def test_servers_can_read_it(url: str, seeds: range) -> None:
    """No server is sent what it cannot read."""
    with admin(url) as session:
        session.execute("CREATE DATABASE app")
        session.execute("USE app")
        site = Site(probe(session))
        unread = [statement for statement in statements(seeds) if not _is_read(session, site, statement)]
        assert unread == []


def _is_read(session: Session, site: Site, statement: str) -> bool:
    """Whether the server understands what it is sent; one that is held is sent nothing."""
    try:
        found = rewrite(statement, "app", site)
    except UnsupportedError:
        return True
    if isinstance(found, Unclear):
        return True
    assert isinstance(found, Rewritten), statement
    try:
        session.execute("SET @text = %s", (found.text or "DO 0",))
        session.execute("PREPARE p FROM @text")
    except MySQLError as error:
        return error_code(error) not in SYNTAX_ERRORS
    return True
