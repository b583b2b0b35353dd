"""Tells which tables changed routes would divide: the rows until now are in one table of the target, those from now on
would go to another."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bridge.filters.routes import Routes
from bridge.model import TableName


class MovedTable(NamedTuple):
    """Where the rows of a table are on the target, and where they would go.  source: the table upstream, or the shards
    of a table."""

    source: str
    was: TableName
    now: str

    def __str__(self) -> str:
        return f"{self.source} went to {self.was}, and would go to {self.now}"


def moved_tables(old: Routes, new: Routes, there: Iterable[TableName]) -> Iterator[MovedTable]:
    """Finds the tables among those that are `there` on the target."""
    for target in there:
        if old.is_merged(target) and not new.is_merged(target):
            yield MovedTable("shards", target, "tables of their own")
        for source in old.sources(target):
            now = new.target(source)
            if old.tables(*source) and new.tables(*source) and _lower(now) != _lower(target):
                yield MovedTable(str(source), target, str(now))


def _lower(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())
