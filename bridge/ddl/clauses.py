"""Divides a statement into the parts that a rewrite may change or leave out: definitions, actions and options."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from bridge.ddl.classes import (
    CONSTRAINTS,
    ColumnNames,
    StatementKind,
    action_class,
    additions,
    alter_actions,
    behind_verb,
    column_names,
    split_at_commas,
    without_if,
)
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.lexer import END, Token, read_tokens
from bridge.ddl.parser import Classified, begins_database_option, outside

ADDS_COLUMN: Final = frozenset({C.ADD_COLUMN, C.MODIFY_COLUMN})
ADDS_KEY: Final = frozenset({C.ADD_INDEX, C.ADD_PRIMARY_KEY})

_KEY_WORDS: Final = frozenset({"PRIMARY", "UNIQUE", "INDEX", "KEY", "FULLTEXT", "SPATIAL"})
_KINDS_OF_TIDB: Final = frozenset({"VECTOR", "COLUMNAR", "HYBRID"})
"""What TiDB calls kinds of indexes, which elsewhere are names."""


@dataclass(frozen=True)
class Item:
    """A definition of CREATE TABLE, an action of ALTER TABLE, or a whole CREATE INDEX or DROP INDEX.

    change: what it does.  tokens: all of it.
    definition: of a column, from its (new) name on, but for AFTER; of an index or constraint, from its first word on.
    name: of the index or constraint that it adds, drops or changes; None when the server chooses one.
    """

    change: C
    tokens: tuple[Token, ...]
    definition: tuple[Token, ...] = ()
    name: str | None = None

    @property
    def span(self) -> tuple[int, int]:
        """Its place in the statement."""
        return span_of(self.tokens)


@dataclass(frozen=True)
class StatementParts:
    """A statement in parts.

    lists: lists of items; an item that is left out takes its comma with it.
    options: what follows the definitions of a table or the name of a database.
    """

    text: str
    tokens: tuple[Token, ...]
    classified: Classified
    lists: tuple[tuple[Item, ...], ...] = ()
    options: tuple[Token, ...] = ()

    @property
    def items(self) -> Iterator[Item]:
        """All items."""
        return (item for items in self.lists for item in items)

    @property
    def columns(self) -> Iterator[Item]:
        """The items that make or change a column."""
        return (item for item in self.items if item.change in ADDS_COLUMN)

    def in_columns(self, *words: str) -> Iterator[tuple[Item, int]]:
        """Gives the columns with one of these words outside of parentheses, and its place in the definition."""
        for item in self.columns:
            yield from ((item, i) for i, token in outer(item.definition) if i > 0 and token.word in words)


def statement_parts(text: str, classified: Classified, *, tidb: bool) -> StatementParts:
    """Divides a classified statement into parts.  tidb: whether `/*T! ... */` is read, as TiDB does."""
    tokens = tuple(t for t in outside(read_tokens(text, tidb=tidb), classified.never_run) if t.text != ";")
    kind = classified.kind
    if kind is StatementKind.CREATE_TABLE:
        return _table(text, tokens, classified)
    if kind in {StatementKind.ALTER_TABLE, StatementKind.EXCHANGE_PARTITION}:
        items = tuple(_action(action) for action in alter_actions(_behind(tokens, classified)))
        return StatementParts(text, tokens, classified, (items, *_groups(items)))
    if kind in {StatementKind.CREATE_INDEX, StatementKind.DROP_INDEX}:
        return StatementParts(text, tokens, classified, ((_index_statement(tokens, classified),),))
    if kind in {StatementKind.CREATE_DATABASE, StatementKind.ALTER_DATABASE}:
        return StatementParts(text, tokens, classified, options=_database_options(tokens))
    if kind in {StatementKind.DROP_TABLE, StatementKind.RENAME_TABLE}:
        table_count = 1 + (kind is StatementKind.RENAME_TABLE)
        pairs = zip(classified.touched[::table_count], classified.touched[table_count - 1 :: table_count], strict=True)
        groups = (tuple(t for t in tokens if a.span[0] <= t.span[0] < b.span[1]) for a, b in pairs)
        return StatementParts(text, tokens, classified, (tuple(Item(C(kind.value), name) for name in groups),))
    return StatementParts(text, tokens, classified)


def span_of(tokens: Sequence[Token]) -> tuple[int, int]:
    """Gives the span from the first to the last of the tokens."""
    return tokens[0].span[0], tokens[-1].span[1]


def with_depth(tokens: Sequence[Token]) -> Iterator[tuple[int, Token, int]]:
    """Gives index, token and depth of parentheses; a parenthesis itself has the outer depth."""
    depth = 0
    for i, token in enumerate(tokens):
        depth -= token.text == ")"
        yield i, token, depth
        depth += token.text == "("


def outer(tokens: Sequence[Token]) -> Iterator[tuple[int, Token]]:
    """Gives index and token of what stands outside of parentheses."""
    return ((i, token) for i, token, depth in with_depth(tokens) if depth == 0)


def outer_words(tokens: Sequence[Token]) -> list[str]:
    """Gives the words outside of parentheses."""
    return [token.word for _, token in outer(tokens)]


def at(tokens: Sequence[Token], index: int) -> Token:
    """Gives the token at an index, END outside of the tokens."""
    return tokens[index] if 0 <= index < len(tokens) else END


def closing(tokens: Sequence[Token], opening: int) -> int:
    """Gives the index of the parenthesis that closes the one at `opening`, or of the last token when none does."""
    inner = 0
    for i in range(opening, len(tokens)):
        inner += {"(": 1, ")": -1}.get(tokens[i].text, 0)
        if inner == 0:
            return i
    return len(tokens) - 1


def _behind(tokens: Sequence[Token], classified: Classified) -> tuple[Token, ...]:
    end = classified.touched[0].span[1]
    return tuple(token for token in tokens if token.span[0] >= end)


def _table(text: str, tokens: tuple[Token, ...], classified: Classified) -> StatementParts:
    rest = _behind(tokens, classified)
    if classified.like or at(rest, 0).text != "(":
        return StatementParts(text, tokens, classified, options=rest)
    end = closing(rest, 0)
    items = tuple(_definition(part) for part in split_at_commas(rest[1:end]))
    return StatementParts(text, tokens, classified, (items,), rest[end + 1 :])


def _definition(part: tuple[Token, ...]) -> Item:
    """Reads one definition in the parentheses of CREATE TABLE or ADD."""
    change = _definition_class(part)
    return Item(change, part, part, None if change is C.ADD_COLUMN else _name_of(part))


def _definition_class(part: Sequence[Token]) -> C:
    words = [token.word for token in part[:3]]
    if words[:1] == ["CONSTRAINT"]:
        words = words[1:] if words[1:2] and words[1] in CONSTRAINTS else words[2:]
    return CONSTRAINTS.get(words[0] if words else "", C.ADD_INDEX if _is_key_word(words) else C.ADD_COLUMN)


def _is_key_word(words: Sequence[str]) -> bool:
    """Tells whether a definition that goes on with these words goes on with what says that it is of a key."""
    is_kind = words[:1] and words[0] in _KINDS_OF_TIDB and words[1:2] in (["INDEX"], ["KEY"])
    return bool(is_kind or (words[:1] and words[0] in _KEY_WORDS))


def _name_of(definition: Sequence[Token]) -> str | None:
    """Gives the name of the index or constraint that is defined: the one behind INDEX, else that behind CONSTRAINT."""
    symbol, i = None, 0
    if at(definition, 0).word == "CONSTRAINT":
        i = 1
        if at(definition, 1).word not in CONSTRAINTS:
            symbol, i = at(definition, 1).name, 2
    if at(definition, i).word in {"CHECK", "FOREIGN"}:
        return symbol
    while _is_key_word([token.word for token in definition[i : i + 2]]):
        i += 1
    name = at(definition, i)
    return symbol if name.text == "(" or name.word == "USING" else name.name


_NAMES_AT_2: Final = frozenset(
    {C.DROP_INDEX, C.DROP_CONSTRAINT, C.INDEX_VISIBILITY, C.ALTER_CHECK, C.RENAME_INDEX, C.DROP_FOREIGN_KEY}
)


def _action(action: tuple[Token, ...]) -> Item:
    change = action_class(action)
    if change in ADDS_COLUMN:
        definition = () if action[0].word == "RENAME" else behind_verb(action)[action[0].word == "CHANGE" :]
        if at(definition, len(definition) - 2).word == "AFTER":  # a name, which may be a word
            definition = definition[:-2]
        return Item(change, action, () if at(definition, 0).text == "(" else definition)
    if change in ADDS_KEY | {C.ADD_CHECK, C.ADD_FOREIGN_KEY}:
        definition = without_if(action)[1:]
        return Item(change, action, definition, _name_of(definition))
    if change in _NAMES_AT_2:
        return Item(change, action, (), _third_name(action))
    return Item(change, action)


def _third_name(action: Sequence[Token]) -> str | None:
    """Gives the name in DROP INDEX [IF EXISTS] name, DROP FOREIGN KEY name, ALTER INDEX name and the like."""
    i = 3 if at(action, 1).word == "FOREIGN" else 2
    while at(action, i).word in {"IF", "EXISTS"}:
        i += 1
    return at(action, i).name


def _groups(items: Sequence[Item]) -> Iterator[tuple[Item, ...]]:
    """Gives the definitions in ADD [COLUMN] (...)."""
    for item in items:
        if (group := additions(item.tokens)) != [item.tokens]:
            yield tuple(_definition(tuple(addition[1:])) for addition in group)


def _index_statement(tokens: tuple[Token, ...], classified: Classified) -> Item:
    """Reads CREATE INDEX or DROP INDEX, which name the index before the table."""
    end = next(i for i, token in enumerate(tokens) if token.word == "ON")
    name = tokens[end - 1 - 2 * (tokens[end - 2].word == "USING")].name  # whatever word it is
    is_create = classified.kind is StatementKind.CREATE_INDEX
    return Item(C.ADD_INDEX if is_create else C.DROP_INDEX, tokens, tokens[1:] if is_create else (), name)


def _database_options(tokens: tuple[Token, ...]) -> tuple[Token, ...]:
    """Gives the tokens behind the database's name, which ALTER DATABASE may leave out."""
    i = next(i for i, token in enumerate(tokens) if token.word in {"DATABASE", "SCHEMA"}) + 1
    while at(tokens, i).word in {"IF", "NOT", "EXISTS"}:
        i += 1
    return tokens[i + (not begins_database_option(at(tokens, i), at(tokens, i + 1))) :]


def column_names_in(text: str, classified: Classified) -> ColumnNames:
    """Tells which names of columns an ALTER TABLE takes away, and which it gives."""
    actions = next(iter(statement_parts(text, classified, tidb=False).lists), ())
    return column_names([item.tokens for item in actions])
