"""What a verification against the log says beside its findings."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Final

from bridge.ddl.parser import Classified, classify
from bridge.errors import counted
from bridge.filters.routes import unmatched_rules
from bridge.model import PartitionId, TableName
from bridge.pipeline.control_events import clash_error
from bridge.sources.source import Extent
from bridge.verify.log.coverage import LoggedChange
from bridge.verify.log.log_tables import LoggedTable
from bridge.verify.log.recompute import Control
from bridge.verify.options import VerifyOptions

_SHOWN_BAD: Final = 3


def table_notes(table: LoggedTable) -> tuple[str, ...]:
    """Notes what of a table is not compared, or not with certainty."""
    seen = {column.name.lower() for column in table.shape.actual}
    unseen = [c.name for name, c in table.definition.columns.items() if name not in seen and not c.generated]
    notes = [f"no message has the column {name}: its values are not covered" for name in unseen if seen]
    if table.uncovered:
        notes.append(
            f"{table.uncovered}: none of its rows are covered; compare it with the source (--against upstream)"
        )
    elif table.since:
        notes.append(
            f"{table.since}: rows that no later message mentions are not covered; compare the table with the source"
            " (--against upstream)"
        )
    return tuple(notes)


def cut_notes(cut: Iterable[PartitionId], extents: Mapping[PartitionId, Extent]) -> Iterator[str]:
    """Notes the partitions whose first messages Kafka no longer holds."""
    for topic, partition in cut:
        yield (
            f"{topic}/{partition} begins at offset {extents[topic, partition].low:,}: of tables made before its"
            " first message, rows that no message mentions are not covered"
        )


def bad_notes(control: Control) -> Iterator[str]:
    """Notes the messages that could not be decoded."""
    if control.bad:
        yield f"{counted(len(control.bad), 'message')} could not be decoded, so that changes are not covered"
    for position, reason in control.bad[:_SHOWN_BAD]:
        yield f"{position}: {reason}"


def left_out_notes(control: Control, options: VerifyOptions) -> Iterator[str]:
    """Notes the filter rules that match no table of the log."""
    for table in control.left_out:
        if table.is_clash:
            raise clash_error(table.why, str(table.position))
    left_out = {TableName(table.schema, table.table) for table in control.left_out}
    names = control.names | left_out | {name for change in control.changes for name in _tables_of(change)}
    for rule in unmatched_rules(options.tables, names, options.row_rules.routes) if names else ():
        yield f"the filter rule {rule!r} matches no table of the log"


def _tables_of(change: LoggedChange) -> tuple[TableName, ...]:
    classified = classify(change.text, change.schema)
    return classified.tables if isinstance(classified, Classified) else ()
