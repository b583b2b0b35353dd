"""Views from the wire: with whose rights they run, what they read, and which are held."""

from __future__ import annotations

import re

import pytest
from pymysql.err import MySQLError
from sqlalchemy import make_url

from bridge.commands.ddl import release
from bridge.ddl.parser import Classified, Unclear, classify
from bridge.ddl.policy import Verdict, ddl_rules
from bridge.ddl.rewrite import Rewritten, rewrite
from bridge.ddl.rule import Site
from bridge.errors import HeldError
from bridge.filters.table_filter import TableFilter
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import probe
from bridge.mysql.state.ddl_journal import JournalState
from bridge.mysql.state.progress import ProgressTable
from tests.support.ddl_words import ALL, MARIADB, SAME, words
from tests.support.pipelines import admin, run_all, sql
from tests.support.upstreams import boundary, in_one_partition, schema_change

INVOKER = "CREATE SQL SECURITY INVOKER VIEW v AS SELECT 1"
RIGHTS = {
    "CREATE VIEW v AS SELECT 1": INVOKER,
    "CREATE SQL SECURITY DEFINER VIEW v AS SELECT 1": INVOKER,
    INVOKER: SAME,
    "CREATE /*!50013 DEFINER=`a`@`%` SQL SECURITY DEFINER */ /*!50001 VIEW `v` AS SELECT 1 */":
        "CREATE DEFINER=CURRENT_USER SQL SECURITY INVOKER VIEW `v` AS SELECT 1",
    "CREATE ALGORITHM=UNDEFINED DEFINER=`a`@`%` VIEW IF NOT EXISTS `v` AS SELECT 1":
        "CREATE ALGORITHM=UNDEFINED DEFINER=CURRENT_USER SQL SECURITY INVOKER VIEW IF NOT EXISTS `v` AS"
        " SELECT 1",
    "ALTER ALGORITHM = MERGE VIEW v AS SELECT 1": "ALTER ALGORITHM = MERGE SQL SECURITY INVOKER VIEW v AS SELECT 1",
    "ALTER DEFINER = a@10.0.0.1 SQL SECURITY DEFINER VIEW v AS SELECT 1":
        "ALTER DEFINER = CURRENT_USER SQL SECURITY INVOKER VIEW v AS SELECT 1",
    "CREATE DEFINER = view@localhost VIEW view AS SELECT 1":
        "CREATE DEFINER = CURRENT_USER SQL SECURITY INVOKER VIEW view AS SELECT 1",
    "CREATE DEFINER = admin_role VIEW v AS SELECT 'SQL SECURITY DEFINER'":
        "CREATE DEFINER = CURRENT_USER SQL SECURITY INVOKER VIEW v AS SELECT 'SQL SECURITY DEFINER'",
    "CREATE DEFINER = CURRENT_USER() SQL SECURITY DEFINER VIEW v (definer) AS SELECT 1":
        "CREATE DEFINER = CURRENT_USER() SQL SECURITY INVOKER VIEW v (definer) AS SELECT 1",
    "create definer='a'@'b' sql security definer view v as select 1":
        "create definer=CURRENT_USER sql security INVOKER view v as select 1",
}  # fmt: skip


@pytest.mark.parametrize("statement", RIGHTS)
def test_a_view_has_the_rights_of_its_reader(statement: str) -> None:
    """Whatever stands before VIEW, in whatever order and comments, the view runs with its reader's rights."""
    for flavour in ALL:
        said = re.sub(r" {2,}", " ", words(flavour, statement)).strip()
        assert said == RIGHTS[statement].replace("" if flavour in MARIADB else "IF NOT EXISTS ", ""), flavour


@pytest.mark.parametrize("statement", [each for each in RIGHTS if "admin_role" not in each])
def test_servers_take_these_rights(url: str, statement: str) -> None:
    """Each form is one that the servers read, and what they keep says INVOKER."""
    with admin(url) as session:
        session.execute("CREATE DATABASE app")
        session.execute("USE app")
        if statement.upper().startswith("ALTER"):
            session.execute("CREATE VIEW v AS SELECT 2 AS x")
        found = rewrite(statement, "app", Site(probe(session)))
        assert isinstance(found, Rewritten)
        session.execute(str(found.text))
        query = "SELECT security_type FROM information_schema.views WHERE table_schema = 'app'"
        assert session.rows(query) == [("INVOKER",)]


BARE: list[tuple[str, str]] = [
    ("SELECT 1", ""),
    ("SELECT * FROM t, b.u JOIN `c` . `v` USING (a, d)", "t"),
    ("SELECT sys.a, mysql.b FROM t AS sys STRAIGHT_JOIN b.t mysql", "t"),
    ("SELECT t.from, u.where, `select` FROM t JOIN u ON u.where = 1, c.v", "t u"),
    ("SELECT 1 FROM b.t JOIN b.u ON u.a > 1., v WHERE a IN (1, 2) GROUP BY x, y ORDER BY x, y", "v"),
    ("SELECT STRAIGHT_JOIN a.b FROM t a", "t"),
    ("SELECT EXTRACT(YEAR FROM at), TRIM(BOTH ' ' FROM x), SUBSTRING(x FROM 2) FROM b.orders o", ""),
    ("SELECT (SELECT MAX(x) FROM u WHERE u.id = t.id), EXISTS (SELECT 1 FROM v) FROM b.t", "u v"),
    ("SELECT * FROM (SELECT * FROM u) d, LATERAL (SELECT 1 FROM v) e, (t CROSS JOIN x.y)", "u v t"),
    ("SELECT 1 FROM ((SELECT 1 FROM u) UNION (SELECT 2 FROM c.v)) d, t", "u t"),
    ("SELECT a FROM b.t UNION ALL SELECT b FROM u ORDER BY a, b LIMIT 1, 2", "u"),
    ("WITH x AS (SELECT * FROM b.u), y AS (SELECT * FROM x, v) SELECT * FROM x JOIN y JOIN b.z", "v"),
    ("WITH x AS (SELECT * FROM x) SELECT * FROM x", "x"),
    ("WITH RECURSIVE x AS (SELECT 1 AS n UNION ALL SELECT n + 1 FROM x) SELECT * FROM x, t", "t"),
    ("SELECT SUM(a) OVER w FROM b.t WINDOW w AS (ORDER BY a) UNION SELECT 1 FROM w", "w"),
    *(("TABLE u", "u"), ("SELECT 1 UNION TABLE b.u", ""), ("VALUES ROW(1, 2), ROW(3, 4)", "")),
    ("SELECT 1 FROM DUAL", ""),
    ("SELECT 1 FROM{OJ t LEFT OUTER JOIN b.u ON 1}", "t"),
    ("SELECT 1 FROM .t, b.u", "t"),
    ("SELECT SUM(x) OVER w FROM b.t PARTITION (p0, p1) USE INDEX (i, j) WINDOW w AS (ORDER BY a)", ""),
    ("SELECT * FROM JSON_TABLE('[]', '$[*]' COLUMNS (a INT PATH '$')) j, b.u", ""),
    ("SELECT 'FROM mysql.user', `FROM`, \"JOIN b.u\" /* FROM c.v */ FROM t -- , d.w", "t"),
    ("SELECT 1.FROM u", "u"),
    ("SELECT FROM.t", "t"),
]


@pytest.mark.parametrize(("query", "expected"), BARE)
def test_tables_without_a_database(query: str, expected: str) -> None:
    """They are found wherever they stand; names of WITH, aliases, columns and strings are none."""
    known = classify(f"CREATE VIEW v (x, y) AS {query}", "app")
    assert isinstance(known, Classified)
    assert known.reads_bare == tuple(expected.split())


def test_a_view_is_held_where_there_is_a_filter() -> None:
    """What it reads may be outside of the filter."""
    for head in ("CREATE VIEW v AS ", "ALTER VIEW v AS ", "CREATE OR REPLACE VIEW `v` (a) AS "):
        known = classify(f"{head}SELECT * FROM t", "shop")
        assert isinstance(known, Classified)
        decision = ddl_rules(tables=TableFilter(("shop.*",))).decide(known)
        assert decision.verdict is Verdict.HOLD
        assert "the view may read what the filter leaves out" in decision.reason
        assert ddl_rules().decide(known).verdict is Verdict.ALLOW


def test_a_view_in_a_message_without_a_database() -> None:
    """Names that may lie anywhere are not clear, whatever database the message names."""
    for schema in ("", "shop", "mysql"):
        known = classify("CREATE VIEW shop.v AS SELECT * FROM user", schema)
        assert isinstance(known, Unclear)
        assert "user without a database" in known.reason


def test_what_is_ignored_or_refused_anyway() -> None:
    """The settings' word on views goes before."""
    known = classify("CREATE VIEW v AS SELECT * FROM t", "shop")
    assert isinstance(known, Classified)
    assert ddl_rules(ignore=["create view"]).decide(known).verdict is Verdict.IGNORE
    assert ddl_rules(refuse=["create view"]).decide(known).verdict is Verdict.REFUSE


def test_a_reader_sees_no_more_than_before(url: str) -> None:
    """Neither the quarantined rows nor another database are open to somebody who may read the views; once the operator
    has approved such a view, they are not either."""
    views = (
        "CREATE DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW v AS SELECT * FROM _bridge.progress",
        "CREATE VIEW v AS SELECT * FROM hidden.t",
        "CREATE VIEW v AS SELECT * FROM t",
    )
    setup = [
        "CREATE DATABASE shop", "CREATE DATABASE hidden",
        "CREATE TABLE hidden.t (a INT)", "CREATE TABLE shop.t (a INT)", "CREATE USER reader@'%' IDENTIFIED BY 'x'",
        "CREATE VIEW shop.v AS SELECT 1", "GRANT SELECT ON shop.v TO reader@'%'", "DROP VIEW shop.v",
    ]  # fmt: skip
    reader = make_url(url).set(username="reader", password="x").render_as_string(hide_password=False)
    rules = ddl_rules(tables=TableFilter(("shop.*",)))
    with admin(url) as session:
        for made in setup:
            session.execute(made)
        try:
            for ts, statement in enumerate(views, 10):
                events = in_one_partition([schema_change(ts, statement, schema="shop"), boundary(ts + 1)], ts * 10)
                with pytest.raises(HeldError, match="what the filter leaves out"):
                    run_all(url, events, ddl=rules)
                assert session.rows("SHOW TABLES FROM shop LIKE 'v'") == []
                release(Target(url), ProgressTable("bridge"), str(ts), JournalState.APPROVED)
                run_all(url, events, ddl=rules)
                assert session.rows("SHOW TABLES FROM shop LIKE 'v'") == [("v",)]
                with pytest.raises(MySQLError, match=r"denied|rights"):
                    sql(reader, "SELECT * FROM shop.v")
                session.execute("DROP VIEW shop.v")
        finally:
            session.execute("DROP USER reader@'%'")


def test_a_view_that_is_there_with_other_rights(target: str) -> None:
    """A view of an earlier replay, or of the operator's own, counts as made, whoever it runs as."""
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE DEFINER = x@y SQL SECURITY DEFINER VIEW m.v AS SELECT 1 AS x")
        run_all(target, in_one_partition([schema_change(10, "CREATE VIEW v AS SELECT 1 AS x"), boundary(11)]))
        assert session.rows("SELECT outcome FROM _bridge.schema_changes") == [("what it makes was there already",)]
