"""Refuses what means something else in another sql_mode of the upstream's session, which no message tells."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import StatementParts
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, UnsupportedError

_BEFORE_EXPRESSIONS: Final = frozenset({"AS", "DEFAULT", "CHECK"})
_FIX: Final = (
    "by the sql_mode of the upstream's session, which no message tells: replace the statement by one that says it"
    " without doubt; or approve it if that session had neither ANSI, PIPES_AS_CONCAT nor ANSI_QUOTES"
)


def pipes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses the operator ||, which joins texts with PIPES_AS_CONCAT, and is OR without it."""
    pairs = pairwise(statement.tokens)
    if not site.is_approved and any(a.text == b.text == "|" and a.span[1] == b.span[0] for a, b in pairs):
        raise UnsupportedError(f"|| joins texts or means OR, {_FIX}")
    yield from ()


def quoted_columns(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses an expression, or a view, that has the name of a column in double quotes: it is the column with
    ANSI_QUOTES, and a text without it."""
    if site.is_approved:
        return
    known = statement.classified
    is_view = known.kind is StatementKind.CREATE_VIEW
    own = {item.definition[0].name for item in statement.items if item.definition}
    for token in statement.tokens if is_view else _of_expressions(statement):
        name = token.text[1:-1] if token.text.startswith('"') else ""
        tables = known.reads.names if is_view else known.tables[:1]
        if name and (name in own or any(site.around.column_definition(table, name) is not None for table in tables)):
            raise UnsupportedError(f"{token.text} is a column or a text, {_FIX}")
    yield from ()


def _of_expressions(statement: StatementParts) -> Iterator[Token]:
    """Gives the tokens of generated columns, defaults and checks in parentheses."""
    for item in statement.items:
        inside = [False]
        for before, token in pairwise(item.tokens):
            if token.text == "(":
                inside.append(inside[-1] or before.word in _BEFORE_EXPRESSIONS)
            elif token.text == ")":
                inside = inside[:-1] or [False]
            elif inside[-1]:
                yield token
