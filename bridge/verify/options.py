"""The options of a verification."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from bridge.config import Settings, VerifySection
from bridge.ddl.policy import DdlRules
from bridge.filters.routes import RowRules
from bridge.filters.table_filter import TableFilter
from bridge.model import TableName
from bridge.mysql.server_load import MostLoad, parse_limits


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
    """The options.  section: the settings of verify.  max_load: limits of status variables.  fix_file: where the fixing
    statements go, None for nowhere.  ddl: how the target's tables are made.  row_rules: as of the pipeline."""

    section: VerifySection = field(default_factory=VerifySection)
    max_load: MostLoad = field(default_factory=dict)
    fix_file: Path | None = None
    ddl: DdlRules = field(default_factory=DdlRules)
    row_rules: RowRules = field(default_factory=RowRules)

    @property
    def tables(self) -> TableFilter:
        """Which tables are compared."""
        return self.row_rules.routes.tables

    @classmethod
    def of(cls, settings: Settings, *, fix_file: Path | None) -> VerifyOptions:
        """Takes the options from the settings; UsageError for a rule that cannot be read."""
        load, ddl = parse_limits(settings.verify.max_load, "--max-load"), settings.ddl_rules()
        return cls(settings.verify, load, fix_file, ddl, settings.row_rules)
