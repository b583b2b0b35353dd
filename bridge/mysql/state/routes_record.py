"""Remembers the routes and the filters that a pipeline runs with: they are fixed once it has written something.

Others are taken with `--accept-change` alone, and hold from what is read then on: nothing is read again.  Routes that
would divide the rows of a table, or mix them with another table's, are refused all the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from itertools import islice
from typing import Any, Final, NamedTuple

import orjson
import structlog

from bridge.errors import UsageError
from bridge.events import Kind
from bridge.filters.routes import IgnoredRows, Route, Routes, RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import Journal
from bridge.mysql.state.progress import Progress
from bridge.mysql.state.quarantine import count_held
from bridge.mysql.table_definition import list_tables

_SHOWN: Final = 3
_COPY: Final = (
    "what was left out until now is not read again: a table that is let in, or more of whose changes are, has to be"
    " copied while the bridge is stopped, or given a pipeline of its own (--name, --filter, --from)"
)
log = structlog.get_logger()


class RulesRecord(NamedTuple):
    """What a pipeline runs with.

    rules: its routes and filters.
    former: those of before its event filters were last changed, with all event filters of before; None where they
        never were.
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

    Raises UsageError for others than those on record once the pipeline has begun: always where rows would be divided
    or mixed, where parts of a step are on the target, and for other routes while the quarantine or the journal names
    tables of the target; any without `accepts_change`.
    """
    before, changed = require_kept_rules(session, schema, progress, rules, accepts_change=accepts_change)
    now = _document(rules)
    if changed:
        log.warning("filters_changed", changed=changed, applied_ts=progress.applied_ts, fix=_COPY)
    if before is not None and "changed" in before:
        now["changed"] = before["changed"]
    if before is not None and "ignored" in changed:
        now["changed"] = _document(_rules(before))
        now["changed"]["ignored"] += before.get("changed", {"ignored": []})["ignored"]
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
    changed = [word for word in now if before[word] != now[word]]
    if changed:
        _refuse_change(session, schema, progress, _rules(before), rules, changed, accepts_change=accepts_change)
    return before, changed


def _refuse_change(
    session: Session,
    schema: str,
    progress: Progress,
    former: RowRules,
    rules: RowRules,
    changed: Sequence[str],
    *,
    accepts_change: bool,
) -> None:
    """Raises UsageError for a change that must not be, or that the operator has not accepted."""
    where = f"pipeline {progress.name}"
    if progress.in_parts:
        raise UsageError(
            "the filters or routes are not those with which the pipeline began to write a step, of which parts are on"
            " the target",
            where=where,
            fix="start it once with the filters and routes as they were, until its applied ts is at least"
            f" {progress.applying_ts}",
        )
    _refuse_moved(session, progress, former.routes, rules.routes)
    names_tables = count_held(session, schema, progress.name) or any(
        entry.replacement for entry in Journal(progress.name, schema).entries(session)
    )
    if "routes" in changed and names_tables:
        raise UsageError(
            "the routes cannot change any more: row changes in the quarantine, or statements that ran instead of schema"
            " changes, name tables of the target",
            where=where,
            fix="settle what bridge quarantine list shows; after a bridge ddl replace, begin anew with another --name",
        )
    if not accepts_change:
        words = {"routes": "routes", "filter": "filter", "ignored": "event filters"}
        raise UsageError(
            f"the pipeline ran with other {' and '.join(words[word] for word in changed)}",
            where=f"{where}, applied ts {progress.applied_ts}",
            fix=f"give them as they were; or start it once with --accept-change, from which on these hold: {_COPY}",
        )


def require_kept_routes(session: Session, schema: str, progress: Progress, routes: Routes) -> None:
    """Raises UsageError when by these routes, tables that are on the target belong elsewhere than by those that the
    pipeline runs with."""
    before = _read(session, schema, progress.name)
    if before is not None and _has_begun(progress):
        _refuse_moved(session, progress, _rules(before).routes, routes)


def _has_begun(progress: Progress) -> bool:
    """Tells whether rows may be on the target."""
    return progress.applied_ts > progress.start_ts or progress.in_parts


def _refuse_moved(session: Session, progress: Progress, old: Routes, new: Routes) -> None:
    if old.routes == new.routes and old.tables.rules == new.tables.rules:
        return
    moved = list(islice(moved_rows(old, new, list_tables(session)), _SHOWN + 1))
    if moved:
        more = ", and others" if len(moved) > _SHOWN else ""
        raise UsageError(
            f"the routes are not those that the pipeline ran with: {'; '.join(moved[:_SHOWN])}{more}",
            where=f"pipeline {progress.name}",
            fix="give the routes as they were (--route, or the settings file of the pipeline); or stop the bridge, move"
            " what is there yourself, with RENAME TABLE on the target, and start it with the new routes and"
            " --accept-change; or begin anew with another --name",
        )


def moved_rows(old: Routes, new: Routes, tables: Iterable[TableName]) -> Iterator[str]:
    """Tells of the tables that are `there` on the target which rows other routes, or filters, would divide or mix."""
    for target in tables:
        if old.is_merged(target) and not new.is_merged(target):
            yield f"shards went to {target}, and would go to tables of their own"
        were = [source for source in old.sources(target) if old.tables(*source)]
        for source in were:
            now = new.target(source)
            if new.tables(*source) and str(now).lower() != str(target).lower():
                yield f"{source} went to {target}, and would go to {now}"
        if were and new.is_merged(target) and not old.is_merged(target):
            yield f"{were[0]} went to {target}, and shards would go there"
        elif excluded := next((source for source in were if not new.tables(*source)), None):
            new_sources = sorted({source for source in new.sources(target) if new.tables(*source)}.difference(were))
            yield from (
                f"{excluded} went to {target} and is left out, and {name} would go there" for name in new_sources
            )


def _read(session: Session, schema: str, name: str) -> dict[str, Any] | None:
    rows = session.rows(f"SELECT routes FROM {quote_name(schema, 'routes')} WHERE name = %s", (name,))
    return orjson.loads(rows[0][0]) if rows else None


def _document(rules: RowRules) -> dict[str, Any]:
    routes = rules.routes
    return {
        "routes": [
            [rule.schema_pattern, rule.table_pattern, rule.target_schema, rule.target_table, rule.merges]
            for rule in routes.routes
        ],
        "filter": [*routes.tables.rules],
        "ignored": [[[*rule.tables.rules], sorted(map(int, rule.kinds))] for rule in rules.ignored if rule.kinds],
    }


def _rules(document: dict[str, Any]) -> RowRules:
    routes = Routes(tuple(Route(*route) for route in document["routes"]), TableFilter(tuple(document["filter"])))
    ignored = (
        IgnoredRows(TableFilter(tuple(tables)), frozenset(map(Kind, kinds))) for tables, kinds in document["ignored"]
    )
    return RowRules(tuple(ignored), routes)
