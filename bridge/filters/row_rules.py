"""What is done with row changes by the table that they come from, right after they are decoded."""

from __future__ import annotations

from dataclasses import dataclass

from bridge.events import Kind
from bridge.filters.routes import Routes
from bridge.filters.table_filter import TableFilter


@dataclass(frozen=True)
class IgnoredRows:
    """Kinds of row changes of some tables that are left out."""

    tables: TableFilter
    kinds: frozenset[Kind]


@dataclass(frozen=True)
class RowRules:
    """The rules for row changes.  They are sent to executors.

    keeps_count: rows that are left out stay, as rows that are not replicated (Kind.TRANSACTION), since their
        transaction counts them.
    """

    ignored: tuple[IgnoredRows, ...] = ()
    routes: Routes = Routes()  # noqa: RUF009  # immutable
    keeps_count: bool = False

    def __bool__(self) -> bool:
        return bool(self.ignored or self.routes)

    def ignored_kinds(self, schema: str, table: str) -> frozenset[Kind]:
        """Gives the kinds of row changes of a table that are left out."""
        return frozenset[Kind]().union(*(rule.kinds for rule in self.ignored if rule.tables(schema, table)))
