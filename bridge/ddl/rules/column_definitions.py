"""Rewrites definitions of columns: generated columns, JSON paths, vectors, expressions and sequences as defaults."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind, renamed_column
from bridge.ddl.clauses import StatementParts, at, closing, span_of
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Feature, Flavour, Site, UnsupportedError, remove
from bridge.ddl.rules.other_values import MOMENTS, takes_no_null


def sequence_defaults(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out defaults from a sequence: the target gets no sequences, and the values come with the rows."""
    for item, i in statement.in_columns("DEFAULT"):
        if end := sequence_at(item.definition, i):
            yield remove(item.definition[i : end + 1], "the target gets no sequences; the values come with the rows")


def sequence_at(column: Sequence[Token], i: int) -> int | None:
    """Tells where the default whose DEFAULT is at `i` ends, if it is the next value of a sequence; None otherwise."""
    inside = at(column, i + 1).text == "("
    words = [at(column, i + 1 + inside + n).word for n in range(3)]
    if words[0] not in {"NEXTVAL", "LASTVAL"} and words != ["NEXT", "VALUE", "FOR"]:
        return None
    if inside:
        return closing(column, i + 1)
    if words[0] != "NEXT":
        return closing(column, i + 2)
    return i + 4 + 2 * (at(column, i + 5).text == ".")


def generated_null(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes NULL or NOT NULL behind the expression of a generated column, which MariaDB does not accept."""
    for item, generated in statement.in_columns("AS"):
        column = item.definition
        for i in range(closing(column, generated + 1) + 1, len(column)):
            if column[i].word == "NULL":
                is_not = column[i - 1].word == "NOT"
                yield remove(column[i - is_not : i + 1], "the target takes no NULL or NOT NULL for a generated column")


def json_arrows(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Replaces column->path and column->>path by functions."""
    tokens = statement.tokens
    for i, token in enumerate(tokens):
        if token.kind == "arrow" and at(tokens, i - 1).name is not None and at(tokens, i + 1).kind == "string":
            start = i - 1
            while at(tokens, start - 1).text == "." and at(tokens, start - 2).name is not None:
                start -= 2
            column = statement.text[tokens[start].span[0] : tokens[i - 1].span[1]]
            call = f"JSON_EXTRACT({column}, {tokens[i + 1].text})"
            text = call if token.text == "->" else f"JSON_UNQUOTE({call})"
            yield Edit(tokens[start].span[0], tokens[i + 1].span[1], text, f"the target has no operator {token.text}")


def json_nulls(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Writes out what the rows that are there get in a new JSON column that takes no NULL.  MariaDB's JSON is a text,
    and would give them an empty one."""
    if site.source == Flavour.MARIADB or site.target.flavour is not Flavour.MARIADB:
        return
    for item in filter(takes_no_null, statement.columns):
        end = item.definition[1].span[1]
        yield Edit(end, end, " DEFAULT 'null'", "the JSON that the upstream's rows get")


def compressed(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Removes COMPRESSED [= method] of a column, and writes STORED for PERSISTENT: MariaDB alone has them."""
    for item, i in statement.in_columns("COMPRESSED", "PERSISTENT"):
        column = item.definition
        if column[i].word == "PERSISTENT":
            yield Edit(*column[i].span, "STORED", "the word that all servers know")
        else:
            end = i + 1 + 2 * (at(column, i + 1).text == "=")
            yield remove(column[i:end], "it says how rows are stored, not what they are")


def vectors(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Turns vectors, which come as text, into a text column where the target's VECTOR accepts no text."""
    for item in statement.columns:
        if at(item.definition, 1).word == "VECTOR":
            end = 1
            if at(item.definition, 2).text == "<":
                end = 4
            if at(item.definition, end + 1).text == "(":
                end = closing(item.definition, end + 1)
            yield Edit(
                *span_of(item.definition[1 : end + 1]), "LONGTEXT", "the target keeps a vector as the text it comes as"
            )


def renamed_columns(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Replaces RENAME COLUMN, where the target lacks it, by CHANGE with the target's own definition of the column."""
    for item in statement.items:
        names = renamed_column(item.tokens)
        if names is None:
            continue
        old, new = names
        definition = site.around.column_definition(statement.classified.tables[0], old.name or "")
        if definition is None:
            raise UnsupportedError(
                "the target renames a column only by CHANGE COLUMN with its whole definition, and the target's table"
                f" has no column {old.text} to take it from"
            )
        text = f"CHANGE COLUMN {old.text} {new.text} {definition}"
        yield Edit(*item.span, text, "the target has no RENAME COLUMN; the definition is the column's own")


def expression_defaults(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out a default that the target cannot have, since rows come with all their values.  It refuses where
    existing rows would get that default.  What MariaDB takes as it is, MySQL takes in parentheses only."""
    fills = statement.classified.kind is StatementKind.ALTER_TABLE
    is_known = site.target.has(Feature.EXPRESSION_DEFAULT)
    for item, i in statement.in_columns("DEFAULT"):
        column = item.definition
        value = () if sequence_at(column, i) else _expression(column, i + 1, site)
        if value and is_known and value[0].text != "(" and site.target.flavour is Flavour.MYSQL:
            start, end = span_of(value)
            yield Edit(start, end, f"({statement.text[start:end]})", "the target takes it in parentheses only")
        if not value or is_known:
            continue
        if fills and item.change is C.ADD_COLUMN:
            raise UnsupportedError(
                f"the target takes no such default, and its rows would not get that of {column[0].text}:"
                " add the column with another default, fill it as it is upstream, then say bridge ddl done"
            )
        yield remove(column[i : i + 1 + len(value)], "the target takes no such default")


def _expression(column: Sequence[Token], i: int, site: Site) -> Sequence[Token]:
    """Gives the default at `i` where it is an expression, or a long text's, as MariaDB has it; () for another one."""
    kind, word = at(column, 1).word, at(column, i).word
    opening = i + (at(column, i).text != "(" and at(column, i + 1).text == "(")
    if word in MOMENTS and kind in {"DATETIME", "TIMESTAMP"}:
        return ()
    is_long = site.source == Flavour.MARIADB and kind.endswith(("TEXT", "BLOB", "JSON")) and word != "NULL"
    is_one = at(column, opening).text == "(" or word in {"CURRENT_DATE", "CURRENT_TIME", *MOMENTS} or is_long
    end = closing(column, opening) + 1
    return column[i : end + (at(column, end).kind == "string")] if is_one else ()  # x'00'
