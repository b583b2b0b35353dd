"""Finds unique keys that the target would keep, although the upstream drops them, if a schema change were left out.

Rows that differ upstream are then one row on the target, and the last one overwrites the others in silence.  Pure.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Final

from bridge.ddl.by_table.shard_values import DefinitionOf
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.classes import StatementKind
from bridge.ddl.clauses import ADDS_KEY, Item, StatementParts, at, closing, statement_parts
from bridge.ddl.lexer import UnreadableError, tokens
from bridge.ddl.parser import Classified
from bridge.ddl.rule import former_name
from bridge.ddl.token_reader import NotUnderstoodError, TokenReader
from bridge.model import TableName

KeysOf = Callable[[TableName], Mapping[str, tuple[str, ...]]]
"""Gives the columns of each unique key of the target's table by the key's name, the primary key as `primary`; all in
lower case."""

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
    gone = next(iter(_gone(parts, keys)), None)
    return "" if gone is None else f"the target still has the {_words(gone, keys[gone])}, which the upstream drops"


def unread_key(text: str, schema: str, keys_of: KeysOf) -> str:
    """Says which unique key of the target an ALTER TABLE drops that is not understood as a whole; "" when there is
    none, or when it cannot be read at all."""
    try:
        reader = TokenReader(tokens(text), schema)
        if not (reader.accept("ALTER") and (reader.accept("TABLE") or reader.accept("ONLINE", "TABLE"))):
            return ""
        reader.accept("IF", "EXISTS")
        keys = keys_of(reader.table().table)
    except (UnreadableError, NotUnderstoodError):
        return ""
    while reader.peek().kind != "end":
        is_drop = reader.accept("DROP")
        if is_drop and reader.accept("PRIMARY") and _PRIMARY in keys:
            return f"the target still has the {_words(_PRIMARY, keys[_PRIMARY])}, which the upstream drops"
        if is_drop and any(map(reader.accept, ("INDEX", "KEY", "CONSTRAINT"))):
            reader.accept("IF", "EXISTS")
            name = (reader.peek().name or "").lower()
            if name in keys:
                return f"the target still has the {_words(name, keys[name])}, which the upstream drops"
        reader.at += 1
    return ""


def kept_key(text: str, classified: Classified, keys_of: KeysOf, definition_of: DefinitionOf) -> str:
    """Says which unique key of the target would refuse or merge rows that differ upstream, if a statement were left
    out; "" when there is none.

    Besides `dropped_key` these are keys whose texts the upstream compares in another way from then on, and keys that it
    calls by another name, by which a later statement would drop them.  text: with the names of the target.
    """
    if found := dropped_key(text, classified, keys_of):
        return found
    if classified.kind is not StatementKind.ALTER_TABLE or len(classified.tables) != 1:
        return ""
    table = classified.tables[0]
    keys = keys_of(table)
    parts = statement_parts(text, classified, tidb=False)
    for item in parts.items:
        if item.change is C.RENAME_INDEX and (item.name or "").lower() in keys:
            name = (item.name or "").lower()
            return f"the target's {_words(name, keys[name])} has another name upstream then, by which it may be dropped"
        for name, columns in keys.items():
            if any(_compares_anew(item, column, table, definition_of) for column in columns):
                return f"the upstream compares the texts of the {_words(name, columns)} in another way than the target"
    return ""


def _gone(parts: StatementParts, keys: Mapping[str, tuple[str, ...]]) -> Iterator[str]:
    """Gives the keys of the target that the statement takes away, or makes anew of other columns."""
    added = {_added_name(item): _columns(item) for item in parts.items if item.change in ADDS_KEY}
    for item in parts.items:
        if item.change is C.DROP_COLUMN:
            column = _dropped_column(item)
            yield from (name for name, columns in keys.items() if column in columns)
            continue
        replaces = item.change is C.ADD_INDEX and "REPLACE" in [token.word for token in item.tokens[:3]]
        name = _PRIMARY if item.change is C.DROP_PRIMARY_KEY else (item.name or "").lower()
        is_dropped = item.change in _DROPS or item.change is C.DROP_PRIMARY_KEY or replaces
        if is_dropped and name in keys and added.get(name) != keys[name]:
            yield name


def _added_name(item: Item) -> str:
    return _PRIMARY if item.change is C.ADD_PRIMARY_KEY else (item.name or "").lower()


def _columns(item: Item) -> tuple[str, ...]:
    """Gives the columns of a key that is added; () where it is not unique, or holds more than names of columns."""
    definition = item.definition
    if not {"PRIMARY", "UNIQUE"} & {token.word for token in definition[:3]}:
        return ()
    opening = next((i for i, token in enumerate(definition) if token.text == "("), len(definition))
    inside = definition[opening + 1 : closing(definition, opening)] if opening < len(definition) else ()
    names = [token for token in inside if token.word not in {"ASC", "DESC"} and token.text != ","]
    return tuple((token.name or "").lower() for token in names)


def _dropped_column(item: Item) -> str:
    i = 1 + (at(item.tokens, 1).word == "COLUMN")
    while at(item.tokens, i).word in {"IF", "EXISTS"}:
        i += 1
    return (at(item.tokens, i).name or "").lower()


def _compares_anew(item: Item, column: str, table: TableName, definition_of: DefinitionOf) -> bool:
    """Tells whether an action names a charset or a collation for a text column, and not the one that it has."""
    words = [token.word for token in item.tokens]
    is_table = item.change is C.TABLE_CHARSET and words[0] == "CONVERT"
    is_column = item.change is C.MODIFY_COLUMN and words[0] != "RENAME" and former_name(item).lower() == column
    if not (is_table or is_column) or _COMPARES.isdisjoint(words):
        return False
    there = (definition_of(table, column) or "").lower()
    if there.partition("(")[0].partition(" ")[0].upper() not in _TEXTS:
        return False
    behind = words.index("COLLATE") + 1 if "COLLATE" in words else len(words)
    collation = at(item.tokens, behind + (at(item.tokens, behind).text == "=")).word
    return not collation or f"collate {collation.lower()}" not in there


def _words(name: str, columns: tuple[str, ...]) -> str:
    which = "primary key" if name == _PRIMARY else f"unique key {name}"
    return f"{which} ({', '.join(column or 'an expression' for column in columns)})"
