"""Finds statements that mean local times of the upstream's session, and holds them where the target does not know its
zone."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
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
