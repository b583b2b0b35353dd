"""Finds what depends on the upstream's session, and holds it where nothing tells: local times, and what another
sql_mode makes of a text."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import Item, StatementParts, at, closing, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, UnsupportedError, former_definition

_MOMENTS: Final = frozenset({"CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP"})
_DAYS: Final = frozenset({"CURRENT_DATE", "CURDATE", "CURRENT_TIME", "CURTIME"})
_NO_MOMENT: Final = frozenset("0-: .")
"""The characters of a zero date, which is the same in every zone."""


def local_times(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses a statement whose outcome depends on the zone of the upstream's session, where the target does not know
    that zone: hours would be shifted in silence."""
    if site.timezone is None and not site.is_approved and (why := what_is_local(statement, site)):
        raise UnsupportedError(
            f"{why} in the zone of the upstream's session, whose name the target does not know: give its tables of time"
            " zones to the target, or give the zone as an offset, like +08:00, with ddl.timezone, and start the bridge"
            " again; or approve the statement if the zone is UTC"
        )
    yield from ()


def what_is_local(statement: StatementParts, site: Site) -> str:
    """Tells what depends on the zone of the upstream's session, "" when nothing does."""
    return next(_found(statement, site), "")


def _found(statement: StatementParts, site: Site) -> Iterator[str]:
    found = statement.tokens
    for i, token in enumerate(found):
        moment = at(found, i + 2 + (at(found, i + 2).word in {"TIMESTAMP", "DATE"}))
        if token.word == "UNIX_TIMESTAMP" and at(found, i + 1).text == "(" and _is_literal(moment):
            yield f"UNIX_TIMESTAMP({moment.text}) is a local time"
    if statement.classified.kind is StatementKind.ALTER_TABLE:
        some = [why for item in statement.items if (why := _of_rows(item, statement, site))]
        if some and site.around.has_rows(statement.classified.tables[0]):
            yield from some


def _of_rows(item: Item, statement: StatementParts, site: Site) -> str:
    """Tells which values of the rows that are there depend on the zone, "" when none do."""
    column = item.definition
    if not column:
        return ""
    if item.change is C.ADD_COLUMN and _is_local(at(column, 1).word, _default(column)):
        return f"the rows that are there get a local time in {column[0].text}"
    if item.change is C.MODIFY_COLUMN:
        was = former_definition(item, statement, site)
        if was and was.upper().startswith("TIMESTAMP") != (at(column, 1).word == "TIMESTAMP"):
            return f"the values of {column[0].name} are read or written as local times"
    return ""


def _is_local(kind: str, default: Sequence[Token]) -> bool:
    words = {token.word for token in default}
    if kind != "TIMESTAMP":
        return not words.isdisjoint(_MOMENTS | _DAYS)
    is_moment = any(_is_literal(token) and not _NO_MOMENT.issuperset(token.text.strip("'\"")) for token in default)
    return not words.isdisjoint(_DAYS) or (is_moment and words.isdisjoint(_MOMENTS))


def _default(column: Sequence[Token]) -> Sequence[Token]:
    """Gives what stands behind DEFAULT, () when there is no default."""
    start = next((i + 1 for i, token, depth in with_depth(column) if token.word == "DEFAULT" and depth == 0), None)
    if start is None:
        return ()
    return column[start : closing(column, start) + 1] if at(column, start).text == "(" else column[start : start + 2]


def _is_literal(token: Token) -> bool:
    return token.kind == "string" or (token.kind == "word" and token.text[0].isdigit())


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
