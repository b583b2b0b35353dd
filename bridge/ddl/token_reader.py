"""Reads tokens one after another: keywords, names, tables and accounts of a statement."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from bridge.ddl.lexer import END, Token
from bridge.model import TableName


class NotUnderstoodError(Exception):
    """Raised for a statement that the bridge does not know; the message may say why.  `classify` turns it into
    Refused."""


class Named(NamedTuple):
    """A table that a statement names.  span: where it stands; is_qualified: whether it has a database."""

    table: TableName
    span: tuple[int, int]
    is_qualified: bool


class TokenReader:
    """Reads the tokens of a statement from left to right, with `schema` as the current database."""

    def __init__(self, found: list[Token], schema: str) -> None:
        self.tokens, self.schema, self.at = found, schema, 0
        self.passed: list[tuple[int, int]] = []
        """The spans of what was passed over."""

    def peek(self, ahead: int = 0) -> Token:
        at = self.at + ahead
        return self.tokens[at] if at < len(self.tokens) else END

    def accept(self, *words: str) -> bool:
        """Skips these keywords when they come next, all of them or none."""
        if all(self.peek(i).word == word for i, word in enumerate(words)):
            self.at += len(words)
            return True
        return False

    def identifier(self) -> str:
        name = self.peek().name
        if name is None:
            raise NotUnderstoodError
        self.at += 1
        return name

    def table(self) -> Named:
        start = self.peek().span[0]
        name, is_qualified = TableName(self.schema, self.identifier()), self.peek().text == "."
        if is_qualified:
            self.at += 1
            name = TableName(name.table, self.identifier())
        return Named(name, (start, self.peek(-1).span[1]), is_qualified)

    def table_list(self) -> Iterator[Named]:
        yield self.table()
        while self.peek().text == ",":
            self.at += 1
            yield self.table()

    def pass_over(self, count: int) -> None:
        """Skips tokens that must not run."""
        self.passed.append((self.peek().span[0], self.peek(count - 1).span[1]))
        self.at += count

    def pass_wait(self) -> None:
        """Passes over MariaDB's WAIT n or NOWAIT: how long to wait for a lock is the target's matter."""
        if self.peek().word == "WAIT" and self.peek(1).text.isdigit():
            self.pass_over(2)
        elif self.peek().word == "NOWAIT":
            self.pass_over(1)

    def skip_parentheses(self) -> None:
        """Skips what is in parentheses, when they come next."""
        depth = 0
        while self.peek().text == "(" or (depth and self.peek().kind != "end"):
            depth += {"(": 1, ")": -1}.get(self.peek().text, 0)
            self.at += 1

    def skip_mark(self, mark: str) -> None:
        self.at += self.peek().text == mark

    def account(self) -> None:
        """Skips user, user@host or CURRENT_USER(); a host that is not quoted may have dots."""
        self.at += 1
        if self.peek().text == "(":
            self.at += 2
        if self.peek().text == "@":
            self.at += 2
            while self.peek().span[0] == self.peek(-1).span[1] and (self.peek().text == "." or self.peek().word):
                self.at += 1

    def skip_to(self, word: str) -> None:
        while self.peek().word != word:
            if self.peek().kind == "end":
                raise NotUnderstoodError
            self.at += 1
        self.at += 1
