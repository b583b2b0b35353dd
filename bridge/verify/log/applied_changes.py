"""Which schema changes of the log the target has, and in which words."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace

from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.classes import StatementKind
from bridge.ddl.parser import Classified, Refused, Unclear, classify
from bridge.filters.routes import Routes
from bridge.model import PartitionId, PartitionStart, SchemaChange, goes_by_partition, goes_by_transactions
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import NOTHING_TO_RUN, Journal, JournalEntry, JournalState
from bridge.mysql.state.progress import Progress
from bridge.pipeline.control_events import is_wanted as wanted
from bridge.verify.log.coverage import LoggedChange
from bridge.verify.options import VerifyOptions


def applied_changes(
    look: Session, journal: Journal, progress: Progress, options: VerifyOptions, changes: Iterable[LoggedChange]
) -> list[LoggedChange]:
    """Gives the schema changes that a pipeline has run, as `as_run` does, and those that the operator has skipped."""
    pending = {(change.commit_ts, change.schema, change.text) for change in progress.pending}
    read, routes = positions_read(progress), options.row_rules.routes
    applied: list[LoggedChange] = []
    for change in changes:
        logged = SchemaChange(change.commit_ts, change.schema, "", change.text, "")
        is_wanted = type(classify(change.text, change.schema)) is not Refused and wanted(logged, options.tables, set())
        is_pending = (change.commit_ts, change.schema, change.text) in pending
        if is_pending or not (is_wanted and _has_run(change, progress, read)):
            continue
        entry = journal.find(look, logged)
        if entry is not None and entry.state is JournalState.SKIPPED:
            applied += as_run(replace(change, is_unclear=True), None, routes)
        elif entry is None or not _is_left_out(entry):
            applied += as_run(change, entry, routes, options.tables)
    return applied


def _is_left_out(entry: JournalEntry) -> bool:
    """Tells whether a schema change touched no row.  Where one had run for another shard, rows of its own shard from
    before it lack what came with it."""
    known = classify(entry.statement, entry.schema)
    is_alter = isinstance(known, Classified) and known.kind is StatementKind.ALTER_TABLE
    is_confirmed = entry.state is JournalState.CONFIRMED and not is_alter
    return is_confirmed or entry.state is JournalState.IGNORED or entry.outcome == NOTHING_TO_RUN


def as_run(
    change: LoggedChange, entry: JournalEntry | None, routes: Routes, accepts: Callable[[str, str], bool] | None = None
) -> Iterator[LoggedChange]:
    """Gives a schema change as it ran: with the names of the target, and in the operator's words where one was
    replaced; nothing where it cannot have run.

    entry: what the journal holds of it.  accepts: tells which tables are replicated; None when all are.
    """
    classified = classify(change.text, change.schema)
    if entry is not None and entry.replacement:
        yield replace(change, text=entry.replacement)
    elif isinstance(classified, Unclear):
        yield replace(change, is_unclear=True)
    elif routed := target_statement(change.text, change.schema, routes):
        tables = classified.tables if accepts and isinstance(classified, Classified) else ()
        taken = {accepts(*name) for name in tables} if accepts else set()
        is_unclear = change.is_unclear or (entry is not None and entry.is_by_hand and len(taken) > 1)
        yield replace(change, text=routed[0], schema=routed[1], is_unclear=is_unclear)


def positions_read(progress: Progress) -> Mapping[PartitionId, PartitionStart] | None:
    """Tells how far each partition is, where the pipeline goes by their order, or by that of transactions; None where
    it goes by commit ts."""
    by_offsets = goes_by_partition(progress.positions) or goes_by_transactions(progress.positions)
    return progress.positions if by_offsets else None


def _has_run(change: LoggedChange, progress: Progress, read: Mapping[PartitionId, PartitionStart] | None) -> bool:
    if read is None:
        return change.commit_ts < progress.applied_ts
    starts = [(offset, read[where]) for where, offset in change.offsets.items() if where in read]
    is_below = not change.by_time and any(change.commit_ts < (start.floor or 0) for _, start in starts)
    return is_below or any(offset < start.offset for offset, start in starts)
