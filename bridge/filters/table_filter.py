"""Filters tables by TiCDC's rule syntax, of which all is supported (TiDB, Table Filter; the parser is
pkg/util/table-filter).

A rule is `schema.table`, or `!schema.table` to exclude tables, or `@file` for the rules of a file.  Schema and table
are each one of three patterns: a name with the wildcards `*`, `?`, `[a-z]` and `[!a-z]` and a backslash before special
characters; a name in quotation marks or backquotes; or a Go regular expression between slashes.
Below are the databases that are never written to.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Iterator
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path
from typing import Any, Final, NamedTuple

import re2

from bridge.errors import UsageError

_OPTIONS: Final = re2.Options()
_OPTIONS.case_sensitive = False
_OPTIONS.log_errors = False


class GoRegexpError(ValueError):
    """Raised for a text that is no regular expression of Go's; the message says why."""


@lru_cache(maxsize=1024)
def compiled(pattern: str) -> Any:
    """Gives a regular expression as Go reads it (pkg.go.dev/regexp/syntax), by RE2, from whose authors Go has its own;
    without regard to case.  Raises GoRegexpError."""
    try:
        return re2.compile(pattern, _OPTIONS)
    except re2.error as error:
        reason = error.args[0] if error.args else error
        raise GoRegexpError(reason.decode(errors="replace") if isinstance(reason, bytes) else str(reason)) from error


_BLANK: Final = " \t"
_REGEXP: Final = re.compile(r"/((?:\\.|[^/])+)/", re.DOTALL)
_QUOTED: Final = re.compile(r'"((?:""|[^"])+)"|`((?:``|[^`])+)`', re.DOTALL)
_RANGE: Final = re.compile(r"\[!?(?:\\[^0-9a-zA-Z]|[^\\\]])+\]")
_ANYTHING: Final = r"(?s)^.*$"

Matches = Callable[[str], object]
"""Tells whether a name in lower case matches."""


@dataclass(frozen=True)
class ExactName:
    """Matches one name."""

    name: str

    def __call__(self, name: str) -> bool:
        return name == self.name.lower()


class NamePattern(NamedTuple):
    """A pattern for the names of databases or tables.

    rest: the text after it.  takes_all: whether it matches everything.
    """

    matches: Matches
    rest: str
    takes_all: bool


class _FilterRule(NamedTuple):
    """A rule of the filter.  takes_all: whether it matches every table of its schemas."""

    text: str
    leaves_out: bool
    schema: Matches
    table: Matches
    takes_all: bool

    def means(self, schema: str, table: str) -> bool:
        """Tells whether the rule matches a table; the names are in lower case."""
        return bool(self.schema(schema) and self.table(table))


@dataclass(frozen=True)
class TableFilter:
    """Which tables are replicated; the last rule that matches decides.

    A table that no rule matches is not replicated, unless every rule excludes: then all other tables are
    replicated.  (TiDB's own tools would replicate nothing then; they need `*.*` as the first rule.)  Names are compared
    without regard to case, as TiCDC does.

    rules: as given.  Once the filter is made, each `@file` is replaced by the rules of that file, and comments are
    gone.
    Raises UsageError for a rule that cannot be read.
    """

    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        rules = self.rules
        object.__setattr__(self, "rules", tuple(_expanded(rules)))  # executors do not have the files
        if rules and not self.rules:
            raise UsageError(f"the filter {', '.join(map(repr, rules))} holds no rule", fix="write db.table")
        _compile(self.rules)

    def __call__(self, schema: str, table: str) -> bool:
        """Tells whether a row change or a table-level schema change of this table is wanted."""
        schema, table = schema.lower(), table.lower()
        is_wanted = self.only_leaves_out
        for rule in _compile(self.rules):
            if rule.means(schema, table):
                is_wanted = not rule.leaves_out
        return is_wanted

    def may_accept(self, table: str) -> bool:
        """Tells whether a table of this name, of a database that is not known, may be wanted."""
        rules = _compile(self.rules)
        return self.only_leaves_out or any(rule.table(table.lower()) for rule in rules if not rule.leaves_out)

    def accepts_schema(self, schema: str) -> bool:
        """Tells whether a database-level schema change is wanted: whether some table of the database may be."""
        schema = schema.lower()
        is_wanted = self.only_leaves_out
        for rule in _compile(self.rules):
            if rule.schema(schema) and (not rule.leaves_out or rule.takes_all):
                is_wanted = not rule.leaves_out
        return is_wanted

    @property
    def only_leaves_out(self) -> bool:
        """Whether every rule excludes: then every table is wanted that no rule excludes."""
        return all(rule.leaves_out for rule in _compile(self.rules))

    def unmatched(self, tables: Collection[tuple[str, str]]) -> tuple[str, ...]:
        """Gives the rules that match none of these tables."""
        names = {(schema.lower(), table.lower()) for schema, table in tables}
        return tuple(rule.text for rule in _compile(self.rules) if not any(rule.means(*name) for name in names))


def _expanded(rules: Iterable[str]) -> Iterator[str]:
    """Gives the rules without comments and blanks, and the rules of a file in the place of `@file`."""
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
        lines = Path(path).read_text(encoding="utf-8-sig").split("\n")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "it is not UTF-8"
        raise UsageError(f"the filter file {path!r} cannot be read: {reason}", fix="check the path after @") from error
    for number, line in enumerate(lines, 1):
        for rule in _without_comments([line.removesuffix("\r")]):
            if rule.startswith("@"):
                raise _unreadable(rule, "a file of rules cannot name another one", f"{path}:{number}")
            _parsed(rule, f"{path}:{number}")
            yield rule


@lru_cache(maxsize=16)
def _compile(rules: tuple[str, ...]) -> tuple[_FilterRule, ...]:
    return tuple(map(_parsed, rules))


def _parsed(text: str, where: str = "") -> _FilterRule:
    leaves_out = text.startswith("!")
    try:
        schema, rest, _ = name_pattern(text.removeprefix("!"))
        if not rest.startswith("."):
            raise ValueError("a rule needs a pattern for the schema and one for the table, with a dot between them")
        table, rest, takes_all = name_pattern(rest[1:])
        if rest:
            raise ValueError(f"{rest!r} follows the pattern of the table, where nothing may follow")
    except ValueError as error:
        raise _unreadable(text, str(error), where) from error
    return _FilterRule(text, leaves_out, schema, table, takes_all)


def _unreadable(rule: str, why: str, where: str) -> UsageError:
    return UsageError(
        f"the filter rule {rule!r} cannot be read: {why}",
        where=where,
        fix="write it as db.table, with * ? [a-z]; as `my-db`.`my table`; as /^db\\d+$/.*; or !db.table",
    )


def name_pattern(text: str) -> NamePattern:
    """Reads the pattern that a text begins with.  Raises ValueError, which says why it cannot be read."""
    if text.startswith("/"):
        match = _REGEXP.match(text)
        if match is None:
            raise ValueError("a regular expression has no / at its end")
        return NamePattern(compiled(match[1]).search, text[match.end() :], takes_all=False)
    if text.startswith(('"', "`")):
        match = _QUOTED.match(text)
        if match is None:
            raise ValueError(f"a name has no {text[0]} at its end")
        mark = text[0]
        return NamePattern(ExactName(match[0][1:-1].replace(mark * 2, mark)), text[match.end() :], takes_all=False)
    return _wildcards(text)


def _wildcards(text: str) -> NamePattern:
    """Reads a name with wildcards as a regular expression of Go (as TiDB does); another name is compared as it is."""
    name, pattern, at = "", "", 0
    is_plain = True
    while at < len(text) and text[at] != ".":
        char, end = text[at], at + 1
        if char in "*?":
            is_plain, pattern = False, pattern + (".*" if char == "*" else ".")
        elif char == "[":
            match = _RANGE.match(text, at)
            if match is None:
                raise ValueError("a [ is not closed, or nothing is between it and the ]")
            is_plain, pattern, end = False, pattern + _range(match[0]), match.end()
        else:
            char, end = _plain(text, at)
            mark = "" if char.isalnum() or not char.isascii() else "\\"
            name, pattern = name + char, pattern + mark + char
        at = end
    if at == 0:
        raise ValueError("a name is missing")
    whole = f"(?s)^{pattern}$"
    return NamePattern(ExactName(name) if is_plain else compiled(whole).search, text[at:], whole == _ANYTHING)


def _plain(text: str, at: int) -> tuple[str, int]:
    """Reads a character that is not special; gives it, and where it ends."""
    char = text[at]
    if char == "\\":
        following = text[at + 1 : at + 2]
        if not following or (following.isascii() and following.isalnum()):
            raise ValueError(f"{char + following!r} is reserved: a \\ may not stand before a letter or a digit")
        return following, at + 2
    if char.isascii() and not char.isalnum() and char not in "$_":
        raise ValueError(f"{char!r} is special: quote the name, or put a \\ before it")
    return char, at + 1


def _range(text: str) -> str:
    """Translates a range in brackets: [!...] negates it, and ^ is not special."""
    if text[1] == "!":
        return "[^" + text[2:]
    return "[\\" + text[1:] if text[1] == "^" else text


DEFAULT_SCHEMA: Final = "_bridge"
SYSTEM_SCHEMAS: Final = frozenset(
    {"mysql", "information_schema", "performance_schema", "sys", "metrics_schema", "inspection_schema"}
)
_AS_IT_IS: Final = "#mysql50#"
"""Begins a name that is written as its folder on the disk is called (MySQL 5.7, Mapping of Identifiers to File Names;
MariaDB still)."""
_DOT_ABOVE: Final = "\u0307"
"""What Python leaves of U+0130 in lower case; the servers leave a plain i."""


def plain_name(schema: str) -> str:
    """Gives a database's name as a server may understand it: in lower case (lower_case_table_names), and without the
    blanks, backquotes and prefixes that a name may have around it.  Tried on MariaDB 11.4, MySQL 5.7 and 8.0."""
    name = schema.lower().replace(_DOT_ABOVE, "").strip().strip("`").strip()
    return plain_name(name.removeprefix(_AS_IT_IS)) if name.startswith(_AS_IT_IS) else name


@dataclass(frozen=True)
class ReservedSchemas:
    """The server's own databases and the bridge's: `own`, and the default one, which another pipeline may use."""

    own: str = DEFAULT_SCHEMA

    def why(self, schema: str) -> str:
        """Tells why nothing is written to a database; "" when rows may be written to it."""
        name = plain_name(schema)
        if name in SYSTEM_SCHEMAS:
            return "it is in one of the server's own databases"
        return "it is in the bridge's own database" if name in {plain_name(self.own), DEFAULT_SCHEMA} else ""
