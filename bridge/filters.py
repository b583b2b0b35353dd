"""Table filters in TiCDC's rule syntax: `db.table`, `*`, `?`, `[a-z]`, and `!` to leave out (TiDB, Table Filter)."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache

from bridge.errors import UsageError

_RULE = re.compile(r"(?P<out>!?)(?P<schema>`[^`]*`|[^.`]+)\.(?P<table>`[^`]*`|[^.`]+)")
_WILDCARD = re.compile(r"(\*)|(\?)|(\[[^\]]+\])")


@dataclass(frozen=True)
class TableFilter:
    """Which tables are replicated; the last rule that matches decides.

    What no rule matches is left out, unless the first rule leaves something out: then everything else stays in.
    Names are compared without regard to case, as TiDB does.
    """

    rules: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        _compile(self.rules)

    def __call__(self, schema: str, table: str) -> bool:
        """A row change or table-level schema change of this table is wanted."""
        wanted = not self.rules or self.rules[0].startswith("!")
        for out, schema_rule, table_rule in _compile(self.rules):
            if schema_rule.fullmatch(schema) and table_rule.fullmatch(table):
                wanted = not out
        return wanted

    def accepts_schema(self, schema: str) -> bool:
        """A database-level schema change is wanted: some table of the database may be."""
        wanted = not self.rules or self.rules[0].startswith("!")
        for out, schema_rule, table_rule in _compile(self.rules):
            if schema_rule.fullmatch(schema) and (not out or table_rule.pattern == ".*"):
                wanted = not out
        return wanted


@lru_cache(maxsize=16)
def _compile(rules: Sequence[str]) -> tuple[tuple[bool, re.Pattern[str], re.Pattern[str]], ...]:
    return tuple(_compile_rule(rule) for rule in rules)


def _compile_rule(rule: str) -> tuple[bool, re.Pattern[str], re.Pattern[str]]:
    match = _RULE.fullmatch(rule)
    if match is None:
        raise UsageError(
            f"the filter rule {rule!r} cannot be read", mend="write it as db.table, with * ? [a-z], or !db.table"
        )
    return bool(match["out"]), _pattern(match["schema"]), _pattern(match["table"])


def _pattern(text: str) -> re.Pattern[str]:
    if text.startswith("`"):
        return re.compile(re.escape(text[1:-1]), re.IGNORECASE)
    parts = []
    at = 0
    for match in _WILDCARD.finditer(text):
        parts.append(re.escape(text[at : match.start()]))
        any_run, any_one, one_of = match.groups()
        parts.append(".*" if any_run else "." if any_one else one_of.replace("[!", "[^", 1))
        at = match.end()
    parts.append(re.escape(text[at:]))
    return re.compile("".join(parts), re.IGNORECASE | re.DOTALL)
