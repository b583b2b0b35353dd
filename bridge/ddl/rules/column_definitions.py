"""Rewrites definitions of columns: generated columns, JSON paths, vectors, expressions as defaults."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, Item, StatementParts, at, closing, span_of, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, UnsupportedError, former_definition, former_name, remove
from bridge.ddl.rules.sequences import sequence_at
from bridge.ddl.server_features import Feature, Flavour
from bridge.quoting import quote_name

_COUNTING: Final = frozenset({"AUTO_INCREMENT", "SERIAL"})
_OTHER_EACH_TIME: Final = frozenset(
    {
        *("RAND", "RANDOM_BYTES", "UUID", "UUID_SHORT", "UUID_V4", "UUID_V7", "SYS_GUID", "NEXTVAL", "LASTVAL"),
        *("CONNECTION_ID", "LAST_INSERT_ID", "USER", "CURRENT_USER", "SESSION_USER", "SYSTEM_USER", "SYSDATE"),
    }
)
"""Functions that give a server's rows other values than another server's."""

_INTEGERS: Final = frozenset({"TINYINT", "SMALLINT", "MEDIUMINT", "INT", "INTEGER", "BIGINT"})
_TEXTS: Final = frozenset(
    {
        *("CHAR", "CHARACTER", "NCHAR", "VARCHAR", "NVARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "LONG"),
        *("BINARY", "VARBINARY", "TINYBLOB", "BLOB", "MEDIUMBLOB", "LONGBLOB", "ENUM", "SET"),
    }
)


class _Conversion(NamedTuple):
    """A change of a column's type in which one flavour makes other values than the others.

    was: matches the definition of the column; becomes: words of its new type.
    """

    was: re.Pattern[str]
    becomes: frozenset[str]
    flavour: Flavour


_CONVERSIONS: Final = (
    # Of a FLOAT 16777216 or 16777200; all digits or 1e20; of a YEAR 0 or 0000; 7 or 0007.
    _Conversion(re.compile(r"(?:float|double|year)\b|[^']*\bzerofill\b", re.IGNORECASE), _TEXTS, Flavour.TIDB),
    # The fraction is rounded to the next day, or cut.
    _Conversion(re.compile(r"(?:datetime|timestamp)\([1-6]\)", re.IGNORECASE), frozenset({"DATE"}), Flavour.MYSQL),
    # The fraction is cut, or rounded.
    _Conversion(re.compile(r"(?:datetime|timestamp|time)\([1-6]\)", re.IGNORECASE), _INTEGERS, Flavour.MARIADB),
)


def generated_null(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes NULL or NOT NULL behind the expression of a generated column, which MariaDB does not accept."""
    if site.target.has(Feature.GENERATED_NULL):
        return
    for item in statement.items:
        if item.change not in ADDS_COLUMN:
            continue
        column = item.definition
        generated = next((i for i, t, d in with_depth(column) if t.word == "AS" and d == 0), None)
        if generated is None:
            continue
        for i in range(closing(column, generated + 1) + 1, len(column)):
            if column[i].word == "NULL":
                is_not = column[i - 1].word == "NOT"
                yield remove(column[i - is_not : i + 1], "the target takes no NULL or NOT NULL for a generated column")


def persistent(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces PERSISTENT, MariaDB's older word for STORED."""
    del site
    for item in statement.items:
        for i, token, depth in with_depth(item.definition):
            if item.change in ADDS_COLUMN and depth == 0 and token.word == "PERSISTENT" and i > 1:
                yield Edit(*token.span, "STORED", "the word that all servers know")


def json_arrows(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces column->path and column->>path by functions."""
    if site.target.has(Feature.JSON_ARROW):
        return
    found = statement.tokens
    for i, token in enumerate(found):
        if token.kind == "arrow" and at(found, i - 1).name is not None and at(found, i + 1).kind == "string":
            start = i - 1
            while at(found, start - 1).text == "." and at(found, start - 2).name is not None:
                start -= 2
            column = statement.text[found[start].span[0] : found[i - 1].span[1]]
            call = f"JSON_EXTRACT({column}, {found[i + 1].text})"
            text = call if token.text == "->" else f"JSON_UNQUOTE({call})"
            yield Edit(found[start].span[0], found[i + 1].span[1], text, f"the target has no operator {token.text}")


def json_nulls(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Writes out what the rows that are there get in a new JSON column that takes no NULL.  MariaDB's JSON is a text,
    and would give them an empty one, which is no JSON."""
    if site.target.flavour is not Flavour.MARIADB or site.source == "mariadb":
        return
    for item in statement.items:
        column = item.definition
        words = [token.word for _, token, depth in with_depth(column) if depth == 0]
        is_new = item.change is C.ADD_COLUMN and at(column, 1).word == "JSON"
        if is_new and ("NOT", "NULL") in pairwise(words) and {"DEFAULT", "AS"}.isdisjoint(words):
            end = column[1].span[1]
            yield Edit(end, end, " DEFAULT 'null'", "the JSON that the upstream's rows get")


def vectors(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Turns vectors, which come as text, into a text column where the target's VECTOR accepts no text."""
    if site.target.has(Feature.VECTOR_TEXT):
        return
    for item in statement.items:
        if item.change in ADDS_COLUMN and at(item.definition, 1).word == "VECTOR":
            end = 1
            if at(item.definition, 2).text == "<":
                end = 4
            if at(item.definition, end + 1).text == "(":
                end = closing(item.definition, end + 1)
            yield Edit(
                *span_of(item.definition[1 : end + 1]), "LONGTEXT", "the target keeps a vector as the text it comes as"
            )


def invisible_columns(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Makes a column that `SELECT *` leaves out an ordinary one, where the target cannot hide columns.  This changes no
    row."""
    if site.target.has(Feature.INVISIBLE_COLUMN):
        return
    for item in statement.items:
        for i, token, depth in with_depth(item.definition):
            if item.change in ADDS_COLUMN and depth == 0 and i > 1 and token.word in {"INVISIBLE", "VISIBLE"}:
                yield remove([token], "the target cannot hide a column")


def renamed_columns(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces RENAME COLUMN by CHANGE where the target lacks it.  CHANGE needs the whole definition, which is the
    target's own."""
    if site.target.has(Feature.RENAME_COLUMN):
        return
    for item in statement.items:
        if [token.word for token in item.tokens[:2]] != ["RENAME", "COLUMN"]:
            continue
        old, new = at(item.tokens, 2), at(item.tokens, 4)
        definition = site.around.column_definition(statement.classified.tables[0], old.name or "")
        if definition is None:
            raise UnsupportedError(
                "the target renames a column only by CHANGE COLUMN with its whole definition, and the target's table"
                f" has no column {old.text} to take it from"
            )
        text = f"CHANGE COLUMN {old.text} {new.text} {definition}"
        yield Edit(*item.span, text, "the target has no RENAME COLUMN; the definition is the column's own")


def expression_defaults(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out a default that the target cannot have, since rows come with all their values.  It refuses where
    existing rows would get that default."""
    if site.target.has(Feature.EXPRESSION_DEFAULT):
        return
    fills = statement.classified.kind is StatementKind.ALTER_TABLE
    for item in statement.items:
        column = item.definition
        for i, token, depth in with_depth(column):
            if item.change not in ADDS_COLUMN or depth != 0 or token.word != "DEFAULT" or sequence_at(column, i):
                continue
            if at(column, i + 1).text != "(":
                continue
            if fills and item.change is C.ADD_COLUMN:
                raise UnsupportedError(
                    f"the target takes no expression as a default, and its rows would not get that of {column[0].text}:"
                    " add the column with another default, fill it as it is upstream, then skip the statement"
                )
            yield remove(column[i : closing(column, i + 1) + 1], "the target takes no expression as a default")


def values_of_their_own(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses a column for which each server makes up the values of the rows that are there: it numbers them in the
    order in which it keeps them, or asks a function.  No message tells what the upstream's rows got."""
    if site.is_approved or statement.classified.kind is not StatementKind.ALTER_TABLE:
        return
    for item in statement.items:
        word = _made_up(item.definition) if item.change in ADDS_COLUMN else ""
        where = _rows_it_fills(item, statement, site) if word else ""
        if where and site.around.has_rows(statement.classified.tables[0], where):
            raise UnsupportedError(
                f"each server makes up its own values of {item.definition[0].text} ({word}) for the rows that are"
                " there: add the column with the values that the upstream's rows have, then skip the statement; or"
                " approve it if they will be the same"
            )
    yield from ()


def _rows_it_fills(item: Item, statement: StatementParts, site: Site) -> str:
    """Gives the condition of the rows whose values the server makes up, "" where there are none.  A column that becomes
    AUTO_INCREMENT has the rows with NULL numbered, and those with 0 where the session's mode does not forbid it, which
    no message tells."""
    if item.change is C.ADD_COLUMN:
        return "TRUE"
    was = former_definition(item, statement, site)
    if not was or "AUTO_INCREMENT" in was or not any(token.word in _COUNTING for token in item.definition[1:]):
        return ""
    column = quote_name(former_name(item))
    return f"{column} IS NULL OR {column} = 0"


def conversions(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses a change of a column's type of which the target makes other values than the upstream."""
    if site.is_approved or statement.classified.kind is not StatementKind.ALTER_TABLE:
        return
    source = Flavour(site.source.partition("-")[0])
    apart = [one for one in _CONVERSIONS if (one.flavour is source) != (one.flavour is site.target.flavour)]
    for item in statement.items:
        column = item.definition
        kind = at(column, 1).word
        some = [one for one in apart if item.change is C.MODIFY_COLUMN and column and kind in one.becomes]
        was = former_definition(item, statement, site) if some else ""
        if any(one.was.match(was) for one in some) and site.around.has_rows(statement.classified.tables[0]):
            raise UnsupportedError(
                f"the target makes other values of {column[0].text} than the upstream when it becomes {kind}: alter the"
                " table by hand, with the upstream's values, and skip the statement; or approve it, and have bridge"
                " verify --against upstream fix what differs"
            )
    yield from ()


def _made_up(column: Sequence[Token]) -> str:
    """Gives the word that makes a server choose the values of a column, "" when none does."""
    for i, token in enumerate(column):
        is_called = at(column, i + 1).text == "(" or token.word == "CURRENT_USER"
        is_function = i > 1 and token.word in _OTHER_EACH_TIME and is_called
        is_sequence = [at(column, i + n).word for n in range(3)] == ["NEXT", "VALUE", "FOR"]
        if (i > 0 and token.word in _COUNTING) or is_function or is_sequence:
            return token.word
    return ""
