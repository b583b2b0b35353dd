"""Refuses what means something else in another sql_mode of the upstream's session, which no message tells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import StatementParts
from bridge.ddl.lexer import END, Token
from bridge.ddl.rule import Edit, Omission, Site, UnsupportedError

_BEFORE_EXPRESSIONS: Final = frozenset({"AS", "DEFAULT", "CHECK"})
_FIX: Final = (
    "by the sql_mode of the upstream's session, which no message tells: replace the statement by one that says it"
    " without doubt; or approve it if that session did not have "
)
_ANSI: Final = f"{_FIX}ANSI, PIPES_AS_CONCAT or ANSI_QUOTES"


def by_mode(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses, until it is approved, the operator ||, which joins texts with PIPES_AS_CONCAT, and is OR without it; and
    in an expression, or a view, the name of a column in double quotes: with ANSI_QUOTES it is the column, else a text.

    So it does, but for TiDB's, with a backslash in any text but a comment.  It begins an escape, but with
    NO_BACKSLASH_ESCAPES it is one.
    """
    if site.is_approved:
        return
    known, in_expressions = statement.classified, list(_of_expressions(statement))
    if any(a.text == b.text == "|" and a.span[1] == b.span[0] for a, b in pairwise(statement.tokens)):
        raise UnsupportedError(f"|| joins texts or means OR, {_ANSI}")
    is_view = known.kind is StatementKind.CREATE_VIEW
    tables = known.reads.names if is_view else known.tables[:1]
    own = {item.definition[0].name for item in statement.items if item.definition}
    for token in statement.tokens if is_view else in_expressions:
        name = token.text[1:-1] if token.text.startswith('"') else ""
        if name and (name in own or any(site.around.column_definition(table, name) is not None for table in tables)):
            raise UnsupportedError(f"{token.text} is a column or a text, {_ANSI}")
    for before, token in pairwise([END, *(token for token in statement.tokens if token.text != "=")]):
        is_comment = before.word == "COMMENT" and not is_view and token not in in_expressions
        if token.kind == "string" and "\\" in token.text and not is_comment and not site.is_from_tidb:
            raise UnsupportedError(f"{token.text} holds an escape or a backslash, {_FIX}NO_BACKSLASH_ESCAPES")
    yield from ()


def _of_expressions(statement: StatementParts) -> Iterator[Token]:
    """Gives the tokens of generated columns, defaults, checks and keys in parentheses."""
    for item in statement.items:
        inside = [False]
        for before, token in pairwise(item.tokens):
            if token.text == "(":
                inside.append(inside[-1] or before.text == "(" or before.word in _BEFORE_EXPRESSIONS)
            elif token.text == ")":
                inside = inside[:-1] or [False]
            elif inside[-1]:
                yield token
