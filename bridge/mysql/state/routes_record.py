"""Remembers the routes and the filters that a pipeline runs with, and how far it came with each of its event filters.

Refuses routes that would divide the rows of a table, or mix them with another table's.  Names the tables and the kinds
of row changes that a filter has left out until now.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, Final

import orjson
import structlog

from bridge.errors import UsageError
from bridge.events import Kind
from bridge.filters.moved_tables import (
    LeftTable,
    MovedTable,
    TakenTable,
    left_tables,
    moved_tables,
    new_name,
    new_place,
    taken_tables,
)
from bridge.filters.routes import Route, Routes
from bridge.filters.row_rules import IgnoredRows, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import Positions, TableName, goes_by_partition
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import Journal
from bridge.mysql.state.progress import Progress, dump_positions, load_positions
from bridge.mysql.state.quarantine import move_changes
from bridge.mysql.table_definition import list_tables
from bridge.quoting import quote_name

_SHOWN: Final = 3
_MISSED_FIX: Final = (
    "each of them has to be a copy of the upstream's as of applied_ts; what was left out at or above it is read again."
    " Where one is not: stop the bridge, leave the table out again, copy it as of the applied ts of bridge status, and"
    " start with this filter; bridge verify shows what is missing"
)
_MISSED_ROWS_FIX: Final = (
    "what was left out below applied_ts is missing, what was left out at or above it is read again: stop the bridge,"
    " set the event filter again, copy each table as of the applied ts of bridge status, and start without the filter;"
    " bridge verify shows what differs"
)
_OWN_PIPELINE_FIX: Final = (
    "what was read of them until now is not read again: leave each of them out again, or set the event filter again,"
    " and give it a pipeline of its own (--name, --filter, --from); bridge verify shows what differs"
)
log = structlog.get_logger()


@dataclass(frozen=True)
class FilterEra:
    """The event filters with which a pipeline came as far as this, from where the era before it ended.

    rules: the tables, and the kinds of row changes of them that were left out.
    applied_ts: the TSO below which everything was in the target.
    positions: how far each partition was in the target, where the pipeline went by their order; else None.
    """

    rules: RowRules
    applied_ts: int
    positions: Positions | None


@dataclass(frozen=True)
class FilterRecord:
    """eras: those that have ended, the first one first; now: the rules since then."""

    eras: tuple[FilterEra, ...]
    now: RowRules


def read_filters(session: Session, schema: str, name: str) -> FilterRecord | None:
    """Reads which event filters a pipeline ran with; None where nobody has recorded them, as before this version."""
    text = _read(session, schema, name)
    if text is None or not _tells_filters(text):
        return None
    eras = (
        FilterEra(_ignoring(era["ignored"]), era["applied_ts"], _positions(era["positions"]))
        for era in orjson.loads(text).get("eras", [])
    )
    return FilterRecord(tuple(eras), _rules(text))


def lets_more_in(session: Session, schema: str, progress: Progress, rules: RowRules) -> bool:
    """Tells whether the filters are others than those on record, and so may let in what was left out of messages that
    were read already.  A record of an earlier version does not tell all of them."""
    before = _read(session, schema, progress.name)
    if before is None:
        return False
    told = orjson.loads(before)
    return (told["filter"], told.get("ignored")) != (_told(rules.routes)["filter"], _told_ignored(rules))


def keep_routes(session: Session, schema: str, progress: Progress, rules: RowRules) -> None:
    """Stores the routes and the filters of a pipeline; raises what `require_kept_routes` raises.

    Warns of tables on the target that the filter has left out until now, and of those of which an event filter has left
    out rows.  Row changes in the quarantine, and what operators wrote in the place of schema changes, get the new names
    of tables that were moved for new routes.  Where `lets_more_in`, the caller sets the progress back in the same
    transaction.  Raises UsageError for other event filters within a step of which the target may have parts.
    """
    require_kept_routes(session, schema, progress, rules.routes)
    before = _read(session, schema, progress.name)
    eras = _eras(before, progress, rules) if before is not None and _has_begun(progress) else []
    left = _left(session, progress, before, rules.routes)
    now = _text(rules, eras, left)
    if before == now:
        return
    if before is not None and _has_begun(progress):
        there = list_tables(session)
        old = _rules(before).routes
        _warn_of_missed(there, progress, old, rules.routes)
        if old.routes != rules.routes.routes:
            move_changes(session, schema, progress.name, lambda name: new_place(name, old, rules.routes, there))
            journal = Journal(progress.name, schema)
            journal.move_replacements(session, lambda sources, name: new_name(name, old, rules.routes, sources))
        if _tells_filters(before):
            _warn_of_missed_rows(there, progress, _rules(before), rules)
    stored = (progress.name, now)
    session.execute(f"REPLACE INTO {quote_name(schema, 'routes')} VALUES (%s, %s, NOW(3))", stored)


def require_kept_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> None:
    """Raises UsageError when by these routes, tables that are on the target belong elsewhere than by those that the
    pipeline ran with, or would go where the rows of a table are that is left out."""
    before = _read(session, schema, progress.name)
    if before is None or not _has_begun(progress):
        return
    old = _rules(before).routes
    if _told(old) != _told(routes):
        _refuse_moved(session, progress, old, routes)
        _refuse_taken(taken_tables(_left(session, progress, before, routes), old, routes), progress)


def _left(session: Session, progress: Progress, before: str | None, routes: Routes) -> list[LeftTable]:
    """Gives the tables that are left out by these routes, or by the filter with them, and still on the target."""
    if before is None or not _has_begun(progress):
        return []
    known, old = orjson.loads(before).get("left", []), _rules(before).routes
    if not known and _told(old) == _told(routes):
        return []
    left = (LeftTable(TableName(*source), TableName(*target)) for source, target in known)
    return left_tables(left, old, routes, list_tables(session))


def _has_begun(progress: Progress) -> bool:
    """Tells whether rows may be on the target."""
    return progress.applied_ts > progress.start_ts or progress.in_parts


def _eras(before: str, progress: Progress, rules: RowRules) -> list[dict[str, Any]]:
    """Gives the eras that have ended when a pipeline goes on with these rules."""
    told = orjson.loads(before)
    eras: list[dict[str, Any]] = told.get("eras", [])
    if not _tells_filters(before) or told["ignored"] == _told_ignored(rules):
        return eras
    if progress.in_parts:
        raise UsageError(
            "the event filters are not those with which the pipeline began to write a step, of which parts are on the"
            " target",
            where=f"pipeline {progress.name}",
            fix="start it once with the event filters as they were, until its applied ts is at least"
            f" {progress.applying_ts}",
        )
    positions = dump_positions(progress.positions) if goes_by_partition(progress.positions) else ""
    end = {"applied_ts": progress.applied_ts, "positions": positions}
    if eras and {**eras[-1], **end} == eras[-1]:
        return eras  # nothing was applied since
    return [*eras, {"ignored": told["ignored"], **end}]


def _tells_filters(text: str) -> bool:
    """Tells whether a record has the event filters: earlier versions did not write them."""
    return "ignored" in orjson.loads(text)


def _positions(text: str) -> Positions | None:
    return load_positions(text) if text else None


def _warn_of_missed(there: Iterable[TableName], progress: Progress, old: Routes, new: Routes) -> None:
    missed = [
        str(source)
        for target in there
        for source in new.sources(target)
        if new.tables(*source) and not old.tables(*source) and not new.reserved.why(target.schema)
    ]
    if missed:
        fix = _OWN_PIPELINE_FIX if goes_by_partition(progress.positions) else _MISSED_FIX
        log.warning("tables_were_left_out", tables=_shown(missed), applied_ts=progress.applied_ts, fix=fix)


def _warn_of_missed_rows(there: Iterable[TableName], progress: Progress, old: RowRules, new: RowRules) -> None:
    missed = [
        f"{source}: {', '.join(kind.name.lower() for kind in sorted(kinds))}"
        for target in there
        for source in new.routes.sources(target)
        if old.routes.tables(*source) and new.routes.tables(*source)
        if (kinds := old.ignored_kinds(*source) - new.ignored_kinds(*source))
    ]
    if missed:
        fix = _OWN_PIPELINE_FIX if goes_by_partition(progress.positions) else _MISSED_ROWS_FIX
        log.warning("rows_were_left_out", tables=_shown(missed), applied_ts=progress.applied_ts, fix=fix)


def _shown(names: Sequence[str]) -> list[str]:
    more = [f"and {len(names) - _SHOWN} more"] if len(names) > _SHOWN else []
    return [*names[:_SHOWN], *more]


def _refuse_moved(session: Session, progress: Progress, old: Routes, new: Routes) -> None:
    found = list(islice(moved_tables(old, new, list_tables(session)), _SHOWN + 1))
    if found:
        more = ", and others" if len(found) > _SHOWN else ""
        raise UsageError(
            f"the routes are not those that the pipeline ran with: {'; '.join(map(str, found[:_SHOWN]))}{more}",
            where=f"pipeline {progress.name}",
            fix="give the routes as they were (--route, or the settings file of the pipeline); or stop the bridge, move"
            f" what is there yourself, with RENAME TABLE on the target, and start it with the new routes{_ways(found)};"
            " or begin anew with another --name",
        )


def _ways(moved: Iterable[MovedTable]) -> str:
    taken = next((one for one in moved if one.is_taken), None)
    if taken is None:
        return ""
    return (
        f". As {taken.now} is there, too, nothing tells whether tables have traded places already (if so, trade them"
        f" back): give {taken.was} a name that no other has, and start once with a route from {taken.source} to that"
        " name; move the other table, and start once with its route; then move the first one to its place"
    )


def _refuse_taken(taken: Iterable[TakenTable], progress: Progress) -> None:
    if found := list(islice(taken, _SHOWN + 1)):
        more = ", and others" if len(found) > _SHOWN else ""
        raise UsageError(
            f"rows of two tables would mix: {'; '.join(map(str, found[:_SHOWN]))}{more}",
            where=f"pipeline {progress.name}",
            fix="leave out what would go there (--filter), or route it elsewhere (--route); or move what is there"
            " yourself, with RENAME TABLE on the target. If a copy of what will go there is to be in its place, start"
            " the bridge once while nothing is there, with both left out, and make the copy then",
        )


def _read(session: Session, schema: str, name: str) -> str | None:
    found = session.rows(f"SELECT routes FROM {quote_name(schema, 'routes')} WHERE name = %s", (name,))
    return str(found[0][0]) if found else None


def _told(routes: Routes) -> dict[str, Any]:
    told = [[r.schema_pattern, r.table_pattern, r.target_schema, r.target_table, r.merges] for r in routes.routes]
    return {"routes": told, "filter": [*routes.tables.rules]}


def _text(rules: RowRules, eras: Sequence[dict[str, Any]], left: Sequence[LeftTable]) -> str:
    more: dict[str, Any] = {"eras": eras} if eras else {}
    more |= {"left": [[[*one.source], [*one.target]] for one in left]} if left else {}
    return orjson.dumps(_told(rules.routes) | {"ignored": _told_ignored(rules)} | more).decode()


def _told_ignored(rules: RowRules) -> list[list[Any]]:
    return [[[*one.tables.rules], sorted(map(int, one.kinds))] for one in rules.ignored if one.kinds]


def _rules(text: str) -> RowRules:
    told = orjson.loads(text)
    routes = Routes(tuple(Route(*route) for route in told["routes"]), TableFilter(tuple(told["filter"])))
    return _ignoring(told.get("ignored", []), routes)


def _ignoring(ignored: Iterable[tuple[Sequence[str], Sequence[int]]], routes: Routes = Routes()) -> RowRules:  # noqa: B008  # immutable
    return RowRules(
        tuple(IgnoredRows(TableFilter(tuple(tables)), frozenset(map(Kind, kinds))) for tables, kinds in ignored), routes
    )
