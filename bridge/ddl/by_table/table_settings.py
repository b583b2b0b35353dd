"""Settings that come as lists of tables in the file: routes, and event filters."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from bridge.ddl.by_table.event_filters import EventFilter, event_filter
from bridge.filters.routes import Route


class RouteTable(BaseModel):
    """A table, or all tables of a database, with other names on the target, as in TiDB Data Migration."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    schema_pattern: str = Field(alias="schema-pattern")
    """The databases, by a pattern of `filter`."""
    table_pattern: str = Field(default="*", alias="table-pattern")
    """The tables, by a pattern of `filter`."""
    target_schema: str | None = Field(default=None, alias="target-schema")
    """The database on the target; without it the name stays."""
    target_table: str | None = Field(default=None, alias="target-table")
    """The table on the target; without it the name stays."""
    merge: bool = False
    """Whether several tables, the shards of one, may go to one target (`=>`)."""

    @property
    def route(self) -> Route:
        """The route; UsageError for one that cannot be read or had."""
        return Route(self.schema_pattern, self.table_pattern, self.target_schema, self.target_table, self.merge)


class EventFilterTable(BaseModel):
    """What is left out of some tables, as in TiCDC's `[[filter.event-filters]]`."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    matcher: tuple[str, ...] = ()
    """The tables, by the rules of `filter`."""
    ignore_event: tuple[str, ...] = Field(default=(), alias="ignore-event")
    """What is left out: `insert`, `update`, `delete`, or classes of schema changes."""
    ignore_sql: tuple[str, ...] = Field(default=(), alias="ignore-sql")
    """Go regular expressions of schema changes that are left out."""

    @property
    def event_filter(self) -> EventFilter:
        """The event filter; UsageError for what is not known, or cannot be done."""
        return event_filter(self.matcher, self.ignore_event, self.ignore_sql)
