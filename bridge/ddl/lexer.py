"""Reads a statement as tokens, as a MySQL-compatible server does, and one after another: keywords, names, tables."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from bridge.model import TableName, quote_name

_TOKEN: Final = re.compile(
    r"""(?P<space>\s+|--(?=[\s]|$)[^\n]*|\#[^\n]*)
      | (?P<executable>/\*!)
      | (?P<mariadb>/\*M!)
      | (?P<tidb>/\*T!(?:\[[\w,]*\])?)
      | (?P<comment>/\*.*?\*/)
      | (?P<close>\*/)
      | (?P<string>'[^'\\]*(?:(?:\\.|'')[^'\\]*)*'|"[^"\\]*(?:(?:\\.|"")[^"\\]*)*")
      | (?P<quoted>`[^`]*(?:``[^`]*)*`)
      | (?P<word>[A-Za-z0-9_$\u0080-\U0010ffff]+)
      | (?P<arrow>->>?)
      | (?P<mark>.)""",
    re.VERBOSE | re.DOTALL | re.ASCII,  # to the server only ASCII white space is white
)
_VERSION: Final = re.compile(r"(?:\d{5,6}(?![\w$]))?", re.ASCII)
_UNCLOSED: Final = {"'": "a string", '"': "a string", "`": "a quoted name"}


class UnreadableError(ValueError):
    """Raised for a text that not all servers read alike; the message says why."""


class Token(NamedTuple):
    """A token that the server reads.  text: as written; span: where it begins and ends in the statement."""

    kind: str
    text: str
    span: tuple[int, int]

    @property
    def word(self) -> str:
        """The keyword in upper case, "" for anything but a bare ASCII word (Python turns a dotless i into an I)."""
        return self.text.upper() if self.kind == "word" and self.text.isascii() else ""

    @property
    def name(self) -> str | None:
        """The identifier that this token spells, None for anything else."""
        if self.kind == "quoted":
            return self.text[1:-1].replace(self.text[0] * 2, self.text[0])
        return self.text if self.kind == "word" else None


END: Final = Token("end", "", (0, 0))


def read_tokens(statement: str, *, tidb: bool = False, mariadb: bool = False) -> list[Token]:
    """Gives the tokens that a server reads.  Comments are left out.  The body of `/*! ... */` is kept; the body of
    TiDB's `/*T! ... */` is kept only with `tidb`, that of MariaDB's `/*M! ... */` only with `mariadb`.

    What is in double quotes is a string; but all of it are names, as with the sql_mode ANSI_QUOTES, where one stands in
    a place that no string may have.  Raises UnreadableError.
    """
    scanned = _scan(statement, tidb=tidb, mariadb=mariadb)
    tokens = [token for token in scanned if token.kind not in {"comment", "open", "close"}]
    if not _has_names_in_double_quotes(tokens):
        return tokens
    if any(token.text[0] == '"' and "\\" in token.text for token in tokens):
        raise UnreadableError("it has names in double quotes (ANSI_QUOTES) and a backslash in one")
    return [token._replace(kind="quoted") if token.text[0] == '"' else token for token in tokens]


_BEFORE_NAMES: Final = frozenset(
    {
        *("TABLE", "TABLES", "VIEW", "DATABASE", "SCHEMA", "EXISTS", "REFERENCES", "CONSTRAINT"),
        *("INDEX", "COLUMN", "ADD", "CHANGE", "MODIFY"),
    }
)


def _has_names_in_double_quotes(tokens: Sequence[Token]) -> bool:
    """Tells whether double quotes hold a part of a name with a dot, or follow a word behind which only names stand."""
    around = zip([END, *tokens], tokens, [*tokens[1:], END], strict=False)
    return any(
        token.text[0] == '"' and (before.word in _BEFORE_NAMES or "." in {before.text, behind.text})
        for before, token, behind in around
    )


def open_comments(statement: str, *, mariadb: bool = False) -> str:
    """Makes the bodies of executable comments plain text, and puts names in double quotes into backticks.

    The upstream has run the comments: MySQL writes those that it skips to its log as plain comments.  Whether the
    target would run them depends on its version.  `/*M! ... */` is one where the upstream is MariaDB; otherwise it is
    taken out, as a target that is MariaDB would run it.  Raises UnreadableError.
    """
    scanned = _scan(statement, tidb=False, mariadb=mariadb)
    edits = [
        (token.span, "")
        for token in scanned
        if token.kind in {"open", "close"} or (token.kind == "comment" and token.text.startswith("/*M!"))
    ]
    quoted = (token for token in read_tokens(statement, mariadb=mariadb) if token.kind == "quoted")
    edits += [(token.span, quote_name(token.name or "")) for token in quoted if token.text[0] == '"']
    for (start, end), text in sorted(edits, reverse=True):
        before, after = statement[:start], statement[end:]
        blank = "" if text or before[-1:] in {"", " "} or after[:1] in {"", " "} else " "
        statement = before + (text or blank) + after
    return statement


def tidb_comments(statement: str) -> list[tuple[str, tuple[int, int]]]:
    """Gives feature and span of each of TiDB's own comments, `/*T![feature] body */`.  Raises UnreadableError."""
    comments = [token for token in _scan(statement, tidb=False, mariadb=False) if token.text.startswith("/*T!")]
    features = [re.match(r"/\*T!\[([\w,]*)\]", token.text) for token in comments]
    names = [feature[1] if feature else "no feature named" for feature in features]
    return [(name, token.span) for name, token in zip(names, comments, strict=True)]


def _scan(statement: str, *, tidb: bool, mariadb: bool) -> Iterator[Token]:
    if "\0" in statement:
        raise UnreadableError("it holds a NUL")
    at, inside = 0, False
    while at < len(statement):
        match = _TOKEN.match(statement, at)
        assert match is not None  # the last alternative takes anything
        kind, end = match.lastgroup or "", match.end()
        if (kind == "tidb" and not tidb) or (kind == "mariadb" and not mariadb):
            kind, end = "comment", statement.find("*/", end) + 2
            if end < 2:
                raise UnreadableError("a comment has no end")
        if kind in {"executable", "mariadb", "tidb"}:
            if inside:
                raise UnreadableError("it holds a comment inside of an executable comment")
            end = end if kind == "tidb" else _executable(statement, match)
            kind, inside = "open", True
        elif kind == "close":
            if not inside:
                raise UnreadableError("a comment ends without a beginning")
            inside = False
        elif kind == "comment" and inside:
            raise UnreadableError("it holds a comment inside of an executable comment")
        elif kind == "mark":
            _check_mark(statement, at)
        if kind != "space":
            yield Token(kind, statement[at:end], (at, end))
        at = end
    if inside:
        raise UnreadableError("an executable comment has no end")


def _executable(statement: str, opening: re.Match[str]) -> int:
    """Tells where the body begins: servers take five or six digits for the version that runs it."""
    version = _VERSION.match(statement, opening.end())
    assert version is not None
    if not version.group() and statement[opening.end() : opening.end() + 1].isdigit():
        raise UnreadableError("an executable comment names no version")
    return version.end()


def _check_mark(statement: str, at: int) -> None:
    if statement.startswith("/*", at):
        raise UnreadableError("a comment has no end")
    if statement[at] in _UNCLOSED:
        raise UnreadableError(f"{_UNCLOSED[statement[at]]} has no end")
    if ord(statement[at]) < 32 or statement[at] == "\x7f":
        raise UnreadableError("it holds a control character")


def statements(text: str) -> list[str]:
    """Splits a text into statements, at the semicolons between them.  Raises UnreadableError."""
    ends = [token.span[0] for token in read_tokens(text) if token.kind == "mark" and token.text == ";"]
    pieces = [
        text[start:end].strip() for start, end in zip([0, *(end + 1 for end in ends)], [*ends, len(text)], strict=True)
    ]
    return [piece for piece in pieces if read_tokens(piece)]


class NotUnderstoodError(Exception):
    """Raised for a statement that the bridge does not know; the message may say why.  `classify` gives Refused then."""


class Mention(NamedTuple):
    """A table that a statement names.  span: where it stands; is_qualified: whether it has a database."""

    table: TableName
    span: tuple[int, int]
    is_qualified: bool


class TokenReader:
    """Reads the tokens of a statement from left to right, with `schema` as the current database."""

    def __init__(self, tokens: list[Token], schema: str) -> None:
        self.tokens, self.schema, self.at = tokens, schema, 0
        self.passed_spans: list[tuple[int, int]] = []
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

    def table(self) -> Mention:
        start = self.peek().span[0]
        name, is_qualified = TableName(self.schema, self.identifier()), self.peek().text == "."
        if is_qualified:
            self.at += 1
            name = TableName(name.table, self.identifier())
        return Mention(name, (start, self.peek(-1).span[1]), is_qualified)

    def table_list(self) -> Iterator[Mention]:
        yield self.table()
        while self.peek().text == ",":
            self.at += 1
            yield self.table()

    def pass_over(self, count: int) -> None:
        """Skips tokens that must not run."""
        self.passed_spans.append((self.peek().span[0], self.peek(count - 1).span[1]))
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
