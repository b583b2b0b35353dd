"""Routes: tables that have other names on the target.

A route replaces the database, the table, or both.  Two tables go to one only by routes that merge shards (`=>`): any
other route that could give several tables one name is refused, and so is a table whose target another route may write
to.  Names are compared without regard to case.  A route is chosen by names alone, so that it is the same for a row, a
schema change and a restart.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Final, NamedTuple

from bridge.errors import UsageError
from bridge.events import Kind
from bridge.filters.table_filter import ExactName, NamePattern, ReservedSchemas, TableFilter, name_pattern
from bridge.model import TableName

_ARROW: Final = "->"
_MERGING_ARROW: Final = "=>"
_FIX: Final = "write it as 'shop_1.orders -> shop.orders' or 'shop_1.* -> shop.*'"
_MOST: Final = 64
"""In characters: no name of a database or table is longer."""


class _Part(NamedTuple):
    """One half of a route: what it matches, and the name that it gives; None when the name stays."""

    pattern: NamePattern
    name: str | None

    def target(self, name: str) -> str:
        return name if self.name is None else self.name

    def source(self, target: str) -> str | None:
        """Gives the only name that becomes `target`; None when there is none."""
        if self.name is not None:
            source = self.pattern.matches
            return source.name if _equal_names(self.name, target) and isinstance(source, ExactName) else None
        return target if self.pattern.matches(target.lower()) else None

    def may_give(self, target: str) -> bool:
        """Tells whether some name becomes `target`."""
        return bool(self.pattern.matches(target.lower())) if self.name is None else _equal_names(self.name, target)


@dataclass(frozen=True)
class Route:
    """One route.  target_schema, target_table: None where the name stays.  merges: whether several tables, the shards
    of one, may go to one target.

    Raises UsageError for an unreadable pattern, and where several tables would get one name without a merge.
    """

    schema_pattern: str
    table_pattern: str
    target_schema: str | None
    target_table: str | None
    merges: bool = False

    def __post_init__(self) -> None:
        for part in self.parts:
            if part.name is not None and not self.merges and not isinstance(part.pattern.matches, ExactName):
                raise UsageError(
                    f"the route {str(self)!r} would write several tables to one: {part.name!r} would be the name for"
                    " all that its pattern matches",
                    fix="give each table a route of its own, or keep the part with the pattern: 'shop_1.* -> shop.*'."
                    f" If they are shards of one table whose keys never meet: {str(replace(self, merges=True))!r}, in"
                    " the file merge = true",
                )
            if part.name is not None and not 0 < len(part.name) <= _MOST:
                raise UsageError(f"the route {str(self)!r} names a target that no server can have", fix=_FIX)

    def __str__(self) -> str:
        target = f"{self.target_schema or '*'}.{self.target_table or '*'}"
        return f"{self.schema_pattern}.{self.table_pattern} {_MERGING_ARROW if self.merges else _ARROW} {target}"

    @property
    def parts(self) -> tuple[_Part, _Part]:
        """The halves of the route: database and table."""
        return _parts(self)

    def means(self, name: TableName) -> bool:
        """Tells whether the route is for a table."""
        schema, table = self.parts
        return bool(schema.pattern.matches(name.schema.lower()) and table.pattern.matches(name.table.lower()))

    def target(self, name: TableName) -> TableName:
        """Gives the target of a table that the route is for."""
        schema, table = self.parts
        return TableName(schema.target(name.schema), table.target(name.table))

    def source(self, target: TableName) -> TableName | None:
        """Gives the only table that this route may write to `target`; None when there is none."""
        schema, table = (part.source(name) for part, name in zip(self.parts, target, strict=True))
        return None if schema is None or table is None else TableName(schema, table)

    def is_from(self, schema: str) -> bool:
        """Tells whether the route is for tables of this database alone."""
        source = self.parts[0].pattern.matches
        return isinstance(source, ExactName) and _equal_names(source.name, schema)

    def may_lead_to(self, target: TableName) -> bool:
        """Tells whether this route may write some table to `target`."""
        return all(part.may_give(name) for part, name in zip(self.parts, target, strict=True))


@lru_cache(maxsize=256)
def _parts(route: Route) -> tuple[_Part, _Part]:
    return (
        _Part(_whole_pattern(route.schema_pattern, route), route.target_schema),
        _Part(_whole_pattern(route.table_pattern, route), route.target_table),
    )


def _whole_pattern(text: str, route: Route) -> NamePattern:
    try:
        pattern = name_pattern(text)
    except ValueError as error:
        raise UsageError(f"the route {str(route)!r} cannot be read: {error}", fix=_FIX) from error
    if pattern.rest:
        raise UsageError(f"the route {str(route)!r} cannot be read: {pattern.rest!r} follows a name", fix=_FIX)
    return pattern


def parse_route(text: str) -> Route:
    """Reads `shop_1.* -> shop.*`, or one that merges, `shop_*.orders => shop.orders`; raises UsageError."""
    source, arrow, destination = text.partition(_MERGING_ARROW)
    merges = bool(arrow)
    if not merges:
        source, arrow, destination = text.partition(_ARROW)
    if not arrow:
        raise UsageError(f"the route {text!r} has no {_ARROW}", fix=_FIX)
    (schema, table), targets = (_halves(half.strip(), text) for half in (source, destination))
    target_schema = _target_name(targets[0], "{schema}", text)
    return Route(schema, table, target_schema, _target_name(targets[1], "{table}", text), merges)


def _halves(half: str, route: str) -> tuple[str, str]:
    """Splits `database.table`; the texts of the patterns stay as they are."""
    for placeholder in ("{schema}", "{table}"):
        half = half.replace(placeholder, "*")
    try:
        schema = name_pattern(half)
        at = len(half) - len(schema.rest)
        if not schema.rest.startswith("."):
            raise ValueError("each side needs a database and a table, with a dot between them")
        table = name_pattern(schema.rest[1:])
    except ValueError as error:
        raise UsageError(f"the route {route!r} cannot be read: {error}", fix=_FIX) from error
    if table.rest:
        raise UsageError(f"the route {route!r} cannot be read: {table.rest!r} follows the table", fix=_FIX)
    return half[:at], schema.rest[1:]


def _target_name(text: str, placeholder: str, route: str) -> str | None:
    pattern = name_pattern(text)
    if isinstance(pattern.matches, ExactName):
        return pattern.matches.name
    if pattern.takes_all:
        return None
    raise UsageError(
        f"the route {route!r} cannot be read: its target is no name",
        fix=f"write a name, or * ({placeholder}) to keep it",
    )


@dataclass(frozen=True)
class Routes:
    """All routes of a pipeline; the first one that is for a table decides.

    tables: which tables are replicated at all.
    Raises UsageError for routes to databases that nothing is written to, and for two that meet in one table.
    """

    routes: tuple[Route, ...] = ()
    tables: TableFilter = TableFilter()  # noqa: RUF009  # immutable
    reserved: ReservedSchemas = ReservedSchemas()  # noqa: RUF009  # immutable

    def __post_init__(self) -> None:
        for route in self.routes:
            if route.target_schema is not None and (why := self.reserved.why(route.target_schema)):
                raise UsageError(
                    f"the route {str(route)!r} leads where nothing is written: {why}", fix="change --route"
                )
            exact = [part.pattern.matches for part in route.parts]
            names = [match.name for match in exact if isinstance(match, ExactName)]
            if len(names) == len(exact) and self.tables(*names) and (why := self.conflict(TableName(*names))):
                raise UsageError(why, fix="change --route, or leave one of them out with --filter")

    def __bool__(self) -> bool:
        return bool(self.routes)

    def target(self, name: TableName) -> TableName:
        """Gives the name of a table on the target."""
        return _target(self, name)

    def merges(self, name: TableName) -> bool:
        """Tells whether a table is a shard: its route merges it with others."""
        return _merges(self, name)

    def conflict(self, name: TableName) -> str:
        """Tells which other table may go to the same target, unless both are shards of it; "" when none may."""
        target, is_shard = self.target(name), self.merges(name)
        for route in self.routes:
            if route.merges:
                if not is_shard and route.may_lead_to(target):
                    return f"{name} and the shards of the route {str(route)!r} would both be written to {target}"
                continue
            source = route.source(target)
            if source and source.folded != name.folded and self.tables(*source) and self._leads(source, target):
                return f"{name} and {source} would both be written to {target}, {source} by the route {str(route)!r}"
        return ""

    def sources(self, target: TableName) -> list[TableName]:
        """Gives the tables that may go to `target`; of shards that a pattern matches, only those of its name."""
        candidates = [target, *(source for route in self.routes if (source := route.source(target)))]
        names = {name.folded: name for name in candidates if self._leads(name, target)}
        return list(names.values())

    def accepts_target(self, schema: str, table: str) -> bool:
        """Tells whether some table that may go to this one is replicated; of shards that a pattern matches, it takes
        for granted that some are."""
        name = TableName(schema, table)
        return self.is_merged(name) or any(self.tables(*source) for source in self.sources(name))

    def is_merged(self, target: TableName) -> bool:
        """Tells whether a route may merge shards into a table of the target."""
        return any(route.merges and route.may_lead_to(target) for route in self.routes)

    def whole_database(self, schema: str) -> str | None:
        """Gives the database that all tables of a database go to under their own names; None when it is not so."""
        route = next(self._of_schema(schema), None)
        if route is None or not route.parts[1].pattern.takes_all or route.target_table is not None:
            return None
        return route.parts[0].target(schema)

    def merges_database(self, schema: str) -> bool:
        """Tells whether a database goes, as a whole, where other databases go as well."""
        route = next(self._of_schema(schema), None)
        return route is not None and route.merges and self.whole_database(schema) is not None

    def takes_from(self, schema: str) -> bool:
        """Tells whether a route is for tables of a database."""
        return next(self._of_schema(schema), None) is not None

    def leads_into(self, schema: str) -> bool:
        """Tells whether a route leads from elsewhere into a database."""
        into = (route for route in self.routes if route.target_schema and _equal_names(route.target_schema, schema))
        return any(not route.is_from(schema) for route in into)

    def _of_schema(self, schema: str) -> Iterator[Route]:
        return (route for route in self.routes if route.parts[0].pattern.matches(schema.lower()))

    def _leads(self, name: TableName, target: TableName) -> bool:
        return self.target(name).folded == target.folded


@lru_cache(maxsize=4096)
def _target(routes: Routes, name: TableName) -> TableName:
    return next((route.target(name) for route in routes.routes if route.means(name)), name)


@lru_cache(maxsize=4096)
def _merges(routes: Routes, name: TableName) -> bool:
    return next((route.merges for route in routes.routes if route.means(name)), False)


def unmatched_rules(tables: TableFilter, names: Iterable[TableName], routes: Routes) -> tuple[str, ...]:
    """Gives the rules of a filter that are for none of the tables of the upstream that go to these tables of the
    target; none where shards are merged, whose names the target does not tell."""
    if any(route.merges for route in routes.routes):
        return ()
    return tables.unmatched(with_sources(names, routes))


def with_sources(names: Iterable[TableName], routes: Routes) -> set[TableName]:
    """Gives these tables of the target, and the tables of the upstream that may go to them."""
    tables = set(names)
    return tables.union(*(routes.sources(name) for name in tables)) if routes else tables


def _equal_names(name: str, other_name: str) -> bool:
    return name.lower() == other_name.lower()


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
    routes: Routes = Routes()  # immutable
    keeps_count: bool = False

    def __bool__(self) -> bool:
        return bool(self.ignored or self.routes)

    def ignored_kinds(self, schema: str, table: str) -> frozenset[Kind]:
        """Gives the kinds of row changes of a table that are left out."""
        return frozenset[Kind]().union(*(rule.kinds for rule in self.ignored if rule.tables(schema, table)))
