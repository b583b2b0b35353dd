"""What a target holds when an event filter leaves out a part of what happens to a table."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import Final

from tests.generated.resent import write
from tests.generated.tables import Equality, Row, Table
from tests.generated.upstream import Change, Step, with_defaults

Told = Callable[[Sequence[Change]], Sequence[Change]]
"""The row changes of a transaction as its messages tell them."""

_SCHEMA_CHANGES: Final = ("truncate table", "drop column", "add index")
EVENT_FILTERS: Final[dict[str, tuple[str, ...]]] = {
    "inserts": ("insert",),
    "updates": ("update",),
    "deletes": ("delete",),
    "all rows": ("all dml",),
    "schema changes": _SCHEMA_CHANGES,
    "deletes and schema changes": ("Delete", *_SCHEMA_CHANGES),
}
"""What is left out of what happens to the first table."""


@dataclass(frozen=True)
class FilteredTable:
    """The rows of the first table where some of what happens to them is left out.

    nets: of a transaction, what is written counts more than what is deleted.
    """

    table: Table
    filter: str
    told: Told
    equality: Equality
    nets: bool

    def steps(self, loaded: Sequence[Row], steps: Sequence[Step]) -> list[Step]:
        """The steps with the states that the target has instead of the upstream's."""
        rows = {self._key(row): row for row in loaded}
        table, made = self.table, []
        for step in steps:
            before = {**step.before, table.name: list(rows.values())}
            if step.ddl and step.ddl[0].name == table.name:
                table = step.ddl[1]
                rows = {key: table.complete(with_defaults(table, row)) for key, row in rows.items()}
                if step.ddl[2].startswith("TRUNCATE") and "truncate table" not in EVENT_FILTERS[self.filter]:
                    rows.clear()
            mine = [change for change in self.told(step.changes) if change.table.name == table.name]
            for some in [mine] if self.nets else [[change] for change in mine]:
                write(rows, [change for change in some if not self._is_left_out(change)], self.equality)
            made.append(step._replace(before=before, after={**step.after, table.name: list(rows.values())}))
        return made

    def kept(self, changes: Sequence[Change]) -> list[Change]:
        """Those row changes of a transaction, of any table, that are not left out."""
        names = {self.table.name, "renamed"}
        return [one for one in self.told(changes) if one.table.name not in names or not self._is_left_out(one)]

    def _is_left_out(self, change: Change) -> bool:
        kind = "delete" if change.after is None else "insert" if change.before is None else "update"
        events = [event.lower() for event in EVENT_FILTERS[self.filter]]
        return kind in events or "all dml" in events

    def _key(self, row: Row) -> Hashable:
        return self.equality.key(self.table, self.table.uniques[0], row)
