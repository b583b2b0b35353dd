"""Checks of tables into which shards are merged: which shards the sample has, and keys that are likely to meet."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from bridge.commands.check.finding import Finding, ok, warn
from bridge.commands.check.protocol import Decoded
from bridge.events import Kind
from bridge.filters.routes import Routes
from bridge.model import Table, TableName

_SHOWN = 8


def judge(tables: Mapping[TableName, Table], found: Decoded, routes: Routes) -> Iterator[Finding]:
    """Judges the tables of the sample that are merged.  tables: those that the target has."""
    there = {(name.schema.lower(), name.table.lower()): table for name, table in tables.items()}
    for target, shards in sorted(_shards(found, routes).items()):
        told = ", ".join(map(str, sorted(shards)[:_SHOWN])) + (" ..." if len(shards) > _SHOWN else "")
        yield ok("shards", f"{target} is merged; shards in the sample: {told}")
        table = there.get((target.schema.lower(), target.table.lower()))
        if table is not None:
            yield from _judge_keys(target, table)


def _shards(found: Decoded, routes: Routes) -> dict[TableName, set[TableName]]:
    names = {TableName(event.schema, event.table) for event in found.events if event.kind <= Kind.DELETE}
    merged: dict[TableName, set[TableName]] = {}
    for name in filter(routes.merges, names):
        merged.setdefault(routes.target(name), set()).add(name)
    return merged


def _judge_keys(target: TableName, table: Table) -> Iterator[Finding]:
    if not table.keys:
        yield warn(
            "shards",
            f"{target} is merged and has no key: its rows are counted, and a change of a shard that lacks a column of"
            " it stops the bridge",
            "give it a key, upstream as well",
        )
        return
    if table.counts:
        yield warn(
            "shards",
            f"{target} is merged and its key is AUTO_INCREMENT: numbers that each shard counts by itself meet, and then"
            " a row of one shard overwrites another's",
            "let the shards count in ranges of their own (auto_increment_increment and auto_increment_offset)",
        )
    others = [unique for unique in table.uniques if unique != table.keys[0]]
    if others:
        names = "; ".join(", ".join(part or "an expression" for part in unique) for unique in others)
        yield warn(
            "shards",
            f"{target} is merged and has more than one unique key: values of ({names}) of two shards must not meet"
            " either",
            "drop a unique key of the target that holds within each shard only",
        )
