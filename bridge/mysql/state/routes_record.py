"""Remembers the routes and the filters that a pipeline runs with: they are fixed once it has written something.

Other filters are taken with `--accept-change` alone, and hold from what is read then on: nothing is read again.  Other
routes, which would divide the rows of a table or mix them with another table's, are refused all the same, and so are
filters that mix them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson
import structlog

from bridge.errors import UsageError
from bridge.events import Kind
from bridge.filters.routes import IgnoredRows, Route, Routes, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from bridge.mysql.connection.session import Session
from bridge.mysql.state.progress import Progress
from bridge.mysql.table_definition import list_tables
from bridge.quoting import quote_name

_SHOWN: Final = 3
_COPY: Final = (
    "what was left out until now is not read again: a table that is let in, or more of whose changes are, has to be"
    " copied while the bridge is stopped, or given a pipeline of its own (--name, --filter, --from)"
)
log = structlog.get_logger()


class RulesRecord(NamedTuple):
    """What a pipeline runs with.

    rules: its routes and filters.
    former: those of before its event filters were last changed; None where they never were.
    """

    rules: RowRules
    former: RowRules | None = None


def read_rules(session: Session, schema: str, name: str) -> RulesRecord | None:
    """Reads which routes and filters a pipeline runs with; None where none are on record."""
    document = _read(session, schema, name)
    if document is None:
        return None
    before = document.get("changed")
    return RulesRecord(_rules(document), None if before is None else _rules(before))


def keep_rules(
    session: Session, schema: str, progress: Progress, rules: RowRules, *, accepts_change: bool = False
) -> None:
    """Stores the routes and the filters of a pipeline.

    Raises UsageError for others than those on record once the pipeline has begun: always for other routes, where rows
    would be mixed, and where parts of a step are on the target; any without `accepts_change`.
    """
    before, changed = require_kept_rules(session, schema, progress, rules, accepts_change=accepts_change)
    now = _document(rules)
    if changed:
        log.warning("filters_changed", changed=changed, applied_ts=progress.applied_ts, fix=_COPY)
    if before is not None and "changed" in before:
        now["changed"] = before["changed"]
    if before is not None and "ignored" in changed:
        now["changed"] = _document(_rules(before))
    if before != now:
        stored = (progress.name, orjson.dumps(now).decode())
        session.execute(f"REPLACE INTO {quote_name(schema, 'routes')} VALUES (%s, %s, NOW(3))", stored)


def require_kept_rules(
    session: Session, schema: str, progress: Progress, rules: RowRules, *, accepts_change: bool
) -> tuple[dict[str, Any] | None, list[str]]:
    """Raises what `keep_rules` raises, and stores nothing.  Gives what is on record, and which of it is changed."""
    before, now = _read(session, schema, progress.name), _document(rules)
    if before is None or not _has_begun(progress):
        return before, []
    where = f"pipeline {progress.name}"
    changed = [word for word in now if before[word] != now[word]]
    if changed and progress.in_parts:
        raise UsageError(
            "the filters or routes are not those with which the pipeline began to write a step, of which parts are on"
            " the target",
            where=where,
            fix="start it once with the filters and routes as they were, until its applied ts is at least"
            f" {progress.applying_ts}",
        )
    if "routes" in changed:
        raise _other_routes(progress)
    there = list_tables(session) if "filter" in changed else ()
    if mixed := list(islice(mixed_rows(_rules(before).routes, rules.routes, there), _SHOWN)):
        raise UsageError(
            f"the filter would mix rows of several tables: {'; '.join(mixed)}",
            where=where,
            fix="give the filter as it was; or move what is there, with RENAME TABLE on the target, while the bridge is"
            " stopped; or begin anew with another --name",
        )
    if changed and not accepts_change:
        words = {"filter": "filter", "ignored": "event filters"}
        raise UsageError(
            f"the pipeline ran with other {' and '.join(words[one] for one in changed)}",
            where=f"{where}, applied ts {progress.applied_ts}",
            fix=f"give them as they were; or start it once with --accept-change, from which on these hold: {_COPY}",
        )
    return before, changed


def require_kept_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> None:
    """Raises UsageError for other routes than those that the pipeline runs with."""
    before = _read(session, schema, progress.name)
    if before is not None and _has_begun(progress) and before["routes"] != _document(RowRules(routes=routes))["routes"]:
        raise _other_routes(progress)


def _other_routes(progress: Progress) -> UsageError:
    return UsageError(
        "the routes are not those that the pipeline ran with",
        where=f"pipeline {progress.name}",
        fix="give the routes as they were (--route, or the settings file of the pipeline); or begin anew with another"
        " --name",
    )


def _has_begun(progress: Progress) -> bool:
    """Tells whether rows may be on the target."""
    return progress.applied_ts > progress.start_ts or progress.in_parts


def mixed_rows(old: Routes, new: Routes, there: Iterable[TableName]) -> Iterator[str]:
    """Tells of the tables that are `there` on the target which rows another filter would mix."""
    for target in there:
        were = [source for source in old.sources(target) if old.tables(*source)]
        if left := next((source for source in were if not new.tables(*source)), None):
            others = sorted({one for one in new.sources(target) if new.tables(*one)}.difference(were))
            yield from (f"{left} went to {target} and is left out, and {other} would go there" for other in others)


def _read(session: Session, schema: str, name: str) -> dict[str, Any] | None:
    rows = session.rows(f"SELECT routes FROM {quote_name(schema, 'routes')} WHERE name = %s", (name,))
    return orjson.loads(rows[0][0]) if rows else None


def _document(rules: RowRules) -> dict[str, Any]:
    routes = rules.routes
    return {
        "routes": [
            [one.schema_pattern, one.table_pattern, one.target_schema, one.target_table, one.merges]
            for one in routes.routes
        ],
        "filter": [*routes.tables.rules],
        "ignored": [[[*one.tables.rules], sorted(map(int, one.kinds))] for one in rules.ignored if one.kinds],
    }


def _rules(document: dict[str, Any]) -> RowRules:
    routes = Routes(tuple(Route(*route) for route in document["routes"]), TableFilter(tuple(document["filter"])))
    ignored = (
        IgnoredRows(TableFilter(tuple(tables)), frozenset(map(Kind, kinds))) for tables, kinds in document["ignored"]
    )
    return RowRules(tuple(ignored), routes)
