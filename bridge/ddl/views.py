"""Finds what a view reads: the tables, functions and sequences that its query names, but not aliases and columns.

A table comes after FROM, JOIN, TABLE or a comma of FROM.  A column has a table or an alias before its dot, a function
has a database.  Only keywords that every server reserves end a list of tables; a word after a dot is a name.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final, NamedTuple

from bridge.ddl.lexer import END, Token
from bridge.model import TableName

_QUERIES: Final = frozenset({"SELECT", "WITH", "VALUES", "TABLE"})
_KEYWORDS: Final = frozenset({"SELECT", "FROM", "JOIN", "STRAIGHT_JOIN", "TABLE", "WHERE", "HAVING", "LIMIT", "UNION"})
"""Words that every server reserves; right before a dot, only some servers take them for names."""
_AFTER_TABLES: Final = frozenset({"WHERE", "HAVING", "LIMIT", "UNION"})
_NEXT_VALUE: Final = frozenset({"NEXT", "PREVIOUS"})
_SEQUENCE_FUNCTIONS: Final = frozenset({"NEXTVAL", "LASTVAL", "SETVAL"})


class Reads(NamedTuple):
    """What a view reads.  names: tables and views.  functions: the databases of functions that it calls.  unclear: the
    words at which the reading is not sure, "" when it is sure.  bare: the names that it reads without a
    database."""

    names: tuple[TableName, ...] = ()
    functions: tuple[str, ...] = ()
    unclear: str = ""
    bare: tuple[str, ...] = ()


@dataclass
class _Level:
    """The text between two parentheses, or the whole query.

    is_query: SELECT was read here.  in_tables: the reader is in its list of tables.  expects: a table comes next.
    names: the names that WITH has defined so far.  naming: the name that it defines now, "" for none.  in_with: whether
    WITH has not ended.
    """

    is_query: bool = False
    in_tables: bool = False
    expects: bool = False
    in_with: bool = False
    is_recursive: bool = False
    naming: str = ""
    names: set[str] = field(default_factory=set)


def reads(query: Sequence[Token], schema: str) -> Reads:
    """Tells what a view's query reads, with `schema` as the current database.  query: what follows AS."""
    reader = _Query(query, schema)
    while reader.at < len(query):
        reader.step()
    unclear = dict.fromkeys(reader.unclear)
    return Reads(
        tuple(dict.fromkeys(reader.names)),
        tuple(dict.fromkeys(reader.functions)),
        ", ".join(unclear),
        tuple(dict.fromkeys(reader.bare)),
    )


class _Query:
    def __init__(self, found: Sequence[Token], schema: str) -> None:
        self.found, self.schema, self.at = found, schema, 0
        self.levels = [self._opened()]
        self.names: list[TableName] = []
        self.functions: list[str] = []
        self.unclear: list[str] = []
        self.bare: list[str] = []

    def peek(self, ahead: int = 0) -> Token:
        at = self.at + ahead
        return self.found[at] if 0 <= at < len(self.found) else END

    def step(self) -> None:
        """Reads one token, or a name with its dots."""
        token, level = self.peek(), self.levels[-1]
        if token.text == "(":
            self._open(level)
        elif token.text == ")":
            self.at += 1
            self._close()
        elif level.expects:
            self._table(level)
        elif token.word in _KEYWORDS or (token.word and self.peek(1).text != "."):
            self._word(token.word, level)
        elif token.name is not None and not token.text.isdigit():
            self._dotted()
        else:
            self.at += 1
            if token.text == "," and level.in_with:
                self._with_name(level)
            elif token.text == ",":
                level.expects = level.in_tables

    def _opened(self) -> _Level:
        """Makes a level that begins at the reader's position."""
        level = _Level()
        if self.peek().word == "WITH":
            self.at += 1
            level.in_with = True
            level.is_recursive = self.peek().word == "RECURSIVE"
            self.at += level.is_recursive
            self._with_name(level)
        return level

    def _with_name(self, level: _Level) -> None:
        """Reads the name in `name [(columns)] AS (query)`.  Inside its own query the name is known only with RECURSIVE;
        after the query it is always known."""
        level.naming = (self.peek().name or "").lower()
        if level.is_recursive:
            level.names.add(level.naming)
        self.at += 1

    def _open(self, level: _Level) -> None:
        was_expected, level.expects = level.expects, False
        self.at += 1
        begins = self.peek()
        opened = self._opened()
        if was_expected and begins.word not in _QUERIES:
            opened.in_tables = opened.expects = True
        self.levels.append(opened)

    def _close(self) -> None:
        if len(self.levels) > 1:
            self.levels.pop()
        level = self.levels[-1]
        if level.in_with and level.naming and self.peek().word != "AS":
            level.names.add(level.naming)
            level.naming = ""
            level.in_with = self.peek().text == ","

    def _word(self, word: str, level: _Level) -> None:
        following = self.peek(1)
        if word in _KEYWORDS and following.text == "." and following.span[0] == self.peek().span[1]:
            self.unclear.append(f"{word}.")
        self.at += 1
        if word == "SELECT":
            level.is_query, level.in_tables = True, False
        elif word == "FROM" and level.is_query and self.peek(-2).word != "SYSTEM_TIME":
            level.in_tables = level.expects = True
        elif word == "JOIN" or (word == "STRAIGHT_JOIN" and level.in_tables) or word == "TABLE":
            level.expects = True
        elif word in _AFTER_TABLES or (word in {"GROUP", "ORDER"} and following.word == "BY"):
            level.in_tables = False
        elif word in _NEXT_VALUE and [following.word, self.peek(1).word] == ["VALUE", "FOR"]:
            self.at += 2
            self._name()
        elif word in _SEQUENCE_FUNCTIONS and self.peek().text == "(":
            self.at += 1
            self._name()
            self.levels.append(_Level())

    def _table(self, level: _Level) -> None:
        """Reads a table, or a construct that may take its place."""
        word, following = self.peek().word, self.peek(1).text
        if (word == "LATERAL" and following == "(") or self.peek().text == "{":
            self.at += 1 if word else 2  # { OJ ... }
            return
        level.expects = False
        if word == "DUAL":
            self.at += 1
        elif following == "(" and self.peek().name is not None:
            self.at += 1  # JSON_TABLE(...)
        elif self.peek().name is not None and following != ".":
            self._unqualified()
        else:
            self._name()

    def _unqualified(self) -> None:
        name = self.peek().name or ""
        self.at += 1
        if self.peek().word == "AS" and self.peek(1).text == "(":
            return  # WINDOW w AS (...), x AS (...)
        if not any(name.lower() in level.names for level in self.levels):
            self._add_bare(name)

    def _add_bare(self, name: str) -> None:
        self.names.append(TableName(self.schema, name))
        self.bare.append(name)

    def _name(self) -> None:
        """Reads [schema.]table, or .table."""
        leads = self.peek().text == "."
        self.at += leads
        first = self.peek().name
        if first is None:
            self.unclear.append(" ".join(token.text for token in self.found[max(0, self.at - 2) : self.at + 2]))
            self.at += 1
            return
        self.at += 1
        if self.peek().text != "." or leads:
            self._add_bare(first)
            return
        self.at += 1
        self.names.append(TableName(first, self.peek().name or ""))
        self.at += 1

    def _dotted(self) -> None:
        """Reads a column, or a function of a database: a.b, a.b.c, a.b(...)."""
        parts = [self.peek().name or ""]
        self.at += 1
        while self.peek().text == "." and (self.peek(1).name is not None or self.peek(1).text == "*"):
            parts.append(self.peek(1).name or "*")
            self.at += 2
        if len(parts) == 2 and self.peek().text == "(":
            self.functions.append(parts[0])
        elif len(parts) > 2:
            self.names.append(TableName(parts[0], parts[1]))
