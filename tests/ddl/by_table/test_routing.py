"""Names in schema changes, given those of the target: every name that is understood, or nothing at all."""

from __future__ import annotations

import pytest

from bridge.ddl.by_table.routing import RoutingError, routed_statement
from bridge.ddl.lexer import open_comments
from bridge.ddl.parser import Classified, classify
from bridge.filters.routes import Routes, parse_route
from bridge.filters.table_filter import TableFilter

WHOLE = ("a.* -> b.*",)
ONE = ("a.t -> c.u",)

ROUTED: list[tuple[tuple[str, ...], str, str]] = [
    (WHOLE, "CREATE TABLE t (id INT PRIMARY KEY)", "CREATE TABLE `b`.`t` (id INT PRIMARY KEY)"),
    (WHOLE, "CREATE TABLE a.t (id INT)", "CREATE TABLE `b`.`t` (id INT)"),
    (WHOLE, "CREATE TABLE `A` . `t` (id INT)", "CREATE TABLE `b`.`t` (id INT)"),
    (WHOLE, "CREATE TABLE x.t (id INT)", "CREATE TABLE x.t (id INT)"),
    (WHOLE, "CREATE TABLE t LIKE s", "CREATE TABLE `b`.`t` LIKE `b`.`s`"),
    (ONE, "CREATE TABLE t LIKE s", "CREATE TABLE `c`.`u` LIKE `a`.`s`"),
    (ONE, "CREATE TABLE s (LIKE a.t)", "CREATE TABLE `a`.`s` (LIKE `c`.`u`)"),
    (ONE, "CREATE TABLE s (id INT, FOREIGN KEY (id) REFERENCES t (id))",
     "CREATE TABLE `a`.`s` (id INT, FOREIGN KEY (id) REFERENCES `c`.`u` (id))"),
    (ONE, "CREATE TABLE t (id INT, FOREIGN KEY (id) REFERENCES s (id))",
     "CREATE TABLE `c`.`u` (id INT, FOREIGN KEY (id) REFERENCES `a`.`s` (id))"),
    (ONE, "ALTER TABLE s ADD CONSTRAINT x FOREIGN KEY (id) REFERENCES a.t (id)",
     "ALTER TABLE `a`.`s` ADD CONSTRAINT x FOREIGN KEY (id) REFERENCES `c`.`u` (id)"),
    (ONE, "ALTER TABLE s ADD COLUMN t INT COMMENT 'a.t'", "ALTER TABLE s ADD COLUMN t INT COMMENT 'a.t'"),
    (ONE, "ALTER TABLE t ADD COLUMN s INT COMMENT 'a.t'", "ALTER TABLE `c`.`u` ADD COLUMN s INT COMMENT 'a.t'"),
    (ONE, "/*!40101 ALTER TABLE t DROP COLUMN s */", "ALTER TABLE `c`.`u` DROP COLUMN s"),
    (ONE, "ALTER TABLE t RENAME TO a.s", "ALTER TABLE `c`.`u` RENAME TO a.s"),
    (ONE, "ALTER TABLE s RENAME t", "ALTER TABLE `a`.`s` RENAME `c`.`u`"),
    (ONE, "RENAME TABLE t TO s, s2 TO t", "RENAME TABLE `c`.`u` TO `a`.`s`, `a`.`s2` TO `c`.`u`"),
    (WHOLE, "RENAME TABLE t TO x.t", "RENAME TABLE `b`.`t` TO x.t"),
    (ONE, "DROP TABLE IF EXISTS s, a.t, x.t", "DROP TABLE IF EXISTS `a`.`s`, `c`.`u`, x.t"),
    (ONE, "DROP TABLE s, x.t", "DROP TABLE s, x.t"),
    (ONE, "TRUNCATE t", "TRUNCATE `c`.`u`"),
    (ONE, "CREATE UNIQUE INDEX t ON t (t)", "CREATE UNIQUE INDEX t ON `c`.`u` (t)"),
    (ONE, "DROP INDEX t ON a.t", "DROP INDEX t ON `c`.`u`"),
    (ONE, "ALTER TABLE t EXCHANGE PARTITION p WITH TABLE s",
     "ALTER TABLE `c`.`u` EXCHANGE PARTITION p WITH TABLE `a`.`s`"),
    (ONE, "ALTER TABLE t ADD COLUMN n DECIMAL(3,1) DEFAULT 1.5",
     "ALTER TABLE `c`.`u` ADD COLUMN n DECIMAL(3,1) DEFAULT 1.5"),
    (("a.* -> `b``c`.*",), "TRUNCATE t", "TRUNCATE `b``c`.`t`"),
    (WHOLE, "CREATE DATABASE a CHARACTER SET utf8mb4", "CREATE DATABASE `b` CHARACTER SET utf8mb4"),
    (WHOLE, "CREATE SCHEMA IF NOT EXISTS `a`", "CREATE SCHEMA IF NOT EXISTS `b`"),
    (WHOLE, "ALTER DATABASE a COLLATE utf8mb4_bin", "ALTER DATABASE `b` COLLATE utf8mb4_bin"),
    (WHOLE, "DROP DATABASE x", "DROP DATABASE x"),
    (ONE, "CREATE DATABASE a", "CREATE DATABASE a"),
    (ONE, "ALTER DATABASE a COLLATE utf8mb4_bin", "ALTER DATABASE a COLLATE utf8mb4_bin"),
    (ONE, "DROP VIEW v", "DROP VIEW v"),
]  # fmt: skip


def routes(rules: tuple[str, ...], tables: tuple[str, ...] = ()) -> Routes:
    return Routes(tuple(map(parse_route, rules)), TableFilter(tables))


def routed(rules: tuple[str, ...], statement: str, *tables: str, schema: str = "a") -> tuple[str, str]:
    text = open_comments(statement)
    known = classify(text, schema, is_certain=True)
    assert isinstance(known, Classified), statement
    found = routed_statement(text, known, schema, routes(rules, tables), tidb=False)
    return found.text.strip(), found.schema


@pytest.mark.parametrize(("rules", "statement", "there"), ROUTED, ids=[case[1][:60] for case in ROUTED])
def test_names(rules: tuple[str, ...], statement: str, there: str) -> None:
    """Every name is the target's, with its database; what is no name of a table stays."""
    assert routed(rules, statement)[0] == there


HELD: list[tuple[tuple[str, ...], str, str]] = [
    (WHOLE, "DROP DATABASE a", "tables of a have other names"),
    (WHOLE, "CREATE OR REPLACE DATABASE a", "tables of a have other names"),
    (ONE, "DROP DATABASE a", "tables of a have other names"),
    (WHOLE, "DROP DATABASE b", "routed into b"),
    (WHOLE, "CREATE DATABASE b", "routed into b"),
    (ONE, "DROP DATABASE c", "routed into c"),
    (WHOLE, "TRUNCATE b.t", "a.t would both be written to b.t"),
    (WHOLE, "RENAME TABLE t TO b.t", "a.t would both be written to b.t"),
    (ONE, "ALTER TABLE t ADD COLUMN n INT AS (t.id + 1)", "something of t"),
    (WHOLE, "ALTER TABLE t ADD COLUMN n INT AS (a . t . id + 1)", "something of a"),
    (WHOLE, "CREATE VIEW v AS SELECT t.id FROM t JOIN a.s AS y ON y.id = t.id WHERE a.s.id > 1", "a view"),
    (ONE, "CREATE VIEW a.v AS SELECT y.id FROM a.t y", "a view"),
    (ONE, "CREATE VIEW x.v AS SELECT `a`.`t`.`id` FROM `a`.`t`", "a view"),
    (ONE, "CREATE VIEW v AS SELECT id FROM t", "a view"),
    (ONE, "CREATE VIEW v AS SELECT id FROM s", "a view"),
    (ONE, "CREATE VIEW v AS SELECT t.id FROM a.t", "a view"),
    (ONE, "CREATE VIEW v AS SELECT a.t.id, a FROM a.t", "a view"),
    (WHOLE, "CREATE VIEW x.v AS SELECT a.f(id) FROM x.t", "a view"),
    (WHOLE, "CREATE VIEW v AS SELECT NEXTVAL(s) FROM t", "a view"),
    (WHOLE, "CREATE VIEW x.v AS SELECT id FROM x.t, t", "a view"),
]


@pytest.mark.parametrize(("rules", "statement", "words"), HELD, ids=[case[1][:60] for case in HELD])
def test_what_does_not_run(rules: tuple[str, ...], statement: str, words: str) -> None:
    """A name that is not understood, a database that others share, a target that two tables share: nothing runs."""
    with pytest.raises(RoutingError) as raised:
        routed(rules, statement)
    assert words in str(raised.value)


def test_the_current_database() -> None:
    """It is the target's where all tables of the database go there."""
    assert routed(WHOLE, "TRUNCATE t")[1] == "b"
    assert routed(ONE, "TRUNCATE t")[1] == "a"
    assert routed(WHOLE, "ALTER DATABASE COLLATE utf8mb4_bin") == ("ALTER DATABASE COLLATE utf8mb4_bin", "b")


def test_what_is_not_replicated_shares_nothing() -> None:
    """A filter that leaves the other table out makes a target free."""
    assert routed(WHOLE, "TRUNCATE b.t", "b.*")[0] == "TRUNCATE b.t"


@pytest.mark.parametrize("statement", ["CREATE DATABASE a", "ALTER DATABASE a COLLATE utf8mb4_bin"])
def test_a_database_that_another_table_shares(statement: str) -> None:
    """Its defaults are not one upstream database's alone."""
    with pytest.raises(RoutingError, match="routed into b"):
        routed(("a.* -> b.*", "x.t -> b.u"), statement, "*.*", "!a.u")
