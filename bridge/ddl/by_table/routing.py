"""Gives the tables in a schema change the names that routes give them on the target.

Every name that the parser knows is written anew, with its database.  A statement in which another part may name a
routed table is not run at all.  The outcome is classified again, and must touch exactly the tables that the routes say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.ddl.classes import StatementKind
from bridge.ddl.lexer import Named, Token, UnreadableError, opened, tokens
from bridge.ddl.parser import Classified, Refused, Unclear, classify
from bridge.ddl.rule import Edit, UnsupportedError
from bridge.filters.routes import Routes
from bridge.model import TableName, quote_name

_FIX: Final = "skip it, or replace it by what the target needs, with the target's names"


class RoutingError(UnsupportedError):
    """Raised for a schema change whose names cannot all be routed.  It is never run as it came."""

    def __init__(self, why: str) -> None:
        super().__init__(f"the routes do not say what it means on the target: {why}; {_FIX}")


class RoutedStatement(NamedTuple):
    """A statement with the names of the target.  schema: its current database there; edits: what was replaced."""

    text: str
    schema: str
    edits: tuple[Edit, ...] = ()


def routed_statement(text: str, known: Classified, schema: str, routes: Routes, *, tidb: bool) -> RoutedStatement:
    """Routes a statement whose comments are opened, with `schema` as the current database.  Raises RoutingError."""
    if not routes:
        return RoutedStatement(text, schema)
    for name in known.tables:
        if why := routes.conflict(name):
            raise RoutingError(why)
    found = tokens(text, tidb=tidb)
    there = routes.whole_database(schema) or schema
    if known.database:
        edits = tuple(_database(found, known, routes))
    elif known.kind is StatementKind.CREATE_VIEW:
        raise RoutingError("a view names tables, columns and functions by names that the routes may change")
    elif all(routes.target(named.table) == named.table for named in _named(known)):
        return RoutedStatement(text, schema)
    else:
        edits = tuple(_names(found, known, routes))
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    routed = RoutedStatement(text, there, edits)
    _check(routed, known, routes, tidb=tidb)
    return routed


def target_statement(statement: str, schema: str, routes: Routes) -> tuple[str, str] | None:
    """Gives a statement and its current database with the names of the target; None when it cannot be routed."""
    try:
        text = opened(statement)
        known = classify(text, schema)
        if isinstance(known, Refused):
            return None
        routed = routed_statement(text, known, schema, routes, tidb=False)
    except (RoutingError, UnreadableError):
        return None
    return routed.text, routed.schema


# --- databases


def _database(found: Sequence[Token], known: Classified, routes: Routes) -> Iterator[Edit]:
    """Routes a database-level statement: only where all tables of the database go to one place."""
    name, is_new = known.database, known.kind is StatementKind.CREATE_DATABASE and len(known.classes) == 1
    whole = routes.whole_database(name)
    if routes.takes_from(name) and known.kind is not StatementKind.ALTER_DATABASE and not is_new:
        raise RoutingError(f"tables of {name} have other names there, and others may have the same database")
    if routes.merges_database(name) and known.kind is StatementKind.ALTER_DATABASE:
        raise RoutingError(f"{name} is merged with other databases")
    if routes.leads_into(name) and whole != name:
        raise RoutingError(f"tables of other databases are routed into {name}")
    if whole is None or whole == name:
        return
    if _others_lead_into(whole, name, routes):
        raise RoutingError(f"tables of other databases are routed into {whole}")
    at = next((token for token in found[2:] if token.name == name and token.kind in {"word", "quoted"}), None)
    if at is not None:
        yield Edit(*at.span, quote_name(whole), f"the route of {name}")


def _others_lead_into(target: str, source: str, routes: Routes) -> bool:
    """Tells whether a route leads from another database than `source` into `target`."""
    into = (route for route in routes.routes if (route.target_schema or "").lower() == target.lower())
    return any(not route.parts[0].pattern.matches(source.lower()) for route in into)


# --- tables


def _named(known: Classified) -> tuple[Named, ...]:
    """Gives all names of tables that the parser has found, with their places."""
    return (*known.touched, *([known.like] if known.like else []), *known.referenced)


def _names(found: Sequence[Token], known: Classified, routes: Routes) -> Iterator[Edit]:
    named = _named(known)
    for one in named:
        target = routes.target(one.table)
        why = f"the route of {one.table}" if target != one.table else "its database, since other names are routed"
        if target != one.table or not one.is_qualified:
            yield Edit(*one.span, quote_name(*target), why)
    rest = [token for token in found if not any(one.span[0] <= token.span[0] < one.span[1] for one in named)]
    _refuse_others(rest, known, routes)


def _refuse_others(rest: Sequence[Token], known: Classified, routes: Routes) -> None:
    """Raises RoutingError for a name with a dot that may be a routed table's, or one of its columns."""
    renamed = {name.table.lower() for name in known.tables if routes.target(name).table != name.table}
    for token, following in pairwise(rest):
        name = token.name
        if name is None or following.text != "." or name.isdigit():
            continue
        if name.lower() in renamed or routes.takes_from(name):
            raise RoutingError(f"it names something of {name}, and the bridge does not understand what")


# --- the outcome


def _check(routed: RoutedStatement, known: Classified, routes: Routes, *, tidb: bool) -> None:
    """Raises RoutingError unless the statement touches and reads exactly what it did, by the names of the target."""
    after = classify(routed.text, routed.schema, tidb=tidb, is_certain=True)
    is_same = (
        isinstance(after, Classified)
        and (after.kind, after.classes) == (known.kind, known.classes)
        and [one.table for one in _named(after)] == [routes.target(one.table) for one in _named(known)]
        and after.database == (routes.whole_database(known.database) or known.database if known.database else "")
    )
    if not is_same:
        raise RoutingError(f"with the target's names it would be another statement: {routed.text}")


def with_told_databases(statement: str, schema: str, told: Collection[TableName]) -> str:
    """Writes the databases into a statement, where `classify` does not know those of all names and the message tells
    them; gives any other statement as it came.

    told: the tables that the message names.  One that the statement names with its database tells nothing of the
    others: Debezium's connector names only the new table of a rename.
    """
    found = classify(statement, schema)
    if not isinstance(found, Unclear):
        return statement
    named = [*found.known.touched, *([found.known.like] if found.known.like else [])]
    named_whole = {one.table.folded for one in named if one.is_qualified}
    rest = [name for name in dict.fromkeys(told) if name.folded not in named_whole]
    for one in sorted(named, key=lambda one: one.span, reverse=True):
        same = [name for name in rest if name.table.lower() == one.table.table.lower()]
        if not one.is_qualified and len(same) == 1:
            start, end = one.span
            statement = statement[:start] + quote_name(same[0].schema, one.table.table) + statement[end:]
    return statement
