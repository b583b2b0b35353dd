"""Whether a row change of the quarantine may still be applied, by the schema changes that have run since.  Pure."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bridge.ddl.classes import LEAVES_ROWS, ChangeClass
from bridge.ddl.parser import Refused, classify
from bridge.events import Event, Position
from bridge.model import Table, TableName
from bridge.rows.moments import Moment
from bridge.tso import ms_tso, tso_ms
from bridge.verify.log.coverage import LoggedChange, name_key

_LEAVES_ROW: Final = LEAVES_ROWS | {ChangeClass.ADD_COLUMN}


def why_outdated(change: Event, position: Position, table: Table, ran: Iterable[LoggedChange]) -> str:
    """Gives the reason why a row change must not be applied any more, "" where it may.

    change: with the names of the target; position: of its message.  table: the table of that name as it is now.
    ran: the schema changes that have run on the target, in order, with the names of the target.
    """
    later = (one for one in ran if _is_before(change, position, one) and _touches(one, table.name))
    if (one := next(later, None)) is None:
        return ""
    return f"the row may be gone, or another one now, since {table.name} was changed: {one.text}"


def _touches(one: LoggedChange, name: TableName) -> bool:
    """Tells whether a schema change may have made something else of a table's rows, or taken them away."""
    found = classify(one.text, one.schema, is_certain=not one.is_unclear)
    known = found.known if isinstance(found, Refused) else found
    if known is None:
        return False
    if ChangeClass.DROP_DATABASE in known.classes:
        return known.database.lower() == name.schema.lower()
    is_named = any(name_key(each) in {name_key(name), ("", name.table.lower())} for each in known.tables)
    return is_named and (one.is_unclear or not _LEAVES_ROW.issuperset(known.classes))


def _is_before(change: Event, position: Position, one: LoggedChange) -> bool:
    """Whether a row change may be from before a schema change.  Event times are moments in milliseconds: within a
    partition its order counts, between partitions an equal time, or second, is before."""
    if any(ts != ms_tso(tso_ms(ts)) for ts in (change.commit_ts, one.commit_ts)):
        return change.commit_ts <= one.commit_ts
    offset = one.offsets.get((position.topic, position.partition))
    if offset is not None:
        return position.offset < offset
    return change.commit_ts <= Moment.of_change(one.commit_ts, by_time=True, place=None).last
