"""The table of what servers know, against the servers themselves."""

from __future__ import annotations

import pytest
from pymysql.err import MySQLError

from bridge.ddl.rule import Feature, Flavour, named_capabilities, read_version
from bridge.mysql.connection.session import Session
from bridge.mysql.probe import probe
from tests.support.pipelines import admin

NEEDS: list[tuple[Feature, str]] = [
    (Feature.TIDB_SYNTAX, "CREATE TABLE p (a INT PRIMARY KEY CLUSTERED)"),
    (Feature.TIDB_SYNTAX, "RECOVER TABLE t"),
    (Feature.MYSQL_SYNTAX, "CREATE TABLE p (a INT, b INT AS (a + 1) STORED NOT NULL)"),
    (Feature.MYSQL_SYNTAX, "CREATE TABLE p (j JSON, a INT AS (j->'$.a'))"),
    (Feature.MYSQL_SYNTAX, "CREATE TABLE p (a INT) ENGINE=InnoDB ENCRYPTION='N'"),
    (Feature.MYSQL_SYNTAX, "CREATE TABLE p (a INT) ENGINE=InnoDB COMPRESSION='NONE'"),
    (Feature.INVISIBLE_INDEX, "CREATE TABLE p (a INT, KEY i (a) INVISIBLE)"),
    (Feature.IGNORED_INDEX, "CREATE TABLE p (a INT, KEY i (a) IGNORED)"),
    (Feature.EXPRESSION_INDEX, "CREATE TABLE p (a INT, KEY i ((a + 1)))"),
    (Feature.CHECKS, "SELECT * FROM information_schema.check_constraints"),  # older servers read them, and keep nothing
    (Feature.FRACTION_MODE, "SET @@sql_mode = CONCAT('TIME_', /*M! 'ROUND' */ /*!80000 'TRUNCATE' */, '_FRACTIONAL')"),
    (Feature.EXPRESSION_DEFAULT, "CREATE TABLE p (a INT DEFAULT (1 + 1))"),
    (Feature.RENAME_COLUMN, "ALTER TABLE t RENAME COLUMN b TO c"),
    (Feature.VECTOR_TEXT, "CREATE TABLE p (v VECTOR(3))"),
    (Feature.DATABASE_ENCRYPTION, "CREATE DATABASE d ENCRYPTION 'N'"),
    (Feature.INLINE_REFERENCES, "ALTER TABLE r DROP FOREIGN KEY r_ibfk_1"),
    (Feature.MARIADB_SYNTAX, "ALTER TABLE IF EXISTS t PAGE_CHECKSUM=1"),
    (Feature.IF_EXISTS, "ALTER TABLE t ADD COLUMN IF NOT EXISTS a INT"),
]


def runs(session: Session, statement: str) -> bool:
    """Whether the server runs it, beside a table t (a, b) with a check k of a, and a table r that may refer to q."""
    session.execute("DROP DATABASE IF EXISTS m")
    session.execute("CREATE DATABASE m")
    session.execute("USE m")
    session.execute("CREATE TABLE t (a INT, b INT, CONSTRAINT k CHECK (a > 0))")
    session.execute("CREATE TABLE q (a INT PRIMARY KEY)")
    session.execute("CREATE TABLE r (a INT REFERENCES q (a))")
    try:
        session.rows(statement)
    except MySQLError:
        return False
    return True


def test_a_server_knows_what_the_table_says(url: str) -> None:
    """Of every feature the table says whether this server has it."""
    with admin(url) as session:
        target = probe(session)
        wrong = [needed for needed in NEEDS if runs(session, needed[1]) != target.has(needed[0])]
    assert wrong == []
    assert {feature for feature, _ in NEEDS} == set(Feature)


def test_collations_are_as_documented(url: str) -> None:
    """A server has the collations, and the defaults of character sets, that `--flavour` says without one."""
    with admin(url) as session:
        target = probe(session)
    said = named_capabilities(f"{target.flavour}-{'.'.join(map(str, target.version))}").collations
    assert said.names - target.collations.names == set()
    known = target.collations.defaults
    assert {c: (d, known[c]) for c, d in said.defaults.items() if c in known and known[c] != d} == {}


VERSIONS = [
    ("11.4.5-MariaDB", Flavour.MARIADB, (11, 4, 5)),
    ("5.5.5-10.11.5-MariaDB-1:10.11.5+maria~deb12", Flavour.MARIADB, (10, 11, 5)),
    ("8.0.36-28", Flavour.MYSQL, (8, 0, 36)),
    ("5.7.44-log", Flavour.MYSQL, (5, 7, 44)),
    ("8.0.11-TiDB-v8.5.1", Flavour.TIDB, (8, 5, 1)),
]


@pytest.mark.parametrize(("said", "flavour", "version"), VERSIONS)
def test_versions(said: str, flavour: Flavour, version: tuple[int, ...]) -> None:
    """VERSION() tells flavour and version."""
    assert read_version(said) == (flavour, version)
