"""Tells what is later than a schema change where messages have event times instead of commit timestamps.  Pure.

MySQL's binlog dates an event by the second, and by when its statement began.  So a row may be written in the second of
a schema change and yet behind it.  And a schema change that took long, as it waited for a lock or rebuilt the table, is
dated earlier than rows that stand before it in the binlog.  Messages that name their place (`protocols.values.
event_time`) are therefore compared by it where one of the two times is in whole seconds, or both are equal.  Other
times are those of the commit (GTIDs of MySQL 8).

Two places are compared by GTIDs of one server or domain; else by file and position, within one server; else they tell
nothing of each other, and the times decide.  So after a failover GTIDs go on, and files begin anew.  Where Canal tells
no more than when it sent a message, that decides as far as it is sure (`compared_by_sending`).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cmp_to_key, lru_cache
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocols.values.event_time import (
    BATCH_BITS,
    COORDINATES_SEP,
    FILE,
    GTID,
    NUMBER_DIGITS,
    SENT,
    SNAPSHOT_PLACE,
    SNAPSHOT_SERVER,
)
from bridge.rows.gathering import Bools, Longs
from bridge.tso import TSO_LOGICAL_BITS, ms_tso, tso_ms

_SECOND_MS: Final = 1000
_ABSENT: Final = -1
_LONGEST_WAIT: Final = ms_tso(86_400_000)
"""How much earlier than a schema change a row may be dated that stands behind it, as its statement waited: a day, the
longest that MariaDB lets it wait for a lock of the table (lock_wait_timeout).  A place that says so of an earlier row
is in a binlog that began anew since (RESET MASTER)."""


@dataclass(frozen=True)
class Places:
    """The places of many events.

    numbers: by name of a coordinate, the number of each event, _ABSENT where an event has no such coordinate.
    count: how many events.
    """

    numbers: Mapping[str, Longs]
    count: int

    @classmethod
    def of(cls, texts: pa.Array | pa.ChunkedArray) -> Places:
        """Reads the places (`RowChange.place`) of events: by bytes, as by characters of UTF-8 it took twice as long."""
        if texts.null_count == len(texts):
            return cls({}, len(texts))
        whole = texts.combine_chunks() if isinstance(texts, pa.ChunkedArray) else texts
        parts = pc.split_pattern(whole, COORDINATES_SEP)
        coordinates, events = pc.list_flatten(parts).cast(pa.binary()), pc.list_parent_indices(parts).to_numpy()
        names = pc.dictionary_encode(pc.binary_slice(coordinates, 0, -NUMBER_DIGITS - 1))
        values = pc.binary_slice(coordinates, -NUMBER_DIGITS).cast(pa.string()).cast(pa.int64()).to_numpy()
        codes, numbers = names.indices.to_numpy(), {}
        for code, name in enumerate(names.dictionary.cast(pa.string()).to_pylist()):
            numbers[name] = np.full(len(texts), _ABSENT, np.int64)
            numbers[name][events[codes == code]] = values[codes == code]
        return cls(numbers, len(texts))

    def ranks(self) -> Longs | None:
        """Gives numbers that ascend with the places (of sets of transactions, their sizes); None where not all are
        comparable: they are of several servers, or of sendings, or some events have none."""
        if (
            not self.numbers
            or SENT in self.numbers
            or any((numbers == _ABSENT).all() for numbers in self.numbers.values())
        ):
            return None
        are_sets = all(name.startswith(f"{GTID}/") for name in self.numbers)
        files = [name for name in self.numbers if name.startswith(FILE)]
        names = [*self.numbers] if are_sets else files or [*self.numbers]
        coordinates = [self.numbers[name] for name in names]
        if (len(coordinates) > 1 and not are_sets) or any((numbers == _ABSENT).any() for numbers in coordinates):
            return None
        total: Longs = np.sum(coordinates, axis=0)
        return total

    def apart(self) -> Longs:
        """Numbers the upstreams of the events from 0: events that have a name of a coordinate in common are of one."""
        have = np.array([numbers != _ABSENT for numbers in self.numbers.values()], np.int64)
        have = have.reshape(len(self.numbers), self.count)
        if have.all():
            return np.zeros(self.count, np.int64)
        kinds, of_events = np.unique(have, axis=1, return_inverse=True)
        are_linked = kinds.T @ kinds + np.eye(kinds.shape[1], dtype=np.int64) > 0
        for _ in self.numbers:
            are_linked = are_linked @ are_linked
        upstreams: Longs = are_linked.argmax(axis=1)[of_events.reshape(-1)]
        return upstreams

    def subset(self, events: Longs) -> Places:
        """Gives those of some events, with the coordinates that these have."""
        coordinates = {name: numbers[events] for name, numbers in self.numbers.items()}
        present = {name: numbers for name, numbers in coordinates.items() if (numbers != _ABSENT).any()}
        return Places(present, len(events))

    def slice(self, start: int, end: int) -> Places:
        """Gives those of a part of the events, which share the memory."""
        return Places({name: numbers[start:end] for name, numbers in self.numbers.items()}, max(0, end - start))

    def compared(self, place: str, is_earlier: Bools, *, of_change: bool = False) -> tuple[Bools, Bools]:
        """Tells which events are comparable with a place, and which of these are behind it.

        is_earlier: which events are earlier than the place by time.  A snapshot's place is its beginning in whichever
        server's binlog, so it counts as behind only where its time does not say otherwise.
        of_change: the place is a schema change's, and rows of the same place are behind it: no schema change comes
        behind rows of its own transaction, but CREATE TABLE ... SELECT is one with the rows that it makes.
        """
        coordinates = coordinates_of(place)
        is_comparable, behind = self._by_gtid(coordinates, of_change=of_change)
        for name, number in coordinates.items():
            for event_name, numbers in self.numbers.items() if name.startswith(FILE) else ():
                is_sure = event_name == name
                if is_sure or _are_of_snapshot(name, event_name):
                    here = (numbers != _ABSENT) & ~is_comparable
                    is_behind = numbers >= number if of_change and is_sure else numbers > number
                    behind |= here & (is_behind if is_sure else is_behind & ~is_earlier)
                    is_comparable |= here if is_sure else here & ~(is_behind & is_earlier)
        if SENT in coordinates and SENT in self.numbers:
            is_sure_by_sending, is_later = compared_by_sending(self.numbers[SENT], coordinates[SENT])
            is_sure_by_sending &= (self.numbers[SENT] != _ABSENT) & ~(is_later & is_earlier)
            return is_comparable | is_sure_by_sending, behind | (is_sure_by_sending & is_later)
        return is_comparable, behind

    def _by_gtid(self, place: Mapping[str, int], *, of_change: bool) -> tuple[Bools, Bools]:
        """Tells which events GTIDs compare with a place, and which of these are behind it.  Events of the place's own
        transaction are left to file and position, where both have them.  of_change: as of `compared`."""
        common, greater, less, count = np.zeros((4, self.count), np.int64)
        for name, numbers in self.numbers.items():
            here = (numbers != _ABSENT) & name.startswith(GTID)
            count += here
            number = place.get(name)
            if number is not None:
                common += here
                greater += here & (numbers > number)
                less += here & (numbers < number)
        among = sum(name.startswith(GTID) for name in place)
        # A set of transactions that has those of another server beside all of the place's is behind it.
        is_wider = (common == among) & (count > among) & (less == 0)
        is_tie = (greater == 0) & (less == 0) & ~is_wider
        behind = (common > 0) & ((greater > 0) | is_wider | (of_change & is_tie & (common == among)))
        files = [numbers for name, numbers in self.numbers.items() if name.startswith(FILE) and name in place]
        in_file = np.any([numbers != _ABSENT for numbers in files], axis=0)
        # Greater in one and less in another: histories that have nothing to do with each other.
        is_comparable = (common > 0) & ((greater == 0) | (less == 0)) & ~(is_tie & in_file)
        return is_comparable, behind & is_comparable


@dataclass(frozen=True)
class Moment:
    """A moment upstream, with which events are compared.

    ts: its time (TSO).
    last: the last time (TSO) that is not later by time alone.
    places: its places; of several that an event can be compared with, the last decides.
    began_anew: between which times (TSO) binlogs are known to have begun anew: only places that are both before or both
        after are compared.
    is_change: whether it is that of a schema change (`Places.compared`).
    by_place_only: whether only what its place puts behind it is later than it, and no clock says otherwise.
    """

    ts: int
    last: int
    places: tuple[str, ...] = ()
    began_anew: tuple[tuple[int, int], ...] = ()
    is_change: bool = False
    by_place_only: bool = False

    @classmethod
    def of_change(cls, ts: int, by_time: bool, place: str | None) -> Moment:
        """Gives the moment of a schema change.  Equal times count as earlier.  An event time in whole seconds stands
        for its whole second, since the binlog does not tell when within it the change was."""
        width = (_SECOND_MS if is_whole_second(ts) else 1) if by_time else 0
        last = ms_tso(tso_ms(ts) + width) - 1 if by_time else ts
        return cls(ts, last, () if place in (None, SNAPSHOT_PLACE) else (place,), is_change=True)

    @property
    def is_by_sending(self) -> bool:
        """Whether nothing but its sending tells its place, so that times and columns may tell more."""
        return bool(self.places) and is_of_sending(self.places[-1])

    @classmethod
    def at(cls, ts: int, places: Iterable[str] = ()) -> Moment:
        """Gives the moment to which only times above `ts` are later."""
        return cls(ts, ts, tuple(places))

    def is_before(self, events: pa.Table, places: Places | None = None) -> Bools:
        """Tells which events (with `commit_ts` and `place` of EVENT_SCHEMA) are later than the moment.

        places: the events' places, where they have been read already.
        """
        times = events["commit_ts"].to_numpy()
        later: Bools = times > self.last
        if not self.places or events["place"].null_count == events.num_rows:
            return later & (not self.by_place_only)
        by_place, is_earlier, surely = _are_by_place(self.ts, times), times < self.ts, np.zeros(len(times), np.bool_)
        places = Places.of(events["place"]) if places is None else places
        by_place &= self._are_of_one_binlog(times)
        for place in self.places:
            is_comparable, behind = places.compared(place, is_earlier, of_change=self.is_change)
            is_comparable &= ~behind | (times > self.ts - _LONGEST_WAIT)
            later = np.where(is_comparable & by_place, behind, later)
            surely |= is_comparable & behind
        return later & surely if self.by_place_only else later

    def _are_of_one_binlog(self, times: Longs) -> Bools:
        """Tells which events are on the moment's side of every new beginning."""
        is_same: Bools = np.ones(len(times), np.bool_)
        for last, first in self.began_anew:
            is_same &= times <= last if self.ts <= last else (times >= first) & (self.ts >= first)
        return is_same

    def is_clearly_after(self, events: pa.Table) -> Bools:
        """Tells which events (with `commit_ts` and `place` of EVENT_SCHEMA) are earlier than the moment beyond doubt:
        by their places, where these are comparable and the clock does not say otherwise, or by a lower millisecond."""
        times = events["commit_ts"].to_numpy()
        millis, ms = times >> TSO_LOGICAL_BITS, tso_ms(self.ts)
        earlier: Bools = latest_beside(millis, ms) < ms
        if not self.places or self.is_by_sending or events["place"].null_count == events.num_rows:
            return earlier
        places = Places.of(events["place"])
        for place in self.places:
            is_comparable, behind = places.compared(place, times < self.ts, of_change=self.is_change)
            earlier = np.where(is_comparable & (millis <= ms), ~behind, earlier)
        return earlier

    def shows_before(self, ts: int, place: str, latest: int = 0) -> bool:
        """Tells whether the moment's place shows that it comes before an event with a time (TSO) and a place: in one
        binlog; or that it may, by its time in those of two servers that one reader went through.  latest: the highest
        time beside that event."""
        if not self.places:
            return False
        times = np.array([ts])
        is_comparable, behind = Places.of(pa.array([place])).compared(self.places[-1], times < self.ts)
        if (is_comparable & self._are_of_one_binlog(times))[0]:
            return bool((behind & (_are_by_place(self.ts, times) | (times > self.last)))[0])
        is_of_reader = not _readers_of(place).isdisjoint(_readers_of(self.places[-1]))
        return is_of_reader and not self.by_place_only and max(ts, latest) >= self.ts


def compared_by_sending(numbers: Longs, number: int) -> tuple[Bools, Bools]:
    """Compares messages by their sending: tells of which the order is sure, and which of these are later.

    numbers, number: of coordinates SENT.  It is sure where time and batch tell the same.  They contradict each other
    where Canal was restarted in between, which numbers batches anew; in one batch and millisecond they tell nothing.
    """
    half = 1 << (BATCH_BITS - 1)
    later = (numbers >> BATCH_BITS) - (number >> BATCH_BITS)
    batches = (numbers - number) & ((1 << BATCH_BITS) - 1)
    batches = np.where(batches >= half, batches - 2 * half, batches)
    is_later: Bools = (later >= 0) & (batches >= 0) & ((later > 0) | (batches > 0))
    is_earlier: Bools = (later <= 0) & (batches <= 0) & ((later < 0) | (batches < 0))
    return is_later | is_earlier, is_later


def are_of_another_server(events: pa.Table, ts: int, place: str) -> Bools:
    """Tells which events a place's reader has of another server, at its time (TSO), which may be a whole second.

    Nothing tells which of them are behind the place.
    """
    reader = place.partition(" ")[2].partition("/")[0]
    of_reader = pc.fill_null(pc.match_substring(events["place"], f" {reader}/"), False).to_numpy()
    is_at_once: Bools = (events["commit_ts"].to_numpy() == ts) & of_reader & bool(reader)
    if is_at_once.any():
        is_comparable, _ = Places.of(events["place"]).compared(place, np.zeros(events.num_rows, np.bool_))
        is_at_once &= ~is_comparable
    return is_at_once


def are_of_next_server(names: Iterable[str], earlier: Iterable[str]) -> bool:
    """Tells whether one of the names of coordinates is new beside earlier ones of its kind and reader: that of another
    server's binlog, or of what another server has committed."""
    kinds = {name.partition("/")[0] for name in earlier if not is_of_snapshot(name)}
    return any(name.partition("/")[0] in kinds for name in names if name not in earlier and not is_of_snapshot(name))


def is_of_sending(place: str) -> bool:
    """Tells whether a place (`RowChange.place`) is that of a sending."""
    return place.startswith(f"{SENT} ")


def _readers_of(place: str) -> set[str]:
    """Names the readers of a place that have a name."""
    return {name.partition(" ")[2].partition("/")[0] for name in coordinates_of(place)} - {""}


def coordinates_of(place: str) -> dict[str, int]:
    """Gives the numbers of a place by their names."""
    parts = place.split(COORDINATES_SEP)
    return {part[: -NUMBER_DIGITS - 1]: int(part[-NUMBER_DIGITS:]) for part in parts}


def in_order(moments: Sequence[Moment]) -> list[int]:
    """Gives the numbers of moments, the earliest first: by time, but those with comparable places whose times are in
    whole seconds by their places."""
    order = sorted(range(len(moments)), key=lambda number: (moments[number].ts, moments[number].places))

    def compared(first: int, second: int) -> int:
        return _order(moments[first], moments[second])

    slots = [at for at, number in enumerate(order) if moments[number].places and is_whole_second(moments[number].ts)]
    upstreams = Places.of(pa.array([moments[order[at]].places[0] for at in slots], pa.string())).apart()
    for upstream in np.unique(upstreams):
        own_slots = [slots[i] for i in np.flatnonzero(upstreams == upstream)]
        in_place = sorted((order[at] for at in own_slots), key=cmp_to_key(compared))
        for at, number in zip(own_slots, in_place, strict=True):
            order[at] = number
    return order


@lru_cache(maxsize=10_000)
def _order(moment: Moment, reference: Moment) -> int:
    """Compares two moments that have a place each: below 0 when `moment` is the earlier one."""
    for sign, (first, second) in ((1, (reference, moment)), (-1, (moment, reference))):
        is_comparable, behind = Places.of(pa.array([second.places[0]])).compared(
            first.places[0], np.array([second.ts < first.ts])
        )
        if not is_comparable[0]:
            return (moment.ts > reference.ts) - (moment.ts < reference.ts)
        if behind[0]:
            return sign
    return 0


def latest_beside(millis: Longs, other: Longs | int) -> Longs:
    """Gives the last millisecond that times may mean beside another time: one in whole seconds stands for all of its
    second, unless the other is in whole seconds as well."""
    is_wider = (millis % _SECOND_MS == 0) & np.asarray(other % _SECOND_MS != 0)
    return np.where(is_wider, millis + _SECOND_MS - 1, millis)


def newest_places(events: pa.Table, places: Places | None = None) -> dict[str, str]:
    """Gives the last place of events (EVENT_SCHEMA, in the order of their partition) for each set of names that their
    places have, the newest last.  places: the events' places, where they have been read already."""
    texts = events["place"]
    if texts.null_count == events.num_rows:
        return {}
    kinds = np.zeros(events.num_rows, np.int64)
    for number, numbers in enumerate((places or Places.of(texts)).numbers.values()):
        kinds += np.where(numbers != _ABSENT, hash((number, "a name")) | 1, 0)
    ends = sorted(int(np.flatnonzero(kinds == kind)[-1]) for kind in np.unique(kinds))
    newest = [place for at in ends if (place := texts[at].as_py()) is not None]
    return {names_of(place): place for place in newest}


def new_beginning(
    places: Places, times: Longs, highest: dict[str, int], highest_ts: int
) -> tuple[tuple[int, int] | None, bool]:
    """Finds where the binlog began anew among events of one partition, in order: the times (TSO) of the first event
    whose place is lower than an earlier one's though its time is higher than all before it, and the highest of these.
    What is sent again is not later.  Also tells whether any place went back so: a promoted server's files begin anew,
    while GTIDs go on, which decide.

    highest: by name, the highest number before these events; updated.  highest_ts: the highest time before them (TSO).
    """
    beginning, goes_back, has_gtids = None, False, any(name.startswith(GTID) for name in places.numbers)
    for name, numbers in places.numbers.items():
        at = np.flatnonzero(numbers != _ABSENT)
        own, later = numbers[at], times[at]
        before = np.maximum.accumulate(np.concatenate([[highest.get(name, _ABSENT)], own]))[:-1]
        highest_before = np.maximum.accumulate(np.concatenate([[highest_ts], times]))[at]
        back = np.flatnonzero((own < before) & (later > highest_before))
        if len(back) and not is_of_snapshot(name):
            goes_back = True
            if not has_gtids or name.startswith(GTID):
                beginning = int(highest_before[back[0]]), int(later[back[0]])
            highest[name] = int(own[back[0] :].max())
        else:
            highest[name] = max(highest.get(name, _ABSENT), int(own.max()))
    return beginning, goes_back


def names_of(place: str) -> str:
    """Names the coordinates of a place: places with the same names are comparable."""
    return COORDINATES_SEP.join(coordinates_of(place))


def is_of_snapshot(names: str) -> bool:
    """Tells whether places with these names (`names_of`) are those of what a snapshot has read."""
    return names == names_of(SNAPSHOT_PLACE) or (names.endswith(f"/{SNAPSHOT_SERVER}") and FILE in names)


def _are_of_snapshot(name: str, other_name: str) -> bool:
    """Tells whether two names are of one base name of binlog files, and one of them is of a snapshot."""
    (base, _, server), (other_base, _, other_server) = name.rpartition("/"), other_name.rpartition("/")
    return base == other_base and server != other_server and SNAPSHOT_SERVER in {server, other_server}


def is_whole_second(ts: int) -> bool:
    """Tells whether an event time (TSO) is in whole seconds, as MySQL's binlog has it."""
    return tso_ms(ts) % _SECOND_MS == 0


def _are_by_place(ts: int, times: Longs) -> Bools:
    """Tells which times may stand in another order than the binlog."""
    if is_whole_second(ts):
        return np.ones(len(times), np.bool_)
    by_place: Bools = (times == ts) | ((times >> TSO_LOGICAL_BITS) % _SECOND_MS == 0)
    return by_place
