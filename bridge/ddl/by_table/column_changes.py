"""Reads from the text of an ALTER TABLE what it does to columns and to rows.  Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Final

from bridge.ddl.alter_actions import renamed_column, split_at_commas
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
    made: columns that are added; rows that were there before are the same with them.
    """

    renamed: Mapping[str, str]
    dropped: frozenset[str]
    retyped: frozenset[str]
    loses_rows: bool
    converts_texts: bool = False
    changes_keys: bool = False
    made: frozenset[str] = field(default=frozenset(), compare=False)

    @property
    def gone(self) -> frozenset[str]:
        """The names that no column has any more."""
        return self.dropped.union(self.renamed) - self.come

    @property
    def come(self) -> frozenset[str]:
        """The names that columns get."""
        return self.made.union(self.renamed.values())


def column_changes(statement: str) -> ColumnChanges:
    """Gives the effects of an ALTER TABLE."""
    renamed: dict[str, str] = {}
    dropped: set[str] = set()
    retyped: set[str] = set()
    made: set[str] = set()
    loses_rows = converts_texts = changes_keys = False
    for part in _specifications(tokens(statement)):
        words = [token.word for token in part]
        changes_keys = changes_keys or _changes_keys(words)
        match words:
            case ["DROP" | "TRUNCATE", "PARTITION", *_]:
                loses_rows = True
            case ["CONVERT", "TO", *_]:
                converts_texts = True
            case ["RENAME", "COLUMN", *_] if pair := renamed_column(part):
                renamed[_lower(pair[0].name)] = _lower(pair[1].name)
            case ["DROP", *_]:
                dropped.update(_column(part))
            case ["ADD", *_]:
                made.update(_added(part))
            case ["MODIFY", *_]:
                retyped.update(_column(part))
            case ["CHANGE", *_]:
                old, new = (*_column(part, 2), "", "")[:2]
                retyped.add(old)
                if old != new:
                    renamed[old] = new
    return ColumnChanges(
        renamed,
        frozenset(dropped),
        frozenset(retyped),
        loses_rows,
        converts_texts,
        changes_keys,
        frozenset(made),
    )


def _added(part: Sequence[Token]) -> Iterator[str]:
    """Gives the columns of an ADD."""
    for definition in _definitions(part):
        yield from _column(definition)


def _definitions(part: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Gives the definitions of an ADD, which may have several in parentheses, each as an ADD of its own."""
    at = 2 if part[1:2] and part[1].word == "COLUMN" else 1
    if part[at : at + 1] and part[at].text == "(":
        for definition in _split_at_commas(part[at + 1 : -1]):
            yield from _definitions([part[0], *definition])
    else:
        yield part


def _changes_keys(words: Sequence[str]) -> bool:
    """Tells whether a specification may make or drop a unique key."""
    return bool(_UNIQUE.intersection(words)) or (words[0] == "DROP" and words[1:2] in _INDEX)


def _specifications(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Gives the specifications between the commas of an ALTER TABLE, without the table's name."""
    return _split_at_commas(found[_behind_table(found) :])


def _split_at_commas(found: Sequence[Token]) -> Iterator[Sequence[Token]]:
    """Gives the parts between commas that are in no parentheses; none for what stands in a comment of TiDB's."""
    yield from filter(None, split_at_commas(found))


def _behind_table(found: Sequence[Token]) -> int:
    verbs = {("ALTER", "TABLE"), ("ONLINE", "TABLE")}
    at = next((i + 1 for i, (one, two) in enumerate(pairwise(found)) if (one.word, two.word) in verbs), 0)
    at += 1
    if [token.word for token in found[at : at + 2]] == ["IF", "EXISTS"]:
        at += 2
    at += 1
    at += 2 if found[at : at + 1] and found[at].text == "." else 0
    behind = [token.word for token in found[at : at + 2]]
    is_wait = behind[:1] == ["WAIT"] and behind[1:] and behind[1].isdigit()
    return at + (2 if is_wait else behind[:1] == ["NOWAIT"])


def _column(part: Sequence[Token], count: int = 1) -> list[str]:
    """Gives the column names behind the verb; none when the specification is about an index, a key or a partition."""
    at = 1
    if part[at : at + 1] and part[at].word == "COLUMN":
        at += 1
    elif part[at : at + 1] and part[at].word in _NO_COLUMN:
        return []
    words = [token.word for token in part[at : at + 3]]
    if words[:2] == ["IF", "EXISTS"]:
        at += 2
    elif words == ["IF", "NOT", "EXISTS"]:
        at += 3
    return [_lower(token.name) for token in part[at : at + count]]


def _lower(name: str | None) -> str:
    return (name or "").lower()
