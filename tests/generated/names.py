"""Other names for the tables and columns of a run, which messages and target have instead of the plain ones."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Final

from bridge.model import quote_name
from tests.generated.tables import Row, Table
from tests.generated.upstream import Change

_QUOTED: Final = re.compile(r"`([^`]+)`")
NAMES: Final[dict[str, dict[str, str]]] = {
    "alike but for case": {
        "t0": "Orders", "t1": "orders", "renamed": "ORDERS", "k": "Id", "n": "N", "s": "sIze", "u": "U",
        "added": "aDDed",
    },
    "words and signs": {
        "t0": "order by", "t1": "a`b", "renamed": "it's \\ %s {0}.\"x\"", "k": "key", "n": "from", "big": "group`by",
        "s": "%s", "u": "a.b, c", "w": "\\", "a": "{0}", "added": "select --x",
    },
    "letters": {
        "t0": "Übung", "t1": "表", "renamed": "ÜBUNG 2", "k": "Schlüssel", "n": "É", "s": "ß", "u": "名", "w": "İ",
        "added": "ÅÄ",
    },
    "long": {name: name.ljust(64, "_") for name in ("t0", "t1", "renamed", "k", "n", "s", "u", "w", "a", "added")},
}  # fmt: skip


@dataclass(frozen=True)
class Names:
    """Gives what has a plain name its other one."""

    of: Mapping[str, str]

    def __call__(self, name: str) -> str:
        return self.of.get(name, name)

    def sql(self, text: str) -> str:
        """A statement in which all names are quoted."""
        return _QUOTED.sub(lambda found: quote_name(self(found[1])), text)

    def table(self, table: Table) -> Table:
        """A table as messages have it."""
        columns = tuple(replace(column, name=self(column.name)) for column in table.columns)
        uniques = tuple(replace(unique, columns=tuple(map(self, unique.columns))) for unique in table.uniques)
        return replace(table, name=self(table.name), columns=columns, uniques=uniques)

    def change(self, change: Change) -> Change:
        """A row change as messages have it."""
        return Change(self.table(change.table), self._row(change.before), self._row(change.after))

    def _row(self, row: Row | None) -> Row | None:
        return None if row is None else {self(name): value for name, value in row.items()}
