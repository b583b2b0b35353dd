"""IF EXISTS and IF NOT EXISTS of statements that did nothing upstream, or only a part of what they say."""

from __future__ import annotations

import pytest

from bridge.ddl.policy import ddl_rules
from bridge.errors import HeldError, SchemaChangeError
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import JournalState
from tests.support.pipelines import admin, run_all, sql
from tests.support.schema_change_runs import TS, decide, outcome, run
from tests.support.upstreams import boundary, in_one_partition, schema_change

TABLE = "CREATE TABLE m.t (id INT PRIMARY KEY, b INT, KEY ib (b), CONSTRAINT k CHECK (b > 0))"


@pytest.mark.parametrize("url", ["target", "mysql_target"], indirect=True)
@pytest.mark.parametrize(
    ("statement", "columns", "keys"),
    [
        (
            "ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT, ADD COLUMN IF NOT EXISTS a INT DEFAULT 3",
            "id b a",
            "PRIMARY ib",
        ),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS b BIGINT, ADD IF NOT EXISTS id INT", "id b", "PRIMARY ib"),
        ("ALTER TABLE t DROP COLUMN IF EXISTS x, ADD COLUMN c INT", "id b c", "PRIMARY ib"),
        ("ALTER TABLE t DROP COLUMN IF EXISTS x, DROP INDEX IF EXISTS ib", "id b", "PRIMARY"),
        ("ALTER TABLE t DROP INDEX IF EXISTS nosuch", "id b", "PRIMARY ib"),
        ("ALTER TABLE t ADD INDEX IF NOT EXISTS ib (id), ADD INDEX IF NOT EXISTS i2 (id)", "id b", "PRIMARY i2 ib"),
        ("ALTER TABLE t MODIFY COLUMN IF EXISTS x BIGINT, CHANGE COLUMN IF EXISTS y z INT", "id b", "PRIMARY ib"),
        ("ALTER TABLE t RENAME COLUMN IF EXISTS x TO y, ADD COLUMN c INT", "id b c", "PRIMARY ib"),
        ("ALTER TABLE t DROP CONSTRAINT IF EXISTS x", "id b", "PRIMARY ib"),
        ("ALTER TABLE t DROP FOREIGN KEY IF EXISTS x, ADD COLUMN c INT", "id b c", "PRIMARY ib"),
        ("ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS k CHECK (b > 5), ADD COLUMN c INT", "id b c", "PRIMARY ib"),
        ("ALTER TABLE t ADD CONSTRAINT IF NOT EXISTS q CHECK (b > 5), ADD COLUMN c INT", "id b c", "PRIMARY ib"),
        ("ALTER TABLE t ADD COLUMN IF NOT EXISTS (b INT, c INT, id INT, d INT)", "id b c d", "PRIMARY ib"),
        ("ALTER TABLE t ADD IF NOT EXISTS (c INT, b INT)", "id b c", "PRIMARY ib"),
        ("ALTER TABLE t ADD PRIMARY KEY IF NOT EXISTS (b), ADD COLUMN c INT", "id b c", "PRIMARY ib"),
        ("ALTER TABLE t ALTER IF EXISTS x SET DEFAULT 1, ALTER IF EXISTS b SET DEFAULT 5", "id b", "PRIMARY ib"),
        ("CREATE INDEX IF NOT EXISTS ib ON t (id)", "id b", "PRIMARY ib"),
        ("DROP INDEX IF EXISTS nosuch ON t", "id b", "PRIMARY ib"),
        ("DROP INDEX IF EXISTS ib ON t", "id b", "PRIMARY"),
        ("ALTER TABLE IF EXISTS nosuch ADD COLUMN c INT, DROP COLUMN d", "id b", "PRIMARY ib"),
        ("RENAME TABLE IF EXISTS nosuch TO u", "id b", "PRIMARY ib"),
    ],
)
def test_parts_that_did_nothing(url: str, statement: str, columns: str, keys: str) -> None:
    """The target is what the upstream was, so the same parts do nothing there, whether it knows the IF or not."""
    sql(url, "CREATE DATABASE m", TABLE)
    rules = ddl_rules(source="mariadb")
    run_all(url, in_one_partition([schema_change(TS, statement), boundary(TS + 1)]), ddl=rules)
    named = sql(
        url,
        "SELECT column_name FROM information_schema.columns WHERE table_schema = 'm' AND table_name = 't'"
        " ORDER BY ordinal_position",
    )
    indexes = sql(
        url,
        "SELECT DISTINCT index_name FROM information_schema.statistics WHERE table_schema = 'm' AND table_name = 't'"
        " ORDER BY index_name = 'PRIMARY' DESC, index_name",
    )
    assert " ".join(name for (name,) in named) == columns
    assert " ".join(name for (name,) in indexes) == keys


@pytest.mark.parametrize("url", ["target", "mysql_target"], indirect=True)
@pytest.mark.parametrize(
    ("pairs", "tables"),
    [
        ("nosuch TO b, t TO d", "d s"),
        ("t TO x, nosuch TO y", "s x"),
        ("t TO x, x TO y, nosuch TO z", "s y"),
        ("t TO x, s TO t, x TO s", "s t"),
        ("nosuch TO x, neither TO y", "s t"),
    ],
)
def test_tables_that_are_not_there(url: str, pairs: str, tables: str) -> None:
    """As MariaDB: each table is renamed that is there, also by a name that it has just got."""
    sql(url, "CREATE DATABASE m", "CREATE TABLE m.t (t INT)", "CREATE TABLE m.s (s INT)")
    changes = [schema_change(TS, f"RENAME TABLE IF EXISTS {pairs}"), boundary(TS + 1)]
    run_all(url, in_one_partition(changes), ddl=ddl_rules(source="mariadb"))
    named = sql(url, "SELECT table_name FROM information_schema.tables WHERE table_schema = 'm' ORDER BY table_name")
    assert " ".join(name for (name,) in named) == tables


@pytest.mark.parametrize("url", ["target", "mysql_target"], indirect=True)
@pytest.mark.parametrize(
    ("action", "partitions"),
    [
        ("DROP PARTITION IF EXISTS x, p0, y", "p1"),
        ("DROP PARTITION IF EXISTS p1, x", "p0"),
        ("DROP PARTITION IF EXISTS x, y", "p0 p1"),
        (
            "ADD PARTITION IF NOT EXISTS (PARTITION p2 VALUES LESS THAN (30), PARTITION p0 VALUES LESS THAN (40))",
            "p0 p1",
        ),
        ("ADD PARTITION IF NOT EXISTS (PARTITION p2 VALUES LESS THAN (30))", "p0 p1 p2"),
    ],
)
def test_partitions_that_are_not_there(url: str, action: str, partitions: str) -> None:
    """As MariaDB: of a list, those are dropped that are there; where one of those to be made is there, none is made."""
    ranges = "(PARTITION p0 VALUES LESS THAN (10), PARTITION p1 VALUES LESS THAN (20))"
    sql(url, "CREATE DATABASE m", f"CREATE TABLE m.t (id INT PRIMARY KEY) PARTITION BY RANGE (id) {ranges}")
    changes = [schema_change(TS, f"ALTER TABLE t {action}"), boundary(TS + 1)]
    run_all(url, in_one_partition(changes), ddl=ddl_rules(source="mariadb"))
    named = sql(
        url, "SELECT partition_name FROM information_schema.partitions WHERE table_schema = 'm' ORDER BY partition_name"
    )
    assert " ".join(name for (name,) in named) == partitions


@pytest.mark.parametrize("url", ["target", "mysql_target"], indirect=True)
def test_what_a_skipped_drop_left_is_not_taken_for_it(url: str) -> None:
    """Upstream the column came anew: what the target has holds the values of the dropped one."""
    sql(url, "CREATE DATABASE m", TABLE)
    dropped = schema_change(TS, "ALTER TABLE t DROP COLUMN b, DROP CONSTRAINT k")
    with pytest.raises(HeldError):
        run_all(url, in_one_partition([dropped, boundary(TS + 1)]), ddl=ddl_rules(hold=["drop column"]))
    with admin(url) as session:
        decide(url, session, JournalState.SKIPPED)
    made = schema_change(TS + 5, "ALTER TABLE t ADD COLUMN IF NOT EXISTS b INT")
    run_all(url, in_one_partition([dropped, boundary(TS + 1)]))
    with pytest.raises(HeldError, match="was skipped"):
        run_all(url, in_one_partition([made, boundary(TS + 9)], 2))


@pytest.mark.parametrize("source", ["mysql-8", "mariadb"])
@pytest.mark.parametrize(
    ("statement", "there"),
    [
        ("CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)", "CREATE TABLE t (id INT PRIMARY KEY, other TEXT)"),
        ("CREATE TABLE IF NOT EXISTS t LIKE s", "CREATE TABLE t (a INT)"),
        ("CREATE VIEW IF NOT EXISTS t AS SELECT 1", "CREATE VIEW t AS SELECT 2"),
    ],
)
def test_create_of_what_is_there(target: str, session: Session, source: str, statement: str, there: str) -> None:
    """MySQL and MariaDB log a CREATE ... IF NOT EXISTS that did nothing: nothing is done, whatever is there."""
    session.execute("CREATE TABLE s (x INT)")
    session.execute(there)
    before = session.rows("SHOW CREATE TABLE t")
    events = in_one_partition([schema_change(TS, statement), boundary(TS + 1)])
    run_all(target, events, ddl=ddl_rules(source=source))
    assert session.rows("SHOW CREATE TABLE t") == before
    assert outcome(session)[0] == "done"


def test_tidb_sends_none_that_did_nothing(target: str, session: Session) -> None:
    """So something else of that name stops the pipeline."""
    session.execute("CREATE TABLE t (id INT)")
    with pytest.raises(SchemaChangeError):
        run(target, "CREATE TABLE IF NOT EXISTS t (id INT PRIMARY KEY, v INT)")


def test_a_database_keeps_its_defaults(target: str, session: Session) -> None:
    """A database that this pipeline has made is there upstream too, and keeps its defaults.  One that it has not made
    may be made by the statement."""
    texts = [
        "CREATE DATABASE x CHARACTER SET latin1",
        "CREATE DATABASE IF NOT EXISTS x CHARACTER SET utf8mb4",
        "CREATE DATABASE IF NOT EXISTS m CHARACTER SET latin1",
    ]
    events = [schema_change(TS + i, text) for i, text in enumerate(texts)]
    run_all(target, in_one_partition([*events, boundary(TS + 9)]), ddl=ddl_rules(source="mysql-8"))
    rows = session.rows(
        "SELECT schema_name, default_character_set_name FROM information_schema.schemata"
        " WHERE schema_name IN ('m', 'x') ORDER BY 1"
    )
    assert rows == [("m", "latin1"), ("x", "latin1")]
