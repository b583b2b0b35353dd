"""Tells which tables changed routes would divide: the rows until now are in one table of the target, those from now on
would go to another; and which they would mix: rows of a table that is left out are where another one would go."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from bridge.filters.routes import Routes
from bridge.model import TableName


class MovedTable(NamedTuple):
    """Where the rows of a table are on the target, and where they would go.  source: the table upstream, or the shards
    of a table.  is_taken: where they would go is a table already, which may be theirs after two have traded places."""

    source: str
    was: TableName
    now: str
    is_taken: bool = False

    def __str__(self) -> str:
        return f"{self.source} went to {self.was}, and would go to {self.now}"


def moved_tables(old: Routes, new: Routes, there: Iterable[TableName]) -> Iterator[MovedTable]:
    """Finds the tables among those that are `there` on the target."""
    there = list(there)
    placed = {_lower(name) for name in there}
    for target in there:
        if old.is_merged(target) and not new.is_merged(target):
            yield MovedTable("shards", target, "tables of their own")
        for source in old.sources(target):
            now = new.target(source)
            if old.tables(*source) and new.tables(*source) and _lower(now) != _lower(target):
                yield MovedTable(str(source), target, str(now), _lower(now) in placed)


def new_place(target: TableName, old: Routes, new: Routes, there: Iterable[TableName]) -> TableName | None:
    """Gives the place to which a table of the target was moved for new routes; None where it is there yet, or no table
    is where it would be."""
    placed = {_lower(name) for name in there}
    if _lower(target) in placed:
        return None
    places = {new.target(source) for source in _led(old, target) if new.tables(*source)}
    found = [place for place in places if _lower(place) in placed]
    return found[0] if len(found) == 1 else None


def new_name(target: TableName, old: Routes, new: Routes, sources: Iterable[TableName]) -> TableName | None:
    """Gives the name that a table of the target has by new routes, whether it is there or not; None where it is the old
    one, or cannot be told.  sources: tables of the upstream of which the table probably is one."""
    likely = [source for source in sources if _lower(old.target(source)) == _lower(target)] or _led(old, target)
    places = {new.target(source) for source in likely if new.tables(*source)}
    return places.pop() if len(places) == 1 and target not in places else None


class LeftTable(NamedTuple):
    """A table of the upstream that is left out, and the table of the target in which its rows still are."""

    source: TableName
    target: TableName


class TakenTable(NamedTuple):
    """A table of the target in which the rows of a table are that is left out.  taker: what would go there, too."""

    left: LeftTable
    taker: str

    def __str__(self) -> str:
        left = f"{self.left.target} holds the rows of {self.left.source}, which is left out"
        return f"{left}, and {self.taker} would go there"


def left_tables(known: Iterable[LeftTable], old: Routes, new: Routes, there: Iterable[TableName]) -> list[LeftTable]:
    """Gives the tables that are left out and still on the target.

    known: those that were left out before; there: on the target.
    """
    names = list(there)
    placed = {_lower(name) for name in names}
    left = {LeftTable(source, target) for target in names for source in _held(old, target)}
    return sorted(
        one
        for one in {*known, *left}
        if _lower(one.target) in placed
        and not (new.tables(*one.source) and _lower(new.target(one.source)) == _lower(one.target))
    )


def taken_tables(left: Iterable[LeftTable], old: Routes, new: Routes) -> Iterator[TakenTable]:
    """Finds those of the tables that are left out whose place on the target another table would take from now on.

    What might have gone there all the time does not exist, or the two would have met.
    """
    for one in left:
        takers = set(_led(new, one.target)) - set(_led(old, one.target))
        if new.is_merged(one.target) and not old.is_merged(one.target):
            yield TakenTable(one, "shards")
        elif takers:
            yield TakenTable(one, str(min(takers)))


def _held(routes: Routes, target: TableName) -> list[TableName]:
    """Gives the tables whose rows are in a table of the target; none where shards are merged, which are mixed there."""
    return [] if routes.is_merged(target) else _led(routes, target)


def _led(routes: Routes, target: TableName) -> list[TableName]:
    return [source for source in routes.sources(target) if routes.tables(*source)]


def _lower(name: TableName) -> TableName:
    return TableName(name.schema.lower(), name.table.lower())
