"""Decides what is done with messages that cannot be decoded, and with rows that the target refuses."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

from bridge.errors import RefusedRowsError
from bridge.events import Code
from bridge.model import Advance, Entry, Table, TableName
from bridge.mysql.apply.writer import Writer
from bridge.mysql.schema_changes.ddl_runner import is_another
from bridge.pipeline.bad_input.bad_messages import BadMessage, DueEntry, unreadable_change
from bridge.pipeline.bad_input.refused_rows import apply_or_quarantine, with_position
from bridge.pipeline.bad_input.truncated_rows import CutRows
from bridge.rows.order_and_slices import RowChanges, RowStatements


@dataclass(frozen=True)
class OnBadMessage:
    """The setting `on_bad_message`, and what it needs.

    quarantine: whether such messages and rows are quarantined instead of stopping the bridge.
    protocol: stored with each entry, since a message does not always tell its protocol.
    cut_rows: reads back the rows of messages that hold only the key; None without an upstream.
    released: positions of messages that are quarantined in any case.
    settled: the schema changes that cannot be read and that the operator has decided about, by their hashes
        (`SchemaChange.statement_hash`), with their positions; their messages are quarantined.
    """

    quarantine: bool = False
    protocol: str = "canal-json"
    cut_rows: CutRows | None = None
    released: frozenset[str] = frozenset()
    settled: Mapping[str, str] = field(default_factory=dict)

    def stops(self, bad: BadMessage) -> bool:
        """Tells whether a bad message stops the bridge.

        Without quarantine, each does that is not in `released`.  A schema change does with it, too, since what follows
        depends on it: until the operator has decided.
        """
        if str(bad.entry.position) in self.released:
            return False
        if bad.entry.code == Code.SCHEMA_CHANGE:
            return not self._is_settled(bad.entry)
        return not self.quarantine

    def _is_settled(self, entry: Entry) -> bool:
        hashes = [unreadable_change(entry, 0, is_again=is_again).statement_hash for is_again in (False, True)]
        positions = map(self.settled.get, hashes)
        return any(position and not is_another(position, str(entry.position)) for position in positions)

    def apply(self, writer: Writer, step: Advance, rows: RowChanges, catalog: Mapping[TableName, Table]) -> Advance:
        """Commits a transaction; returns it as committed, with the rows that were quarantined because the target
        refused them.

        Raises what `Writer.apply` raises.
        """
        if self.quarantine:
            return apply_or_quarantine(writer, step, rows, catalog, self.protocol)
        try:
            writer.apply(step, RowStatements(rows, catalog))
        except RefusedRowsError as refusal:
            raise with_position(writer, rows, catalog, refusal) from refusal
        return step

    def due(self, bad: BadMessage, ts: int) -> DueEntry:
        """Makes the entry of a message that is quarantined when the target goes beyond `ts`."""
        return DueEntry(ts, replace(bad.entry, protocol=self.protocol, commit_ts=ts))
