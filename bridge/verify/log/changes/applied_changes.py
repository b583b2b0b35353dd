"""Which schema changes of the log the target has, and in which words."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.parser import Classified, classify
from bridge.model import PartitionId, PartitionStart, SchemaChange, goes_by_partition
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import Journal, JournalState
from bridge.mysql.state.progress import Progress
from bridge.verify.log.changes.lineage import LoggedChange
from bridge.verify.options import VerifyOptions

_LEFT_OUT: Final = frozenset({JournalState.IGNORED, JournalState.CONFIRMED})


@dataclass(frozen=True)
class AppliedChanges:
    """Finds the schema changes that a pipeline has run.  look: a session of the target, which reads the journal."""

    look: Session
    journal: Journal
    progress: Progress
    options: VerifyOptions

    def of(self, changes: Sequence[LoggedChange]) -> list[LoggedChange]:
        """Gives the schema changes that have run on the target, with the operator's text where one was replaced, and
        those that the operator has skipped."""
        pending = {(change.commit_ts, change.schema, change.text) for change in self.progress.pending}
        read = positions_read(self.progress)
        applied: list[LoggedChange] = []
        for change in changes:
            identity = change.commit_ts, change.schema, change.text
            if identity in pending or not (self._is_wanted(change) and _has_run(change, self.progress, read)):
                continue
            entry = self.journal.find(self.look, SchemaChange(change.commit_ts, change.schema, "", change.text, ""))
            if entry is not None and entry.state is JournalState.SKIPPED:
                applied += self._as_run(replace(change, is_skipped=True))
            elif entry is None or entry.state not in _LEFT_OUT:
                applied += self._as_run(change, entry.ran_instead if entry else "")
        return applied

    def _as_run(self, change: LoggedChange, replacement: str = "") -> Iterator[LoggedChange]:
        """Gives a schema change with the names of the target."""
        if replacement:
            yield replace(change, text=replacement)
        elif routed := target_statement(change.text, change.schema, self.options.row_rules.routes):
            yield replace(change, text=routed[0], schema=routed[1])

    def _is_wanted(self, change: LoggedChange) -> bool:
        classified = classify(change.text, change.schema)
        if not isinstance(classified, Classified):
            return False
        if classified.database:
            return self.options.tables.accepts_schema(classified.database)
        return any(self.options.tables(*name) for name in classified.tables)


def positions_read(progress: Progress) -> Mapping[PartitionId, PartitionStart] | None:
    """Tells how far each partition is, where the pipeline goes by their order; None where it goes by commit ts."""
    return progress.positions if goes_by_partition(progress.positions) else None


def _has_run(change: LoggedChange, progress: Progress, read: Mapping[PartitionId, PartitionStart] | None) -> bool:
    if read is None:
        return change.commit_ts < progress.applied_ts
    starts = [(offset, read[where]) for where, offset in change.offsets.items() if where in read]
    is_below = not change.by_time and any(change.commit_ts < (start.floor or 0) for _, start in starts)
    return is_below or any(offset < start.offset for offset, start in starts)
