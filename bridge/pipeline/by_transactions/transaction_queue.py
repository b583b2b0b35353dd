"""Decides which transactions are whole, and numbers what is due (internals, decision 17).

A transaction is due when all rows that its END counts have been read, and all transactions before it in their topic are
due.  Rows at or before the last place in the binlog that was due are copies.  Rows of snapshots and schema changes
belong to no transaction: their places put them between two.  What cannot be of the same binlog, as behind a failover,
waits with all behind it until the new server was asked.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final, Literal

import numpy as np
import pyarrow as pa

from bridge.errors import SourceError
from bridge.events import EVENT_SCHEMA, Kind
from bridge.model import PartitionId, SchemaChange
from bridge.pipeline.by_partitions.repeated_rows import before_change
from bridge.pipeline.by_transactions.numbering import DueRows, End, Statement
from bridge.pipeline.by_transactions.reached import Lacks, Reached, Snapshot, has_gtid, other_binlog
from bridge.pipeline.by_transactions.transaction_rows import PlacedRows, Transactions, missing_rows
from bridge.protocols.debezium.transactions import NO_TRANSACTION, TransactionMark, plain_id
from bridge.protocols.values.event_time import LAST_POSITION, NUMBER_DIGITS, POSITION_BITS
from bridge.rows.gathering import Amount, Bools, Longs, partitions_of
from bridge.spark.decoded_batch import MOST_IN_MEMORY
from bridge.tso import ms_tso

DOUBT_SECONDS: Final = 10.0
"""How much later an END must come behind that of a transaction that the connector began twice before: the rows that
were sent first may be as many as the END of the rest counts, which a killed connector may have sent without its rows;
it sends those when it is back, before another END.  So long it is waited, too, before the next server is asked."""
_HOUR: Final = ms_tso(3_600_000)
"""Rows are committed no later than those behind them in the binlog, but for clocks that are set."""
_LOOSE_ROWS: Final = ""
"""Stands for rows of no transaction."""
_Side = Literal["left", "right"]
_CHANGE: Final[_Side] = "left"
_LOOSE: Final[_Side] = "right"
"""Schema changes stand before a transaction at the same place, and rows of none behind it."""


@dataclass
class TransactionQueue:
    """Holds the rows, schema changes and ENDs that are not due yet.

    next_ts: the first number that is free (TSO).
    loose_ends: for each partition, the offset before which all rows of no transaction are in the target.
    incomplete: ids of transactions that are due without the rows that they lack.
    shortages: what these lack, and how many rows, where one became due.
    passed: for each partition the last place in the binlog of a row or schema change that was read.
    most: how much of the rows waits in memory; more are moved to the disk.
    end_at: when the last END came that is no copy of one that was due (the clock's seconds).
    reason: what the first transaction that is not whole lacks; "" when there is none.
    is_short: whether a transaction waits for rows, or for an END although later ones have come.
    """

    topic: PartitionId
    reached: Reached
    next_ts: int
    loose_ends: Mapping[PartitionId, int]
    start_ts: int = 0
    incomplete: Collection[str] = ()
    snapshot: Snapshot = field(default_factory=Snapshot)
    shortages: list[tuple[str, int]] = field(default_factory=list)
    passed: dict[PartitionId, int] = field(default_factory=dict)
    most: Amount = MOST_IN_MEMORY
    lacks: Lacks | None = None
    end_at: float = -math.inf
    reason: str = ""
    is_short: bool = False
    _rows: PlacedRows = field(default_factory=lambda: PlacedRows.of(EVENT_SCHEMA.empty_table()))
    _ends: dict[str, End] = field(default_factory=dict)
    _begun: dict[str, tuple[int, int]] = field(default_factory=dict)
    """Of transactions without an END: the offset of the first BEGIN, and how many there were."""
    _statements: list[Statement] = field(default_factory=list)
    _doubts: dict[str, str] = field(default_factory=dict)
    """Of transactions and schema changes that cannot be of this binlog, why."""
    _doubted_at: float | None = None
    """When one of them stood first (the clock's seconds)."""

    @property
    def waiting(self) -> Amount:
        """How many rows wait, and the bytes of those that are not on disk."""
        return Amount(len(self._rows), self._rows.in_memory.bytes)

    @property
    def is_empty(self) -> bool:
        """Whether nothing waits."""
        return not (len(self._rows) or self._ends or self._statements)

    @property
    def is_in_doubt(self) -> bool:
        """Whether something waits that cannot be of this binlog."""
        return bool(self._doubts)

    def first_offsets(self) -> dict[PartitionId, int]:
        """Gives for each partition the offset of the first message that waits, where one does."""
        firsts = self._rows.firsts()
        for statement in self._statements:
            where, offset = statement.read_at[:2], statement.read_at.offset
            firsts[where] = min(offset, firsts.get(where, offset))
        marks = [*(end.first_offset for end in self._ends.values()), *(first for first, _ in self._begun.values())]
        if marks:
            firsts[self.topic] = min(*marks, firsts.get(self.topic, marks[0]))
        return firsts

    # --- taking events

    def take(self, events: pa.Table, batch: int, now: float) -> tuple[int, tuple[SchemaChange, ...]]:
        """Takes the rows, schema changes and marks of a micro-batch (EVENT_SCHEMA) with its number; gives how many
        copies were dropped, and the schema changes whose place is passed.  now: the clock's seconds."""
        kinds = events["kind"].to_numpy()
        is_mark = (kinds == int(Kind.TRANSACTION)) & events["text"].is_valid().to_numpy()
        is_change = kinds == int(Kind.SCHEMA_CHANGE)
        self._take_marks(events.filter(pa.array(is_mark)), batch, now)
        is_row = (kinds <= int(Kind.DELETE)) | ((kinds == int(Kind.TRANSACTION)) & ~is_mark)
        passed = self._take_changes(events.filter(pa.array(is_change)))
        return self._take_rows(events.filter(pa.array(is_row))), passed

    def _take_marks(self, marks: pa.Table, batch: int, now: float) -> None:
        for topic, partition in {*partitions_of(marks)[0]} - {self.topic}:
            where = f"{topic}/{partition}"
            raise SourceError(
                f"the mark of a transaction is in {where}, not in the topic of transactions {self.topic[0]}",
                where=where,
                fix="give the topics of one connector only; the topic of transactions has one partition",
            )
        columns = (marks[name].to_pylist() for name in ("offset", "commit_ts"))
        in_order = sorted(zip(*columns, TransactionMark.read(marks["text"].to_pylist()), strict=True))
        for offset, ts, mark in in_order:
            self._take_mark(mark, offset, ts, batch, now)

    def _take_mark(self, mark: TransactionMark, offset: int, ts: int, batch: int, now: float) -> None:
        has_end, is_past = mark.id in self._ends, self.reached.is_past(mark.id)
        first, times = self._begun.pop(mark.id, (offset, 0))
        if not mark.is_end:
            if not (has_end or is_past):
                self._begun[mark.id] = (first, times + 1)
            return
        self.end_at = self.end_at if is_past else now
        if mark.id in self.reached.place.transactions:
            return
        if not has_end:
            not_before = now + DOUBT_SECONDS if times > 1 else None
            self._ends[mark.id] = End(mark.id, [mark], ts, batch, not_before, first, times > 0)
        elif not (end := self._ends[mark.id]).counts_all:
            end.marks.append(mark)
            end.batch, end.not_before = batch, now + DOUBT_SECONDS

    def _take_changes(self, changes: pa.Table) -> tuple[SchemaChange, ...]:
        passed = []
        names = ("topic", "partition", "offset", "commit_ts", "schema", "table", "text", "place")
        for topic, partition, offset, ts, schema, table, text, place in sorted(
            zip(*(changes[name].to_pylist() for name in names), strict=True)
        ):
            position = f"{topic}/{partition}/{offset}"
            if place is None:
                raise _unplaced(position)
            change, where = SchemaChange(ts, schema, table, text, position, place), (topic, partition)
            item = Statement(change)
            self.passed[where] = max(item.number, self.passed.get(where, -1))
            if offset < self.loose_ends.get(where, 0):
                continue
            if item.is_of_snapshot:
                self.snapshot.check(item.number, self.reached.place, position)
                self.snapshot.check_statement(change)
            self.reached.begin_at(item.server)
            last, why = self.reached.place.number, ""
            if not item.is_of_snapshot:
                why = self.reached.contradiction(item.server, item.id, item.number, last, is_change=True)
            if why:
                self._doubt(item.id, why, position, is_change=True)
            if any(o.id == item.id != NO_TRANSACTION and o.change.place != place for o in self._statements):
                raise other_binlog(f"the schema change {plain_id(item.id)} has two places", position)
            is_again = self.reached.is_again(item.server, item.id, is_change=True)
            waiting = {(o.change.place, o.change.statement_hash) for o in self._statements}
            if not item.is_of_snapshot and not why and (is_again or item.number <= last):
                passed.append(change)
            elif (place, change.statement_hash) not in waiting:
                self._statements.append(item)
        return tuple(passed)

    def _take_rows(self, events: pa.Table) -> int:
        if not events.num_rows:
            return 0
        if events["place"].null_count:
            raise _unplaced("a row")
        rows = PlacedRows.of(events)
        where, codes = partitions_of(rows.table)
        if (rows.numbers & LAST_POSITION == LAST_POSITION).any():
            raise SourceError(
                "a file of the upstream's binlog is larger than 4 GiB, and nothing tells the order of what lies beyond",
                where=where[0][0],
                fix="apply without the topic of transactions, in a pipeline of another --name, and compare with bridge"
                " verify --against upstream; smaller transactions keep the files below that size",
            )
        for server in rows.of_servers[0]:
            self.reached.begin_at(server)
        for code, partition in enumerate(where):
            self.passed[partition] = max(int(rows.numbers[codes == code].max()), self.passed.get(partition, -1))
        is_copy = self._are_copies(rows, where, codes)
        parts = self._rows.parts + rows.only(~is_copy).parts
        self._rows = PlacedRows(tuple(part for part in parts if part.table.num_rows) or self._rows.parts[:1])
        if self._rows.in_memory.exceeds(self.most):
            self._rows = self._rows.to_disk()
        return int(is_copy.sum())

    def _doubt(self, id_: str, why: str, position: str, *, is_change: bool = False) -> None:
        """Notes what is not of the binlog that was read before; raises SourceError where no server can be asked."""
        may_wait = id_ == _LOOSE_ROWS or (has_gtid(id_) and not self.reached.is_past(id_, is_change=is_change))
        if self.lacks is None or not (may_wait and self.reached.place.id):
            raise other_binlog(why, position)
        self._doubts.setdefault(id_, why)

    def _are_copies(self, rows: PlacedRows, where: Sequence[PartitionId], codes: Longs) -> Bools:
        """Tells which rows are copies; raises SourceError for those that come too late, and out of order."""
        place = self.reached.place
        is_copy = self._are_of_due(rows)
        if (is_late := is_copy & (rows.numbers > place.last)).any():
            raise before_change(rows.position(int(is_late.argmax())))
        self.reached.repeated.update(rows.ids[code] for code in np.unique(rows.codes[is_copy]).tolist())
        is_set_back = np.zeros(len(rows), np.bool_)
        if self.next_ts > _HOUR:  # ENDs may tell no time
            is_set_back = is_copy & (rows.table["commit_ts"].to_numpy() > self.next_ts + _HOUR)
        if rows.is_loose.any():
            loose_ends = np.array([self.loose_ends.get(partition, 0) for partition in where], np.int64)[codes]
            is_copy |= rows.is_loose & (rows.table["offset"].to_numpy() < loose_ends)
            is_set_back |= ~is_copy & rows.is_of_first_snapshot & (rows.numbers <= place.number)
        if is_set_back.any():
            raise _set_back(rows.position(int(is_set_back.argmax())))
        of_snapshot = np.flatnonzero(rows.is_loose & ~is_copy & rows.is_of_first_snapshot)
        for number, at in zip(*np.unique(rows.numbers[of_snapshot], return_index=True), strict=True):
            self.snapshot.check(int(number), place, rows.position(int(of_snapshot[at])))
        return is_copy

    def _are_of_due(self, rows: PlacedRows) -> Bools:
        """Tells which rows are of transactions that were due; those in doubt are not, before the server was asked."""
        reached, last, (servers, of_server) = self.reached, self.reached.place.last, rows.of_servers
        is_copy: Bools = ~rows.is_loose & (rows.numbers <= reached.place.number)
        if (foreign := np.flatnonzero(rows.is_loose & rows.are_of(reached.is_foreign))).size:
            at = int(foreign[0])
            self._doubt(_LOOSE_ROWS, f"a row is of {servers[of_server[at]]}", rows.position(at))
        own = np.flatnonzero(~rows.is_loose & self._may_contradict(rows))
        own = own[np.lexsort([rows.numbers[own], rows.codes[own]])]
        ends = np.flatnonzero(np.diff(rows.codes[own], prepend=-1, append=-1))  # of the rows of each transaction
        copies, doubted = list[int](), list[int]()
        for at in own[np.unique(np.concatenate([ends[:-1], ends[1:] - 1]))].tolist():
            id_, number, server = rows.ids[rows.codes[at]], int(rows.numbers[at]), servers[of_server[at]]
            if why := reached.contradiction(server, id_, number, last):
                self._doubt(id_, why, rows.position(at))
            if id_ in self._doubts:
                doubted.append(rows.codes[at])
            elif reached.is_again(server, id_):
                copies.append(rows.codes[at])
        return (is_copy | np.isin(rows.codes, copies)) & ~np.isin(rows.codes, doubted)

    def _may_contradict(self, rows: PlacedRows) -> Bools:
        """Tells which rows are to be asked about one by one, which takes four times as long (measured)."""
        reached, last = self.reached, self.reached.place.last
        servers, of_server = rows.of_servers
        is_behind = np.array([reached.is_behind(id_) for id_ in rows.ids], np.int8)[rows.codes]
        is_own = np.array([server == reached.place.server for server in servers], np.bool_)[of_server]
        may = ~is_own | (is_behind == (rows.numbers <= last)) | bool(self._doubts)
        return np.isin(rows.codes, rows.codes[may])

    # --- what is due

    def due(
        self,
        settled: int,
        now: float,
        below: float = math.inf,
        rowless_below: float = math.inf,
        *,
        is_idle: bool,
        is_end: bool = False,
    ) -> DueRows:
        """Takes what is due.

        settled: the last micro-batch behind which all partitions were read to where they ended then.
        below: every partition was read to this place in the binlog, or to its end; rowless_below: every one without a
        row so far.
        is_idle: a schema change may run behind which nothing stands yet.  is_end: nothing more will be read.
        """
        rows = self._rows
        transactions = rows.transactions
        firsts, lasts, ids = transactions.firsts, transactions.lasts, transactions.ids
        whole = self._whole(transactions, settled, now, below=below, is_end=is_end)
        due_ids = {end.id for end in whole}
        due_numbers = {ids[id_] for id_ in due_ids if id_ in ids}
        last = max((lasts[one] for one in due_numbers), default=-1)
        waiting_firsts = [first for one, first in enumerate(firsts) if one not in due_numbers]
        have_rows = all(id_ in ids for id_, end in self._ends.items() if end.count)
        limit: float = min(waiting_firsts, default=math.inf) - 1 if have_rows else last
        numbers = rows.numbers - rows.is_of_first_snapshot  # MariaDB's first transaction has the place of a snapshot
        ends_binlog = self._stands_in_doubt(settled, now, is_end=is_end) and not whole
        if ends_binlog:  # all that is of the binlog before
            limit = rowless_below = math.inf
        is_loose = rows.is_loose & (numbers <= max(limit, last)) & (rows.numbers < rowless_below)
        if self._doubts:
            is_loose &= ~rows.are_of(self.reached.is_foreign)
        if ends_binlog and (is_loose & ~rows.is_of_first_snapshot).any():
            why = "rows of an incremental snapshot came before it, and transactions before them did not come whole"
            raise other_binlog(why, self.topic[0])
        loose_number = int(numbers[is_loose].max(initial=-1))
        end = math.inf if is_idle or is_end else loose_number + 1
        end = min(end, below, limit + 1)
        statements = [one for one in self._statements if self._may_run(one, last, end, ends_binlog=ends_binlog)]
        waiting = [one.number for one in self._statements if one not in statements and one.id not in self._doubts]
        is_loose &= numbers < min(waiting, default=math.inf)
        whole = [end for end in whole if end.id in ids]
        if ends_binlog and not (statements or whole or is_loose.any()):
            self._go_over()
            return self.due(settled, now, below if is_end else -1, is_idle=is_idle, is_end=is_end)
        due = self._numbered(whole, statements, np.flatnonzero(is_loose), numbers)
        self.next_ts = due.end
        self._drop(due_ids, statements, is_loose)
        return due

    def _numbered(self, whole: Sequence[End], statements: Collection[Statement], at: Longs, numbers: Longs) -> DueRows:
        """Numbers what is due in the order of the binlog.

        at: the rows that are of no transaction.  numbers: the file and position of each row.
        """
        rows, transactions = self._rows, self._rows.transactions
        items: list[tuple[int, _Side, Statement | Longs]] = [
            (statement.number - statement.is_of_snapshot, _CHANGE, statement) for statement in statements
        ]
        items += [(number, _LOOSE, at[numbers[at] == number]) for number in np.unique(numbers[at]).tolist()]
        ends, begun = [transactions.lasts[transactions.ids[end.id]] for end in whole], 0
        due = DueRows(rows, self.reached, self.start_ts, self.next_ts, self.topic[0])
        for number, side, item in sorted(items, key=lambda item: item[:2]):
            behind = int(np.searchsorted(ends, number, side))
            due.add_transactions(whole[begun:behind], ends[begun:behind])
            due.add(item, number)
            begun = behind
        due.add_transactions(whole[begun:], ends[begun:])
        return due

    def _whole(self, transactions: Transactions, settled: int, now: float, *, below: float, is_end: bool) -> list[End]:
        """Gives the ENDs that are due, and drops those of copies; notes what the next one lacks."""
        whole, passed = list[End](), list[str]()
        firsts, lasts, ids = transactions.firsts, transactions.lasts, transactions.ids
        last, self.reason, self.is_short = self.reached.place.number, "", False
        of_these = ((firsts[number], id_) for id_, number in ids.items() if id_ not in self._ends)
        without_end = min(of_these, default=None)
        for end in self._ends.values():
            number = ids.get(end.id)
            if number is None and self._is_copy(end, settled):
                passed.append(end.id)
                continue
            if end.id in self._doubts:
                self.reason = f"the server that has the transaction {plain_id(end.id)} is asked for those before it"
                break
            if number is not None and firsts[number] >> POSITION_BITS != lasts[number] >> POSITION_BITS:
                raise other_binlog(f"rows of {plain_id(end.id)} are in two files", self.topic[0])
            is_plain = number is not None and end.counts_all and transactions.are_all(number, end.marks[0])
            is_settled = lasts[number] < below if number is not None and is_plain else end.batch <= settled
            if not is_settled or (not is_end and now < (end.not_before or -math.inf)):
                self.reason = f"the transaction {plain_id(end.id)} has just come"
                break
            if not is_plain and (lacks := _lacks(end, number, transactions)):
                lacks = f"the transaction {plain_id(end.id)} {lacks}"
                if plain_id(end.id) not in self.incomplete:
                    self.reason, self.is_short = lacks, True
                    break
                there = [] if number is None else [number]
                self.shortages.append((lacks, end.count - len(transactions.distinct(np.array(there, np.int64))[0])))
            if self._is_unsure(end, is_end=is_end):
                self.reason = f"the next transaction tells whether {plain_id(end.id)}, which was begun twice, is whole"
                break
            if number is None:
                whole.append(end)
                continue
            if without_end is not None and lasts[number] > without_end[0]:
                self.reason = f"the transaction {plain_id(without_end[1])} has no END, and later ones have"
                self.is_short = True
                break
            if firsts[number] <= last and self.lacks is not None and has_gtid(end.id):
                self._doubts[end.id] = f"{plain_id(end.id)} is before an earlier transaction in the binlog"
                break
            if firsts[number] <= last:
                raise SourceError(
                    f"the transaction {plain_id(end.id)} comes behind a later one of the binlog",
                    where=self.topic[0],
                    fix="the topic of transactions must have one partition and one connector that writes to it; apply"
                    " without that topic, in a pipeline of another --name",
                )
            last = lasts[number]
            whole.append(end)
        for id_ in passed:
            del self._ends[id_]
        if not self.reason and without_end is not None:
            self.reason = f"the transaction {plain_id(without_end[1])} has no END yet"
        return whole

    def _is_unsure(self, end: End, *, is_end: bool) -> bool:
        """Tells whether a transaction that was begun twice may lack rows although an END counts as many."""
        if end.not_before is None or plain_id(end.id) in self.incomplete:
            return False
        if is_end:
            return end is next(reversed(self._ends.values()))
        return self.end_at < end.not_before

    def _stands_in_doubt(self, settled: int, now: float, *, is_end: bool) -> bool:
        """Tells whether what is in doubt stands first, and everything that may come before it was read."""
        head = next(iter(self._ends.values()), None)
        if head is None or head.id not in self._doubts:
            if self._doubts and head is None:
                self.reason = f"a transaction of the next server lacks: {next(iter(self._doubts.values()))}"
                self.is_short = True
            self._doubted_at = None
            return False
        self._doubted_at = now if self._doubted_at is None else self._doubted_at
        return is_end or (head.batch <= settled and now >= self._doubted_at + DOUBT_SECONDS)

    def _may_run(self, statement: Statement, last: int, end: float, *, ends_binlog: bool) -> bool:
        """Tells whether a schema change may run: it is before `end`, or the last transaction that is due.  At the end
        of a binlog it may if no transaction that waits is before its GTID."""
        if statement.id in self._doubts:
            return False
        if not ends_binlog or statement.is_of_snapshot:
            return statement.is_of_snapshot or statement.number < max(last, end)
        head = statement.id[:-NUMBER_DIGITS]
        ids = (other for other in {*self._rows.ids, *self._ends} if other[:-NUMBER_DIGITS] == head)
        return not has_gtid(statement.id) or all(statement.id < other or self.reached.is_past(other) for other in ids)

    def _go_over(self) -> None:
        """Goes over to the binlog of the one other server that rows name.  Raises SourceError where there is not one,
        or a transaction has no END."""
        assert self.lacks is not None
        rows, head, topic = self._rows, next(iter(self._ends.values())), self.topic[0]
        why = self._doubts[head.id]
        begun = [plain_id(id_) for id_, (first, _) in self._begun.items() if first < head.first_offset]
        servers = [server for server in rows.of_servers[0] if self.reached.is_foreign(server)]
        if begun or len(servers) != 1:
            raise other_binlog(f"{why}; {begun[0]} has no END" if begun else why, topic)
        self.reached.go_over(servers[0], self.lacks, why, topic)
        self._doubts, self._doubted_at = {}, None
        self.passed.clear()

    def _is_copy(self, end: End, settled: int) -> bool:
        """Tells whether an END without rows waits for none: its transaction was due, or has no rows, or began before
        the pipeline did."""
        if end.id in self.reached.repeated or (not end.count and end.counts_all):
            return True
        is_before = not (end.is_begun or self.reached.place.id)
        return end.batch <= settled and (not end.count or is_before or self.reached.is_past(end.id))

    def _drop(self, due_ids: Collection[str], statements: Collection[Statement], is_loose: Bools) -> None:
        due_codes = [code for code, id_ in enumerate(self._rows.ids) if id_ in due_ids]
        self._rows = self._rows.only(~(np.isin(self._rows.codes, due_codes) | is_loose))
        self._ends = {id_: end for id_, end in self._ends.items() if id_ not in due_ids}
        self._statements = [one for one in self._statements if one not in statements]
        self._begun = {
            id_: one for id_, one in self._begun.items() if id_ not in due_ids and not self.reached.is_past(id_)
        }


def _lacks(end: End, number: int | None, transactions: Transactions) -> str:
    """Tells what a transaction lacks of which an END does not count just the rows that are there; "" if it is whole."""
    there: dict[str, int] = {}
    if number is not None:
        rows = transactions[number]
        if not end.counts_all and transactions.are_at_one_place[number]:
            return (
                "was begun twice: a connector before 3.7 was restarted in its midst, and since MariaDB gives all rows"
                " of a transaction one place in its binlog, they are not told from their copies"
            )
        if not end.counts_all and any(map(rows.are_with_rest, end.marks)):
            return ""
        there = rows.counts(rows.distinct)
    return f"lacks rows: {missing_rows(end.marks[0], there)}"


def _set_back(where: str) -> SourceError:
    return SourceError(
        "this lies at a place in the binlog before what is in the target, and is no copy of it: it is of a new"
        " snapshot, or more than an hour younger; the upstream was set back (RESET MASTER, a backup)",
        where=where,
        fix="begin again there with a pipeline of another --name",
    )


def _unplaced(where: str) -> SourceError:
    return SourceError(
        "a message does not tell its place in the binlog, so that it has none among the transactions",
        where=where,
        fix="all topics beside the topic of transactions must be of the same Debezium connector for MySQL or MariaDB;"
        " without the topic of transactions they are applied in the order of their partitions",
    )
