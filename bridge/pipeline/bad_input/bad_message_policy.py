"""What is done with messages that cannot be decoded, and with rows that the target refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import partial

from bridge.errors import RefusedRowsError
from bridge.events import Code
from bridge.model import Advance, Table, TableName
from bridge.mysql.apply.writer import Writer
from bridge.pipeline.bad_input.bad_messages import BadMessage, DueEntry
from bridge.pipeline.bad_input.refused_rows import apply_or_quarantine, with_position
from bridge.pipeline.bad_input.truncated_rows import CutRows
from bridge.rows.order_and_slices import WindowRows


@dataclass(frozen=True)
class OnBadMessage:
    """The setting of that name.

    quarantine: quarantine messages that cannot be decoded, and rows that the target refuses.
    protocol: kept with what is quarantined, since a message does not always tell.
    cut_rows: completes rows that were cut to their key, None without an upstream to read them from.
    released: positions of schema changes that are quarantined all the same, since somebody has seen to them.
    """

    quarantine: bool = False
    protocol: str = ""
    cut_rows: CutRows | None = None
    released: frozenset[str] = frozenset()

    def stops(self, bad: BadMessage) -> bool:
        """Everything does without a quarantine; a schema change always, as what follows depends on it, but for those
        that were released."""
        if bad.entry.code == Code.SCHEMA_CHANGE:
            return str(bad.entry.position) not in self.released
        return not self.quarantine

    def apply(self, writer: Writer, step: Advance, rows: WindowRows, catalog: Mapping[TableName, Table]) -> Advance:
        """Commits a transaction; gives it as committed, with the rows that were quarantined as the target refuses them.

        Raises what `Writer.apply` raises.
        """
        if self.quarantine:
            return apply_or_quarantine(writer, step, rows, catalog, self.protocol)
        try:
            writer.apply(step, partial(rows.statements, catalog))
        except RefusedRowsError as refusal:
            raise with_position(writer, rows, catalog, refusal) from refusal
        return step

    def due(self, bad: BadMessage, ts: int) -> DueEntry:
        """The entry of a message that is quarantined."""
        return DueEntry(ts, replace(bad.entry, protocol=self.protocol, commit_ts=ts))
