"""Remembers the routes that a pipeline runs with, and refuses others that would divide the rows of a table."""

from __future__ import annotations

from itertools import islice
from typing import Final

import orjson

from bridge.errors import UsageError
from bridge.filters.moved_tables import moved_tables
from bridge.filters.routes import Route, Routes
from bridge.filters.table_filter import TableFilter
from bridge.mysql.connection import Session
from bridge.mysql.state.progress import Progress
from bridge.mysql.table_definition import list_tables
from bridge.quoting import quote_name

_SHOWN: Final = 3


def keep_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> None:
    """Stores the routes of a pipeline; raises what `require_kept_routes` raises."""
    if require_kept_routes(session, schema, progress, routes):
        return
    stored = (progress.name, _text(routes))
    session.execute(f"REPLACE INTO {quote_name(schema, 'routes')} VALUES (%s, %s, NOW(3))", stored)


def require_kept_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> bool:
    """Tells whether the routes are those that the pipeline ran with.  Raises UsageError when by others, tables that are
    on the target belong elsewhere."""
    before = _read(session, schema, progress.name)
    if before == _text(routes):
        return True
    if before is not None and progress.applied_ts > progress.start_ts:
        _refuse_moved(session, progress, _routes(before), routes)
    return False


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
