"""Schema changes that wait for the operator since it is not certain which tables they mean, or only a part of them is
replicated."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any, cast

import pytest

from bridge.commands.connections import protocol_of
from bridge.config import Settings
from bridge.ddl.policy import ddl_rules
from bridge.errors import HeldError, UsageError
from bridge.events import Event
from bridge.filters.table_filter import TableFilter
from bridge.sources.kafka.client import unknown_topic_error
from bridge.sources.source import Source
from tests.support.command import bridge
from tests.support.pipelines import run_all, sql
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.wire import canal

BEFORE = [
    schema_change(1, "CREATE DATABASE shop", schema="shop"),
    schema_change(2, "CREATE DATABASE archive", schema="archive"),
    schema_change(3, "CREATE TABLE orders (id INT PRIMARY KEY)", schema="shop"),
    schema_change(4, "CREATE TABLE archive.orders (id INT PRIMARY KEY)", schema="archive"),
    row_change(5, "orders", ["id"], ["id"], after=[1], schema="shop"),
    row_change(5, "orders", ["id"], ["id"], after=[99], schema="archive"),
]
MOVES = schema_change(10, "RENAME TABLE orders TO archive.orders_2024", schema="archive")
AFTER = [schema_change(20, "CREATE TABLE orders (id INT PRIMARY KEY)", schema="shop"), boundary(99)]


def held_by(run: Callable[[], object], url: str) -> dict[str, Any]:
    """Runs a pipeline that is held, and gives the schema change that waits."""
    with pytest.raises(HeldError):
        run()
    (waiting,) = json.loads(bridge("ddl", "list", "--open", "--json", "--target", url).out)
    assert waiting["state"] == "held"
    return dict(waiting)


def decide(url: str, *words: str) -> tuple[int, str]:
    said = bridge("ddl", *words, "--target", url)
    return said.code, said.err


def ids(url: str, table: str) -> list[Any]:
    return sorted(row[0] for row in sql(url, f"SELECT id FROM {table}"))


def test_a_name_in_a_database_that_is_not_known_waits(target: str) -> None:
    """As it came it is never run, also when it is approved; replaced by itself, with all databases, it runs."""
    events = in_one_partition([*BEFORE, MOVES, *AFTER])
    waiting = held_by(lambda: run_all(target, events), target)
    assert "names orders without a database" in waiting["outcome"]
    code, said = decide(target, "approve", waiting["id"])
    assert (code, "may take other tables" in said) == (2, True)
    code, said = decide(target, "replace", waiting["id"], "RENAME TABLE orders TO archive.x")
    assert (code, "without a database" in said) == (2, True)
    assert decide(target, "replace", waiting["id"], "RENAME TABLE shop.orders TO archive.orders_2024")[0] == 0
    run_all(target, events)
    assert [ids(target, name) for name in ("archive.orders", "archive.orders_2024", "shop.orders")] == [[99], [1], []]


@pytest.mark.parametrize("by_hand", [(), ("RENAME TABLE shop.orders TO archive.orders_2024",)])
def test_what_was_made_by_hand(target: str, by_hand: Sequence[str]) -> None:
    """`done` goes on behind it."""
    events = in_one_partition([*BEFORE, MOVES, *AFTER])
    waiting = held_by(lambda: run_all(target, events), target)
    sql(target, "RENAME TABLE shop.orders TO archive.orders_2024")
    assert decide(target, "done", waiting["id"], *by_hand)[0] == 0
    run_all(target, events)
    assert ids(target, "archive.orders_2024") == [1]
    assert ids(target, "shop.orders") == []


def test_what_was_skipped_leaves_no_rows_to_a_new_table(target: str) -> None:
    """Without the rename the rows are still there when the table is made anew."""
    events = in_one_partition([*BEFORE, MOVES, *AFTER])
    waiting = held_by(lambda: run_all(target, events), target)
    assert decide(target, "skip", waiting["id"])[0] == 0
    with pytest.raises(Exception, match="was skipped"):
        run_all(target, events)
    assert ids(target, "archive.orders") == [99]


def test_a_swap_is_not_skipped(target: str) -> None:
    """Rows behind it would go to each other's tables, whichever database they are in."""
    swap = schema_change(10, "RENAME TABLE orders TO archive.old, shop.new TO shop.orders", schema="archive")
    waiting = held_by(lambda: run_all(target, in_one_partition([*BEFORE, swap, boundary(99)])), target)
    code, said = decide(target, "skip", waiting["id"])
    assert (code, "each other's tables" in said) == (2, True)


GHOSTS = {
    "gh-ost": [
        "create /* gh-ost */ table `shop`.`_orders_gho` like `shop`.`orders`",
        "alter /* gh-ost */ table `shop`.`_orders_gho` add column c int",
        "rename /* gh-ost */ table `shop`.`orders` to `shop`.`_orders_del`, `shop`.`_orders_gho` to `shop`.`orders`",
    ],
    "pt-osc": [
        "CREATE TABLE `shop`.`_orders_new` (id INT PRIMARY KEY)",
        "ALTER TABLE `shop`.`_orders_new` ADD COLUMN c INT",
        "RENAME TABLE `shop`.`orders` TO `shop`.`_orders_old`, `shop`.`_orders_new` TO `shop`.`orders`",
        "DROP TABLE IF EXISTS `_orders_old` /* generated by server */",
    ],
}


@pytest.mark.parametrize("tool", GHOSTS)
@pytest.mark.parametrize("word", ["replace", "done"])
def test_a_migration_that_is_half_outside_of_the_filter(target: str, tool: str, word: str) -> None:
    """Its last rename waits; `replace` by what it did to the table, or `done` after that, go on."""
    change = "ALTER TABLE shop.orders ADD COLUMN c INT"
    events = in_one_partition([
        *BEFORE[:1],
        *BEFORE[2:3],
        *(schema_change(10 + n, text, schema="shop") for n, text in enumerate(GHOSTS[tool])),
        row_change(20, "orders", ["id", "c"], ["id"], after=[7, 8], schema="shop"),
        boundary(99),
    ])  # fmt: skip
    only = TableFilter(("shop.orders",))
    waiting = held_by(lambda: run_all(target, events, tables=only, ddl=ddl_rules(tables=only)), target)
    assert "outside of it: shop._orders_" in waiting["outcome"]
    if word == "done":
        sql(target, change)
    assert decide(target, word, waiting["id"], *([change] if word == "replace" else []))[0] == 0
    run_all(target, events, tables=only, ddl=ddl_rules(tables=only))
    assert list(sql(target, "SELECT id, c FROM shop.orders")) == [(7, 8)]
    assert list(sql(target, "SHOW TABLES FROM shop")) == [("orders",)]


@pytest.mark.parametrize("statement", ["ALTER TABLE orders ADD c INT", "ALTER DATABASE CHARACTER SET latin1"])
def test_a_table_of_a_database_that_is_not_known_may_be_inside(target: str, statement: str) -> None:
    """Canal leaves the database out where its parser fails: with a filter too, the statement is not passed over."""
    only = TableFilter(("shop.*",))
    lost: list[Event] = [schema_change(10, statement, schema="", table="")]
    events = in_one_partition([*BEFORE[:1], *BEFORE[2:3], *lost, boundary(99)])
    waiting = held_by(lambda: run_all(target, events, tables=only, ddl=ddl_rules(tables=only)), target)
    assert "the message names none" in waiting["outcome"]
    assert ("have it read its tables anew" in waiting["outcome"]) == ("TABLE" in statement)


def test_a_database_that_holds_more_than_is_replicated_is_not_dropped(target: str) -> None:
    """The filter leaves out a table that only the target has, or that an earlier pipeline brought: it waits, with its
    name, and runs when it is approved."""
    only = TableFilter(("shop.orders", "archive.*"))
    dropped = [schema_change(10, f"DROP DATABASE {name}", schema=name) for name in ("archive", "shop")]
    sql(target, "CREATE DATABASE shop", "CREATE TABLE shop.local (id INT)", "SELECT 1")
    events = in_one_partition([*BEFORE, *dropped, boundary(99)])
    waiting = held_by(lambda: run_all(target, events, tables=only, ddl=ddl_rules(tables=only)), target)
    assert waiting["outcome"] == "the filter leaves out tables that it would drop: shop.local"
    assert (ids(target, "shop.local"), ids(target, "shop.orders")) == ([], [1])
    assert decide(target, "approve", waiting["id"])[0] == 0
    run_all(target, events, tables=only, ddl=ddl_rules(tables=only))
    assert not list(sql(target, "SHOW DATABASES LIKE 'shop'"))


COLUMNS = {"id": ("int", "1")}


def source(*samples: list[Any]) -> Source:
    """A source that holds these messages, one sample after another."""
    left = list(samples)
    return cast("Source", SimpleNamespace(sample=lambda _: left.pop(0)))


def test_an_empty_source_is_waited_for() -> None:
    """It is said once, and the first message decides."""
    said: list[str] = []
    waits: list[None] = []
    empty = source([], [], [], [(b"", canal("INSERT", COLUMNS))])
    assert protocol_of(Settings(), empty, said.append, lambda: waits.append(None)) == "canal-json"
    assert ["no message yet" in line for line in said] == [True, False]
    assert len(waits) == 3


def test_an_empty_source_that_nobody_waits_for_is_an_error() -> None:
    """A catch-up has nothing to catch up with."""
    with pytest.raises(UsageError, match="the source is empty"):
        protocol_of(Settings(), source([]), print)


def test_an_unknown_topic_is_named_with_the_one_that_is_meant() -> None:
    """In words, not in those of Kafka's library."""
    assert "fix: did you mean orders? " in str(unknown_topic_error("order", ["orders", "other"]))
    assert "did you mean" not in str(unknown_topic_error("order", ["xyz"]))
