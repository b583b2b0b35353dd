"""Which tables a statement means whose names do not all have a database."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from contextlib import nullcontext
from typing import NamedTuple

import pytest

from bridge.ddl.by_table.routing import with_message_databases
from bridge.ddl.classes import StatementKind
from bridge.ddl.lexer import open_comments, read_tokens
from bridge.ddl.parser import Classified, Refused, Unclear, classify
from bridge.ddl.policy import Verdict, ddl_rules
from bridge.ddl.rewrite import rewrite
from bridge.ddl.rule import Site, UnsupportedError, named_capabilities
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from tests.support.ddl_words import M11

DATABASES = ("shop", "archive", "test")
TABLES = ("orders", "a", "b")


class Statement(NamedTuple):
    """A statement of a session.

    session: its database.  changes: the tables that it changes, in the order of the text.  others: those that it
    copies, reads or refers to.  makes_one: it makes one table or view.  made: those that are there by their present
    name behind it; of a rename, the new ones.
    """

    text: str
    session: str
    changes: tuple[TableName, ...]
    others: tuple[TableName, ...]
    made: tuple[TableName, ...]


class _Writer:
    """Draws names, and writes each with its database or, in the session's database, without."""

    def __init__(self, seed: int) -> None:
        self._random = random.Random(seed)
        self.session = self._random.choice(DATABASES)
        self._written: list[tuple[str, TableName]] = []

    def name(self) -> tuple[str, TableName]:
        table = TableName(self._random.choice(DATABASES), self._random.choice(TABLES))
        if self._random.random() < 0.5:
            table = TableName(self.session, table.table)
        is_bare = table.schema == self.session and self._random.random() < 0.6
        quoted = self._random.choice((f"`{table.table}`", table.table))
        return (quoted if is_bare else f"{table.schema} . {quoted}"), table

    def statement(self) -> Statement:
        kinds: list[Callable[[], tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]]]
        kinds = [self._rename, self._alter_rename, self._drop, self._exchange, self._like, self._view, self._refers]
        text, changes, others, made = self._random.choice(kinds)()
        return Statement(text, self.session, tuple(changes), tuple(others), tuple(made))

    def _rename(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        pairs = [(self.name(), self.name()) for _ in range(self._random.randint(1, 3))]
        text = ", ".join(f"{old} TO {new}" for (old, _), (new, _) in pairs)
        changes = [table for pair in pairs for _, table in pair]
        return f"RENAME TABLE {text}", changes, (), changes[1::2]

    def _alter_rename(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (old, was), (new, now) = self.name(), self.name()
        return f"ALTER TABLE {old} ADD COLUMN x INT, RENAME TO {new}", (was, now), (), (now,)

    def _drop(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        names = [self.name() for _ in range(self._random.randint(1, 3))]
        tables = [table for _, table in names]
        what = self._random.choice(("TABLE", "TABLE IF EXISTS", "VIEW"))
        return f"DROP {what} {','.join(text for text, _ in names)}", tables, (), tables

    def _exchange(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (divided, one), (whole, other) = self.name(), self.name()
        text = f"ALTER TABLE {divided} EXCHANGE PARTITION p WITH TABLE {whole}"
        return text, (one, other), (), (one, other)

    def _like(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (new, made), (old, copied) = self.name(), self.name()
        return f"CREATE TABLE {new} LIKE {old}", (made,), (copied,), (made,)

    def _view(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        (view, made), (one, first), (two, second) = self.name(), self.name(), self.name()
        text = f"CREATE OR REPLACE VIEW {view} AS SELECT x.id FROM {one} x JOIN {two} AS y USING (id)"
        return text, (made,), (first, second), (made,)

    def _refers(self) -> tuple[str, Sequence[TableName], Sequence[TableName], Sequence[TableName]]:
        """A foreign key refers to a table of its own table's database, where it names none."""
        (table, made), (parent, referred) = self.name(), self.name()
        is_bare = "." not in parent
        other = TableName(made.schema, referred.table) if is_bare else referred
        text = f"CREATE TABLE {table} (id INT PRIMARY KEY, p INT, FOREIGN KEY (p) REFERENCES {parent} (id))"
        return text, (made,), (other,), (made,)


def statement(seed: int) -> Statement:
    """A statement at random."""
    return _Writer(seed).statement()


def _each_made(drawn: Statement) -> set[str]:
    return {name.schema for name in drawn.made}


def _first_made(drawn: Statement) -> set[str]:
    return {drawn.made[0].schema}


def _unread_view(drawn: Statement) -> set[str]:
    return {""} if " VIEW " in drawn.text else {drawn.made[-1].schema}


SENDERS: dict[str, Callable[[Statement], set[str]]] = {
    "canal": _unread_view,
    "canal, the first of several": _first_made,
    "debezium": _each_made,
    "ticdc": _each_made,
    "session": lambda drawn: {drawn.session},
}
"""The databases that a sender's message may name: Canal 1.1.7 and 1.1.8 (DruidDdlParser, LogEventConvert) the last
table's, and none for a view; Debezium 3.6 and TiCDC the one of each table that is changed, of a rename the new name's.
A sender may also know the session's own."""


SEEDS = [pytest.param(range(1_000), id="some"), pytest.param(range(1_000, 400_000), id="many", marks=pytest.mark.soak)]


@pytest.mark.parametrize("seeds", SEEDS)
@pytest.mark.parametrize("sender", SENDERS)
def test_no_table_is_meant_but_those_of_the_session(sender: str, seeds: range) -> None:
    """Whatever database the message names, the tables are those that the upstream's session meant, or the statement is
    not clear.  One in which no name has a database is clear."""
    wrong: list[tuple[Statement, str, Classified | Refused]] = []
    held = 0
    for drawn in map(statement, seeds):
        for schema in SENDERS[sender](drawn):
            found = classify(drawn.text, schema)
            if isinstance(found, Unclear):
                held += 1
                if schema and " . " not in drawn.text:
                    wrong.append((drawn, schema, found))
                continue
            assert isinstance(found, Classified), (drawn, found)
            others = {one.table for one in found.referenced} | ({found.like.table} if found.like else set())
            others |= {TableName(schema, name) for name in found.reads_bare}
            is_view = found.kind is StatementKind.CREATE_VIEW  # of which only names without a database are read
            is_same = others <= set(drawn.others) if is_view else others == set(drawn.others)
            if found.tables != drawn.changes or not is_same:
                wrong.append((drawn, schema, found))
    assert wrong == []
    assert held < len(seeds) * 0.6


CLEAR = [
    ("RENAME TABLE a TO b", "shop", "shop.a shop.b"),
    ("RENAME TABLE a TO b, b TO c", "shop", "shop.a shop.b shop.b shop.c"),
    ("ALTER TABLE a RENAME TO b", "shop", "shop.a shop.b"),
    ("RENAME TABLE a TO archive.b", "shop", "shop.a archive.b"),
    ("RENAME TABLE shop.a TO archive.b", "", "shop.a archive.b"),
    ("DROP TABLE a, archive.b", "shop", "shop.a archive.b"),
    ("CREATE TABLE a LIKE archive.b", "shop", "shop.a"),
    ("CREATE VIEW v AS SELECT 1 FROM a JOIN archive.b", "shop", "shop.v"),
    ("CREATE TABLE archive.a (p INT REFERENCES b (id))", "archive", "archive.a"),
    ("CREATE TABLE archive.a (id INT DEFAULT NEXTVAL(s))", "archive", "archive.a"),
    ("ALTER TABLE archive.a ADD COLUMN b INT", "archive", "archive.a"),
    ("ALTER VIEW archive.v AS WITH x AS (SELECT 1) SELECT * FROM x, archive.c", "archive", "archive.v"),
]  # fmt: skip
UNCLEAR = [
    ("RENAME TABLE orders TO archive.orders_2024", "archive", "orders"),
    ("rename table orders to Archive.x", "archive", "orders"),
    ("ALTER TABLE orders RENAME archive.orders", "archive", "orders"),
    ("ALTER TABLE archive.orders RENAME TO b", "archive", "b"),
    ("DROP TABLE `archive`.`a`,`b` /* generated by server */", "archive", "b"),
    ("DROP VIEW IF EXISTS b, archive.a", "archive", "b"),
    ("ALTER TABLE t EXCHANGE PARTITION p WITH TABLE archive.x", "archive", "t"),
    ("CREATE TABLE archive.a LIKE b", "archive", "b"),
    ("CREATE TABLE archive.a LIKE b", "shop", "b"),
    ("CREATE VIEW archive.v AS SELECT id FROM a", "archive", "a"),
    ("CREATE VIEW archive.v AS SELECT id FROM archive.a WHERE id IN (SELECT 1 FROM b)", "archive", "b"),
    ("ALTER VIEW archive.v AS WITH x AS (SELECT * FROM x) SELECT * FROM x, archive.c", "archive", "x"),
    ("ALTER VIEW archive.v AS SELECT * FROM archive.x, .c", "archive", "c"),
    ("ALTER TABLE a ADD COLUMN b INT", "", "a"),
    ("CREATE VIEW v AS SELECT 1", "", "v"),
]


@pytest.mark.parametrize(("text", "schema", "tables"), CLEAR)
def test_clear(text: str, schema: str, tables: str) -> None:
    """What is common and certain is run: names that all lack a database, and a message's database that can only be the
    session's."""
    found = classify(text, schema)
    assert isinstance(found, Classified)
    assert " ".join(map(str, found.tables)) == tables


@pytest.mark.parametrize(("text", "schema", "name"), UNCLEAR)
def test_unclear(text: str, schema: str, name: str) -> None:
    """The reason names what has no database."""
    found = classify(text, schema)
    assert isinstance(found, Unclear)
    assert f"names {name} without a database" in found.reason


def test_a_statement_of_the_bridge_itself() -> None:
    """It runs in the database that the bridge chooses."""
    assert isinstance(classify("RENAME TABLE a TO archive.b", "archive", is_certain=True), Classified)


A, B, C = TableName("shop", "a"), TableName("archive", "b"), TableName("test", "a")
TOLD = [
    ("RENAME TABLE a TO archive.b", [A, B], "RENAME TABLE `shop`.`a` TO archive.b"),
    ("RENAME TABLE A TO Archive.B", [B, A], "RENAME TABLE `shop`.`A` TO Archive.B"),
    ("RENAME TABLE a TO archive.b", [B], "RENAME TABLE a TO archive.b"),
    ("RENAME TABLE a TO archive.b", [A, B, C], "RENAME TABLE a TO archive.b"),
    ("RENAME TABLE b TO archive.b", [B], "RENAME TABLE b TO archive.b"),
    ("RENAME TABLE a TO b", [A, TableName("shop", "b")], "RENAME TABLE a TO b"),
    ("DROP TABLE archive.b, a", [B, A], "DROP TABLE archive.b, `shop`.`a`"),
]


@pytest.mark.parametrize(("text", "told", "expected"), TOLD)
def test_names_that_a_message_tells(text: str, told: list[TableName], expected: str) -> None:
    """They are written into a statement that is not clear, where just one is left for a name."""
    assert with_message_databases(text, "archive", told) == expected


ORDERS = TableFilter(("shop.orders",))


def test_what_lies_half_inside_of_the_filter_is_held() -> None:
    """With the tables outside; unless the settings ignore it anyway."""
    known = classify("RENAME TABLE orders TO _orders_old, _orders_new TO orders", "shop")
    assert isinstance(known, Classified)
    decision = ddl_rules(tables=ORDERS).decide(known)
    assert (decision.verdict, decision.reason) == (
        Verdict.HOLD,
        "it changes tables inside of the filter and outside of it: shop._orders_old, shop._orders_new",
    )
    assert ddl_rules(tables=ORDERS, ignore=["rename table"]).decide(known).verdict is Verdict.IGNORE
    assert ddl_rules(tables=TableFilter(("shop.*",))).decide(known).verdict is Verdict.ALLOW


def test_refused_statements_that_are_understood() -> None:
    """They tell what they would change."""
    found = classify("CREATE TABLE a (x INT) ENGINE=CONNECT", "shop")
    assert isinstance(found, Refused)
    assert found.classified is not None
    assert found.classified.tables == (A,)


ANSI = [
    (
        'CREATE TABLE "shop"."a" ("id" INT KEY, "b""`" INT)',
        "shop.a",
        'CREATE TABLE `shop`.`a` (`id` INT KEY, `b"``` INT)',
    ),
    ('DROP TABLE IF EXISTS "a","b" /* generated by server */', "shop.a shop.b", "DROP TABLE IF EXISTS `a`,`b`"),
    ('ALTER TABLE a ADD "c" INT, DROP COLUMN "d"', "shop.a", "ALTER TABLE a ADD `c` INT, DROP COLUMN `d`"),
    ('RENAME TABLE "a" TO archive."b"', "shop.a archive.b", "RENAME TABLE `a` TO archive.`b`"),
    ('CREATE INDEX "i" ON "a" ("b")', "shop.a", "CREATE INDEX `i` ON `a` (`b`)"),
    ('CREATE TABLE a (b TEXT COMMENT "x" , c ENUM("x","y") DEFAULT "x")', "shop.a", None),
]


@pytest.mark.parametrize(("text", "tables", "opened_as"), ANSI)
def test_names_in_double_quotes(text: str, tables: str, opened_as: str | None) -> None:
    """Of a session with ANSI_QUOTES they are read where no text can stand, and written in backticks; what may be a text
    stays one."""
    found = classify(text, "shop")
    assert isinstance(found, Classified)
    assert " ".join(map(str, found.tables)) == tables
    assert [token.name for token in read_tokens(open_comments(text))] == [
        token.name for token in read_tokens(opened_as or text)
    ]
    assert ('"' in open_comments(text)) == (opened_as is None or '"' in opened_as)


@pytest.mark.parametrize("text", ['ALTER TABLE "a" ADD "c\\\\" INT', 'ALTER TABLE "a" ADD "c\\" INT'])
def test_names_in_double_quotes_that_are_not_clear(text: str) -> None:
    """A backslash is a part of a name, and hides what is behind it in a text."""
    assert type(classify(text, "shop")) is Refused


@pytest.mark.parametrize(("query", "is_held"), [('SELECT "b" FROM a', True), ("SELECT 'x', `b` FROM a", False)])
def test_a_view_with_double_quotes(query: str, is_held: bool) -> None:
    """Whether that is a column or a text depends on the session."""
    site = Site(named_capabilities(M11))
    with pytest.raises(UnsupportedError, match="a column or a text") if is_held else nullcontext():
        rewrite(f"CREATE VIEW v AS {query}", "shop", site)
