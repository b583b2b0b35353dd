"""Decides which transactions are whole, and numbers what is due.

The topic of transactions is the order: the first ENDs in it ascend as the binlog does.  A transaction is due when all
rows that its END counts have been read, and all transactions before it are due.  Each of its rows gets a number of its
own, so that the order within the transaction holds too; the numbers of transactions ascend with the order, and begin
at the time that the END tells, or at the number behind the transaction before it (TSO).

After a restart the connector sends rows and ENDs again.  Rows that lie at or below the last transaction that was due,
by file and position in the binlog, are copies; so are ENDs of transactions of which such rows came.  An END without
rows is also one if the number in its id, of a GTID or a file and position, is no higher than that of the last that was
due: the connector leaves out only rows that it knows to be acknowledged.

Rows of snapshots, and schema changes, are of no transaction; their places in the binlog order them between two.
"""

from __future__ import annotations

import math
import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.errors import SourceError
from bridge.events import EVENT_SCHEMA, Kind
from bridge.model import PartitionId, SchemaChange
from bridge.pipeline.by_partitions.repeated_rows import before_change
from bridge.pipeline.by_transactions.told_rows import Bools, Longs, ToldRows, Transactions, missing_rows
from bridge.protocols.debezium.transactions import IN_FILE, NO_TRANSACTION, TransactionMark, told_id
from bridge.protocols.values.event_time import LAST_POSITION, NUMBER_DIGITS, POSITION_BITS, SNAPSHOT_SERVER
from bridge.rows.amount import Amount
from bridge.rows.gathering import masked, taken
from bridge.rows.grouping import distinct
from bridge.spark.decoded_batch import MOST_IN_MEMORY
from bridge.tso import ms_tso

DOUBT_SECONDS: Final = 10.0
"""How much longer a transaction is waited for that the connector began twice before its END came: the rows that were
sent first may be as many as the END of the rest counts."""
_OF_MARIADB: Final = re.compile(r"[0-9]+-[0-9]+-")
"""The id of a transaction of MariaDB 11.4, all rows of which have one place in the binlog: where the connector began it
twice, its rows are not told from their copies."""
_BEGUN_TWICE: Final = (
    "was begun twice: a connector before 3.7 was restarted in its midst, and since MariaDB gives all rows of a"
    " transaction one place in its binlog, they are not told from their copies"
)
_HOUR: Final = ms_tso(3_600_000)
"""Rows are committed no later than those behind them in the binlog, but for clocks that are set."""
_CHANGE, _WHOLE, _LOOSE = range(3)
"""The order of what is at one place: schema changes, transactions, rows of none."""


class Place(NamedTuple):
    """The last transaction, or schema change, that was due: whose binlog, and its file and position.

    last: the file and position of the last transaction.  id: that transaction, or the GTID of the schema change.
    """

    server: str
    number: int
    last: int
    id: str

    def text(self) -> str:
        """Writes it as progress keeps it."""
        return "\n".join(map(str, self))

    @classmethod
    def read(cls, text: str) -> Place:
        """Reads what `text` wrote."""
        server, number, last, id_ = text.split("\n", 3)
        return cls(server, int(number), int(last), id_)


NOWHERE: Final = Place("", -1, -1, "")


@dataclass
class _End:
    """The ENDs of a transaction.

    id: the transaction.
    marks: one that counts all of its rows; or those of its rests, where the connector began it twice before its END.
    ts: the time that the first tells (TSO).
    batch: in which micro-batch it came.  not_before: when it may be due at the earliest (the clock's seconds), if the
        connector began it twice before.
    first_offset: that of its BEGIN.
    """

    id: str
    marks: list[TransactionMark]
    ts: int
    batch: int
    not_before: float | None
    first_offset: int

    @property
    def counts_all(self) -> bool:
        """Whether it counts all rows."""
        return self.not_before is None

    @property
    def count(self) -> int:
        """The most rows that it counts."""
        return max([mark.count for mark in self.marks])


@dataclass(frozen=True)
class _Statement:
    """A schema change that waits."""

    change: SchemaChange
    number: int
    batch: int
    where: PartitionId
    offset: int
    is_of_snapshot: bool

    @property
    def id(self) -> str:
        """Its GTID, NO_TRANSACTION where it tells none."""
        return (self.change.place or "").split("\n")[-1]


class Mark(NamedTuple):
    """Rows of no transaction, or a schema change, of one partition.

    numbers: the commit_ts that each got, ascending.  ends: the offset behind each.
    """

    where: PartitionId
    numbers: Longs
    ends: Longs


@dataclass(frozen=True)
class DueRows:
    """What has become due.

    rows: in order, each with its number as commit_ts.
    starts: the commit_ts at which one may cut.
    changes: schema changes with their numbers.
    places: the place that is reached when everything below a commit_ts is in the target.
    marks: what of it is of no transaction.
    end: the number behind all of it.
    """

    rows: pa.Table
    starts: Longs
    changes: tuple[SchemaChange, ...]
    places: tuple[tuple[int, Place], ...]
    marks: tuple[Mark, ...]
    end: int


class Taken(NamedTuple):
    """What is to be said of events that were taken: copies that were dropped, by partition, and schema changes whose
    place is passed."""

    repeated: Mapping[PartitionId, int]
    passed: tuple[SchemaChange, ...]


_Item = tuple[int, int, object]


@dataclass
class TransactionQueue:
    """Holds the rows, schema changes and ENDs that are not due yet.

    place: the last transaction that is in the target or was due.
    next_ts: the first number that is free (TSO).
    loose_ends: for each partition, the offset before which all rows of no transaction are in the target.
    start_ts: what tells an earlier time counts as in the target (TSO).
    incomplete: ids of transactions that are due without the rows that they lack.
    given_up: what these lack, and how many rows, where one became due.
    passed: for each partition the last place in the binlog of a row or schema change that was read.
    most: how much of the rows waits in memory; more are moved to the disk.
    end_at: when the last END came that is no copy of one that was due (the clock's seconds).
    reason: what the first transaction that is not whole lacks; "" when there is none.
    is_short: whether a transaction waits for rows, or for an END although later ones have come.
    """

    topic: PartitionId
    place: Place
    next_ts: int
    loose_ends: Mapping[PartitionId, int]
    start_ts: int = 0
    incomplete: Collection[str] = ()
    given_up: list[tuple[str, int]] = field(default_factory=list)
    passed: dict[PartitionId, int] = field(default_factory=dict)
    most: Amount = MOST_IN_MEMORY
    end_at: float = -math.inf
    reason: str = ""
    is_short: bool = False
    _rows: ToldRows = field(default_factory=lambda: ToldRows.of(EVENT_SCHEMA.empty_table()))
    _ends: dict[str, _End] = field(default_factory=dict)
    _begun: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of transactions without an END: the offset of the first BEGIN, and how many there were."""
    _gone: set[str] = field(default_factory=set)
    """Transactions of which rows came again after they were due."""
    _lasts: dict[str, str] = field(default_factory=dict)
    """The last transaction, or schema change with a GTID, that was due of each server, by what stands before the number
    of the id; of the processes before, only the last of all."""
    _statements: list[_Statement] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._note_last(self.place.id)

    @property
    def rows(self) -> int:
        """How many rows wait."""
        return len(self._rows)

    @property
    def bytes_in_memory(self) -> int:
        """The bytes of those that are not on disk."""
        return self._rows.in_memory.bytes

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (len(self._rows) or self._ends or self._statements)

    def first_offsets(self) -> dict[PartitionId, int]:
        """Gives for each partition the offset of the first message that waits, where one does."""
        firsts = self._rows.firsts()
        for one in self._statements:
            firsts[one.where] = min(one.offset, firsts.get(one.where, one.offset))
        marks = [*(end.first_offset for end in self._ends.values()), *(first for first, _ in self._begun.values())]
        if marks:
            firsts[self.topic] = min(*marks, firsts.get(self.topic, marks[0]))
        return firsts

    # --- taking events

    def take(self, events: pa.Table, batch: int, now: float) -> Taken:
        """Takes the rows, schema changes and marks of a micro-batch (EVENT_SCHEMA).

        batch: its number.  now: the clock's seconds.
        Raises SourceError for places of two servers, and for marks in another topic.
        """
        kinds = events["kind"].to_numpy()
        is_mark = (kinds == int(Kind.TRANSACTION)) & events["text"].is_valid().to_numpy()
        is_change = kinds == int(Kind.SCHEMA_CHANGE)
        self._take_marks(events.filter(pa.array(is_mark)), batch, now)
        passed = self._take_changes(events.filter(pa.array(is_change)), batch)
        is_row = (kinds <= int(Kind.DELETE)) | ((kinds == int(Kind.TRANSACTION)) & ~is_mark)
        return Taken(self._take_rows(events.filter(pa.array(is_row))), passed)

    def _take_marks(self, marks: pa.Table, batch: int, now: float) -> None:
        for topic, partition in _partitions(marks)[0]:
            if (topic, partition) != self.topic:
                raise SourceError(
                    f"the mark of a transaction is in {topic}/{partition}, not in the topic of transactions"
                    f" {self.topic[0]}",
                    where=f"{topic}/{partition}",
                    fix="give the topics of one connector only; the topic of transactions has one partition",
                )
        found = sorted(zip(*(marks[name].to_pylist() for name in ("offset", "commit_ts", "text")), strict=True))
        for offset, ts, text in found:
            self._take_mark(TransactionMark.read(text), offset, ts, batch, now)

    def _take_mark(self, mark: TransactionMark, offset: int, ts: int, batch: int, now: float) -> None:
        is_known = mark.id in self._ends
        first, times = self._begun.get(mark.id, (offset, 0))
        if not mark.is_end:
            if not is_known and not self._is_past(mark.id):
                self._begun[mark.id] = (first, times + 1)
            return
        self.end_at = self.end_at if self._is_past(mark.id) else now
        self._begun.pop(mark.id, None)
        if mark.id == self.place.id:
            return
        if not is_known:
            not_before = now + DOUBT_SECONDS if times > 1 else None
            self._ends[mark.id] = _End(mark.id, [mark], ts, batch, not_before, first)
            return
        known = self._ends[mark.id]
        if not known.counts_all:
            known.marks.append(mark)
            known.batch, known.not_before = batch, now + DOUBT_SECONDS

    def _take_changes(self, changes: pa.Table, batch: int) -> tuple[SchemaChange, ...]:
        passed = []
        names = ("topic", "partition", "offset", "commit_ts", "schema", "table", "text", "place")
        for topic, partition, offset, ts, schema, table, text, place in sorted(
            zip(*(changes[name].to_pylist() for name in names), strict=True)
        ):
            position = f"{topic}/{partition}/{offset}"
            if place is None:
                raise _unplaced(position)
            server, number, *_, id_ = place.split("\n")[1:]
            change = SchemaChange(ts, schema, table, text, position, place)
            self.passed[topic, partition] = max(int(number), self.passed.get((topic, partition), -1))
            where, waiting = (topic, partition), [one.change for one in self._statements]
            is_of_snapshot = server.endswith(f"/{SNAPSHOT_SERVER}")
            if offset < self.loose_ends.get(where, 0):
                continue
            if is_of_snapshot and int(number) < self.place.number:
                raise _set_back(position)
            self._check_server([server], position)
            if not is_of_snapshot:
                self._check_order(id_, int(number), self.place.number, position)
            if any(one.id == id_ != NO_TRANSACTION and one.change.place != place for one in self._statements):
                raise _other_binlog(f"the schema change {told_id(id_)} has two places", position)
            if int(number) <= self.place.number and not is_of_snapshot:
                passed.append(change)
            elif all((change.place, change.statement_hash) != (o.place, o.statement_hash) for o in waiting):
                self._statements.append(_Statement(change, int(number), batch, where, offset, is_of_snapshot))
        return tuple(passed)

    def _take_rows(self, events: pa.Table) -> Mapping[PartitionId, int]:
        if not events.num_rows:
            return {}
        if events["place"].null_count:
            raise _unplaced("a row")
        rows = ToldRows.of(events)
        topics, partitions, offsets = (rows.table[name] for name in ("topic", "partition", "offset"))
        self._check_server(rows.servers, f"{topics[0].as_py()}/{partitions[0].as_py()}/{offsets[0].as_py()}")
        where, codes = _partitions(events)
        if (rows.numbers & LAST_POSITION == LAST_POSITION).any():
            raise SourceError(
                "a file of the upstream's binlog is larger than 4 GiB, and nothing tells the order of what lies beyond",
                where=where[0][0],
                fix="apply without the topic of transactions, in a pipeline of another --name, and compare with bridge"
                " verify --against upstream; smaller transactions keep the files below that size",
            )
        for code, one in enumerate(where):
            self.passed[one] = max(int(rows.numbers[codes == code].max()), self.passed.get(one, -1))
        is_copy = ~rows.is_loose & (rows.numbers <= self.place.number)
        if (is_late := is_copy & (rows.numbers > self.place.last)).any():
            topic, partition = where[codes[is_late][0]]
            raise before_change(topic, partition, offsets.to_numpy()[is_late][0])
        own = np.flatnonzero(~rows.is_loose)
        own = own[np.lexsort([rows.numbers[own], rows.codes[own]])]
        ends = np.flatnonzero(np.diff(rows.codes[own], prepend=-1, append=-1))  # of the rows of each transaction
        for at in own[np.unique(np.concatenate([ends[:-1], ends[1:] - 1]))].tolist():
            topic, partition = where[codes[at]]
            position = f"{topic}/{partition}/{offsets[at].as_py()}"
            self._check_order(rows.ids[rows.codes[at]], int(rows.numbers[at]), self.place.last, position)
        self._gone.update(rows.ids[code] for code in np.unique(rows.codes[is_copy]).tolist())
        if rows.is_loose.any():
            done = np.array([self.loose_ends.get(one, 0) for one in where], np.int64)[codes]
            is_copy |= rows.is_loose & (offsets.to_numpy() < done)
        is_set_back = rows.is_loose & ~is_copy & rows.is_of_first_snapshot & (rows.numbers < self.place.number)
        if self.next_ts > _HOUR:  # ENDs may tell no time
            is_set_back |= ~rows.is_loose & is_copy & (events["commit_ts"].to_numpy() > self.next_ts + _HOUR)
        if is_set_back.any():
            topic, partition = where[codes[is_set_back][0]]
            raise _set_back(f"{topic}/{partition}/{offsets.to_numpy()[is_set_back][0]}")
        repeated = {}
        if is_copy.any():
            dropped = (
                rows.table.filter(pa.array(is_copy)).group_by(["topic", "partition"]).aggregate([([], "count_all")])
            )
            for topic, partition, count in zip(*(dropped[i].to_pylist() for i in range(3)), strict=True):
                repeated[topic, partition] = count
        self._rows = self._rows.and_those(rows.only(~is_copy))
        if self._rows.in_memory.exceeds(self.most):
            self._rows = self._rows.to_disk()
        return repeated

    def _check_server(self, servers: Sequence[str], position: str) -> None:
        for server in servers:
            if server.endswith(f"/{SNAPSHOT_SERVER}"):
                continue
            if self.place.server not in ("", server):
                raise _other_binlog(f"it is of {server}, and what was read before of {self.place.server}", position)
            self.place = self.place._replace(server=server)

    def _check_order(self, id_: str, number: int, last: int, position: str) -> None:
        """Raises SourceError where a GTID is behind what was due, and the place is not, or the other way round: a
        replica copies GTIDs, and has a binlog with places of its own.  last: the place of what was due."""
        known = self._lasts.get(id_[:-NUMBER_DIGITS], "")
        if known and IN_FILE not in id_ and (id_ > known) != (number > last):
            raise _other_binlog(f"{told_id(id_)} and {told_id(known)} are in another order in the binlog", position)

    # --- what is due

    def due(
        self,
        settled: int,
        now: float,
        *,
        is_idle: bool,
        is_end: bool = False,
        below: float = math.inf,
        told_below: float = math.inf,
    ) -> DueRows:
        """Takes what is due.

        settled: the last micro-batch behind which all partitions were read to where they ended then.
        is_idle: nothing has come for so long that a schema change may run behind which nothing stands yet.
        is_end: nothing more will be read.
        below: every partition was read to this place in the binlog, or to where it ends.
        told_below: the same of the partitions that have brought no row: those of schema changes.
        """
        rows = self._rows
        found = rows.transactions
        whole = self._whole(found, settled, now, below=below, is_end=is_end)
        due_ids = {end.id for end in whole}
        of_due = [found.ids[id_] for id_ in due_ids if id_ in found.ids]
        last = max((found.lasts[one] for one in of_due), default=-1)
        is_other = np.ones(len(found.sizes), np.bool_)
        is_other[of_due] = False
        others = np.array(found.firsts, np.int64)[is_other].tolist()
        is_known = all(id_ in found.ids for id_, end in self._ends.items() if end.count)
        limit: float = min(others, default=math.inf) - 1 if is_known else last
        is_loose = rows.is_loose & (rows.numbers <= max(limit, last)) & (rows.numbers < told_below)
        loose_number = int(rows.numbers[is_loose].max(initial=-1))
        statements = [
            one
            for one in self._statements
            if one.number < last
            or one.is_of_snapshot
            or (one.number < below and one.number <= limit and (is_idle or is_end or one.number <= loose_number))
        ]
        waiting = [one.number for one in self._statements if one not in statements]
        is_loose &= rows.numbers < min(waiting, default=math.inf)
        items: list[_Item] = [(one.number, _CHANGE, one) for one in statements]
        items += [(found.lasts[found.ids[end.id]], _WHOLE, end) for end in whole if end.id in found.ids]
        if is_loose.any():
            at = np.flatnonzero(is_loose)
            for number in np.unique(rows.numbers[at]).tolist():
                items.append((number, _LOOSE, at[rows.numbers[at] == number]))
        items.sort(key=lambda item: item[:2])
        self._check_due(items)
        due = self._numbered(items, found)
        self._drop(due_ids, statements, is_loose)
        return due

    def _check_due(self, items: Sequence[_Item]) -> None:
        """Raises SourceError where GTIDs are in another order than the places in the binlog."""
        lasts = dict(self._lasts)
        for _, _, item in items:
            id_ = item.id if isinstance(item, _Statement | _End) else NO_TRANSACTION
            head = id_[:-NUMBER_DIGITS]
            if head and IN_FILE not in id_ and id_ <= lasts.get(head, ""):
                raise _other_binlog(f"{told_id(id_)} lies behind {told_id(lasts[head])} there", self.topic[0])
            lasts[head] = id_

    def _whole(self, found: Transactions, settled: int, now: float, *, below: float, is_end: bool) -> list[_End]:
        """Gives the ENDs at the head of the queue that are due, and drops those of copies; notes what the next one
        lacks."""
        whole, passed = list[_End](), list[str]()
        last, self.reason, self.is_short = self.place.number, "", False
        of_these = ((found.firsts[one], id_) for id_, one in found.ids.items() if id_ not in self._ends)
        without_end = min(of_these, default=None)
        for end in self._ends.values():
            one = found.ids.get(end.id)
            if one is None and (
                end.id in self._gone
                or (not end.count and end.counts_all)
                or (end.batch <= settled and (not end.count or self._is_past(end.id)))
            ):
                passed.append(end.id)
                continue
            if one is not None and found.firsts[one] >> POSITION_BITS != found.lasts[one] >> POSITION_BITS:
                raise _other_binlog(f"rows of {told_id(end.id)} are in two files", self.topic[0])
            is_plain = one is not None and end.counts_all and found.are_all(one, end.marks[0])
            is_settled = found.lasts[one] < below if one is not None and is_plain else end.batch <= settled
            if not is_settled or (end.not_before is not None and now < end.not_before and not is_end):
                self.reason = f"the transaction {told_id(end.id)} has just come"
                break
            are_told_apart = not _OF_MARIADB.match(end.id)
            if one is None or not (
                is_plain or (not end.counts_all and are_told_apart and any(map(found[one].are_with_rest, end.marks)))
            ):
                lacks = missing_rows(end.marks[0], {}) if one is None else found[one].missing(end.marks[0])
                lacks = f"the transaction {told_id(end.id)} lacks rows: {lacks}"
                if one is not None and not end.counts_all and not are_told_apart:
                    lacks = f"the transaction {told_id(end.id)} {_BEGUN_TWICE}"
                if told_id(end.id) not in self.incomplete:
                    self.reason, self.is_short = lacks, True
                    break
                self.given_up.append((lacks, end.count - (0 if one is None else len(found.distinct(one)))))
            if one is None:
                whole.append(end)
                continue
            if without_end is not None and found.lasts[one] > without_end[0]:
                self.reason = f"the transaction {told_id(without_end[1])} has no END, and later ones have"
                self.is_short = True
                break
            if found.firsts[one] <= last:
                raise SourceError(
                    f"the transaction {told_id(end.id)} comes behind a later one of the binlog",
                    where=self.topic[0],
                    fix="the topic of transactions must have one partition and one connector that writes to it; apply"
                    " without that topic, in a pipeline of another --name",
                )
            last = found.lasts[one]
            whole.append(end)
        for id_ in passed:
            del self._ends[id_]
        if not self.reason and without_end is not None:
            self.reason = f"the transaction {told_id(without_end[1])} has no END yet"
        return whole

    def _is_past(self, id_: str) -> bool:
        """Tells whether a transaction is in the target, or was due; of one whose id has no number that compares with
        that of the last, by its rows alone."""
        return id_ in self._gone or id_ == self.place.id or id_ <= self._lasts.get(id_[:-NUMBER_DIGITS], "")

    def _note_last(self, id_: str) -> None:
        if head := id_[:-NUMBER_DIGITS]:
            self._lasts[head] = max(id_, self._lasts.get(head, ""))

    def _numbered(self, items: Sequence[_Item], found: Transactions) -> DueRows:
        rows, next_ts = self._rows, self.next_ts
        at: list[Longs] = []
        numbers: list[Longs] = []
        starts: list[Longs] = []
        plain, starts_of_whole = list[tuple[int, int, int]](), list[int]()
        changes: list[SchemaChange] = []
        places: list[tuple[int, Place]] = []
        marks: list[Mark] = []
        place = self.place
        for number, _, item in items:
            if isinstance(item, _Statement):
                ts = max(next_ts, item.change.commit_ts)
                if item.change.commit_ts >= self.start_ts:
                    changes.append(replace(item.change, commit_ts=ts))
                marks.append(Mark(item.where, np.array([ts]), np.array([item.offset + 1])))
                if not item.is_of_snapshot:
                    is_told = item.id != NO_TRANSACTION
                    place = place._replace(number=number, id=item.id if is_told else place.id)
                    self._note_last(item.id)
                next_ts = ts + 1
            elif isinstance(item, _End):
                one, ts = found.ids[item.id], max(next_ts, item.ts)
                count = int(found.sizes[one])
                if item.ts < self.start_ts:
                    count = 0
                elif found.are_numbered[one]:
                    plain.append((one, count, ts))
                else:
                    of_it = found.distinct(one)
                    count = len(of_it)
                    at.append(of_it)
                    numbers.append(np.arange(ts, ts + count))
                starts_of_whole.append(ts)
                place = Place(place.server, number, number, item.id)
                self._note_last(item.id)
                next_ts = ts + max(1, count)
            elif isinstance(item, np.ndarray):
                order = np.lexsort([rows.table[name].to_numpy()[item] for name in ("offset", "partition")])
                loose = item[order]
                times = rows.table["commit_ts"].to_numpy()[loose]
                ts = max(next_ts, int(times.min()))
                own = np.arange(ts, ts + len(loose))
                at.append(loose[times >= self.start_ts])
                numbers.append(own[times >= self.start_ts])
                starts.append(own)
                part = rows.table.select(["topic", "partition", "offset"]).take(pa.array(loose))
                partitions, codes = _partitions(part)
                ends = part["offset"].to_numpy() + 1
                marks += [Mark(one, own[codes == code], ends[codes == code]) for code, one in enumerate(partitions)]
                next_ts = ts + len(loose)
            places.append((next_ts, place))
        self.place, self.next_ts = place, next_ts
        if plain:
            which, counts, firsts = np.array(plain, np.int64).T
            within = np.arange(counts.sum()) - np.repeat(np.cumsum(counts) - counts, counts)
            at.append(found.at[np.repeat(found.bounds[which], counts) + within])
            numbers.append(np.repeat(firsts, counts) + within)
        starts.append(np.array(starts_of_whole, np.int64))
        return DueRows(
            _with_numbers(rows, at, numbers),
            np.sort(np.concatenate(starts)),
            tuple(changes),
            tuple(places),
            tuple(marks),
            next_ts,
        )

    def _drop(self, due_ids: Collection[str], statements: Collection[_Statement], is_loose: Bools) -> None:
        gone = [code for code, id_ in enumerate(self._rows.ids) if id_ in due_ids]
        is_due = np.isin(self._rows.codes, gone) | is_loose
        if is_due.any():
            self._rows = self._rows.only(~is_due)
        for id_ in due_ids:
            self._ends.pop(id_, None)
        done = set(map(id, statements))
        self._statements = [one for one in self._statements if id(one) not in done]
        self._begun = {id_: one for id_, one in self._begun.items() if id_ not in due_ids and not self._is_past(id_)}


def _partitions(rows: pa.Table) -> tuple[list[PartitionId], Longs]:
    """Gives the partitions of rows, and for each row the number of its partition."""
    topics, of_topic = distinct(rows, ("topic",))
    numbers = rows["partition"].to_numpy().astype(np.int64)
    width = int(numbers.max(initial=0)) + 1
    found, codes = np.unique(of_topic * width + numbers, return_inverse=True)
    return [(topics[one // width][0], one % width) for one in found.tolist()], codes


def _with_numbers(rows: ToldRows, at: Sequence[Longs], numbers: Sequence[Longs]) -> pa.Table:
    """Gives row changes (EVENT_SCHEMA) in the order of their numbers, which become their commit_ts."""
    ts = np.concatenate([np.empty(0, np.int64), *numbers])
    order = np.argsort(ts)
    due = rows.events(taken(rows.table, np.concatenate([np.empty(0, np.int64), *at])[order]))
    is_row = due["kind"].to_numpy() <= int(Kind.DELETE)
    for name, column in (("commit_ts", pa.array(ts[order])), ("by_time", pa.repeat(False, len(ts)))):
        field_at = EVENT_SCHEMA.get_field_index(name)
        due = due.set_column(field_at, EVENT_SCHEMA.field(field_at), column)
    return masked(due, is_row)


def _set_back(where: str) -> SourceError:
    return SourceError(
        "this lies at a place in the binlog before what is in the target, and is no copy of it: it is of a new"
        " snapshot, or more than an hour younger; the upstream was set back (RESET MASTER, a backup)",
        where=where,
        fix="begin again there with a pipeline of another --name",
    )


def _other_binlog(why: str, position: str) -> SourceError:
    return SourceError(
        f"the connector reads another binlog: {why}; nothing tells which of its transactions are in the target",
        where=position,
        fix="everything before it is in the target; compare it with bridge verify --against upstream, and begin again"
        " behind the change with a pipeline of another --name",
    )


def _unplaced(where: str) -> SourceError:
    return SourceError(
        "a message does not tell its place in the binlog, so that it has none among the transactions",
        where=where,
        fix="all topics beside the topic of transactions must be of the same Debezium connector for MySQL or MariaDB;"
        " without the topic of transactions they are applied in the order of their partitions",
    )
