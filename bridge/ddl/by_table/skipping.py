"""Finds what rows would be in silence if a schema change were left out.  Pure."""

from __future__ import annotations

from collections.abc import Sequence

from bridge.ddl.by_table.shard_values import DefinitionOf, misread_values
from bridge.ddl.classes import ChangeClass, StatementKind
from bridge.ddl.clauses import statement_parts
from bridge.ddl.lexer import Token, tokens
from bridge.ddl.parser import Classified, Swap


def wrong_without(text: str, classified: Classified, definition_of: DefinitionOf, *, is_utc: bool) -> str:
    """Says which rows would be wrong, and no server refuse them, if a statement were left out; "" without any.

    text: with the names of the target.  is_utc: whether sessions of the upstream are in UTC.
    """
    if classified.kind is not StatementKind.ALTER_TABLE or len(classified.tables) != 1:
        return ""
    if classified.swaps is Swap.COLUMNS:
        return "rows behind it would go to each other's columns"
    for item in statement_parts(text, classified, tidb=False).items:
        if item.change is ChangeClass.ADD_COLUMN and item.definition:
            name = item.definition[0].name or ""
            there = definition_of(classified.tables[0], name)
            if there is not None and _default(item.definition) != _default(tokens(there)):
                return f"the target has {name} already, with another default than rows that were there got upstream"
    return misread_values(text, classified, definition_of, is_utc=is_utc, is_left_out=True)


def _default(definition: Sequence[Token]) -> str | None:
    """Gives the default of a column as all servers print it but for quotes; None for NULL."""
    words = [token.word for token in definition]
    behind = definition[words.index("DEFAULT") + 1 :] if "DEFAULT" in words else ()
    value = behind[: 2 if behind and behind[0].text in {"-", "+"} else 1]
    if [token.word for token in value] in ([], ["NULL"]):
        return None
    return "".join(token.word or token.text.strip("'\"") for token in value).removeprefix("+")
