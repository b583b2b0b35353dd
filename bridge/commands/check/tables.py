"""Checks of the target's tables: what the sample's rows need, and what the target would do by itself."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Final

from bridge.commands.check import Finding, fail, ok, warn
from bridge.commands.check.kafka import HEAD_MESSAGES
from bridge.commands.check.protocol import Decoded
from bridge.config import Settings
from bridge.errors import few
from bridge.events import SEP, DdlStatement, LeftOut, Undecodable
from bridge.filters.routes import Routes
from bridge.model import Table, TableName
from bridge.mysql.catalog import SideEffect, find_side_effects, load_tables
from bridge.mysql.connection.target import Target
from bridge.protocols.values.row_image import split_forms
from bridge.rows.key_spellings import spelled_texts
from bridge.rows.type_check import is_changed_to
from bridge.tso import parse_moment

_END_OF_TIME: Final = 1 << 63


@dataclass(frozen=True)
class TableFacts:
    """The target's tables.

    tables: those of the sample that the target has.
    side_effects: triggers, and foreign keys that cascade where that matters.
    is_known: whether the pipeline has begun.
    """

    tables: Mapping[TableName, Table]
    side_effects: Sequence[SideEffect]
    is_known: bool


def gather(target: Target, decoded: Decoded, settings: Settings, *, is_known: bool) -> TableFacts:
    """Asks the target for its tables.  is_known: as of `TableFacts`."""
    routes = settings.table_routes
    names = sorted({routes.target(TableName(row.schema, row.table)) for row in decoded.rows})
    with closing(target.connect(autocommit=True)) as session:
        tables = load_tables(session, names)
        effects = find_side_effects(session, cascades=decoded.is_mysql_born)
        return TableFacts(tables, [effect for effect in effects if routes.accepts_target(*effect.table)], is_known)


def judge(facts: TableFacts, decoded: Decoded, settings: Settings) -> Iterator[Finding]:
    """Judges whether the target's tables take the sample's rows, and change none by themselves."""
    if not facts.is_known:
        needed = needed_tables(decoded, parse_moment(settings.begin), settings.table_routes)
        yield from _judge_tables(facts, needed)
    yield from _judge_spellings(facts, settings.ddl.source)
    yield from _judge_shards(facts, decoded, settings.table_routes)
    what = "the target would change rows by itself"
    for effect in facts.side_effects:
        yield fail("side-effects", f"{what}: {effect.what}", effect.fix)
    if not facts.side_effects:
        also = " or cascading foreign key" if decoded.is_mysql_born else ""
        yield ok("side-effects", f"no trigger{also} on the target's tables")


def needed_tables(decoded: Decoded, begin: int, routes: Routes) -> dict[TableName, set[str]]:
    """Tells which tables, and which columns of each, the sample's rows need as the target has them now.

    begin: rows below it are not applied.  Tables are left out that a schema change of the sample may have made, or
    altered, and rows before which one may lie that is not in the sample.
    """
    cut = [head for head in decoded.heads.values() if len(head) >= HEAD_MESSAGES]
    times = ([event.commit_ts for event in head if not isinstance(event, Undecodable | LeftOut)] for head in cut)
    end = min((max(of_head, default=0) for of_head in times), default=_END_OF_TIME)
    texts = [event.statement.lower() for event in decoded.events if isinstance(event, DdlStatement)]
    needed: dict[TableName, set[str]] = {}
    for row in decoded.rows:
        if begin <= row.commit_ts <= end and not any(row.table.lower() in text for text in texts):
            columns = needed.setdefault(routes.target(TableName(row.schema, row.table)), set())
            columns.update(() if row.cut else split_forms(row.columns)[0].lower().split(SEP))
    return needed


def _judge_tables(facts: TableFacts, needed: Mapping[TableName, set[str]]) -> Iterator[Finding]:
    by_name = {name.folded: (name, table) for name, table in facts.tables.items()}
    if missing := few(str(name) for name in sorted(needed) if name.folded not in by_name):
        yield fail(
            "tables",
            f"the target lacks tables of which the sample has rows, and the sample does not make them: {missing}",
            "copy the upstream's tables first and begin at the copy's moment (--from), or leave them out with --filter",
        )
    pairs = [(columns, *by_name[name.folded]) for name, columns in sorted(needed.items()) if name.folded in by_name]
    lacking = []
    for columns, name, table in pairs:
        unknown = columns - table.columns.keys()
        # Debezium may have changed the name of one of the table's columns to the one that it sent.
        if absent := sorted(extra for extra in unknown if not any(is_changed_to(own, extra) for own in table.columns)):
            lacking.append(f"{name} lacks {', '.join(absent)}")
    if lacking:
        yield fail(
            "columns",
            f"rows of the sample have columns that the target's tables lack: {few(lacking)}",
            "alter the tables as they are upstream, or begin behind that schema change (--from)",
        )
    if keyless := [str(name) for _, name, table in pairs if not table.keys]:
        yield warn(
            "keys",
            f"tables without a primary key, or a unique key of NOT NULL columns: {few(keyless)}; their rows are"
            " written one by one, and a copy that the sender makes twice would be written twice",
            "give them a key, upstream as well",
        )
    if pairs and not missing and not lacking:
        yield ok(
            "tables",
            f"the target has the tables and columns of the sample's rows: {few(str(n) for _, n, _ in pairs)}",
        )


def _judge_spellings(facts: TableFacts, source: str) -> Iterator[Finding]:
    """Names the keys that the target would take for one although the source has two."""
    if source != "tidb-old-collations":
        return
    keys = [
        f"{name} ({', '.join(texts)})"
        for name, table in sorted(facts.tables.items())
        for unique in table.uniques
        if (texts := spelled_texts(table, unique))
    ]
    if keys:
        yield fail(
            "collations",
            f"unique keys of the target take texts for one that the upstream tells apart: {few(keys)}",
            "give their columns a collation that compares bytes: utf8mb4_0900_bin, or MariaDB's utf8mb4_nopad_bin",
        )


def _judge_shards(facts: TableFacts, decoded: Decoded, routes: Routes) -> Iterator[Finding]:
    """Warns of merged tables of which keys of two shards are likely to meet."""
    names = {TableName(row.schema, row.table) for row in decoded.rows}
    merged = {routes.target(name).folded for name in names if routes.merges(name)}
    for name, table in sorted(facts.tables.items()):
        if name.folded in merged and (table.counts or len(table.uniques) != 1):
            yield warn(
                "shards",
                f"{name} is merged, and its key is AUTO_INCREMENT, not its only unique key, or missing: where values of"
                " two shards meet, one row overwrites the other",
                "let the shards count in ranges of their own (auto_increment_offset), and drop further unique keys",
            )
