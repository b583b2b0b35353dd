"""Finds what rows would be in silence if a schema change were left out, and what is there since one was: columns,
members of an ENUM, times, and unique keys that the target would keep.  Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from typing import Final

from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind, column_names
from bridge.ddl.clauses import (
    ADDS_COLUMN,
    ADDS_KEY,
    Item,
    StatementParts,
    at,
    closing,
    column_names_in,
    statement_parts,
)
from bridge.ddl.lexer import Token, read_tokens
from bridge.ddl.parser import Classified, Swap
from bridge.ddl.rule import former_name
from bridge.model import TableName

_OF_MEMBERS: Final = frozenset({"ENUM", "SET"})
_DECIMALS: Final = frozenset({"DECIMAL", "DEC", "NUMERIC", "FIXED"})

Definitions = Callable[[TableName, str], str | None]
"""Gives the merged table's definition of a column, from its type on; None where it has none."""
IsThere = Callable[[TableName], bool]
"""Tells whether the target has a table."""


def misread_values(
    text: str,
    classified: Classified,
    definition_of: Definitions,
    *,
    is_utc: bool,
    is_debezium: bool,
    is_left_out: bool = False,
) -> str:
    """Says which values of rows of a shard would become others in the merged table; "" without any.

    A statement that makes a shard is compared with the merged table, which its rows would go to.  One that alters
    a shard is compared with the merged table as it is, as the rows of other shards are for that.  One that is left out
    is compared with the table as it stays, which the rows behind it would go to.
    is_utc: whether sessions of the upstream are in UTC.  is_debezium: whether Debezium's connector has sent it.
    """
    if classified.kind not in {StatementKind.CREATE_TABLE, StatementKind.ALTER_TABLE} or len(classified.tables) != 1:
        return ""
    makes = classified.kind is StatementKind.CREATE_TABLE
    for item in statement_parts(text, classified, tidb=False).items:
        if item.change in ADDS_COLUMN and item.definition:
            name = (item.definition[0].name or "") if makes else former_name(item)
            definition = definition_of(classified.tables[0], name)
            if definition is None:
                continue
            types = list(item.definition[1:]), read_tokens(definition)
            rows, column = types if makes or is_left_out else reversed(types)
            rows_in_words = "rows behind it" if is_left_out else "rows of a shard"
            column_words, row_words = ({token.word for token in kind} for kind in (column, rows))
            if "GENERATED" in column_words and "AS" not in row_words:
                return f"{rows_in_words} have values of {name}, which the target computes"
            if not _keep_numbers(rows, column):
                return (
                    f"{rows_in_words} that have other members of {name} may come with their numbers (from all senders"
                    " but Debezium), which would become other values"
                )
            from_utc, to_utc = (at(operand, 0).word == "TIMESTAMP" for operand in (rows, column))
            if from_utc and not (to_utc or is_utc):
                return f"{rows_in_words} where {name} is a TIMESTAMP come in UTC, and would be written so"
            if to_utc and not (from_utc or is_utc):
                return f"{rows_in_words} where {name} is no TIMESTAMP may come with local times, and be taken for UTC"
            if is_debezium and _form(rows) != _form(column):
                return f"{rows_in_words} that come without a schema would be read as if their {name} had another type"
    return ""


def _form(definition: list[Token]) -> str:
    """Tells in which form Debezium's connector writes the values of a column, "" for numbers and texts as they are.
    Without a schema the type of the target's column alone says how a value is read."""
    word = at(definition, 0).word
    inside = definition[2 : closing(definition, 1)] if at(definition, 1).text == "(" else []
    if word in _DECIMALS:  # the digits, without the point
        return f"DECIMAL {inside[2].text if inside[2:] else 0}"
    if word in {"DATETIME", "TIME"}:  # milliseconds, or microseconds
        return f"{word} {inside != [] and inside[0].text > '3'}"
    if word == "BIT" or word.endswith(("BINARY", "BLOB")):
        return "bytes"
    return word if word in {"DATE", "TIMESTAMP", "FLOAT"} else ""


def _keep_numbers(rows: list[Token], column: list[Token]) -> bool:
    """Tells whether all numbers of members mean the same in a column as in the rows."""
    if at(column, 0).word not in _OF_MEMBERS:
        return True  # numbers are refused there, or stay numbers
    row_members, column_members = _members(rows), _members(column)
    return at(rows, 0).word == at(column, 0).word and row_members == column_members[: len(row_members)]


def _members(definition: list[Token]) -> list[str]:
    """Gives the members in one spelling.  Servers remove blanks at their end."""
    inside = definition[2 : closing(definition, 1)] if at(definition, 1).text == "(" else []
    return [_plain(token) for token in inside if token.text != ","]


def _plain(token: Token) -> str:
    if token.kind != "string" or "\\" in token.text:
        return token.text
    quote = token.text[0]
    return token.text[1:-1].replace(quote * 2, quote).rstrip(" ")


_REMOVED_BY: Final = frozenset({C.DROP_TABLE, C.RENAME_TABLE, C.DROP_DATABASE})


def wrong_without(
    text: str,
    classified: Classified,
    definition_of: Definitions,
    is_there: IsThere,
    *,
    is_utc: bool,
    is_debezium: bool,
    is_ignored: bool = False,
) -> str:
    """Says which rows would be wrong, and no server refuse them, if a statement were left out; "" without any.

    text: with the names of the target.  is_utc, is_debezium: as of `misread_values`.
    is_ignored: by a setting, so that a column which the target has already was made there on purpose.
    """
    if reason := moved_without(classified) or moved_onto(classified, is_there):
        return reason
    if classified.kind is StatementKind.ALTER_TABLE and len(classified.tables) == 1:
        table, columns = classified.tables[0], column_names_in(text, classified)
        renamed = [new for old, new in columns.renamed if definition_of(table, old) is not None]
        names = renamed if is_ignored else sorted(columns.given)
        existing = next((name for name in names if definition_of(table, name) is not None), "")
        if existing:
            return f"the target has {existing} already, where rows may hold another value"
    return misread_values(text, classified, definition_of, is_utc=is_utc, is_debezium=is_debezium, is_left_out=True)


def moved_without(classified: Classified) -> str:
    """Says which rows would go to another table or column if a statement were left out; "" without any."""
    is_moved = classified.kind is StatementKind.EXCHANGE_PARTITION
    if classified.kind is StatementKind.RENAME_TABLE:  # a table may get the name that another one had
        is_moved = _may_share(classified.tables[::2], classified.tables[1::2])
    if is_moved:
        return "rows behind it would go to each other's tables"
    return "rows behind it would go to each other's columns" if classified.swaps is Swap.COLUMNS else ""


def moved_onto(classified: Classified, is_there: IsThere) -> str:
    """Says which rows would go to another table if a rename were left out while the target has both names, as the drop
    of the one was left out before; "" without any."""
    if C.RENAME_TABLE not in classified.classes:
        return ""
    pairs = zip(classified.tables[::2], classified.tables[1::2], strict=False)
    taken = [new for old, new in pairs if old != new and is_there(old) and is_there(new)]
    return f"the target has {taken[0]} already, to which rows behind it would go" if taken else ""


def wrong_without_unclear(classified: Classified) -> str:
    """Says which rows may be wrong in silence if a statement were left out of which the databases of some names are not
    known, so that no column can be looked up; "" without any."""
    if reason := moved_without(classified):
        return reason
    return "values of rows behind it may be read as others" if C.MODIFY_COLUMN in classified.classes else ""


def removed_names(text: str, classified: Classified, earlier_text: str, earlier: Classified) -> frozenset[str]:
    """Gives the names, of columns or of the table, that a statement takes and an earlier one has removed."""
    if classified.kind is StatementKind.CREATE_TABLE:
        databases = {name.schema for name in classified.tables}
        is_one = _may_share(earlier.tables, classified.tables) or earlier.database in databases
        is_removed = is_one and not _REMOVED_BY.isdisjoint(earlier.classes)
        return frozenset({classified.tables[0].table.lower()}) if is_removed else frozenset()
    is_one = _may_share(earlier.tables[:1], classified.tables[:1])
    if {classified.kind, earlier.kind} != {StatementKind.ALTER_TABLE} or not is_one:
        return frozenset()
    return frozenset(column_names_in(earlier_text, earlier).freed & column_names_in(text, classified).given)


def _may_share(tables: Sequence[TableName], others: Sequence[TableName]) -> bool:
    """Tells whether one table may be among both.  A name without a database may mean that table of any."""
    pairs = product({name.folded for name in tables}, {name.folded for name in others})
    return any(a[1] == b[1] and (a[0] == b[0] or "" in {a[0], b[0]}) for a, b in pairs)


KeysOf = Callable[[TableName], Mapping[str, tuple[str, ...]]]
"""Gives the columns of the target's unique keys by the key's name, or `primary`; all in lower case."""

_PRIMARY: Final = "primary"
_KINDS: Final = frozenset({StatementKind.ALTER_TABLE, StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX})
_DROPS: Final = frozenset({C.DROP_INDEX, C.DROP_CONSTRAINT})
_COMPARES: Final = frozenset({"COLLATE", "CHARSET", "BINARY", "CHARACTER", "ASCII", "UNICODE"})
_TEXTS: Final = frozenset({"CHAR", "VARCHAR", "TINYTEXT", "TEXT", "MEDIUMTEXT", "LONGTEXT", "ENUM", "SET"})


def dropped_key(text: str, classified: Classified, keys_of: KeysOf) -> str:
    """Says which unique key a statement drops or changes that the target still has; "" when there is none.

    text: with the names of the target.
    """
    if classified.kind not in _KINDS or len(classified.tables) != 1:
        return ""
    keys = keys_of(classified.tables[0])
    parts = statement_parts(text, classified, tidb=False)
    key = next(iter(_lost_keys(parts, keys)), None)
    return "" if key is None else f"the target still has the {_key_text(key, keys[key])}, which the upstream drops"


def kept_key(text: str, classified: Classified, keys_of: KeysOf, definition_of: Definitions) -> str:
    """Says which unique key of the target would refuse or merge rows that differ upstream, if a statement were left
    out; "" when there is none.

    Besides `dropped_key` these are keys whose texts the upstream compares in another way from then on, and keys that it
    calls by another name, by which a later statement would drop them.  text: with the names of the target.
    """
    if reason := dropped_key(text, classified, keys_of):
        return reason
    if classified.kind is not StatementKind.ALTER_TABLE or len(classified.tables) != 1:
        return ""
    table = classified.tables[0]
    keys = keys_of(table)
    parts = statement_parts(text, classified, tidb=False)
    for item in parts.items:
        if item.change is C.RENAME_INDEX and (item.name or "").lower() in keys:
            name = (item.name or "").lower()
            key = _key_text(name, keys[name])
            return f"the target's {key} has another name upstream then, by which it may be dropped"
        for name, columns in keys.items():
            if any(_compares_anew(item, column, table, definition_of) for column in columns):
                key = _key_text(name, columns)
                return f"the upstream compares the texts of the {key} in another way than the target"
    return ""


def _lost_keys(parts: StatementParts, keys: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Gives the keys of the target that the statement takes away, or makes anew of other columns."""
    adding = [item for item in parts.items if item.change in ADDS_KEY]
    added = {_PRIMARY if i.change is C.ADD_PRIMARY_KEY else (i.name or "").lower(): _columns(i) for i in adding}
    for item in parts.items:
        if item.change is C.DROP_COLUMN:
            dropped = column_names([item.tokens]).freed
            yield from (name for name, columns in keys.items() if not dropped.isdisjoint(columns))
            continue
        replaces = item.change is C.ADD_INDEX and "REPLACE" in [token.word for token in item.tokens[:3]]
        name = _PRIMARY if item.change is C.DROP_PRIMARY_KEY else (item.name or "").lower()
        is_dropped = item.change in _DROPS or item.change is C.DROP_PRIMARY_KEY or replaces
        if is_dropped and name in keys and added.get(name) != keys[name]:
            yield name


def _columns(item: Item) -> tuple[str, ...]:
    """Gives the columns of a key that is added; () where it is not unique, or holds more than names of columns."""
    definition = item.definition
    if not {"PRIMARY", "UNIQUE"} & {token.word for token in definition[:3]}:
        return ()
    opening = next((i for i, token in enumerate(definition) if token.text == "("), len(definition))
    inside = definition[opening + 1 : closing(definition, opening)] if opening < len(definition) else ()
    names = [token for token in inside if token.word not in {"ASC", "DESC"} and token.text != ","]
    return tuple((token.name or "").lower() for token in names)


def _compares_anew(item: Item, column: str, table: TableName, definition_of: Definitions) -> bool:
    """Tells whether an action names a charset or a collation for a text column, and not the one that it has."""
    words = [token.word for token in item.tokens]
    is_table = item.change is C.TABLE_CHARSET and words[0] == "CONVERT"
    is_column = item.change is C.MODIFY_COLUMN and words[0] != "RENAME" and former_name(item).lower() == column
    if not (is_table or is_column) or _COMPARES.isdisjoint(words):
        return False
    definition = (definition_of(table, column) or "").lower()
    if definition.partition("(")[0].partition(" ")[0].upper() not in _TEXTS:
        return False
    behind = words.index("COLLATE") + 1 if "COLLATE" in words else len(words)
    collation = at(item.tokens, behind + (at(item.tokens, behind).text == "=")).word
    return not collation or f"collate {collation.lower()}" not in definition


def _key_text(name: str, columns: tuple[str, ...]) -> str:
    kind = "primary key" if name == _PRIMARY else f"unique key {name}"
    return f"{kind} ({', '.join(column or 'an expression' for column in columns)})"
