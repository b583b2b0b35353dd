"""Rewrites indexes: hidden ones, kinds that a target lacks, and later statements about those."""

from __future__ import annotations

from collections.abc import Iterator

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.clauses import Item, StatementParts, at, closing, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, OmittedObject, Site, remove
from bridge.ddl.server_features import Feature


def invisible_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces INVISIBLE by MariaDB's IGNORED.  Where the target has neither, the index stays in use, which changes no
    row."""
    if site.target.has(Feature.INVISIBLE_INDEX):
        return
    ignored = site.target.has(Feature.IGNORED_INDEX)
    why = "the target calls an invisible index IGNORED" if ignored else "the target cannot hide an index"
    for item in statement.items:
        if item.change is C.INDEX_VISIBILITY and not ignored:
            yield Omission(item, why)
            continue
        for token in _option_words(item, {"INVISIBLE", "VISIBLE"}):
            words = {"INVISIBLE": "IGNORED", "VISIBLE": "NOT IGNORED"}
            yield Edit(*token.span, words[token.word] if ignored else "", why)


def ignored_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Replaces MariaDB's IGNORED by INVISIBLE."""
    for item in statement.items:
        if item.change is C.INDEX_VISIBILITY and at(item.tokens, 1).word == "KEY":
            yield Edit(*item.tokens[1].span, "INDEX", "as all servers write it")
    if site.target.has(Feature.IGNORED_INDEX):
        return
    hides = site.target.has(Feature.INVISIBLE_INDEX)
    why = "the target calls an ignored index INVISIBLE" if hides else "the target cannot hide an index"
    for item in statement.items:
        for token in _option_words(item, {"IGNORED"}):
            i = item.tokens.index(token)
            is_not = at(item.tokens, i - 1).word == "NOT"
            if item.change is C.INDEX_VISIBILITY and not hides:
                yield Omission(item, why)
                continue
            start = item.tokens[i - is_not].span[0]
            yield Edit(start, token.span[1], ("VISIBLE" if is_not else "INVISIBLE") if hides else "", why)


def _option_words(item: Item, words: set[str]) -> Iterator[Token]:
    """Gives the options of an index, or of ALTER INDEX; not those of a column."""
    if item.change in {C.ADD_INDEX, C.ADD_PRIMARY_KEY, C.INDEX_VISIBILITY}:
        yield from (token for _, token, depth in with_depth(item.tokens) if depth == 0 and token.word in words)


def foreign_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out indexes of a kind that the target lacks: they change no row, and the upstream checks uniqueness."""
    for item in statement.items:
        if item.change is not C.ADD_INDEX:
            continue
        words = {token.word for token in item.definition[:2]}
        if words & {"VECTOR", "COLUMNAR", "HYBRID"} and not site.target.has(Feature.TIDB_SYNTAX):
            yield Omission(item, "the target has no such index", OmittedObject("index", item.name or ""))
        elif _has_expression(item) and not site.target.has(Feature.EXPRESSION_INDEX):
            yield Omission(item, "the target has no index on an expression", OmittedObject("index", item.name or ""))


def _has_expression(item: Item) -> bool:
    """Tells whether a key part is an expression, in parentheses of its own."""
    opening = next((i for i, token, depth in with_depth(item.definition) if token.text == "(" and depth == 0), None)
    if opening is None:
        return False
    inner = item.definition[opening + 1 : closing(item.definition, opening)]
    return any(
        token.text == "("
        and depth == 0
        and at(inner, i - 1).text in {"", ","}
        and at(inner, i + 1).word != "TIDB_SHARD"
        for i, token, depth in with_depth(inner)
    )


def index_parsers(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Removes a full-text parser that the target lacks; the target uses its own."""
    for item in statement.items:
        for i, token in enumerate(item.definition):
            named = at(item.definition, i + 2).word
            if token.word != "WITH" or at(item.definition, i + 1).word != "PARSER":
                continue
            known = site.target.has(Feature.NGRAM_PARSER) and named == "NGRAM"
            if not known and not site.target.has(Feature.TIDB_SYNTAX):
                yield remove(item.definition[i : i + 3], "the target has no such full-text parser")


def unmade_indexes(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out actions on an index that was left out."""
    for item in statement.items:
        if item.change in {C.DROP_INDEX, C.RENAME_INDEX, C.INDEX_VISIBILITY} and item.name:
            thing = OmittedObject("index", item.name)
            if site.around.lacks(statement.classified.tables[0], thing):
                renamed = at(item.tokens, 4).name if item.change is C.RENAME_INDEX else None
                yield Omission(
                    item, "the target never got this index", OmittedObject("index", renamed) if renamed else None
                )
