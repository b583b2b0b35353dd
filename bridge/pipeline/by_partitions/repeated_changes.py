"""Tells a schema change that the producer has sent again from a second one with the same text.  Pure.

What has run is on record in the journal, with the identity that its message tells:

commit ts (TiCDC's Debezium messages)   equal: the same schema change
place in the binlog, GTID               equal: the same schema change; else another one
batch of Canal (a sending)              equal: another one, since none is twice in a batch
event time and text alone               equal, and the time is not in whole seconds: the same, since no server runs one
                                        statement twice in a millisecond; in whole seconds only what came between tells
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Final

from bridge.ddl.classes import ChangeClass
from bridge.ddl.parser import Classified, classify
from bridge.model import SchemaChange
from bridge.protocols.values.event_time import BATCH_BITS, FILE, GTID, SENT
from bridge.rows.moments import coordinates_of
from bridge.tso import ms_tso, tso_ms

NEAR: Final = ms_tso(3_600_000)
"""A schema change is dated by its start, and may have waited for its lock for so long (TSO)."""
_SECOND_MS: Final = 1000
_UNCLEAR: Final = (
    "the same statement ran in the same second, and nothing tells whether it was sent again, and would {}, or ran twice"
    " upstream: skip it or approve it, and compare its tables with the upstream, as rows of before may have come again"
)
_SWAPS_BACK: Final = "swap back what the first one swapped"
_MEETS_LATER_ROWS: Final = "come before rows that are in the target already"


def second_run(change: SchemaChange, before: Sequence[SchemaChange], applied_time: int) -> SchemaChange | None:
    """Gives a schema change without a commit ts as it is to run; None for one that has run already.

    change: as it was read.
    before: the schema changes on record of up to NEAR from its event time, in the order in which they came.
    applied_time: the highest event time of what was applied (TSO), above that of a change which has waited for a lock.
    A second change of one millisecond gets a commit_ts of its own.  One of which nothing tells whether it is a second
    one gets a doubt, if running it once more could do harm.
    """
    at_ms = tso_ms(change.commit_ts)
    alike = [one for one in before if (tso_ms(one.commit_ts), one.statement_hash) == (at_ms, change.statement_hash)]
    taken = {one.commit_ts for one in alike}
    anew = replace(change, commit_ts=next(ts for ts in range(change.commit_ts, 1 << 63) if ts not in taken))
    if not alike:
        return change
    told = [is_same_place(one.place, change.place) for one in alike]
    if True in told:
        return None
    if None not in told:
        return anew
    in_other = any(_partition_of(one.position) != _partition_of(change.position) for one in alike)
    if in_other or at_ms % _SECOND_MS:
        return None
    again = _in_one_second(anew, before[before.index(alike[-1]) + 1 :])
    if again is not None and applied_time >= change.commit_ts + ms_tso(_SECOND_MS):
        return replace(again, doubt=_UNCLEAR.format(_MEETS_LATER_ROWS))
    return again


def _in_one_second(change: SchemaChange, between: Sequence[SchemaChange]) -> SchemaChange | None:
    """Decides about a statement that ran in the same second before, of which only what ran in between may tell more.

    With another change of its tables in between, such as a DROP between two CREATEs, it runs.  Without one, no server
    would have run it twice, but for what empties or swaps.
    """
    known = classify(change.text, change.schema)
    if not isinstance(known, Classified):
        return change
    others = [other for one in between if isinstance(other := classify(one.text, one.schema), Classified)]
    if any(_touch_one_thing(known, other) for other in others) or set(known.classes) & _MAY_FOLLOW_ITSELF:
        return change
    return replace(change, doubt=_UNCLEAR.format(_SWAPS_BACK)) if known.swaps else None


def is_same_place(one: str, other: str) -> bool | None:
    """Tells whether two places ("" for none) are one; None when nothing can be told of them.  A GTID is the same on
    every server, files and positions are not.  A Canal that was restarted in between takes more than a second for that.
    """
    places = [coordinates_of(place) if place else {} for place in (one, other)]
    for kind in (GTID, FILE):
        first, second = ({n: at for n, at in place.items() if n.startswith(kind)} for place in places)
        if first.keys() & second.keys():
            return first == second
    one_sent, other_sent = (place.get(SENT) for place in places)
    if one_sent is None or other_sent is None:
        return None
    is_one_batch = not (one_sent ^ other_sent) & ((1 << BATCH_BITS) - 1)
    is_beside = abs((one_sent >> BATCH_BITS) - (other_sent >> BATCH_BITS)) < _SECOND_MS
    return False if is_one_batch and is_beside else None


_MAY_FOLLOW_ITSELF: Final = frozenset({ChangeClass.TRUNCATE_TABLE, ChangeClass.TRUNCATE_PARTITION})


def _touch_one_thing(one: Classified, other: Classified) -> bool:
    """Tells whether two statements change one table, or one of them the other's database."""
    schemas = [{table.schema for table in known.tables} | {known.database} - {""} for known in (one, other)]
    return bool(set(one.tables) & set(other.tables)) or one.database in schemas[1] or other.database in schemas[0]


def _partition_of(position: str) -> str:
    return position.rpartition("/")[0]
