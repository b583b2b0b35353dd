"""What a pipeline has counted."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field

import structlog

from bridge.model import PartitionId, TableName
from bridge.pipeline.control_events import LeftOut

log = structlog.get_logger()


@dataclass
class Counts:
    """Counts for the status and the summary.  The applier's thread writes them; other threads may read them."""

    messages: int = 0
    rows: int = 0
    quarantined: int = 0
    applying_since: float | None = None
    """When the first transaction with row changes began, by the applier's clock."""
    late: Counter[PartitionId] = field(default_factory=Counter)
    repeated: Counter[PartitionId] = field(default_factory=Counter)
    left_out: Counter[TableName] = field(default_factory=Counter)
    """Row changes that are never written, by table (`reserved_schemas`)."""
    tables: set[TableName] = field(default_factory=set)
    """The tables that occurred in messages, replicated or not."""

    def note_left_out(self, left_out: Iterable[LeftOut]) -> None:
        """Counts the rows of tables that are not replicated.  Logs each table once to which nothing is ever written."""
        for schema, table, why, position, rows in left_out:
            name = TableName(schema, table)
            self.tables.add(name)
            if why is None:
                continue
            if name not in self.left_out:
                log.warning(
                    "row changes of a table are left out: nothing is written to its database",
                    table=str(name),
                    why=why,
                    position=str(position),
                )
            self.left_out[name] += rows
