"""What a pipeline has counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Final

import structlog

from bridge.events import Kind
from bridge.model import Entry, TableName
from bridge.pipeline.control_events import LeftOutRows
from bridge.pipeline.watching.status import RowCounts
from bridge.protocols import OLD_VALUES_FIX
from bridge.rows.order_and_slices import TableRows

log = structlog.get_logger()


_NONE: Final = RowCounts()


@dataclass
class Counts:
    """Counts for the status and the summary.  The applier's thread writes them; other threads may read them."""

    messages: int = 0
    applied: Mapping[TableName, RowCounts] = field(default_factory=dict)
    """The row changes that were applied, by table; replaced as a whole, so that whoever reads it once has one
    moment."""
    quarantined: int = 0
    applying_since: float | None = None
    """When the first transaction with row changes began, by the applier's clock."""
    late: int = 0
    repeated: int = 0
    left_out: Counter[TableName] = field(default_factory=Counter)
    """Row changes that are never written, by table (`ReservedSchemas`)."""
    may_hide: set[TableName] = field(default_factory=set)
    """The tables whose updates may be taken for inserts (`note_keyless`)."""
    tables: set[TableName] = field(default_factory=set)
    """The tables that occurred in messages, replicated or not."""

    @property
    def rows(self) -> int:
        """How many row changes were applied."""
        return sum(map(sum, self.applied.values()))

    def note_applied(self, tables: Mapping[TableName, TableRows], quarantined: Iterable[Entry]) -> None:
        """Counts the rows of a transaction, but for those that were quarantined instead."""
        refused = Counter(
            (TableName(entry.change.schema, entry.change.table), entry.change.kind)
            for entry in quarantined
            if entry.change is not None
        )
        by_table = dict(self.applied)
        for name, rows_of_table in tables.items():
            before = by_table.get(name, _NONE)
            by_table[name] = RowCounts(
                before.inserts + rows_of_table.inserts - refused[name, Kind.INSERT],
                before.updates + rows_of_table.updates - refused[name, Kind.UPDATE],
                before.deletes + rows_of_table.deletes - refused[name, Kind.DELETE],
            )
        self.applied = by_table

    def note_keyless(self, names: Iterable[TableName]) -> None:
        """Takes tables without a key, of a protocol in which inserts may be updates.  Logs each of them once that gets
        inserts, until some update comes: old values are a setting of the whole changefeed."""
        if any(counts.updates for counts in self.applied.values()):
            return
        for name in names:
            if name not in self.may_hide and self.applied.get(name, _NONE).inserts:
                self.may_hide.add(name)
                log.warning("updates_may_be_hidden", table=str(name), fix=OLD_VALUES_FIX)

    def note_left_out(self, left_out: Iterable[LeftOutRows]) -> None:
        """Counts the rows of tables that are not replicated.  Logs each table once to which nothing is ever written."""
        for row, position, rows in left_out:
            name = TableName(row.schema, row.table)
            self.tables.add(name)
            if row.reason is None:
                continue
            if name not in self.left_out:
                log.warning("rows_left_out", table=str(name), why=row.reason, position=str(position))
            self.left_out[name] += rows
