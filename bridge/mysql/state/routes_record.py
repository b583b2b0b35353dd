"""Remembers the routes and the filters that a pipeline runs with: refuses routes that would divide the rows of a table,
and names tables, and kinds of row changes, that a filter has left out until now."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import islice
from typing import Any, Final

import orjson
import structlog

from bridge.errors import UsageError
from bridge.events import Kind
from bridge.filters.moved_tables import moved_tables
from bridge.filters.routes import Route, Routes
from bridge.filters.row_rules import IgnoredRows, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from bridge.mysql.connection import Session
from bridge.mysql.state.progress import Progress
from bridge.mysql.table_definition import list_tables
from bridge.quoting import quote_name

_SHOWN: Final = 3
_MISSED_FIX: Final = (
    "copy each table as it was at applied_ts, or leave it out again and give it a pipeline of its own (--name,"
    " --filter, --from); bridge verify shows what is missing"
)
_MISSED_ROWS_FIX: Final = (
    "copy each table as it was at applied_ts, or set the event filter again; bridge verify shows what differs"
)
log = structlog.get_logger()


def keep_routes(session: Session, schema: str, progress: Progress, rules: RowRules) -> None:
    """Stores the routes and the filters of a pipeline; raises what `require_kept_routes` raises.

    Warns of tables on the target that the filter has left out until now, and of those of which an event filter has left
    out rows, since what came before is not read again.
    """
    require_kept_routes(session, schema, progress, rules.routes)
    before = _read(session, schema, progress.name)
    if before == _text(rules):
        return
    if before is not None and _has_begun(progress):
        there = list_tables(session)
        _warn_of_missed(there, progress, _rules(before).routes, rules.routes)
        _warn_of_missed_rows(there, progress, _rules(before), rules)
    stored = (progress.name, _text(rules))
    session.execute(f"REPLACE INTO {quote_name(schema, 'routes')} VALUES (%s, %s, NOW(3))", stored)


def require_kept_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> None:
    """Raises UsageError when by these routes, tables that are on the target belong elsewhere than by those that the
    pipeline ran with."""
    before = _read(session, schema, progress.name)
    if before is None or not _has_begun(progress):
        return
    old = _rules(before).routes
    if _told(old) != _told(routes):
        _refuse_moved(session, progress, old, routes)


def _has_begun(progress: Progress) -> bool:
    """Tells whether rows may be on the target."""
    return progress.applied_ts > progress.start_ts or progress.in_parts


def _warn_of_missed(there: Iterable[TableName], progress: Progress, old: Routes, new: Routes) -> None:
    missed = [
        str(source)
        for target in there
        for source in new.sources(target)
        if new.tables(*source) and not old.tables(*source) and not new.reserved.why(target.schema)
    ]
    if missed:
        log.warning("tables_were_left_out", tables=_shown(missed), applied_ts=progress.applied_ts, fix=_MISSED_FIX)


def _warn_of_missed_rows(there: Iterable[TableName], progress: Progress, old: RowRules, new: RowRules) -> None:
    missed = [
        f"{source}: {', '.join(kind.name.lower() for kind in sorted(kinds))}"
        for target in there
        for source in new.routes.sources(target)
        if old.routes.tables(*source) and new.routes.tables(*source)
        if (kinds := old.ignored_kinds(*source) - new.ignored_kinds(*source))
    ]
    if missed:
        log.warning("rows_were_left_out", tables=_shown(missed), applied_ts=progress.applied_ts, fix=_MISSED_ROWS_FIX)


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
            " what is there yourself, with RENAME TABLE on the target, and start it with the new routes; or begin anew"
            " with another --name",
        )


def _read(session: Session, schema: str, name: str) -> str | None:
    found = session.rows(f"SELECT routes FROM {quote_name(schema, 'routes')} WHERE name = %s", (name,))
    return str(found[0][0]) if found else None


def _told(routes: Routes) -> dict[str, Any]:
    told = [[r.schema_pattern, r.table_pattern, r.target_schema, r.target_table, r.merges] for r in routes.routes]
    return {"routes": told, "filter": [*routes.tables.rules]}


def _text(rules: RowRules) -> str:
    ignored = [[one.tables.rules, sorted(one.kinds)] for one in rules.ignored if one.kinds]
    return orjson.dumps(_told(rules.routes) | ({"ignored": ignored} if ignored else {})).decode()


def _rules(text: str) -> RowRules:
    told = orjson.loads(text)
    routes = Routes(tuple(Route(*route) for route in told["routes"]), TableFilter(tuple(told["filter"])))
    ignored = told.get("ignored", [])
    return RowRules(
        tuple(IgnoredRows(TableFilter(tuple(tables)), frozenset(map(Kind, kinds))) for tables, kinds in ignored), routes
    )
