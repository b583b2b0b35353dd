"""Reads from the text of an ALTER TABLE what it does to columns and to rows.  Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Final

from bridge.ddl.alter_actions import column_names
from bridge.ddl.classes import ChangeClass as C
from bridge.ddl.clauses import Item, statement_parts
from bridge.ddl.parser import Classified
from bridge.ddl.rule import former_name

_LOSES_ROWS: Final = frozenset({C.DROP_PARTITION, C.TRUNCATE_PARTITION})
_DROPS_KEY: Final = frozenset({C.DROP_INDEX, C.DROP_CONSTRAINT, C.DROP_PRIMARY_KEY})
_UNIQUE: Final = frozenset({"PRIMARY", "UNIQUE"})


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


def column_changes(text: str, classified: Classified) -> ColumnChanges:
    """Gives the effects of an ALTER TABLE."""
    items = next(iter(statement_parts(text, classified, tidb=False).lists), ())
    names = column_names([item.tokens for item in items])
    renamed = dict(names.renamed)
    retyped = (former_name(item).lower() for item in items if item.change is C.MODIFY_COLUMN and item.definition)
    return ColumnChanges(
        renamed,
        frozenset(names.freed.difference(renamed)),
        frozenset(retyped),
        loses_rows=any(item.change in _LOSES_ROWS for item in items),
        converts_texts=any(item.tokens[0].word == "CONVERT" for item in items),
        changes_keys=any(map(_changes_keys, items)),
        made=frozenset(names.given.difference(renamed.values())),
    )


def _changes_keys(item: Item) -> bool:
    """Tells whether an action may make or drop a unique key."""
    is_dropped = item.change in _DROPS_KEY and item.tokens[1].word != "CHECK"
    return is_dropped or not _UNIQUE.isdisjoint(token.word for token in item.tokens)
