"""Views from the wire: with whose rights they run, what they read, and which are held."""

from __future__ import annotations

import io
import json
import random
import re
from collections.abc import Callable

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
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import probe
from bridge.mysql.state.ddl_journal import JournalState
from bridge.mysql.state.progress import ProgressTable
from tests.support.command import bridge
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


READS: list[tuple[str, str]] = [
    ("SELECT 1", ""),
    ("SELECT * FROM t, b.u JOIN `c` . `v` USING (a, d)", "app.t b.u c.v"),
    ("SELECT sys.a, mysql.b FROM t AS sys STRAIGHT_JOIN b.t mysql", "app.t b.t"),
    ("SELECT t.from, u.where, `select` FROM t JOIN u ON u.where = 1, c.v", "app.t app.u c.v"),
    ("SELECT 1 FROM t JOIN u ON u.a > 1., c.v WHERE a IN (1, 2) ORDER BY x, y", "app.t app.u c.v"),
    ("SELECT STRAIGHT_JOIN a.b FROM t a", "app.t"),
    ("SELECT EXTRACT(YEAR FROM o.at), TRIM(BOTH ' ' FROM o.x), SUBSTRING(o.x FROM 2) FROM orders o", "app.orders"),
    ("SELECT (SELECT MAX(x) FROM b.u WHERE u.id = t.id), EXISTS (SELECT 1 FROM c.v) FROM t", "b.u c.v app.t"),
    ("SELECT * FROM (SELECT * FROM b.u) d, LATERAL (SELECT 1 FROM c.v) e, (t CROSS JOIN x.y)", "b.u c.v app.t x.y"),
    ("SELECT 1 FROM ((SELECT 1 FROM b.u) UNION (SELECT 2 FROM c.v)) d, t", "b.u c.v app.t"),
    ("SELECT a FROM t UNION ALL SELECT b FROM b.u ORDER BY a, b LIMIT 1, 2", "app.t b.u"),
    ("WITH x AS (SELECT * FROM b.u), y (a, b) AS (SELECT * FROM x, z) SELECT * FROM x JOIN y", "b.u app.z"),
    ("WITH secret AS (SELECT * FROM secret) SELECT * FROM SECRET", "app.secret"),
    ("WITH RECURSIVE n AS (SELECT 1 UNION SELECT n + 1 FROM n) SELECT * FROM n", ""),
    ("SELECT * FROM (WITH secret AS (SELECT 1) SELECT * FROM secret) d, secret", "app.secret"),
    ("WITH x AS (SELECT 1) TABLE x ORDER BY 1, secret, (SELECT 1 FROM secret), (SELECT 2 FROM secret)", "app.secret"),
    ("TABLE b.u", "b.u"),
    ("SELECT 1 UNION TABLE b.u", "b.u"),
    ("VALUES ROW(1, 2), ROW(3, 4)", ""),
    ("SELECT b.u.a, c.v.* FROM t", "b.u c.v app.t"),
    ("SELECT b.f(1), c . g (2), h(3) FROM t", "b() c() app.t"),
    ("SELECT NEXT VALUE FOR b.s, PREVIOUS VALUE FOR s, NEXTVAL(c.s), LASTVAL(q) FROM t", "b.s app.s c.s app.q app.t"),
    ("SELECT 1 FROM{OJ t LEFT OUTER JOIN b.u ON 1}", "app.t b.u"),
    ("SELECT 1 FROM .t, b.u", "app.t b.u"),
    ("SELECT SUM(x) OVER w FROM t PARTITION (p0, p1) USE INDEX (i, j) WINDOW w AS (ORDER BY a), z AS (w)", "app.t"),
    ("SELECT * FROM JSON_TABLE('[]', '$[*]' COLUMNS (a INT PATH '$')) j, b.u", "b.u"),
    ("SELECT 1 FROM t FOR SYSTEM_TIME FROM '2020-01-01' TO '2021-01-01', b.u", "app.t b.u"),
    ("SELECT 'FROM mysql.user', `FROM`, \"JOIN b.u\" /* FROM c.v */ FROM t -- , d.w", "app.t"),
    ("SELECT 1.FROM b.u", "b.u"),
    ("SELECT FROM.t", "? app.t"),
    ("SELECT 1 FROM 'x'", "?"),
]


@pytest.mark.parametrize(("query", "expected"), READS)
def test_reads(query: str, expected: str) -> None:
    """Tables, sequences and the databases of functions are found wherever they stand; aliases, columns, names of WITH
    where they are known, and strings are none."""
    known = classify(f"CREATE VIEW v (x, y) AS {query}", "app")
    assert isinstance(known, Classified)
    found = {str(name) for name in known.reads.names} | {f"{schema}()" for schema in known.reads.functions}
    assert found | ({"?"} if known.reads.unclear else set()) == set(expected.split())


HELD: list[tuple[str, str]] = [
    ("SELECT * FROM mysql.user", "mysql.user, of a system schema"),
    ("SELECT * FROM t WHERE a IN (SELECT `User` FROM `MySQL`.`user`)", "MySQL.user, of a system schema"),
    ("SELECT * FROM _BRIDGE.quarantine", "_BRIDGE.quarantine, of the bridge's own database"),
    ("SELECT sys.version_major()", "a function of sys, of a system schema"),
    ("SELECT * FROM t JOIN other.u", "other.u, which is outside of the filter"),
    ("SELECT * FROM secret", "shop.secret, which is outside of the filter"),
    ("SELECT other.f()", "a function of other, which is outside of the filter"),
    ("SELECT 1 FROM 'x'", "something that the bridge does not understand, near: 1 FROM 'x'"),
]  # fmt: skip
FILTER = ("shop.*", "!shop.secret")


@pytest.mark.parametrize(("query", "reason"), HELD)
def test_what_shows_more_than_is_replicated_is_held(query: str, reason: str) -> None:
    """A view that names what the filter leaves out, a system schema or the bridge's own database is held, with the name
    and the reason."""
    for head in ("CREATE VIEW v AS ", "ALTER VIEW v AS ", "CREATE OR REPLACE VIEW `v` (a) AS "):
        known = classify(head + query, "shop")
        assert isinstance(known, Classified)
        decision = ddl_rules(tables=TableFilter(FILTER)).decide(known)
        assert (decision.verdict, decision.reason) == (Verdict.HOLD, f"the view reads {reason}")


def test_a_view_in_a_message_without_a_database() -> None:
    """Names that may lie anywhere are not clear, whatever database the message names."""
    for schema in ("", "shop", "mysql"):
        known = classify("CREATE VIEW shop.v AS SELECT * FROM user", schema)
        assert isinstance(known, Unclear)
        assert "user without a database" in known.reason


def test_what_is_ignored_or_refused_anyway() -> None:
    """The settings' word on views goes before."""
    known = classify("CREATE VIEW v AS SELECT * FROM mysql.user", "shop")
    assert isinstance(known, Classified)
    assert ddl_rules(ignore=["create view"]).decide(known).verdict is Verdict.IGNORE
    assert ddl_rules(refuse=["create view"]).decide(known).verdict is Verdict.REFUSE


def test_translate_says_the_same(monkeypatch: pytest.MonkeyPatch) -> None:
    """`bridge ddl translate` shows what would be held and refused, with the filter and the bridge's database of the
    settings."""
    statements = [
        "CREATE VIEW shop.v AS SELECT * FROM other.u",
        "CREATE VIEW shop.v AS SELECT * FROM b.u",
        "CREATE VIEW shop.v AS SELECT * FROM shop.u",
        "DROP TABLE b.progress",
    ]
    monkeypatch.setattr("sys.stdin", io.StringIO(";".join(statements)))
    said = bridge(
        "ddl", "translate", "--flavour", "mysql-8.0", "--filter", "shop.*", "--filter", "b.*", "--json",
        "--set", "target.schema=b",
    )  # fmt: skip
    found = [(each["verdict"], each["reason"]) for each in json.loads(said.out)]
    assert found == [
        ("hold", "the view reads other.u, which is outside of the filter"),
        ("hold", "the view reads b.u, of the bridge's own database"),
        ("allow", ""),
        ("refuse", "it touches the bridge's own tables"),
    ]


def test_a_reader_sees_no_more_than_before(url: str) -> None:
    """Neither the quarantined rows nor another database are open to somebody who may read the views; once the operator
    has approved such a view, they are not either."""
    views = {
        "CREATE DEFINER=`root`@`%` SQL SECURITY DEFINER VIEW v AS SELECT * FROM _bridge.progress": "own database",
        "CREATE VIEW v AS SELECT * FROM hidden.t": "outside of the filter",
        "CREATE VIEW v AS SELECT * FROM t": "",
    }
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
            for ts, (statement, reason) in enumerate(views.items(), 10):
                events = in_one_partition([schema_change(ts, statement, schema="shop"), boundary(ts + 1)], ts * 10)
                if reason:
                    with pytest.raises(HeldError, match=reason):
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


class Queries:
    """Queries of views at random, for a server that says what they read."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.aliases = 0

    def query(self, depth: int, known: tuple[str, ...] = ()) -> str:
        one_of: list[Callable[[], str]] = [lambda: self.select(depth, known)] * 4
        if depth:
            one_of += [
                lambda: f"(SELECT x.a FROM {self.source(depth, known)} x) UNION {self.select(depth - 1, known)}",
                lambda: self.with_query(depth, known),
            ]
        return self.random.choice(one_of)()

    def select(self, depth: int, known: tuple[str, ...]) -> str:
        value = self.random.choice(["1", "1.", "'FROM b.u'", "EXTRACT(YEAR FROM NOW())", "b.f(1)", "(1)"])
        if depth and self.random.random() < 0.3:
            value = f"(SELECT MAX(q.a) FROM {self.source(depth - 1, known)} q)"
        tail = self.random.choice(["", " WHERE 1 IN (1, 2)", " GROUP BY 1 HAVING 1", " ORDER BY 1, 2 LIMIT 1"])
        return f"SELECT {value} AS a, 2 AS `from` FROM {self.tables(depth, known)}{tail}"

    def tables(self, depth: int, known: tuple[str, ...]) -> str:
        found = self.aliased(depth, known)
        for _ in range(self.random.randrange(3)):
            join = self.random.choice([",", " JOIN ", " CROSS JOIN ", " STRAIGHT_JOIN ", " JOIN b.where_ ON 1 > 1. , "])
            join = join.replace("where_", f"u k{self.alias()}")
            found += join + self.aliased(depth, known)
        return found

    def alias(self) -> int:
        self.aliases += 1
        return self.aliases

    def aliased(self, depth: int, known: tuple[str, ...]) -> str:
        name = self.random.choice(["sys{}", "`mysql{}`", "t{}", "{}x"]).format(self.alias())
        return f"{self.source(depth, known)} {self.random.choice(['', 'AS '])}{name}"

    def source(self, depth: int, known: tuple[str, ...]) -> str:
        tables = ["t", "b.u", "`c` . `v`", "b . `u`", "`t`", *known]
        if not depth or self.random.random() < 0.6:
            return self.random.choice(tables)
        return f"({self.query(depth - 1, known)})"

    def with_query(self, depth: int, known: tuple[str, ...]) -> str:
        name = self.random.choice(["t", "w", "u"])
        inner, outer = self.query(depth - 1, known), self.select(depth - 1, (*known, name))
        return f"WITH {name} (a, `from`) AS ({inner.replace(' UNION ', ' UNION ALL ')}) {outer}"


def test_a_server_says_what_views_read(mysql_target: str) -> None:
    """MySQL says of views at random which tables and functions they read: all of them are found, and no other table."""
    with admin(mysql_target) as session:
        for made in (
            "CREATE DATABASE app", "CREATE DATABASE b", "CREATE DATABASE c", "USE app",
            *(f"CREATE TABLE {name} (a INT, `from` INT)" for name in ("t", "u", "w", "b.u", "c.v")),
            "CREATE FUNCTION b.f(a INT) RETURNS INT DETERMINISTIC RETURN a",
        ):  # fmt: skip
            session.execute(made)
        read_alike = sum(_is_read_alike(session, Queries(seed).query(3)) for seed in range(200))
    assert read_alike > 100


def _is_read_alike(session: Session, query: str) -> bool:
    """False when the server refuses the query."""
    try:
        session.execute(f"CREATE OR REPLACE VIEW v AS {query}")
    except MySQLError:
        return False
    known = classify(f"CREATE VIEW v AS {query}", "app")
    assert isinstance(known, Classified)
    usage = "SELECT {} FROM information_schema.view_{}_usage WHERE {} = 'v'"
    tables = session.rows(usage.format("table_schema, table_name", "table", "view_name"))
    routines = session.rows(usage.format("specific_schema", "routine", "table_name"))
    found = {tuple(name) for name in known.reads.names}
    assert found >= set(tables), query
    assert found == set(tables) or "WITH" in query, query  # what nobody uses of it the server leaves out
    assert {(schema,) for schema in known.reads.functions} >= set(routines), query  # so it does with subqueries'
    assert known.reads.unclear == "", query
    return True
