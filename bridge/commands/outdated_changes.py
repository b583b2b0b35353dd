"""Whether a row change of the quarantine may still be applied, by the schema changes that have run since.  Pure."""

from __future__ import annotations

from collections.abc import Iterable

from bridge.ddl.by_table.column_changes import column_changes
from bridge.ddl.classes import StatementKind
from bridge.ddl.parser import Classified, classify
from bridge.events import Event, Position
from bridge.model import Table
from bridge.rows.moments import Moment
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.coverage import LoggedChange, coverage_of, name_key


def why_outdated(change: Event, position: Position, table: Table, ran: Iterable[LoggedChange]) -> str:
    """Gives the reason why a row change must not be applied any more, "" where it may.

    change: with the names of the target; position: of its message.  table: the table of that name as it is now.
    ran: the schema changes that have run on the target, in order, with the names of the target.
    """
    later = [one for one in ran if _is_before(change, position, one)]
    reason = ""
    if coverage_of([table.name], later, only_tables=True).of(table.name).cut:
        reason = (
            f"the rows that {table.name} had then are gone, or in another table: it was emptied, dropped, renamed or"
            " replaced"
        )
    elif any(_changes_values(one, table) for one in later):
        reason = f"columns of {table.name} were changed since, or partitions emptied, and the row may be another now"
    return f"{reason}; `bridge ddl list` shows the schema changes since" if reason else ""


def _changes_values(one: LoggedChange, table: Table) -> bool:
    """Tells whether a schema change of the table may have made something else of a row, or taken it away."""
    classified = classify(one.text, one.schema)
    if not isinstance(classified, Classified) or classified.kind is not StatementKind.ALTER_TABLE:
        return False
    done = column_changes(one.text, classified)
    is_of_table = name_key(table.name) in map(name_key, classified.tables)
    return is_of_table and bool(done.renamed or done.dropped or done.retyped or done.converts_texts or done.loses_rows)


def _is_before(change: Event, position: Position, one: LoggedChange) -> bool:
    """Whether a row change may be from before a schema change.  Event times are moments in milliseconds: within a
    partition its order counts, between partitions an equal time, or second, is before."""
    if any(ts != ms_tso(tso_ms(ts)) for ts in (change.commit_ts, one.commit_ts)):
        return change.commit_ts <= one.commit_ts
    offset = one.offsets.get((position.topic, position.partition))
    if offset is not None:
        return position.offset < offset
    return change.commit_ts <= Moment.of_change(one.commit_ts, by_time=True, place=None).last
