"""Rewrites sequences.  MariaDB and TiDB have them, with slightly different syntax; elsewhere the rows bring the
values."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, Item, StatementParts, at, closing, with_depth
from bridge.ddl.lexer import Token
from bridge.ddl.rule import Edit, Omission, Site, remove
from bridge.ddl.server_features import Feature
from bridge.model import TableName

_KINDS: Final = frozenset({StatementKind.CREATE_SEQUENCE, StatementKind.ALTER_SEQUENCE, StatementKind.DROP_SEQUENCE})


def sequences(statement: StatementParts, site: Site) -> Iterator[Edit | Omission]:
    """Leaves sequences out where the target has none."""
    if statement.classified.kind in _KINDS and not site.target.has(Feature.SEQUENCES):
        why = "the target has no sequences; their values come with the rows"
        yield Omission(Item(ChangeClass(statement.classified.kind.value), statement.tokens), why)


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
