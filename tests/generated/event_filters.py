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


ALL_ROWS: Final = frozenset({"insert", "update", "delete"})


def left_out(event_filter: str) -> frozenset[str]:
    """What a filter of these names leaves out, none where there is none."""
    events = {event.lower() for event in EVENT_FILTERS.get(event_filter, ())}
    return frozenset(events - {"all dml"} | (ALL_ROWS if "all dml" in events else set()))


def missed(now: frozenset[str], then: frozenset[str]) -> frozenset[str]:
    """What counts as left out of what came with the filter of `then`, for one who looks with that of now.  What became
    of a schema change is on record."""
    return (now & then) | (then - ALL_ROWS)


@dataclass(frozen=True)
class FilteredTable:
    """The rows of a table where some of what happens to them is left out.

    names: that it has on its way; left_out: what is left out of the step of that number.
    nets: of a transaction, what is written counts more than what is deleted.
    """

    table: Table
    names: frozenset[str]
    left_out: Callable[[int], frozenset[str]]
    told: Told
    equality: Equality
    nets: bool

    def steps(self, loaded: Sequence[Row], steps: Sequence[Step]) -> list[Step]:
        """The steps with the states that the target has instead of the upstream's."""
        table, made = self.table, []
        rows = {self._key(table, row): row for row in loaded}
        for number, step in enumerate(steps):
            before = {**step.before, table.name: list(rows.values())}
            if step.ddl and step.ddl[0].name == table.name:
                table = step.ddl[1]
                completed = [table.complete(with_defaults(table, row)) for row in rows.values()]
                rows = {self._key(table, row): row for row in completed}
                if step.ddl[2].startswith("TRUNCATE") and "truncate table" not in self.left_out(number):
                    rows.clear()
            mine = [change for change in self.told(step.changes) if change.table.name == table.name]
            for some in [mine] if self.nets else [[change] for change in mine]:
                write(rows, self.kept(number, some), self.equality)
            made.append(step._replace(before=before, after={**step.after, table.name: list(rows.values())}))
        return made

    def kept(self, number: int, told: Sequence[Change]) -> list[Change]:
        """Those row changes of the step of that number, of any table, that are not left out."""
        return [one for one in told if one.table.name not in self.names or _kind(one) not in self.left_out(number)]

    def _key(self, table: Table, row: Row) -> Hashable:
        return self.equality.key(table, table.uniques[0], row)


def _kind(change: Change) -> str:
    return "delete" if change.after is None else "insert" if change.before is None else "update"
