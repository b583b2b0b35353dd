"""Schema changes on a real target: what they name, and the names that things get."""

from __future__ import annotations

import pytest

from bridge.ddl.rewrite import Rewritten, rewrite
from bridge.ddl.rule import Feature, Site, named_capabilities
from bridge.mysql.connection.session import Session
from bridge.mysql.probe import probe
from bridge.mysql.schema_changes.ddl_plan import OnTarget
from bridge.mysql.state.ddl_journal import Journal
from tests.support.pipelines import admin, run_all
from tests.support.schema_change_runs import TS, outcome, run
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change


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


def test_a_name_in_another_case(target: str, session: Session) -> None:
    """TiDB finds a table whatever the case of the letters; here it is found as long as no other one is meant."""
    session.execute("CREATE TABLE Mixed (id INT PRIMARY KEY)")
    run(target, "ALTER TABLE mixed ADD COLUMN c INT", "CREATE TABLE k LIKE MIXED")
    assert [name for (name, *_) in session.rows("SHOW COLUMNS FROM k")] == ["id", "c"]


CASES = [
    ("DROP TABLE `m`.`first`, m.SECOND", set()),
    ("RENAME TABLE first TO x, second TO first, x TO Second", {"first", "Second"}),
    ("RENAME TABLE `m`.`first` TO m.x, m.SECOND TO m.y", {"x", "y"}),
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
    """The target gets none, nor a default that one gives, even where the operator has made one: the values come with
    the rows."""
    changes = [
        "CREATE SEQUENCE s START WITH 5 INCREMENT BY 2 NO CACHE NO CYCLE",
        "CREATE TABLE t (a INT DEFAULT NEXT VALUE FOR m.s, b INT DEFAULT (NEXTVAL(`other`)))",
        "ALTER SEQUENCE s INCREMENT BY 10",
        "DROP SEQUENCE s",
    ]
    events = [schema_change(TS + i, text) for i, text in enumerate(changes)]
    with admin(url) as session:
        session.execute("CREATE DATABASE m")
        run_all(url, in_one_partition([*events, boundary(TS + 9)]))
        assert session.rows("SHOW TABLES FROM m") == [("t",)]
        assert "nextval" not in session.rows("SHOW CREATE TABLE m.t")[0][1].lower()


def test_anonymous_indexes_have_the_upstream_s_names(target: str, session: Session) -> None:
    """Later statements drop by name what was made without one: by the first column, as all servers have it."""
    run(
        target,
        "CREATE TABLE t (a INT, b INT UNIQUE, KEY (a), UNIQUE (a, b), CHECK (b > 0))",
        "ALTER TABLE t ADD INDEX (b), ADD CHECK (a > 0)",
        "ALTER TABLE t DROP CHECK t_chk_1, DROP CHECK t_chk_2",
        "ALTER TABLE t DROP INDEX a, DROP INDEX a_2, DROP INDEX b, DROP INDEX b_2",
    )
    assert session.rows("SHOW INDEX FROM t") == []


@pytest.mark.parametrize("verb", ["CHECK", "CONSTRAINT"])
def test_a_check_is_dropped_where_it_is(url: str, verb: str) -> None:
    """Of a table that was copied, or of another kind of constraint; one that was left out is no concern of the
    target."""
    with admin(url) as session:
        session.execute("CREATE DATABASE m COLLATE utf8mb4_bin")
        session.execute("CREATE TABLE m.t (id INT PRIMARY KEY, v INT, CONSTRAINT copied CHECK (v > 0))")
        made = "ALTER TABLE t ADD CONSTRAINT k CHECK (v > 1)"
        run(url, made, *(f"ALTER TABLE t DROP {verb} {name}" for name in ("k", "copied")))
        session.execute("INSERT INTO m.t VALUES (1, -1)")


RENAMED = [
    "a INT(11) NOT NULL DEFAULT 3 COMMENT ', x'",
    "`o``dd` VARCHAR(9) CHARACTER SET latin1 DEFAULT 'it''s'",
    "a DATETIME(3) DEFAULT CURRENT_TIMESTAMP(3) ON UPDATE CURRENT_TIMESTAMP(3)",
    *("a ENUM('x,','y') NOT NULL", "a BIGINT UNSIGNED AUTO_INCREMENT UNIQUE", "A BIT(3) DEFAULT b'101'"),
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
