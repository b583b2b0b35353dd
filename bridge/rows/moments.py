"""Tells what is later than a schema change where messages have event times instead of commit timestamps.  Pure.

MySQL's binlog dates an event by the second, and by when its statement began.  So a row may be written in the second of
a schema change and yet behind it.  And a schema change that took long, as it waited for a lock or rebuilt the table, is
dated earlier than rows that stand before it in the binlog.  Messages that name their place in the binlog (Debezium's
connector) are therefore compared by it where one of the two times is in whole seconds, or both are equal.  Other times
are those of the commit (GTIDs of MySQL 8).  They go on when the connector goes on with another server, whose binlog has
other places.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.model import SchemaChange
from bridge.protocols.values.event_time import binlog_of
from bridge.tso import TSO_LOGICAL_BITS, ms_tso, tso_ms

_SECOND_MS: Final = 1000


@dataclass(frozen=True)
class Moment:
    """A moment upstream, with which events are compared.

    ts: its time (TSO).
    last: the last time (TSO) that is not later by time alone.
    places: its place in each binlog that it is known in.
    """

    ts: int
    last: int
    places: tuple[str, ...] = ()

    @classmethod
    def of_change(cls, ts: int, by_time: bool, place: str | None) -> Moment:
        """Gives the moment of a schema change.  Equal times count as earlier, and an event time in whole seconds stands
        for its whole second (internals, decision 13)."""
        width = (_SECOND_MS if _is_whole_second(ts) else 1) if by_time else 0
        return cls(ts, ms_tso(tso_ms(ts) + width) - 1 if by_time else ts, () if place is None else (place,))

    @classmethod
    def at(cls, ts: int, places: Iterable[str] = ()) -> Moment:
        """Gives the moment to which only times above `ts` are later."""
        return cls(ts, ts, tuple(places))

    def is_before(self, events: pa.Table) -> npt.NDArray[np.bool_]:
        """Tells which events (with `commit_ts` and `place` of EVENT_SCHEMA) are later than the moment."""
        times = events["commit_ts"].to_numpy()
        later: npt.NDArray[np.bool_] = times > self.last
        if not self.places or events["place"].null_count == events.num_rows:
            return later
        by_place = _are_by_place(self.ts, times)
        for place in self.places:
            same = pc.fill_null(pc.starts_with(events["place"], binlog_of(place)), False)
            behind = pc.fill_null(pc.greater(events["place"], place), False)
            here, behind = (found.to_numpy(zero_copy_only=False) for found in (_whole(same), _whole(behind)))
            later = np.where(here & by_place, behind, later)
        return later


def in_order(moments: Sequence[Moment]) -> list[int]:
    """Gives the numbers of moments, the earliest first: by time, but those of one binlog whose times are in whole
    seconds by their places."""
    order = sorted(range(len(moments)), key=lambda number: (moments[number].ts, moments[number].places))
    by_binlog: dict[str, list[int]] = {}
    for at, number in enumerate(order):
        if moments[number].places and _is_whole_second(moments[number].ts):
            by_binlog.setdefault(binlog_of(moments[number].places[0]), []).append(at)
    for slots in by_binlog.values():
        mine = sorted((order[at] for at in slots), key=lambda number: moments[number].places)
        for at, number in zip(slots, mine, strict=True):
            order[at] = number
    return order


def newest_places(events: pa.Table) -> dict[str, str]:
    """Gives the last place in each binlog that events (EVENT_SCHEMA, in the order of their partition) name."""
    if events["place"].null_count == events.num_rows:
        return {}
    return {binlog_of(place): place for place in events["place"].to_pylist() if place is not None}


def _is_whole_second(ts: int) -> bool:
    return tso_ms(ts) % _SECOND_MS == 0


def _are_by_place(ts: int, times: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    """Tells which times may stand in another order than the binlog."""
    if _is_whole_second(ts):
        return np.ones(len(times), np.bool_)
    by_place: npt.NDArray[np.bool_] = (times == ts) | ((times >> TSO_LOGICAL_BITS) % _SECOND_MS == 0)
    return by_place


def _whole(found: pa.Array | pa.ChunkedArray) -> pa.Array:
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def is_same_place(one: str, other: str) -> bool | None:
    """Tells whether two places ("" for none) are one; None when nothing can be told of them."""
    if not one or not other or binlog_of(one) != binlog_of(other):
        return None
    return one == other


def is_older(
    rows: pa.Table, times: npt.NDArray[np.int64], seen: npt.NDArray[np.int64], change: SchemaChange
) -> npt.NDArray[np.bool_]:
    """Tells which rows are sent again from before a schema change that ran.

    rows: with `by_time` and `place` of EVENT_SCHEMA.  times: their commit ts or event times (TSO).
    seen: for each row, the highest time that its partition had shown before it; what is later is no repetition.
    Rows of the millisecond of the schema change, or of its second where times are whole seconds, count as older only if
    their partition had shown a later time: before that, they may come for the first time.
    """
    millis, at = times >> TSO_LOGICAL_BITS, tso_ms(change.commit_ts)
    by_time = rows["by_time"].to_numpy(zero_copy_only=False)
    of_time = (millis < at) | ((millis == at) & (times < seen))
    older = np.where(by_time, of_time, times <= change.commit_ts)
    if change.place and rows["place"].null_count < rows.num_rows:
        last = at + (_SECOND_MS - 1 if at % _SECOND_MS == 0 else 0)
        same = pc.fill_null(pc.starts_with(rows["place"], binlog_of(change.place)), False)
        before = pc.fill_null(pc.less(rows["place"], change.place), False)
        same, before = (found.to_numpy(zero_copy_only=False) for found in (_whole(same), _whole(before)))
        older = np.where(same, before & (millis <= last), older)
    found: npt.NDArray[np.bool_] = older & (times <= seen)
    return found
