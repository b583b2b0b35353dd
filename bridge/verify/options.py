"""The options of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bridge.config import Settings
from bridge.ddl.policy import DdlRules
from bridge.filters.routes import RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from bridge.mysql.server_load import Limits, parse_limits


class ProgressListener(Protocol):
    """Hears how far a verification is."""

    def stage(self, words: str) -> None:
        """Hears what verify does now, or waits for."""

    def plan(self, rows: int) -> None:
        """Hears about how many rows there are to compare."""

    def done(self, table: TableName, rows: int) -> None:
        """Hears how many more rows of a table have been compared."""


@dataclass(frozen=True)
class VerifyOptions:
    """tables: which tables; workers: snapshots read at once; chunk_seconds: how long a query may take;
    shown_rows: differing rows shown per table; grace_seconds: what a change in flight is given once the target has
    caught up; max_load: status variable and its limit; fix_file: where the fixing statements go, None for nowhere;
    ddl: how the target's tables are made; row_rules: what is done with row changes.
    """

    tables: TableFilter
    workers: int = 2
    chunk_seconds: float = 0.5
    shown_rows: int = 10
    grace_seconds: float = 10.0
    max_load: Limits = field(default_factory=dict)
    fix_file: Path | None = None
    resume: bool = False
    ddl: DdlRules = field(default_factory=DdlRules)
    row_rules: RowRules = field(default_factory=RowRules)

    @property
    def shards(self) -> str:
        """Writes the settings that decide which rows a table of several shards holds; "" where none are merged."""
        routes = self.row_rules.routes.routes
        return repr((routes, self.tables.rules)) if any(route.merges for route in routes) else ""

    @classmethod
    def of(cls, settings: Settings, *, fix_file: Path | None, resume: bool) -> VerifyOptions:
        """Takes the options from the settings; UsageError for a rule that cannot be read."""
        section, tables = settings.verify, TableFilter(settings.filter)
        return cls(
            tables,
            section.workers,
            section.chunk_seconds,
            section.shown_rows,
            section.grace_seconds,
            parse_limits(section.max_load, "--max-load"),
            fix_file,
            resume,
            settings.ddl_rules(),
            settings.row_rules,
        )
