"""Finds what rows would be in silence if a schema change were left out, and what is there since one was.  Pure."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise, product
from typing import Final

from bridge.ddl.alter_actions import ColumnNames, column_names
from bridge.ddl.by_table.shard_statements import constant
from bridge.ddl.by_table.shard_values import DefinitionOf, misread_values
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import statement_parts
from bridge.ddl.lexer import Token, tokens
from bridge.ddl.parser import Classified, Swap
from bridge.model import TableName

_COMPUTED: Final = frozenset({"AS", "AUTO_INCREMENT"})
_REMOVED_BY: Final = frozenset({C.DROP_TABLE, C.RENAME_TABLE, C.DROP_DATABASE})


def wrong_without(text: str, classified: Classified, definition_of: DefinitionOf, *, is_utc: bool) -> str:
    """Says which rows would be wrong, and no server refuse them, if a statement were left out; "" without any.

    text: with the names of the target.  is_utc: whether sessions of the upstream are in UTC.
    """
    if what := moved_without(classified):
        return what
    if classified.kind is StatementKind.ALTER_TABLE and len(classified.tables) == 1:
        reason = _kept_in_its_columns(text, classified, definition_of)
        if reason:
            return reason
    return misread_values(text, classified, definition_of, is_utc=is_utc, is_left_out=True)


def moved_without(classified: Classified) -> str:
    """Says which rows would go to another table or column if a statement were left out; "" without any."""
    if _moves_tables(classified):
        return "rows behind it would go to each other's tables"
    return "rows behind it would go to each other's columns" if classified.swaps is Swap.COLUMNS else ""


def wrong_without_unclear(classified: Classified) -> str:
    """Says which rows may be wrong in silence if a statement were left out of which the databases of some names are not
    known, so that no column can be looked up; "" without any."""
    if what := moved_without(classified):
        return what
    return "values of rows behind it may be read as others" if C.MODIFY_COLUMN in classified.classes else ""


def _kept_in_its_columns(text: str, classified: Classified, definition_of: DefinitionOf) -> str:
    """Says in which column rows would keep what was there before, or other values than the upstream's; "" without
    any."""
    table = classified.tables[0]
    _, freed, given = _column_names(text, classified)
    for name in sorted(freed & given):
        if definition_of(table, name) is not None:
            return f"rows that are there would keep in {name} what was there before"
    for item in statement_parts(text, classified, tidb=False).items:
        if item.change is C.ADD_COLUMN and item.definition:
            name = item.definition[0].name or ""
            there = definition_of(table, name)
            if there is not None and (why := _differs(item.definition, tokens(there))):
                return f"the target has {name} already, {why} than rows that were there got upstream"
    return ""


def removed_names(text: str, classified: Classified, earlier_text: str, earlier: Classified) -> frozenset[str]:
    """Gives the names of what a statement makes, or of what had them, that an earlier one removes: of columns, or of
    the table."""
    if classified.kind is StatementKind.CREATE_TABLE:
        databases = {name.schema for name in classified.tables}
        is_one = _may_share(earlier.tables, classified.tables) or earlier.database in databases
        is_removed = is_one and not _REMOVED_BY.isdisjoint(earlier.classes)
        return frozenset({classified.tables[0].table.lower()}) if is_removed else frozenset()
    is_one = _may_share(earlier.tables[:1], classified.tables[:1])
    if {classified.kind, earlier.kind} != {StatementKind.ALTER_TABLE} or not is_one:
        return frozenset()
    return frozenset(_column_names(earlier_text, earlier).freed & _column_names(text, classified).given)


def _moves_tables(classified: Classified) -> bool:
    """Tells whether a table gets the name that another one had, or rows of it."""
    if classified.kind is StatementKind.RENAME_TABLE:
        return _may_share(classified.tables[::2], classified.tables[1::2])
    return classified.kind is StatementKind.EXCHANGE_PARTITION


def _may_share(some: Sequence[TableName], others: Sequence[TableName]) -> bool:
    """Tells whether one table may be among both.  A name without a database may mean that table of any."""
    pairs = product(_lower(some), _lower(others))
    return any(a[1] == b[1] and (a[0] == b[0] or "" in {a[0], b[0]}) for a, b in pairs)


def _lower(names: Sequence[TableName]) -> set[tuple[str, str]]:
    return {(schema.lower(), table.lower()) for schema, table in names}


def _column_names(text: str, classified: Classified) -> ColumnNames:
    actions, *_ = statement_parts(text, classified, tidb=False).lists
    return column_names([item.tokens for item in actions])


def _differs(added: Sequence[Token], there: Sequence[Token]) -> str:
    """Says how what rows got in a column that was added may differ from what they hold in one that was there; "" when
    it does not."""
    got = _default(added)
    if got is None:
        return "where rows may hold another value"
    return "with another default" if got != _default(there) else ""


def _default(definition: Sequence[Token]) -> str | None:
    """Gives the constant that rows get in a column which is added, as all servers print it but for quotes; "" for the
    one of its type, where it cannot be NULL.  None where they get no constant."""
    words = [token.word for token in definition]
    if "DEFAULT" in words:
        behind = definition[words.index("DEFAULT") + 1 :]
        value = behind[: constant(behind)]
        return "".join(token.word or token.text.strip("'\"") for token in value).removeprefix("+") if value else None
    if not _COMPUTED.isdisjoint(words):
        return None
    return "" if ("NOT", "NULL") in pairwise(words) else "NULL"
