"""Routes: which table goes where, and what is refused since two tables would meet."""

from __future__ import annotations

import pickle

import pytest
from pydantic import ValidationError

from bridge.config import Settings
from bridge.errors import UsageError
from bridge.filters.routes import Routes, parse_route, unmatched_rules, with_sources
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName


def routes(*rules: str, tables: tuple[str, ...] = ()) -> Routes:
    return Routes(tuple(map(parse_route, rules)), TableFilter(tables))


def name(text: str) -> TableName:
    return TableName(*text.split("."))


GOES: list[tuple[tuple[str, ...], str, str]] = [
    (("shop_1.orders -> shop.orders",), "shop_1.orders", "shop.orders"),
    (("shop_1.orders->shop.sales",), "SHOP_1.Orders", "shop.sales"),
    (("shop_1.orders -> shop.orders",), "shop_1.other", "shop_1.other"),
    (("shop_1.* -> shop.*",), "shop_1.Other", "shop.Other"),
    (("shop_1.* -> shop.{table}",), "shop_1.other", "shop.other"),
    (("shop_*.orders -> *.sales",), "shop_7.orders", "shop_7.sales"),
    (("shop_*.orders -> {schema}.sales",), "shop_7.orders", "shop_7.sales"),
    (("*.orders -> *.sales",), "a.orders", "a.sales"),
    ((r"/^s\d$/.orders -> *.sales",), "s1.orders", "s1.sales"),
    ((r"/^s\d$/.orders -> *.sales",), "s11.orders", "s11.orders"),
    (("`a-b`.`c.d` -> `e f`.`g*`",), "a-b.c.d", "e f.g*"),
    *((("a.t -> b.t", "a.* -> c.*"), "a.t", "b.t"), (("a.t -> b.t", "a.* -> c.*"), "a.u", "c.u")),
    *((("a.* -> b.*", "b.* -> a.*"), "a.t", "b.t"), (("a.* -> b.*", "b.* -> c.*"), "a.t", "b.t")),
    (("shop_1.orders => shop.orders",), "shop_1.orders", "shop.orders"),
    (("shop*.* => shop.*",), "shop.t", "shop.t"),
]


@pytest.mark.parametrize(("rules", "source", "target"), GOES)
def test_where_a_table_goes(rules: tuple[str, ...], source: str, target: str) -> None:
    """The first route that is for a table decides; what is not named stays."""
    made = routes(*rules)
    schema, _, table = source.partition(".")
    there = made.target(TableName(schema, table))
    assert str(there) == target
    assert not made.conflict(TableName(schema, table))
    assert TableName(schema, table) in {
        *made.sources(there), *(TableName(s.schema.upper(), s.table.title()) for s in made.sources(there))
    }  # fmt: skip
    assert pickle.loads(pickle.dumps(made)).target(TableName(schema, table)) == there


CLASHES: list[tuple[tuple[str, ...], tuple[str, ...], str, str]] = [
    *((("a.* -> b.*",), (), "b.t", "a.t"), (("a.* -> b.*",), ("b.*",), "b.t", ""), (("a.* -> b.*",), (), "a.t", "")),
    *((("a.t -> b.t",), (), "B.T", "a.t"), (("a.t -> b.t",), (), "b.u", "")),
    (("a.* -> c.*", "b.* -> c.*"), (), "a.t", "b.t"),
    (("a.* -> c.*", "b.* -> c.*"), ("a.*",), "a.t", ""),
    (("a.* -> c.*", "b.t -> c.u"), (), "a.u", "b.t"),
    (("a.* -> c.*", "b.t -> c.u"), ("*.*", "!b.*"), "a.u", ""),
    (("a.t -> d.t", "a.* -> c.*", "c.t -> c.t"), (), "c.t", ""),
    *((("s*.x -> *.y",), (), "s1.y", "s1.x"), (("s*.x -> *.y",), (), "t1.y", "")),
    *((("a.t -> b.t", "b.t -> a.t"), (), "a.t", ""), (("s?.t => s.t",), (), "s1.t", "")),
    (("s?.t => s.t",), (), "s.t", "the shards of the route 's?.t => s.t'"),
    (("s?.t => s.t", "s.t => s.t"), (), "s.t", ""),
    (("s*.t => s.t",), (), "s.t", ""),
    (("s?.t => s.t",), (), "s.u", ""),
    (("s?.* => s.*",), (), "s.u", "the shards of"),
    (("s?.t => s.t", "x.t -> s.t"), (), "s1.t", "x.t"),
    (("s?.t => s.t", "x.t -> s.t"), (), "x.t", "the shards of"),
    (("s?.t => s.t", "x.t => s.t"), (), "x.t", ""),
    (("s1.t -> z.t", "s?.t => s.t"), (), "s1.t", ""),
]


@pytest.mark.parametrize(("rules", "tables", "met", "other"), CLASHES)
def test_two_tables_with_one_target(rules: tuple[str, ...], tables: tuple[str, ...], met: str, other: str) -> None:
    """A table is refused when a route may write another one, which is replicated, to its target; both are named."""
    try:
        why = routes(*rules, tables=tables).conflict(name(met))
    except UsageError as error:  # known at the start already
        why = str(error)
    assert bool(why) is bool(other)
    assert other in why


@pytest.mark.parametrize(
    ("rules", "words"),
    [
        (("shop_*.orders -> shop.orders",), "would write several tables to one"),
        (("shop.* -> shop.orders",), "would write several tables to one"),
        (("a.t -> c.t", "b.t -> c.t"), "a.t and b.t would both be written to c.t"),
        (("a.t -> _bridge.progress",), "the bridge's own database"),
        (("a.t -> MySQL.user",), "server's own databases"),
        *((("a.t b.t",), "has no ->"), (("a -> b",), "cannot be read"), (("a.t -> b.t*",), "target is no name")),
        *((("a.t -> b.t.u",), "follows the table"), (("a.(t -> b.t",), "cannot be read")),
        (("shop.o_* -> shop.o",), "shop.o_* => shop.o"),
        (("a.t => b.t", "c.t -> b.t"), "would both be written to b.t"),
        ((f"a.t -> b.{'x' * 65}",), "no server can have"),
    ],
)
def test_refused_at_the_start(rules: tuple[str, ...], words: str) -> None:
    """What can be known without messages is a usage error."""
    with pytest.raises((UsageError, ValidationError)) as raised:
        _ = Settings(route=rules).table_routes
    assert words in str(raised.value)


def test_the_names_of_data_migration() -> None:
    """A route in the file; one of DM for a database has no table pattern."""
    given = [
        {"schema-pattern": "a", "table-pattern": "t", "target-schema": "b", "target-table": "u"},
        {"schema-pattern": "a", "target-schema": "c"},
    ]
    made = Settings.model_validate({"routes": given}).table_routes
    assert [str(made.target(name(one))) for one in ("a.t", "a.x", "b.y")] == ["b.u", "c.x", "b.y"]
    assert not Settings().table_routes


def test_databases() -> None:
    """A database goes elsewhere as a whole only when nothing of it goes another way."""
    made = routes("a.* -> b.*", "c.t -> d.t", "c.* -> e.*")
    assert [made.whole_database(one) for one in ("A", "b", "c")] == ["b", None, None]
    assert [made.takes_from(one) for one in ("a", "b", "C")] == [True, False, True]
    assert [made.leads_into(one) for one in ("a", "b", "D", "e")] == [False, True, True, True]
    assert with_sources([name("b.t")], made) == {name("b.t"), name("a.t")}
    assert with_sources([name("b.t")], Routes()) == {name("b.t")}
    assert made.accepts_target("b", "t")
    assert not routes("a.* -> b.*", tables=("x.*",)).accepts_target("b", "t")
    assert routes("a.* -> b.*", tables=("a.*",)).accepts_target("b", "t")
    assert not routes("a.* -> b.*", tables=("a.*",)).accepts_target("a", "t")


def test_shards() -> None:
    """A route merges only where it says so, in its arrow or in the file."""
    made = routes("shop_*.orders => shop.orders", "plain_1.* -> plain.*")
    assert [str(made.target(name(one))) for one in ("shop_1.orders", "SHOP_2.Orders")] == ["shop.orders"] * 2
    assert [made.merges(name(one)) for one in ("shop_1.orders", "plain_1.t", "shop.orders")] == [True, False, False]
    assert [made.is_merged(name(one)) for one in ("shop.orders", "shop.t", "plain.t")] == [True, False, False]
    assert made.accepts_target("shop", "orders")
    assert str(made.routes[0]) == "shop_*.orders => shop.orders"
    given = {"schema-pattern": "s*", "table-pattern": "t", "target-schema": "s", "target-table": "t"}
    assert Settings.model_validate({"routes": [given | {"merge": True}]}).table_routes.merges(name("s1.t"))
    with pytest.raises(ValidationError, match="merge = true"):
        Settings.model_validate({"routes": [given]})


def test_databases_that_are_merged() -> None:
    """As a whole, or some tables of them."""
    made = routes("shop_*.* => shop.*", "s?.t => s.t")
    assert [routes(rule).leads_into("s") for rule in ("s.t_* => s.t", "s*.t => s.t", "x.t -> s.t")] == [
        *(False, True, True),
    ]  # fmt: skip
    assert [made.whole_database(one) for one in ("shop_1", "s1")] == ["shop", None]
    assert [made.merges_database(one) for one in ("shop_1", "s1", "x")] == [True, False, False]


def test_rules_that_match_no_table() -> None:
    """Nothing is said of them where the names of the shards are not known."""
    rules = TableFilter(("shop_*.*", "x.*"))
    assert unmatched_rules(rules, [name("shop_1.t")], Routes()) == ("x.*",)
    assert unmatched_rules(rules, [name("shop.t")], routes("shop_1.* -> shop.*")) == ("x.*",)
    assert unmatched_rules(rules, [name("shop.t")], routes("shop_*.t => shop.t")) == ()
