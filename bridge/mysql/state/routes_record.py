"""Remembers the routes and the filter that a pipeline runs with: refuses routes that would divide the rows of a table,
and names tables that a filter has left out until now."""

from __future__ import annotations

from itertools import islice
from typing import Final

import orjson
import structlog

from bridge.errors import UsageError
from bridge.filters.moved_tables import moved_tables
from bridge.filters.routes import Route, Routes
from bridge.filters.table_filter import TableFilter
from bridge.mysql.connection import Session
from bridge.mysql.state.progress import Progress
from bridge.mysql.table_definition import list_tables
from bridge.quoting import quote_name

_SHOWN: Final = 3
_MISSED_FIX: Final = (
    "copy each table as it was at applied_ts, or leave it out again and give it a pipeline of its own (--name,"
    " --filter, --from); bridge verify shows what is missing"
)
log = structlog.get_logger()


def keep_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> None:
    """Stores the routes of a pipeline; raises what `require_kept_routes` raises.

    Warns of tables on the target that the filter has left out until now, since what came before is not read again.
    """
    if require_kept_routes(session, schema, progress, routes):
        return
    before = _read(session, schema, progress.name)
    if before is not None and _has_begun(progress):
        _warn_of_missed(session, progress, _routes(before), routes)
    stored = (progress.name, _text(routes))
    session.execute(f"REPLACE INTO {quote_name(schema, 'routes')} VALUES (%s, %s, NOW(3))", stored)


def require_kept_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> bool:
    """Tells whether the routes are those that the pipeline ran with.  Raises UsageError when by others, tables that are
    on the target belong elsewhere."""
    before = _read(session, schema, progress.name)
    if before == _text(routes):
        return True
    if before is not None and _has_begun(progress):
        _refuse_moved(session, progress, _routes(before), routes)
    return False


def _has_begun(progress: Progress) -> bool:
    """Tells whether rows may be on the target."""
    return progress.applied_ts > progress.start_ts or progress.in_parts


def _warn_of_missed(session: Session, progress: Progress, old: Routes, new: Routes) -> None:
    missed = [
        str(source)
        for target in list_tables(session)
        for source in new.sources(target)
        if new.tables(*source) and not old.tables(*source) and not new.reserved.why(target.schema)
    ]
    if missed:
        more = [f"and {len(missed) - _SHOWN} more"] if len(missed) > _SHOWN else []
        log.warning(
            "tables_were_left_out", tables=[*missed[:_SHOWN], *more], applied_ts=progress.applied_ts, fix=_MISSED_FIX
        )


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


def _text(routes: Routes) -> str:
    told = [[r.schema_pattern, r.table_pattern, r.target_schema, r.target_table, r.merges] for r in routes.routes]
    return orjson.dumps({"routes": told, "filter": routes.tables.rules}).decode()


def _routes(text: str) -> Routes:
    told = orjson.loads(text)
    return Routes(tuple(Route(*route) for route in told["routes"]), TableFilter(tuple(told["filter"])))
