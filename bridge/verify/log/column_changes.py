"""Reads from the text of an ALTER TABLE what it does to columns and to rows.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Final

from bridge.ddl.lexer import Token, tokens

_NO_COLUMN: Final = frozenset(
    [
        "INDEX",
        "KEY",
        "PRIMARY",
        "UNIQUE",
        "FULLTEXT",
        "SPATIAL",
        "FOREIGN",
        "CONSTRAINT",
        "CHECK",
        "PARTITION",
        "PARTITIONS",
        "PERIOD",
        "SYSTEM",
    ]
)

_UNIQUE: Final = frozenset(["PRIMARY", "UNIQUE"])
_INDEX: Final = (["INDEX"], ["KEY"], ["CONSTRAINT"])


@dataclass(frozen=True)
class ColumnChanges:
    """What an ALTER TABLE does.  All names are in lower case, as they were before the statement.

    renamed: old to new names.
    dropped: columns that are gone; a column of that name may come again with other values.
    retyped: columns whose values may look different after the statement.
    loses_rows: whether partitions were dropped or emptied, and rows with them.
    converts_texts: whether all texts of the table got another character set or collation; they look the same, but
    others of them may be equal.
    changes_keys: whether unique keys were made or dropped.
    """

    renamed: Mapping[str, str]
    dropped: frozenset[str]
    retyped: frozenset[str]
    loses_rows: bool
    converts_texts: bool = False
    changes_keys: bool = False


def column_changes(statement: str) -> ColumnChanges:
    """Gives the effects of an ALTER TABLE."""
    renamed: dict[str, str] = {}
    dropped: set[str] = set()
    retyped: set[str] = set()
    loses_rows = converts_texts = changes_keys = False
    for part in _specifications(tokens(statement)):
        words = [token.word for token in part]
        names = [token.name for token in part]
        changes_keys = changes_keys or _changes_keys(words)
        match words:
            case ["DROP" | "TRUNCATE", "PARTITION", *_]:
                loses_rows = True
            case ["CONVERT", "TO", *_]:
                converts_texts = True
            case ["RENAME", "COLUMN", *_] if len(part) >= 5:
                renamed[_lower(names[2])] = _lower(names[4])
            case ["DROP", *_]:
                dropped.update(_column(part))
            case ["MODIFY", *_]:
                retyped.update(_column(part))
            case ["CHANGE", *_]:
                old, new = (*_column(part, 2), "", "")[:2]
                retyped.add(old)
                if old != new:
                    renamed[old] = new
    return ColumnChanges(renamed, frozenset(dropped), frozenset(retyped), loses_rows, converts_texts, changes_keys)


def _changes_keys(words: Sequence[str]) -> bool:
    """Tells whether a specification may make or drop a unique key."""
    return bool(_UNIQUE.intersection(words)) or (words[0] == "DROP" and words[1:2] in _INDEX)


def _specifications(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Gives the specifications between the commas of an ALTER TABLE, without the table's name."""
    start, depth = _behind_table(found), 0
    at = start
    for at in range(start, len(found)):
        depth += {"(": 1, ")": -1}.get(found[at].text, 0)
        if found[at].text == "," and depth == 0:
            yield found[start:at]
            start = at + 1
    if start < len(found):
        yield found[start:]


def _behind_table(found: Sequence[Token]) -> int:
    at = next((i + 1 for i, (one, two) in enumerate(pairwise(found)) if (one.word, two.word) == ("ALTER", "TABLE")), 0)
    at += 1
    if [token.word for token in found[at : at + 2]] == ["IF", "EXISTS"]:
        at += 2
    at += 1
    return at + 2 if found[at : at + 1] and found[at].text == "." else at


def _column(part: Sequence[Token], count: int = 1) -> list[str]:
    """Gives the column names behind the verb; none when the specification is about an index, a key or a partition."""
    at = 1
    if part[at : at + 1] and part[at].word == "COLUMN":
        at += 1
    elif part[at : at + 1] and part[at].word in _NO_COLUMN:
        return []
    if [token.word for token in part[at : at + 2]] == ["IF", "EXISTS"]:
        at += 2
    return [_lower(token.name) for token in part[at : at + count]]


def _lower(name: str | None) -> str:
    return (name or "").lower()
