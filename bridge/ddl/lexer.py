"""Splits a statement into tokens as a MySQL-compatible server does: strings, identifiers, comments, executable
comments.

It refuses a text that servers read differently: a quote or comment without an end, comments in executable comments,
NUL.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Final, NamedTuple

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
            return self.text[1:-1].replace("``", "`")
        return self.text if self.kind == "word" else None


END: Final = Token("end", "", (0, 0))


def tokens(statement: str, *, tidb: bool = False, mariadb: bool = False) -> list[Token]:
    """Gives the tokens that a server reads.  Comments are left out.  The body of `/*! ... */` is kept; the body of
    TiDB's `/*T! ... */` is kept only with `tidb`, that of MariaDB's `/*M! ... */` only with `mariadb`.  Raises
    UnreadableError."""
    found = _scan(statement, tidb=tidb, mariadb=mariadb)
    return [token for token in found if token.kind not in {"comment", "open", "close"}]


def opened(statement: str, *, mariadb: bool = False) -> str:
    """Opens the executable comments of a statement, so that their bodies become plain text.

    The upstream has run them: MySQL writes those that it skips to its log as plain comments.  Whether the target would
    run them depends on its version.  `/*M! ... */` is one where the upstream is MariaDB; otherwise it is taken out, as
    MariaDB would run it.  Raises UnreadableError.
    """
    found = _scan(statement, tidb=False, mariadb=mariadb)
    spans = [t.span for t in found if t.kind in {"open", "close"} or (t.kind == "comment" and t.text[:4] == "/*M!")]
    for start, end in reversed(spans):
        before, after = statement[:start], statement[end:]
        blank = "" if before[-1:] in {"", " "} or after[:1] in {"", " "} else " "
        statement = before + blank + after
    return statement


class Comment(NamedTuple):
    """A `/*T![feature] body */`."""

    feature: str
    span: tuple[int, int]


def tidb_comments(statement: str) -> list[Comment]:
    """Finds TiDB's own comments in the statement.  Raises UnreadableError."""
    found = (
        t for t in _scan(statement, tidb=False, mariadb=False) if t.kind == "comment" and t.text.startswith("/*T!")
    )
    return [Comment(_feature(token.text), token.span) for token in found]


def _feature(comment: str) -> str:
    named = re.match(r"/\*T!\[([\w,]*)\]", comment)
    return named[1] if named else "no feature named"


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
    ends = [token.span[0] for token in tokens(text) if token.kind == "mark" and token.text == ";"]
    pieces = [
        text[start:end].strip() for start, end in zip([0, *(end + 1 for end in ends)], [*ends, len(text)], strict=True)
    ]
    return [piece for piece in pieces if tokens(piece)]
