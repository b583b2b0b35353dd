"""Rewrites sequences.  MariaDB and TiDB have them, with slightly different syntax; elsewhere the rows bring the
values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, Item, StatementParts, at, closing, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, UnsupportedError, remove
from bridge.ddl.server_features import Feature
from bridge.model import TableName

_KINDS: Final = frozenset({StatementKind.CREATE_SEQUENCE, StatementKind.ALTER_SEQUENCE, StatementKind.DROP_SEQUENCE})
_ONE_WORD: Final = frozenset({"CACHE", "CYCLE", "MINVALUE", "MAXVALUE"})
_OPTIONS: Final = frozenset({"INCREMENT", "START", "RESTART", *_ONE_WORD, *(f"NO{word}" for word in _ONE_WORD), "NO"})


def sequences(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves sequences out where the target has none.  Otherwise it writes them in the syntax that MariaDB and TiDB
    share: sequence options before table options, and without the type that MariaDB 11.5 has."""
    known = statement.classified
    if known.kind not in _KINDS:
        return
    if not site.target.has(Feature.SEQUENCES):
        why = "the target has no sequences; their values come with the rows"
        yield Omission(Item(ChangeClass(known.kind.value), statement.tokens), why)
        return
    found = [token for token in statement.tokens if token.span[0] >= known.touched[-1].span[1]]
    for i, token in enumerate(found):
        if token.word == "NO" and at(found, i + 1).word in _ONE_WORD:
            following = at(found, i + 1)
            yield Edit(token.span[0], following.span[1], f"NO{following.word}", "one word, as all servers know it")
        elif token.word == "AS" and i == 0:
            end = next((n for n in range(1, len(found)) if found[n].word in _OPTIONS), len(found))
            yield remove(found[:end], "not every server takes a type of a sequence")


def defaults(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves out defaults that come from a sequence which the target lacks.  TiCDC sends no sequences, but tables with
    such defaults; the values come with the rows."""
    for item in statement.items:
        for i, token, depth in with_depth(item.definition):
            end = sequence_at(item.definition, i) if item.change in ADDS_COLUMN and depth == 0 else None
            if token.word == "DEFAULT" and end:
                name = _name(item.definition[i : end + 1], statement.classified.tables[0].schema)
                if not (site.target.has(Feature.SEQUENCES) and site.around.has_sequence(name)):
                    yield remove(
                        item.definition[i : end + 1],
                        f"the target has no sequence {name}; its values come with the rows",
                    )


def in_views(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Refuses a view that takes values of a sequence, where the target has no sequences."""
    if statement.classified.reads.uses_sequences and not site.target.has(Feature.SEQUENCES):
        raise UnsupportedError("the view takes values of a sequence, and the target has none; skip it, or replace it")
    yield from ()


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


def _name(default: Sequence[Token], schema: str) -> TableName:
    """Gives the sequence of a default: the last names in it."""
    names = [token.name for token in default if token.name is not None]
    is_qualified = any(token.text == "." for token in default)
    return TableName((names[-2] if is_qualified else schema) or "", names[-1] or "")
