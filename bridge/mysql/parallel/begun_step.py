"""A step of `parallel` that was interrupted, and how it is finished."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from bridge.mysql.apply.writer import StatementSource
from bridge.rows.order_and_slices import RowStatements
from bridge.rows.sql.statement import Statement


@dataclass(frozen=True)
class BegunStep:
    """A step of which the target may have parts, since it was interrupted.  It has to be written to its end, however
    large it is now, but as its parts can be seen already, no transaction has to hold more than the settings say.

    end_ts: where it ends (TSO).  rows: how many row changes one transaction holds, about.
    """

    end_ts: int
    rows: int

    def part_bytes(self, source: StatementSource, shared: Sequence[Statement]) -> int:
        """Gives about how many bytes of its statements one transaction holds."""
        size = sum(statement.size for statement in shared)
        count = source.rows.count if isinstance(source, RowStatements) else 0
        return max(1, size * self.rows // max(self.rows, count))
