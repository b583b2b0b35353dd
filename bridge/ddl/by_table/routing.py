"""Gives the tables in a schema change the names that routes give them on the target.

Every name that the parser knows is written anew, with its database.  A statement in which another part may name a
routed table is not run at all.  The outcome is classified again, and must touch exactly the tables that the routes say.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.ddl.classes import StatementKind
from bridge.ddl.lexer import Token, UnreadableError, open_comments, read_tokens
from bridge.ddl.parser import Classified, Refused, Unclear, classify, outside
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


def routed_statement(text: str, classified: Classified, schema: str, routes: Routes, *, tidb: bool) -> RoutedStatement:
    """Routes a statement whose comments are opened, with `schema` as the current database.  Raises RoutingError."""
    if not routes:
        return RoutedStatement(text, schema)
    for name in classified.tables:
        if why := routes.conflict(name):
            raise RoutingError(why)
    tokens = read_tokens(text, tidb=tidb)
    there = routes.whole_database(schema) or schema
    if classified.database:
        edits = tuple(_database(tokens, classified, routes))
    elif classified.kind is StatementKind.CREATE_VIEW:
        raise RoutingError("a view names tables, columns and functions by names that the routes may change")
    elif all(routes.target(mention.table) == mention.table for mention in classified.mentions):
        return RoutedStatement(text, schema)
    else:
        edits = tuple(_names(tokens, classified, routes))
    for edit in sorted(edits, reverse=True):
        text = text[: edit.start] + edit.text + text[edit.end :]
    routed = RoutedStatement(text, there, edits)
    _check(routed, classified, routes, tidb=tidb)
    return routed


def target_statement(statement: str, schema: str, routes: Routes) -> tuple[str, str] | None:
    """Gives a statement and its current database with the names of the target; None when it cannot be routed."""
    try:
        text = open_comments(statement)
        classified = classify(text, schema)
        if isinstance(classified, Refused):
            return None
        routed = routed_statement(text, classified, schema, routes, tidb=False)
    except (RoutingError, UnreadableError):
        return None
    return routed.text, routed.schema


# --- databases


def _database(tokens: Sequence[Token], classified: Classified, routes: Routes) -> Iterator[Edit]:
    """Routes a database-level statement: only where all tables of the database go to one place."""
    name, kind = classified.database, classified.kind
    is_new = kind is StatementKind.CREATE_DATABASE and len(classified.classes) == 1
    whole = routes.whole_database(name)
    if routes.takes_from(name) and kind is not StatementKind.ALTER_DATABASE and not is_new:
        raise RoutingError(f"tables of {name} have other names there, and others may have the same database")
    if routes.merges_database(name) and kind is StatementKind.ALTER_DATABASE:
        raise RoutingError(f"{name} is merged with other databases")
    if routes.leads_into(name) and whole != name:
        raise RoutingError(f"tables of other databases are routed into {name}")
    if whole is None or whole == name:
        return
    if _others_lead_into(whole, name, routes):
        raise RoutingError(f"tables of other databases are routed into {whole}")
    at = next((token for token in tokens[2:] if token.name == name and token.kind in {"word", "quoted"}), None)
    if at is not None:
        yield Edit(*at.span, quote_name(whole), f"the route of {name}")


def _others_lead_into(target: str, source: str, routes: Routes) -> bool:
    """Tells whether a route leads from another database than `source` into `target`."""
    into = (route for route in routes.routes if (route.target_schema or "").lower() == target.lower())
    return any(not route.parts[0].pattern.matches(source.lower()) for route in into)


# --- tables


def _names(tokens: Sequence[Token], classified: Classified, routes: Routes) -> Iterator[Edit]:
    for table, span, is_qualified in classified.mentions:
        target = routes.target(table)
        why = f"the route of {table}" if target != table else "its database, since other names are routed"
        if target != table or not is_qualified:
            yield Edit(*span, quote_name(*target), why)
    _refuse_dotted_names(outside(tokens, [mention.span for mention in classified.mentions]), classified, routes)


def _refuse_dotted_names(tokens: Sequence[Token], classified: Classified, routes: Routes) -> None:
    """Raises RoutingError for a name with a dot that may be a routed table's, or one of its columns."""
    renamed = {name.table.lower() for name in classified.tables if routes.target(name).table != name.table}
    for token, following in pairwise(tokens):
        name = token.name
        if name is None or following.text != "." or name.isdigit():
            continue
        if name.lower() in renamed or routes.takes_from(name):
            raise RoutingError(f"it names something of {name}, and the bridge does not understand what")


# --- the outcome


def _check(routed: RoutedStatement, before: Classified, routes: Routes, *, tidb: bool) -> None:
    """Raises RoutingError unless the statement touches and reads exactly what it did, by the names of the target."""
    after = classify(routed.text, routed.schema, tidb=tidb, is_certain=True)
    is_same = (
        isinstance(after, Classified)
        and (after.kind, after.classes) == (before.kind, before.classes)
        and [name.table for name in after.mentions] == [routes.target(name.table) for name in before.mentions]
        and after.database == (routes.whole_database(before.database) or before.database if before.database else "")
    )
    if not is_same:
        raise RoutingError(f"with the target's names it would be another statement: {routed.text}")


def with_message_databases(statement: str, schema: str, message_tables: Collection[TableName]) -> str:
    """Writes the databases into a statement, where `classify` does not know those of all names and the message tells
    them; gives any other statement as it came.

    message_tables: those that the message names.  One that the statement names with its database tells nothing of the
    others: Debezium's connector names only the new table of a rename.
    """
    result = classify(statement, schema)
    if not isinstance(result, Unclear):
        return statement
    mentions = [*result.classified.touched, *([result.classified.like] if result.classified.like else [])]
    qualified = {mention.table.folded for mention in mentions if mention.is_qualified}
    unqualified = [name for name in dict.fromkeys(message_tables) if name.folded not in qualified]
    for mention in sorted(mentions, key=lambda mention: mention.span, reverse=True):
        matches = [name for name in unqualified if name.table.lower() == mention.table.table.lower()]
        if not mention.is_qualified and len(matches) == 1:
            start, end = mention.span
            statement = statement[:start] + quote_name(matches[0].schema, mention.table.table) + statement[end:]
    return statement
