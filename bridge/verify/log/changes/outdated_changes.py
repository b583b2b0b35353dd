"""Tells whether schema changes that ran since have made a row change mean something else.  Pure."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Final

from bridge.events import SEP, Event, Position
from bridge.model import Table
from bridge.protocols.values.timezones import is_utc_or_unset
from bridge.rows.moments import Moment
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.changes.lineage import LoggedChange, NameIdentity, Span, trace
from bridge.verify.log.told_columns import BINARY

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
    span = trace([table.name], later, identity=identity).history(table.name).spans[0]
    reason = _why_no_row(change, table, span, identity) or next(_why_other_values(change, table, span, timezone), "")
    return f"{reason}; `bridge ddl list` shows the schema changes since" if reason else ""


def _is_before(change: Event, position: Position, one: LoggedChange) -> bool:
    """Whether a row change may be from before a schema change.  Event times are moments in milliseconds: within a
    partition its order counts, between partitions an equal time, or second, is before."""
    if any(ts != ms_tso(tso_ms(ts)) for ts in (change.commit_ts, one.commit_ts)):
        return change.commit_ts <= one.commit_ts
    offset = one.offsets.get((position.topic, position.partition))
    if offset is not None:
        return position.offset < offset
    return change.commit_ts <= Moment.of_change(one.commit_ts, by_time=True, place=None).last


def _why_no_row(change: Event, table: Table, span: Span, identity: NameIdentity) -> str:
    if span.table is None:
        return f"the rows that {table.name} had then are gone: it was emptied, dropped or replaced"
    if identity.key_of(span.table) != identity.key_of(table.name):
        return f"the table that was {table.name} then is {span.table} now"
    if span.may_be_gone and change.before is None:
        return f"a partition of {table.name} was dropped or emptied, and nothing tells whether this row was in it"
    return ""


def _why_other_values(change: Event, table: Table, span: Span, timezone: str | None) -> Iterator[str]:
    for name, literals in _values(change):
        now = span.now(name)
        if now is None:
            yield f"the column {name} was dropped"
        elif now != name.lower():
            yield f"the column that was {name} then is {now} now"
        elif now in span.retyped and _holds_names(table, now) and any(one[:1].isdigit() for one in literals):
            yield f"the type of the column {name} was changed, so nothing tells which name its number stands for"
        elif (now in span.retyped or span.converted) and _holds_bytes(table, now) and _any(_TEXT, literals):
            yield f"the column {name} has become binary, and nothing tells which bytes its text is"
        elif now in span.retyped and not is_utc_or_unset(timezone) and _any(_MOMENT, literals):
            yield f"the type of the column {name} was changed: nothing tells whether its time is one of {timezone} now"


def _holds_names(table: Table, name: str) -> bool:
    return _holds_bytes(table, name) or (name in table.columns and table.columns[name].charset is not None)


def _holds_bytes(table: Table, name: str) -> bool:
    return name in table.columns and table.columns[name].type.startswith(BINARY)


def _any(pattern: re.Pattern[str], literals: Sequence[str]) -> bool:
    return any(map(pattern.match, literals))


def _values(change: Event) -> Iterator[tuple[str, Sequence[str]]]:
    """Gives each column's name and its literals."""
    images = [image.split(SEP) for image in (change.before, change.after) if image is not None]
    yield from zip((change.columns or "").split(SEP), zip(*images, strict=True), strict=True)
