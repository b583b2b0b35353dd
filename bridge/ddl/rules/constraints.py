"""Leaves out checks that not both servers keep, and rewrites or leaves out indexes that the target cannot have."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.clauses import Item, StatementParts, at, closing, outer
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Feature, Flavour, OmittedObject, Site, remove
from bridge.model import TableName

_UNLIKE: Final = "source and target do not keep the same checks, and the upstream has checked the rows"


def checks(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out CHECK constraints, and what is done to them, unless source and target are both MySQL or both MariaDB.

    They change no row.  TiDB keeps none unless it is told to (TiDB manual, "Constraints"); MySQL before 8.0.16 reads
    only some forms; and the others name them in ways of their own, and end them by statements of their own.
    """
    kind = site.source.partition("-")[0]
    if kind == site.target.flavour != Flavour.TIDB and site.target.has(Feature.CHECKS):
        return
    for item in statement.items:
        if item.change is C.ADD_CHECK:
            yield remove(item.tokens, _UNLIKE, OmittedObject("constraint", item.name or ""))
        elif item.change is C.ALTER_CHECK:
            yield remove(item.tokens, _UNLIKE)
        elif item.change is C.DROP_CONSTRAINT and item.name:
            yield from _dropped(item, statement.classified.tables[0], site)
    for item, i in statement.in_columns("CHECK"):
        if at(item.definition, i + 1).text == "(":
            yield remove(_check_at(item.definition, i), _UNLIKE)


def _dropped(item: Item, table: TableName, site: Site) -> Iterator[Edit]:
    """Drops what the target has by that name, such as a foreign key, or the check of a table that was copied."""
    is_check = item.tokens[1].word == "CHECK" or site.is_from_tidb
    if site.around.lacks(table, OmittedObject("constraint", item.name or "")) or (
        is_check and not site.around.exists(table, "constraint", item.name or "")
    ):
        yield remove(item.tokens, "the target never got this check")
    elif item.tokens[1].word == "CHECK":
        yield Edit(*item.tokens[1].span, "CONSTRAINT", "the word that all servers know")


def _check_at(column: Sequence[Token], i: int) -> Sequence[Token]:
    """Gives the tokens of a column's check: [CONSTRAINT [name]] CHECK (...) [[NOT] ENFORCED]."""
    start = next((j for j in (i - 1, i - 2) if at(column, j).word == "CONSTRAINT"), i)
    end = closing(column, i + 1) + 1
    words = [at(column, end).word, at(column, end + 1).word]
    return column[start : end + (2 if words == ["NOT", "ENFORCED"] else words[0] == "ENFORCED")]


def inline_references(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out REFERENCES of a column, unless a MariaDB has sent it and the target makes a foreign key of it, too."""
    if site.source == "mariadb" and site.target.has(Feature.INLINE_REFERENCES):
        return
    for item, i in statement.in_columns("REFERENCES"):
        end = _end_of_references(item.definition, i)
        yield remove(item.definition[i:end], "not every server makes a foreign key of it, and none changes a row")


def _end_of_references(column: Sequence[Token], i: int) -> int:
    """Gives the place behind REFERENCES table [(columns)] [MATCH x] [ON DELETE x] [ON UPDATE x]."""
    i += 4 if at(column, i + 2).text == "." else 2
    if at(column, i).text == "(":
        i = closing(column, i) + 1
    i += 2 * (at(column, i).word == "MATCH")
    while at(column, i).word == "ON" and at(column, i + 2).word in _REACTIONS:
        i += 3 + (at(column, i + 2).word in {"SET", "NO"})
    return i


_REACTIONS: Final = frozenset({"RESTRICT", "CASCADE", "SET", "NO"})


def invisible_indexes(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Replaces INVISIBLE by MariaDB's IGNORED.  Where the target has neither, the index stays in use."""
    ignored = site.target.has(Feature.IGNORED_INDEX)
    words = {"INVISIBLE": "IGNORED", "VISIBLE": "NOT IGNORED"}
    why = "the target calls an invisible index IGNORED" if ignored else "the target cannot hide an index"
    for item in statement.items:
        if item.change is C.INDEX_VISIBILITY and not ignored:
            yield remove(item.tokens, why)
            continue
        if item.change not in {C.ADD_INDEX, C.ADD_PRIMARY_KEY, C.INDEX_VISIBILITY}:
            continue  # a column can be INVISIBLE too
        for _, token in outer(item.tokens):
            if token.word in words:
                yield Edit(*token.span, words[token.word] if ignored else "", why)


def foreign_indexes(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out indexes of a kind that the target lacks: they change no row, and the upstream checks uniqueness."""
    for item in statement.items:
        if item.change is not C.ADD_INDEX:
            continue
        words, omission = {token.word for token in item.definition[:2]}, OmittedObject("index", item.name or "")
        if words & {"VECTOR", "COLUMNAR", "HYBRID"} and not site.target.has(Feature.TIDB_SYNTAX):
            yield remove(item.tokens, "the target has no such index", omission)
        elif _has_expression(item) and not site.target.has(Feature.EXPRESSION_INDEX):
            yield remove(item.tokens, "the target has no index on an expression", omission)


def _has_expression(item: Item) -> bool:
    """Tells whether a key part is an expression, in parentheses of its own."""
    opening = next((i for i, token in outer(item.definition) if token.text == "("), None)
    if opening is None:
        return False
    inner = item.definition[opening + 1 : closing(item.definition, opening)]
    return any(
        token.text == "(" and at(inner, i - 1).text in {"", ","} and at(inner, i + 1).word != "TIDB_SHARD"
        for i, token in outer(inner)
    )


def unmade_indexes(statement: StatementParts, site: Site) -> Iterator[Edit]:
    """Leaves out actions on an index that was left out."""
    about_index = {C.DROP_INDEX, C.RENAME_INDEX, C.INDEX_VISIBILITY}
    for item in (item for item in statement.items if item.change in about_index and item.name):
        if site.around.lacks(statement.classified.tables[0], OmittedObject("index", item.name or "")):
            renamed = at(item.tokens, 4).name if item.change is C.RENAME_INDEX else None
            omission = OmittedObject("index", renamed) if renamed else None
            yield remove(item.tokens, "the target never got this index", omission)
