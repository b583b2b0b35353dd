"""Finds statements that mean local times of the upstream's session, and holds them where the target does not know its
zone; and refuses what means something else in another sql_mode of that session, which no message tells."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import Item, StatementParts, at, closing, outer
from bridge.ddl.lexer import END, Token
from bridge.ddl.rule import Site, UnsupportedError, former_definition
from bridge.ddl.rules.other_values import MOMENTS

_MOMENTS: Final = MOMENTS | {"FROM_UNIXTIME"}
_DAYS: Final = frozenset({"CURRENT_DATE", "CURDATE", "CURRENT_TIME", "CURTIME"})
_NO_MOMENT: Final = frozenset("0-: .")
"""The characters of a zero date, which is the same in every zone."""


def local_times(statement: StatementParts, site: Site) -> None:
    """Refuses a statement whose outcome depends on the zone of the upstream's session, where the target does not know
    that zone: hours would be shifted in silence.  So it does with a generated column that keeps local times of the
    sessions that write rows: the bridge writes in UTC."""
    if site.is_approved:
        return
    if site.timezone is None and (why := zone_dependence(statement, site)):
        raise UnsupportedError(
            f"{why} in the zone of the upstream's session, whose name the target does not know: give its tables of time"
            " zones to the target, or give the zone as an offset, like +08:00, with ddl.timezone, and start the bridge"
            " again; or approve the statement if the zone is UTC"
        )
    if site.timezone != "+00:00" and (name := next(_generated(statement, site), "")):
        raise UnsupportedError(
            f"the generated column {name} keeps local times of the sessions that write rows, and the bridge writes in"
            " UTC: replace the statement by one with a column that is not generated, which gets the upstream's values;"
            " or approve it if those sessions are in UTC"
        )


def zone_dependence(statement: StatementParts, site: Site) -> str:
    """Tells what depends on the zone of the upstream's session, "" when nothing does."""
    return next(_zone_dependences(statement, site), "")


def _zone_dependences(statement: StatementParts, site: Site) -> Iterator[str]:
    tokens = statement.tokens
    for i, token in enumerate(tokens):
        moment = at(tokens, i + 2 + (at(tokens, i + 2).word in {"TIMESTAMP", "DATE"}))
        if token.word == "UNIX_TIMESTAMP" and at(tokens, i + 1).text == "(" and _is_literal(moment):
            yield f"UNIX_TIMESTAMP({moment.text}) is a local time"
    yield from (f"the generated column {name} keeps local times" for name in _generated(statement, site))
    for item in statement.items:
        column = item.definition or item.tokens[1 + (at(item.tokens, 1).word == "COLUMN") :]  # ALTER c SET DEFAULT
        value = _default(column)
        if value and _is_timestamp(column[0], statement, site) and _is_local("TIMESTAMP", value, statement, site):
            yield f"the default of {column[0].text} is a local time"
    if statement.classified.kind is StatementKind.ALTER_TABLE:
        reasons = [why for item in statement.items if (why := _row_dependence(item, statement, site))]
        if reasons and site.around.has_rows(statement.classified.tables[0]):
            yield from reasons


def _generated(statement: StatementParts, site: Site) -> Iterator[str]:
    """Gives the generated columns that keep what depends on the zone of the session that writes a row."""
    for item in statement.items:
        column, start = item.definition, _behind(item.definition, "AS")
        end = closing(column, start) if start else 0
        is_kept = not {"STORED", "PERSISTENT"}.isdisjoint(token.word for token in column[end:])
        if start and is_kept and _is_local(at(column, 1).word, column[start:end], statement, site):
            yield column[0].text


def _row_dependence(item: Item, statement: StatementParts, site: Site) -> str:
    """Tells which values of the rows that are there depend on the zone, "" when none do."""
    column = item.definition
    if not column:
        return ""
    if item.change is C.ADD_COLUMN and _is_local(at(column, 1).word, _default(column), statement, site):
        return f"the rows that are there get a local time in {column[0].text}"
    if item.change is C.MODIFY_COLUMN:
        former = former_definition(item, statement, site)
        if former and former.upper().startswith("TIMESTAMP") != (at(column, 1).word == "TIMESTAMP"):
            return f"the values of {column[0].name} are read or written as local times"
    return ""


def _is_local(kind: str, value: Sequence[Token], statement: StatementParts, site: Site) -> bool:
    """Tells whether what a column of this type gets depends on the zone."""
    words, uses = {token.word for token in value}, set(_column_uses(value, statement, site))
    if kind != "TIMESTAMP":
        return not words.isdisjoint(_MOMENTS | _DAYS) or not uses.isdisjoint({(True, False), (False, True)})
    is_moment = any(_is_literal(token) and not _NO_MOMENT.issuperset(token.text.strip("'\"")) for token in value)
    return not words.isdisjoint(_DAYS | {"UTC_TIMESTAMP"}) or (
        (is_moment or (False, False) in uses) and words.isdisjoint(_MOMENTS)
    )


def _column_uses(value: Sequence[Token], statement: StatementParts, site: Site) -> Iterator[tuple[bool, bool]]:
    """Tells of each column in an expression in parentheses whether it is a TIMESTAMP, and whether its seconds since
    1970 are taken.  Where only NULL matters, it is left out."""
    for i, token in enumerate(value if len(value) > 1 else ()):
        function, behind = at(value, i - 2).word, at(value, i + 1)
        is_timestamp = None if behind.text == "(" else _is_timestamp(token, statement, site)
        if is_timestamp is not None and function != "ISNULL" and behind.word != "IS":
            yield is_timestamp, function == "UNIX_TIMESTAMP"


def _is_timestamp(column: Token, statement: StatementParts, site: Site) -> bool | None:
    """Tells whether a column is a TIMESTAMP, by the statement or else on the target; None for what is no column."""
    name = (column.name or "").lower()
    own = {(item.definition[0].name or "").lower(): item.definition for item in statement.items if item.definition}
    if name in own:
        return at(own[name], 1).word == "TIMESTAMP"
    former = site.around.column_definition(statement.classified.tables[0], name) if name else None
    return None if former is None else former.upper().startswith("TIMESTAMP")


def _default(column: Sequence[Token]) -> Sequence[Token]:
    """Gives what stands behind DEFAULT, () when there is no default."""
    start = _behind(column, "DEFAULT")
    if not start:
        return ()
    opening = start + (at(column, start).text != "(" and at(column, start + 1).text == "(")
    return column[start : max(closing(column, opening) + 1, start + 2)]


def _behind(column: Sequence[Token], word: str) -> int:
    """Gives the index of what stands behind a word outside of parentheses, 0 where there is no such word."""
    return next((i + 1 for i, token in outer(column) if token.word == word), 0)


def _is_literal(token: Token) -> bool:
    return token.kind == "string" or (token.kind == "word" and token.text[0].isdigit())


_BEFORE_EXPRESSIONS: Final = frozenset({"AS", "DEFAULT", "CHECK"})
_FIX: Final = (
    "by the sql_mode of the upstream's session, which no message tells: replace the statement by one that says it"
    " without doubt; or approve it if that session did not have "
)
_ANSI: Final = f"{_FIX}ANSI, PIPES_AS_CONCAT or ANSI_QUOTES"

_REPLACEMENT: Final = "\ufffd"
_LOST: Final = (
    "holds U+FFFD, which stands for letters that the sender could not read, as the upstream's session had another"
    " character set than utf8mb4: bridge ddl replace it by the statement as it was written, or approve it if that"
    " letter was"
)


def by_mode(statement: StatementParts, site: Site) -> None:
    """Refuses, until it is approved, what means something else in another mode of the upstream's session:

    * the operator ||, which joins texts with PIPES_AS_CONCAT, and is OR without it;
    * double quotes in a view, or around a column's name in an expression: with ANSI_QUOTES a column, else a text;
    * a backslash, an escape but with NO_BACKSLASH_ESCAPES, and a letter that was lost, as Debezium's connector reads
      all statements as UTF-8, whatever `character_set_client`; not in comments, nor of TiDB and snapshots.
    """
    if site.is_approved:
        return
    classified, in_expressions = statement.classified, list(_of_expressions(statement))
    is_clear = site.is_from_tidb or site.is_shown
    if any(a.text == b.text == "|" and a.span[1] == b.span[0] for a, b in pairwise(statement.tokens)):
        raise UnsupportedError(f"|| joins texts or means OR, {_ANSI}")
    is_view = classified.kind is StatementKind.CREATE_VIEW
    own = {item.definition[0].name for item in statement.items if item.definition}
    for token in statement.tokens if is_view else in_expressions:
        name = token.text[1:-1] if token.text.startswith('"') else ""
        is_column = name in own or (name and site.around.column_definition(classified.tables[0], name) is not None)
        if name and (is_view or is_column):
            raise UnsupportedError(f"{token.text} is a column or a text, {_ANSI}")
    for before, token in pairwise([END, *(token for token in statement.tokens if token.text != "=")]):
        is_comment = before.word == "COMMENT" and not is_view and token not in in_expressions
        if is_comment or is_clear:
            continue
        if _REPLACEMENT in token.text:
            raise UnsupportedError(f"{token.text} {_LOST}")
        if token.kind == "string" and "\\" in token.text:
            raise UnsupportedError(f"{token.text} holds an escape or a backslash, {_FIX}NO_BACKSLASH_ESCAPES")


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
