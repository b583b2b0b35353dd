"""Checks of the target's tables and databases: what the sample's rows and schema changes need, what the target would do
by itself, and keys of merged shards that are likely to meet."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.commands.check.finding import Finding, fail, ok, warn
from bridge.commands.check.kafka import HEAD_MESSAGES
from bridge.commands.check.protocol import Decoded
from bridge.config import Settings
from bridge.events import SEP, Event, Kind
from bridge.filters.routes import Routes
from bridge.model import Table, TableName
from bridge.mysql.catalog import load_tables
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.state import schema as own_tables
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.triggers_and_cascades import SideEffect, find_side_effects
from bridge.protocols import PROTOCOLS
from bridge.protocols.values.untyped import split_forms
from bridge.rows.keys.key_spellings import spelled_texts
from bridge.rows.types.type_check import is_changed_to
from bridge.tso import parse_moment

_SHARDS = 8


def judge_shards(tables: Mapping[TableName, Table], found: Decoded, routes: Routes) -> Iterator[Finding]:
    """Judges the tables of the sample that are merged.  tables: those that the target has."""
    there = {(name.schema.lower(), name.table.lower()): table for name, table in tables.items()}
    for target, shards in sorted(_shards(found, routes).items()):
        told = ", ".join(map(str, sorted(shards)[:_SHARDS])) + (" ..." if len(shards) > _SHARDS else "")
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


_SHOWN: Final = 5
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


@dataclass(frozen=True)
class Needed:
    """What rows of the sample need of one table of the target.

    columns: every column that a row names.
    images: the column lists of inserts.
    is_certain: whether no message that was not read can have made or altered the table before them.
    """

    name: TableName
    columns: frozenset[str]
    images: frozenset[frozenset[str]]
    is_certain: bool


def gather(target: Target, found: Decoded, settings: Settings) -> TableFacts:
    """Asks the target for its tables."""
    routes = settings.table_routes
    names = sorted({routes.target(TableName(one.schema, one.table)) for one in found.events if _is_row(one)})
    session = target.connect(autocommit=True)
    try:
        tables = load_tables(session, names)
        effects = find_side_effects(session, cascades=found.is_mysql_born)
        return TableFacts(
            tables,
            [effect for effect in effects if routes.accepts_target(*effect.table)],
            _is_known(session, settings),
        )
    finally:
        session.close()


def judge(facts: TableFacts, found: Decoded, settings: Settings) -> Iterator[Finding]:
    """Judges whether the target's tables take the sample's rows, and change none by themselves."""
    if not facts.is_known:
        needed = list(needed_tables(found, parse_moment(settings.begin), settings.table_routes))
        yield from _judge_tables(facts, needed, found)
    yield from _judge_spellings(facts, settings.ddl.source)
    yield from judge_shards(facts.tables, found, settings.table_routes)
    what = "the target would change rows by itself"
    for effect in facts.side_effects:
        yield fail("side-effects", f"{what}: {effect.what}", effect.fix)
    if not facts.side_effects:
        also = " or cascading foreign key" if found.is_mysql_born else ""
        yield ok("side-effects", f"no trigger{also} on the target's tables")


def needed_tables(found: Decoded, begin: int, routes: Routes = Routes()) -> Iterator[Needed]:  # noqa: B008
    """Tells which tables the sample's rows need as the target has them now.

    begin: rows below it are not applied.  Tables that a schema change of the sample may have made, or altered, are
    left out.
    """
    texts = [event.text.lower() for event in found.events if event.kind is Kind.SCHEMA_CHANGE and event.text]
    covered = _covered(found)
    rows: dict[TableName, list[Event]] = {}
    for event in found.events:
        if _is_row(event) and event.commit_ts >= begin:
            rows.setdefault(TableName(event.schema, event.table), []).append(event)
    for name, events in sorted(rows.items()):
        if any(name.table.lower() in text for text in texts):
            continue
        images = frozenset(_names(event) for event in events if event.kind is Kind.INSERT and not event.text)
        columns = frozenset(column for event in events if not event.text for column in _names(event))
        yield Needed(routes.target(name), columns, images, any(event.commit_ts <= covered for event in events))


def _covered(found: Decoded) -> int:
    """Gives the commit ts up to which the sample holds every message."""
    rest = [head for head in found.heads.values() if len(head) >= HEAD_MESSAGES]
    return min((max(event.commit_ts for event in head) for head in rest), default=_END_OF_TIME)


def _unsent(need: Needed, name: TableName, table: Table) -> Iterator[str]:
    """Gives the columns of a table of the target that inserts do not have, where no schema change can be the reason."""
    if need.is_certain and need.images:
        sent = frozenset[str]().union(*need.images)
        yield from (f"{name}.{c.name}" for key, c in table.columns.items() if not c.generated and key not in sent)


def _with_own_names(need: Needed, table: Table) -> Needed:
    """Gives columns the names that they have on the target, where Debezium may have changed these."""
    own = {sent: next((one for one in table.columns if is_changed_to(one, sent)), sent) for sent in need.columns}
    images = frozenset(frozenset(own.get(sent, sent) for sent in image) for image in need.images)
    return replace(need, columns=frozenset(own.values()), images=images)


def _leaves_out(found: Decoded) -> str:
    """Names the setting by which a sender leaves columns out."""
    if not found.is_mysql_born:
        return "column-selectors of TiCDC leave columns out"
    return PROTOCOLS[found.protocol].left_out_columns


def _judge_tables(facts: TableFacts, needed: Sequence[Needed], found: Decoded) -> Iterator[Finding]:
    mine = {_folded(name): (name, table) for name, table in facts.tables.items()}
    missing = [need for need in needed if _folded(need.name) not in mine]
    yield from _judge_missing(missing)
    own = [(need, *mine[_folded(need.name)]) for need in needed if _folded(need.name) in mine]
    there = [(_with_own_names(need, table), name, table) for need, name, table in own]
    lacking = []
    for need, _, table in there:
        if absent := sorted(need.columns - table.columns.keys()):
            lacking.append(f"{need.name} lacks {', '.join(absent)}")
    if unsent := [one for need, name, table in there for one in _unsent(need, name, table)]:
        yield warn(
            "columns",
            f"no row of the sample has these columns of the target, whose defaults new rows get: {_few(unsent)}",
            f"let the sender send them ({_leaves_out(found)}), if the upstream has them",
        )
    if lacking:
        yield fail(
            "columns",
            f"rows of the sample have columns that the target's tables lack: {_few(lacking)}",
            "alter the tables as they are upstream, or begin behind that schema change (--from)",
        )
    if keyless := [str(name) for _, name, table in there if not table.keys]:
        yield warn(
            "keys",
            f"tables without a primary key, or a unique key of NOT NULL columns: {_few(keyless)}; their rows are"
            " written one by one, and a copy that the sender makes twice would be written twice",
            "give them a key, upstream as well",
        )
    if there and not missing and not lacking:
        yield ok(
            "tables", f"the target has the tables and columns of the sample's rows: {_few(str(n) for _, n, _ in there)}"
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
            f"unique keys of the target take texts for one that the upstream tells apart: {_few(keys)}",
            "give their columns a collation that compares bytes: utf8mb4_0900_bin, or MariaDB's utf8mb4_nopad_bin",
        )


def _judge_missing(missing: Sequence[Needed]) -> Iterator[Finding]:
    if certain := [str(need.name) for need in missing if need.is_certain]:
        yield fail(
            "tables",
            f"the target lacks tables of which the sample has rows, and the sample does not make them: {_few(certain)}",
            "copy the upstream's tables first and begin at the copy's moment (--from), or leave them out with --filter",
        )
    if others := [str(need.name) for need in missing if not need.is_certain]:
        yield warn(
            "tables",
            f"the target lacks tables of which the sample has rows: {_few(others)}",
            "fine if a schema change in the topic makes them; otherwise copy the upstream's tables first (--from)",
        )


def _is_known(session: Session, settings: Settings) -> bool:
    if not own_tables.are_made(session, settings.target.schema_name):
        return False
    return ProgressTable(settings.name, settings.target.schema_name).read(session) is not None


def _is_row(event: Event) -> bool:
    return event.kind <= Kind.DELETE


def _names(event: Event) -> frozenset[str]:
    names, _ = split_forms(event.columns or "")
    return frozenset(names.lower().split(SEP))


def _folded(name: TableName) -> tuple[str, str]:
    return name.schema.lower(), name.table.lower()


def _few(names: Iterable[str]) -> str:
    listed = list(names)
    return ", ".join(listed[:_SHOWN]) + (f" and {len(listed) - _SHOWN} more" if len(listed) > _SHOWN else "")
