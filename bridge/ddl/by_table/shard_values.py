"""Finds columns in which rows of another shard would mean something else, and no server refuses it.  Pure.

All formats but Debezium's may write a value of an ENUM or a SET by its number: Open Protocol and TiCDC's Canal-JSON do,
official Canal and CKafka write numbers or names, depending on the sender.  The merged table reads the number by its own
members, so it gets another value of a shard whose members have other numbers.  A TIMESTAMP comes in UTC, a DATETIME as
it is.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final

from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import ADDS_COLUMN, Item, at, closing, statement_parts
from bridge.ddl.lexer import Token, tokens
from bridge.ddl.parser import Classified
from bridge.ddl.rule import former_name
from bridge.model import TableName

_OF_MEMBERS: Final = frozenset({"ENUM", "SET"})

DefinitionOf = Callable[[TableName, str], str | None]
"""Gives the merged table's definition of a column, from its type on; None where it has none."""


def misread_values(
    text: str, classified: Classified, definition_of: DefinitionOf, *, is_utc: bool, is_left_out: bool = False
) -> str:
    """Says which values of rows of a shard would become others in the merged table; "" without any.

    A statement that makes a shard is compared with the merged table, which its rows would go to.  One that alters
    a shard is compared with the merged table as it is, as the rows of other shards are for that.  One that is left out
    is compared with the table as it stays, which the rows behind it would go to.
    is_utc: whether sessions of the upstream are in UTC.
    """
    if classified.kind not in {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE} or len(classified.tables) != 1:
        return ""
    makes = classified.kind is StatementKind.CREATE_TABLE
    for item in statement_parts(text, classified, tidb=False).items:
        if item.change in ADDS_COLUMN and item.definition:
            name = _name(item) if makes else former_name(item)
            there = definition_of(classified.tables[0], name)
            if there is None:
                continue
            types = list(item.definition[1:]), tokens(there)
            rows, column = types if makes or is_left_out else reversed(types)
            whose = "rows behind it" if is_left_out else "rows of a shard"
            keeps = _keep_numbers(rows, column) or (is_left_out and _only_adds(rows, column))
            if not keeps:
                return (
                    f"{whose} that have other members of {name} may come with their numbers (from all senders but"
                    " Debezium), which would become other values"
                )
            from_utc, to_utc = (at(definition, 0).word == "TIMESTAMP" for definition in (rows, column))
            if from_utc and not (to_utc or is_utc):
                return f"{whose} where {name} is a TIMESTAMP come in UTC, and would be written so"
            if to_utc and not (from_utc or is_utc):
                return f"{whose} where {name} is no TIMESTAMP may come with local times, and be taken for UTC"
    return ""


def _name(item: Item) -> str:
    return item.definition[0].name or ""


def _keep_numbers(rows: list[Token], column: list[Token]) -> bool:
    """Tells whether all numbers of members mean the same in a column as in the rows."""
    if at(column, 0).word not in _OF_MEMBERS:
        return True  # numbers are refused there, or stay numbers
    mine, known = _members(rows), _members(column)
    return at(rows, 0).word == at(column, 0).word and mine == known[: len(mine)]


def _only_adds(rows: list[Token], column: list[Token]) -> bool:
    """Tells whether rows only have members behind those of the column, which every server refuses there."""
    return at(rows, 0).word in _OF_MEMBERS and _keep_numbers(column, rows)


def _members(definition: list[Token]) -> list[str]:
    """Gives the members in one spelling.  Servers remove blanks at their end."""
    inside = definition[2 : closing(definition, 1)] if at(definition, 1).text == "(" else []
    return [_plain(token) for token in inside if token.text != ","]


def _plain(token: Token) -> str:
    if token.kind != "string" or "\\" in token.text:
        return token.text
    quote = token.text[0]
    return token.text[1:-1].replace(quote * 2, quote).rstrip(" ")
