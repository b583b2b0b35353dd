"""Table filters in TiCDC's rule syntax, the whole of it (TiDB, Table Filter; the parser is pkg/util/table-filter).

A rule is `schema.table`, `!schema.table` to leave out, or `@file` for the rules of a file.  Schema and table are each a
name with the wildcards `*`, `?`, `[a-z]` and `[!a-z]` and with a backslash before what is special, a name in quotation
marks or backquotes, or a regular expression of Go's between slashes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Final, NamedTuple

from bridge.errors import UsageError
from bridge.go_regexp import GoRegexpError, compiled

_BLANK: Final = " \t"
_REGEXP: Final = re.compile(r"/((?:\\.|[^/])+)/", re.DOTALL)
_QUOTED: Final = re.compile(r'"((?:""|[^"])+)"|`((?:``|[^`])+)`', re.DOTALL)
_RANGE: Final = re.compile(r"\[!?(?:\\[^0-9a-zA-Z]|[^\\\]])+\]")
_ANYTHING: Final = r"(?s)^.*$"

Matches = Callable[[str], object]
"""Whether a name in lower case is meant."""


class _Rule(NamedTuple):
    """takes_all: the rule means every table of the schema."""

    text: str
    leaves_out: bool
    schema: Matches
    table: Matches
    takes_all: bool

    def means(self, schema: str, table: str) -> bool:
        """The names are in lower case."""
        return bool(self.schema(schema) and self.table(table))


@dataclass(frozen=True)
class TableFilter:
    """Which tables are replicated; the last rule that matches decides.

    What no rule matches is left out, unless all rules leave something out: then everything else stays in.  (TiDB's own
    tools would replicate nothing then; they want `*.*` before.)  Names are compared without regard to case, as TiCDC
    does.

    rules: as given; afterwards those of files stand in the place of `@file`, and there are no comments.
    Raises UsageError for a rule that cannot be read.
    """

    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        given = self.rules
        object.__setattr__(self, "rules", tuple(_expanded(given)))  # executors do not have the files
        if given and not self.rules:
            raise UsageError(f"the filter {', '.join(map(repr, given))} holds no rule", fix="write db.table")
        _compile(self.rules)

    def __call__(self, schema: str, table: str) -> bool:
        """A row change or table-level schema change of this table is wanted."""
        schema, table = schema.lower(), table.lower()
        wanted = self.only_leaves_out
        for rule in _compile(self.rules):
            if rule.means(schema, table):
                wanted = not rule.leaves_out
        return wanted

    def accepts_schema(self, schema: str) -> bool:
        """A database-level schema change is wanted: some table of the database may be."""
        schema = schema.lower()
        wanted = self.only_leaves_out
        for rule in _compile(self.rules):
            if rule.schema(schema) and (not rule.leaves_out or rule.takes_all):
                wanted = not rule.leaves_out
        return wanted

    @property
    def only_leaves_out(self) -> bool:
        """No rule takes anything in, so that everything is wanted that none leaves out."""
        return all(rule.leaves_out for rule in _compile(self.rules))

    def unmatched(self, tables: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """The rules that match none of these tables."""
        names = {(schema.lower(), table.lower()) for schema, table in tables}
        return tuple(rule.text for rule in _compile(self.rules) if not any(rule.means(*name) for name in names))


def _expanded(rules: Iterable[str]) -> Iterator[str]:
    """The rules, those of files in their place, without comments and blanks."""
    for rule in _without_comments(rules):
        if rule.startswith("@"):
            yield from _of_file(rule[1:])
        else:
            yield rule


def _without_comments(lines: Iterable[str]) -> Iterator[str]:
    stripped = (line.strip(_BLANK) for line in lines)
    return (line for line in stripped if line and not line.startswith("#"))


def _of_file(path: str) -> Iterator[str]:
    try:
        lines = Path(path).read_text(encoding="utf-8").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"the filter file {path!r} cannot be read: {reason}", fix="see --filter") from error
    for number, line in enumerate(lines, 1):
        for rule in _without_comments([line.removesuffix("\r")]):
            if rule.startswith("@"):
                raise _unreadable(rule, "a file of rules cannot name another one", f"{path}:{number}")
            _parsed(rule, f"{path}:{number}")
            yield rule


@lru_cache(maxsize=16)
def _compile(rules: tuple[str, ...]) -> tuple[_Rule, ...]:
    return tuple(map(_parsed, rules))


class _SyntaxError(Exception):
    """Why a rule cannot be read."""


def _parsed(text: str, where: str = "") -> _Rule:
    leaves_out = text.startswith("!")
    try:
        schema, rest, _ = _pattern(text.removeprefix("!"))
        if not rest.startswith("."):
            raise _SyntaxError("a rule is a schema's and a table's pattern with a dot between them")
        table, rest, takes_all = _pattern(rest[1:])
        if rest:
            raise _SyntaxError(f"nothing may stand behind the table, as {rest!r} does")
    except (_SyntaxError, GoRegexpError) as error:
        raise _unreadable(text, str(error), where) from error
    return _Rule(text, leaves_out, schema, table, takes_all)


def _unreadable(rule: str, why: str, where: str) -> UsageError:
    return UsageError(
        f"the filter rule {rule!r} cannot be read: {why}",
        where=where,
        fix="write it as db.table, with * ? [a-z]; as `my-db`.`my table`; as /^db\\d+$/.*; or !db.table",
    )


def _pattern(text: str) -> tuple[Matches, str, bool]:
    """What a pattern matches, what stands behind it, and whether it matches everything."""
    if text.startswith("/"):
        found = _REGEXP.match(text)
        if found is None:
            raise _SyntaxError("a regular expression has no / at its end")
        return compiled(found[1]).search, text[found.end() :], False
    if text.startswith(('"', "`")):
        found = _QUOTED.match(text)
        if found is None:
            raise _SyntaxError(f"a name has no {text[0]} at its end")
        mark = text[0]
        return _is(found[0][1:-1].replace(mark * 2, mark)), text[found.end() :], False
    return _wildcards(text)


def _is(name: str) -> Matches:
    return name.lower().__eq__


def _wildcards(text: str) -> tuple[Matches, str, bool]:
    """As TiDB does, wildcards become a regular expression of Go's; a name without any is compared as it is."""
    name, made, at = "", "", 0
    is_plain = True
    while at < len(text) and text[at] != ".":
        char, end = text[at], at + 1
        if char in "*?":
            is_plain, made = False, made + (".*" if char == "*" else ".")
        elif char == "[":
            found = _RANGE.match(text, at)
            if found is None:
                raise _SyntaxError("a [ has no ] behind some characters")
            is_plain, made, end = False, made + _range(found[0]), found.end()
        else:
            char, end = _plain(text, at)
            name, made = name + char, made + _escaped(char)
        at = end
    if at == 0:
        raise _SyntaxError("a name is missing")
    whole = f"(?s)^{made}$"
    return _is(name) if is_plain else compiled(whole).search, text[at:], whole == _ANYTHING


def _plain(text: str, at: int) -> tuple[str, int]:
    """The character at a place that is not special, and where it ends."""
    char = text[at]
    if char == "\\":
        following = text[at + 1 : at + 2]
        if not following or (following.isascii() and following.isalnum()):
            raise _SyntaxError(f"{char + following!r} is reserved: a \\ stands before what is neither letter nor digit")
        return following, at + 2
    if char.isascii() and not char.isalnum() and char not in "$_":
        raise _SyntaxError(f"{char!r} is special: quote the name, or put a \\ before it")
    return char, at + 1


def _escaped(char: str) -> str:
    return char if char.isalnum() or not char.isascii() else "\\" + char


def _range(text: str) -> str:
    """[!...] leaves out, and ^ is not special."""
    if text[1] == "!":
        return "[^" + text[2:]
    return "[\\" + text[1:] if text[1] == "^" else text
