"""Which schema changes of the log the target has, in which words, and whether an earlier row change still holds."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Final

from bridge.ddl.by_table.column_changes import ColumnChanges, column_changes
from bridge.ddl.by_table.routing import target_statement
from bridge.ddl.classes import StatementKind
from bridge.ddl.parser import Classified, Refused, Unclear, classify
from bridge.events import SEP, Event, Position
from bridge.filters.routes import Routes
from bridge.model import (
    PartitionId,
    PartitionStart,
    SchemaChange,
    Table,
    goes_by_partition,
    goes_by_transactions,
)
from bridge.mysql.connection.session import Session
from bridge.mysql.state.ddl_journal import Journal, JournalEntry, JournalState
from bridge.mysql.state.progress import Progress
from bridge.pipeline.wanted_changes import is_wanted
from bridge.protocols.values.timezones import is_utc_or_unset
from bridge.rows.moments import Moment
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.lineage import LoggedChange, NameIdentity, trace
from bridge.verify.options import VerifyOptions

_LEFT_OUT: Final = frozenset({JournalState.IGNORED, JournalState.CONFIRMED})
_BINARY: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXT: Final = re.compile("'")
_MOMENT: Final = re.compile(r"'\d{4}-\d\d-\d\d \d\d:")


@dataclass(frozen=True)
class AppliedChanges:
    """Finds the schema changes that a pipeline has run.  look: a session of the target, which reads the journal."""

    look: Session
    journal: Journal
    progress: Progress
    options: VerifyOptions

    def of(self, changes: Sequence[LoggedChange]) -> list[LoggedChange]:
        """Gives the schema changes that have run on the target, as `as_run` does, and those that the operator has
        skipped."""
        pending = {(change.commit_ts, change.schema, change.text) for change in self.progress.pending}
        read = positions_read(self.progress)
        applied: list[LoggedChange] = []
        for change in changes:
            identity = change.commit_ts, change.schema, change.text
            if identity in pending or not (self._is_wanted(change) and _has_run(change, self.progress, read)):
                continue
            entry = self.journal.find(self.look, SchemaChange(change.commit_ts, change.schema, "", change.text, ""))
            if entry is not None and entry.state is JournalState.SKIPPED:
                applied += as_run(replace(change, is_skipped=True), None, self.options.row_rules.routes)
            elif entry is None or entry.state not in _LEFT_OUT:
                applied += as_run(change, entry, self.options.row_rules.routes, self.options.tables)
        return applied

    def _is_wanted(self, change: LoggedChange) -> bool:
        logged = SchemaChange(change.commit_ts, change.schema, "", change.text, "")
        found = classify(change.text, change.schema)
        return type(found) is not Refused and is_wanted(logged, self.options.tables, set())


def as_run(
    change: LoggedChange, entry: JournalEntry | None, routes: Routes, accepts: Callable[[str, str], bool] | None = None
) -> Iterator[LoggedChange]:
    """Gives a schema change as it ran: with the names of the target, and in the operator's words where one was
    replaced; nothing where it cannot have run.

    entry: what the journal holds of it.  accepts: tells which tables are replicated; None when all are.
    """
    found = classify(change.text, change.schema)
    if entry is not None and entry.ran_instead:
        yield replace(change, text=entry.ran_instead)
    elif isinstance(found, Unclear):
        yield replace(change, is_unclear=not change.is_skipped)
    elif routed := target_statement(change.text, change.schema, routes):
        taken = {accepts(*name) for name in found.tables} if accepts and isinstance(found, Classified) else set()
        is_unclear = entry is not None and entry.is_by_hand and len(taken) > 1
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


def why_outdated(
    change: Event,
    position: Position,
    table: Table,
    ran: Iterable[LoggedChange],
    identity: NameIdentity,
    timezone: str | None,
) -> str:
    """Gives the reason why a row change must not be applied any more, "" where it may.

    change: with ready literals and the names of the target; position: of its message.
    table: the table of that name as it is now.
    ran: the schema changes that have run on the target, in order, with the names of the target.
    timezone: the zone in which they ran, None for UTC.
    """
    later = [one for one in ran if _is_before(change, position, one)]
    there = trace([table.name], later, identity=identity, only_tables=True).history(table.name).spans[0]
    if there is None:
        reason = f"the rows that {table.name} had then are gone: it was emptied, dropped or replaced"
    elif identity.key_of(there) != identity.key_of(table.name):
        reason = f"the table that was {table.name} then is {there} now"
    else:
        effects = [column_changes(one.text) for one in later if _alters(one, table, identity)]
        reason = next(_why_other_values(change, table, effects, timezone), "")
    return f"{reason}; `bridge ddl list` shows the schema changes since" if reason else ""


def _alters(one: LoggedChange, table: Table, identity: NameIdentity) -> bool:
    classified = classify(one.text, one.schema)
    if not isinstance(classified, Classified) or classified.kind is not StatementKind.ALTER_TABLE:
        return False
    return identity.key_of(table.name) in map(identity.key_of, classified.tables)


def _is_before(change: Event, position: Position, one: LoggedChange) -> bool:
    """Whether a row change may be from before a schema change.  Event times are moments in milliseconds: within a
    partition its order counts, between partitions an equal time, or second, is before."""
    if any(ts != ms_tso(tso_ms(ts)) for ts in (change.commit_ts, one.commit_ts)):
        return change.commit_ts <= one.commit_ts
    offset = one.offsets.get((position.topic, position.partition))
    if offset is not None:
        return position.offset < offset
    return change.commit_ts <= Moment.of_change(one.commit_ts, by_time=True, place=None).last


def _why_other_values(
    change: Event, table: Table, effects: Sequence[ColumnChanges], timezone: str | None
) -> Iterator[str]:
    if change.before is None and any(one.loses_rows for one in effects):
        yield f"a partition of {table.name} was dropped or emptied, and nothing tells whether this row was in it"
    is_converted = any(one.converts_texts for one in effects)
    for name, literals in _values(change):
        column = name.lower()
        renamed = next((one.renamed[column] for one in effects if column in one.renamed), None)
        is_retyped = any(column in one.retyped for one in effects)
        if any(column in one.dropped for one in effects):
            yield f"the column {name} was dropped"
        elif renamed:
            yield f"the column that was {name} then is {renamed} now"
        elif is_retyped and _holds_names(table, column) and any(one[:1].isdigit() for one in literals):
            yield f"the type of the column {name} was changed, so nothing tells which name its number stands for"
        elif (is_retyped or is_converted) and _holds_bytes(table, column) and _any(_TEXT, literals):
            yield f"the column {name} has become binary, and nothing tells which bytes its text is"
        elif is_retyped and not is_utc_or_unset(timezone) and _any(_MOMENT, literals):
            yield f"the type of the column {name} was changed: nothing tells whether its time is one of {timezone} now"


def _holds_names(table: Table, name: str) -> bool:
    return _holds_bytes(table, name) or (name in table.columns and table.columns[name].charset is not None)


def _holds_bytes(table: Table, name: str) -> bool:
    return name in table.columns and table.columns[name].type.startswith(_BINARY)


def _any(pattern: re.Pattern[str], literals: Sequence[str]) -> bool:
    return any(map(pattern.match, literals))


def _values(change: Event) -> Iterator[tuple[str, Sequence[str]]]:
    """Gives each column's name and its literals."""
    images = [image.split(SEP) for image in (change.before, change.after) if image is not None]
    yield from zip((change.columns or "").split(SEP), zip(*images, strict=True), strict=True)
