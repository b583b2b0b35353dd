"""Whether a row change of the quarantine may still be applied, by the schema changes that have run since.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bridge.ddl.by_table.column_changes import ColumnChanges, column_changes
from bridge.ddl.classes import StatementKind
from bridge.ddl.parser import Classified, classify
from bridge.events import SEP, Event, Position
from bridge.model import Table
from bridge.protocols.values.timezones import is_utc_or_unset
from bridge.rows.moments import Moment
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.coverage import LoggedChange, NameIdentity, coverage_of

_BINARY: Final = ("binary", "varbinary", "tinyblob", "blob", "mediumblob", "longblob")
_TEXT: Final = re.compile("'")
_MOMENT: Final = re.compile(r"'\d{4}-\d\d-\d\d \d\d:")


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
    if coverage_of([table.name], later, identity=identity, only_tables=True).of(table.name).cut:
        reason = (
            f"the rows that {table.name} had then are gone, or in another table: it was emptied, dropped, renamed or"
            " replaced"
        )
    else:
        effects = [column_changes(one.text, altering) for one in later if (altering := _altering(one, table, identity))]
        reason = next(_why_other_values(change, table, effects, timezone), "")
    return f"{reason}; `bridge ddl list` shows the schema changes since" if reason else ""


def _altering(one: LoggedChange, table: Table, identity: NameIdentity) -> Classified | None:
    """Gives what an ALTER TABLE of the table is; None for another statement."""
    classified = classify(one.text, one.schema)
    if not isinstance(classified, Classified) or classified.kind is not StatementKind.ALTER_TABLE:
        return None
    return classified if identity.key_of(table.name) in map(identity.key_of, classified.tables) else None


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
