"""Applies the rules for row changes to decoded events, table by table."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import CLASH, EVENT_SCHEMA, Kind, LeftOut, RowChange
from bridge.filters.routes import Routes, RowRules
from bridge.model import TableName
from bridge.protocols.event_columns import events_table, placed_events


def ruled(events: pa.Table, rules: RowRules) -> pa.Table:
    """Applies the rules to events (EVENT_SCHEMA, in any order)."""
    return routed(without_ignored(events, rules.ignored_kinds, keeps_count=rules.keeps_count), rules.routes)


def without_ignored(
    events: pa.Table, ignored_kinds: Callable[[str, str], Collection[Kind]], *, keeps_count: bool = False
) -> pa.Table:
    """Leaves out row changes of events (EVENT_SCHEMA, in any order).  ignored_kinds: gives the kinds that are left out
    of a table.  keeps_count: they become rows that are not replicated."""
    names, numbers = _tables(events)
    ignored = [ignored_kinds(*name) for name in names]
    if not any(ignored):
        return events
    kinds = events["kind"].to_numpy()
    stays = np.ones(len(kinds), np.bool_)
    for number, kinds_of_table in enumerate(ignored):
        stays &= ~((numbers == number) & np.isin(kinds, [int(kind) for kind in kinds_of_table]))
    if keeps_count:
        at = EVENT_SCHEMA.get_field_index("kind")
        new_kinds = pa.array(np.where(stays, kinds, int(Kind.TRANSACTION)), pa.int8())
        return events.set_column(at, EVENT_SCHEMA.field(at), new_kinds)
    return events.filter(pa.array(stays))


def routed(events: pa.Table, routes: Routes) -> pa.Table:
    """Gives rows (EVENT_SCHEMA) the names of their tables on the target; those of merged tables name their shard.

    Of a table that shares its target with another one, adds an event that stops the bridge before it writes any of
    these events.
    """
    names, numbers = _tables(events) if routes else ([], np.empty(0))
    targets = list(map(routes.target, names))
    alike = _spelled_alike(names, targets, routes)
    reasons = [routes.conflict(name) or alike.get(name, "") for name in names]
    clashes = [_clash(events, numbers == n, names[n], why) for n, why in enumerate(reasons) if why]
    if targets == names and not clashes and not any(map(routes.merges, names)):
        return events
    is_row, of_row = pa.array(numbers >= 0), pa.array(np.maximum(numbers, 0))
    for field, parts in (("schema", [name.schema for name in targets]), ("table", [name.table for name in targets])):
        at = EVENT_SCHEMA.get_field_index(field)
        names_of_rows = pc.if_else(is_row, pa.array(parts).take(of_row), events[field])
        events = events.set_column(at, EVENT_SCHEMA.field(at), names_of_rows)
    events = _with_shards(events, [str(n) if routes.merges(n) else None for n in names], is_row, of_row)
    return pa.concat_tables([events, *clashes])


def _spelled_alike(names: Sequence[TableName], targets: Sequence[TableName], routes: Routes) -> dict[TableName, str]:
    """Tells of tables with one target why they clash: routes do not look at case, so that their names may differ in it.
    Only what comes together is seen."""
    firsts: dict[TableName, TableName] = {}
    pairs = [(name, firsts.setdefault(target, name), target) for name, target in zip(names, targets, strict=True)]
    return {
        name: f"{first} and {name} would both be written to {target}: a route does not tell names apart by case"
        for name, first, target in pairs
        if first != name and not routes.merges(name)
    }


def _with_shards(events: pa.Table, shards: list[str | None], is_row: pa.Array, of_row: pa.Array) -> pa.Table:
    """Names the shard in each row of a merged table; one that says already why its images are cut keeps that."""
    if not any(shards):
        return events
    at = EVENT_SCHEMA.get_field_index("text")
    of_shard = pa.array(shards, pa.string()).take(of_row)
    shard_names = pc.coalesce(events["text"], pc.if_else(is_row, of_shard, pa.scalar(None, pa.string())))
    return events.set_column(at, EVENT_SCHEMA.field(at), shard_names)


def _clash(events: pa.Table, which: npt.NDArray[np.bool_], name: TableName, why: str) -> pa.Table:
    [(position, _)] = placed_events(events.slice(int(np.argmax(which)), 1))
    return events_table([(position, LeftOut(*name, why, mark=CLASH))])


def ruled_row(row: RowChange, rules: RowRules) -> RowChange | None:
    """Applies the rules to one row change; None when it is left out."""
    if row.kind in rules.ignored_kinds(row.schema, row.table):
        return None
    target = rules.routes.target(TableName(row.schema, row.table))
    return row._replace(schema=target.schema, table=target.table)


def _tables(events: pa.Table) -> tuple[list[TableName], npt.NDArray[np.int64]]:
    """Gives the tables that events name, and for each event the number of its table.  Events that are no row changes
    are of no table, number -1."""
    schemas, tables = (events[name].combine_chunks().dictionary_encode() for name in ("schema", "table"))
    width = max(1, len(tables.dictionary))
    codes = schemas.indices.to_numpy().astype(np.int64) * width + tables.indices.to_numpy()
    codes[events["kind"].to_numpy() > int(Kind.DELETE)] = -1
    distinct_codes, numbers = np.unique(codes, return_inverse=True)
    start = int(len(distinct_codes) > 0 and distinct_codes[0] < 0)
    names = [
        TableName(schemas.dictionary[code // width].as_py(), tables.dictionary[code % width].as_py())
        for code in distinct_codes[start:].tolist()
    ]
    return names, numbers.astype(np.int64) - start
