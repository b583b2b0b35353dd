"""The backlog of topics without boundaries: a queue for each partition, which is applied from its head.

Every target transaction records exact offsets, so that a restart begins right after what is in the target (internals,
decision 13).  While a schema change waits, no partition is applied beyond its first row with a later time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import islice
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.errors import ApplyError
from bridge.events import EVENT_SCHEMA, NO_PRIMARY_KEY, Kind
from bridge.model import Entry, PartitionId, PartitionStart, SchemaChange, topic_begins
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import ApplierConfig
from bridge.pipeline.by_partitions.counting_rows import Counted, CountingRows
from bridge.pipeline.by_partitions.late_changes import AppliedPlaces, are_side_by_side
from bridge.pipeline.by_partitions.merge import merge
from bridge.pipeline.by_partitions.partition_queue import AppliedRow, Bound, PartitionQueue, Stop
from bridge.pipeline.by_partitions.repeated_rows import RepeatedRows
from bridge.pipeline.by_partitions.row_schemas import ColumnEvidence, RowsAhead, UnclearRows
from bridge.pipeline.order import BadMessage, Starts, control_events
from bridge.protocols.values.event_time import FILE
from bridge.rows.gathering import Amount, Longs, divided, partitions_of, position_of, take_rows
from bridge.rows.moments import Moment, in_order, latest_beside
from bridge.tso import TSO_LOGICAL_BITS, tso_ms

_NO_BOUND: Final = (1 << 63) - 1

_IN_ANY_PARTITION: Final = (
    "Debezium's connector sends each of them to any partition, so that nothing tells in which order they came, nor"
    " which of them come again after a restart of the connector"
)
_IN_ONE_PARTITION: Final = (
    "give the table a key: a primary key, or message.key.columns in the connector; or a topic of one partition"
    " (topic.creation.default.partitions=1). Then begin anew, behind a new snapshot. Or leave it out with --filter"
)
_BETWEEN_COPIES: Final = (
    "{} ends in the midst of what the producer sends again: rows that come later would be left out as copies from"
    " before this statement, though earlier ones have taken their rows back. Approve it, and once the producer has gone"
    " on, compare its tables with the upstream: bridge verify --against upstream"
)
_IN_MIDST_TIMES: Final = 10
"""So many times longer is waited for a partition that ends in the midst of what is sent again."""
Judge = Callable[[SchemaChange, bool], SchemaChange | None]
"""Returns the schema change to run for one that was read (True: it lacks a TSO); None for a copy of one that ran, and
for one that the filter excludes."""


_SIDE_BY_SIDE: Final = (
    "Canal sent {!r} to another topic in one batch, and nothing tells which of the two came first: approve this one if"
    " it did, else make both by hand and say bridge ddl done of both. Canal tells it with canal.instance.gtidon=true"
)
_MOST_BESIDE: Final = 20
"""Among so many schema changes of a partition others of the same second are looked for."""


class Step(NamedTuple):
    """What is applied next: row changes in order, then perhaps a schema change.

    high: the applied ts afterwards; the commit_ts of the rows ascend from the applied ts before, and are below it.
    repeated: how many rows were left out, since they are sent again, or were overtaken by rows of other partitions.
    times: the event times of the rows (TSO).
    before: the queues as they were before it, should it be put back.
    passed: the schema change, as it waited.
    """

    rows: pa.Table
    high: int
    changes: tuple[SchemaChange, ...]
    repeated: int
    times: Longs
    before: Mapping[PartitionId, PartitionQueue]
    passed: Barrier | None


@dataclass(frozen=True)
class Barrier:
    """The earliest schema change that waits.  columns: what columns tell of it.  others: its unclear rows, and those of
    others behind it; and the places of what comes first in other partitions, none of which a row may pass."""

    where: PartitionId
    stop: Stop
    change: SchemaChange
    moment: Moment
    columns: ColumnEvidence | None
    others: Sequence[Bound]

    def bounds(self, began_anew: tuple[tuple[int, int], ...]) -> list[Bound]:
        """What rows may not pass before it has run.  began_anew: as of Moment."""
        return [self.columns or replace(self.moment, began_anew=began_anew), *self.others]


class PartitionBacklog:
    """The queues of all partitions.

    positions: where each partition begins; when `floor` is None, the applied ts is used.
    barrier: the schema change that waits for partitions to pass it.
    unread: the partitions that were not read to their end, for which rows are held back.
    settling: the moment that all boundaries have to reach before rows at or above it go on.
    ahead: the rows that wait for a schema change which makes what the target lacks.
    """

    def __init__(
        self, progress: Progress, positions: Starts, repeated_rows: RepeatedRows, config: ApplierConfig
    ) -> None:
        applied_ts, self._start_ts, self._most = progress.applied_ts, progress.start_ts, config.most
        self._begins = topic_begins(positions)
        self.queues = dict[PartitionId, PartitionQueue]()
        for where, start in positions.items():
            self._begin_at(where, applied_ts if start.floor is None else start.floor, start, config.clock())
        self._bound = _NO_BOUND if config.until is None else config.until - 1
        self._on_bad_message, self._repeated_rows = config.on_bad_message, repeated_rows
        self._counting = CountingRows(self.queues, repeated_rows)
        self._places = AppliedPlaces(self._applied)
        self._quarantined: list[Entry] = []
        self.settling: int | None = None
        self.unread: set[PartitionId] = set()
        self._stopped: dict[PartitionId, Stop] = {}
        """The bad message of each partition that comes before any schema change, and is not behind `until`.  No other
        partition goes on: a schema change of whatever time may be behind it."""
        self._next_ts = applied_ts
        self.barrier: Barrier | None = None
        self._overtaken: set[PartitionId] = set()
        """The partitions in which a schema change came behind rows that are later, and may be before the barrier."""
        self._present: Step | None = None
        self._counted_as_passed: set[PartitionId] = set()
        self.ended = False
        self.ahead: list[RowsAhead] = []

    def _begin_at(self, where: PartitionId, floor: int, start: PartitionStart, now: float) -> None:
        start = start._replace(floor=floor, begin=self._begins.get(where[0], 0))
        self.queues.setdefault(where, PartitionQueue(start, now))

    # --- taking micro-batches

    def take_in(self, events: pa.Table, read: Mapping[PartitionId, int], now: float) -> int:
        """Takes the events of a micro-batch (EVENT_SCHEMA, any order); returns how many changes are in the target
        already.  read: per partition, the offset after the last message read.  now: time of the clock."""
        dropped = 0
        for where in read:
            self._begin_at(where, 0, PartitionStart(0, 0, 0), now)
        partitions, codes = partitions_of(events)
        order = np.lexsort([events["index"].to_numpy(), events["offset"].to_numpy(), codes])
        for code, own_events in divided(take_rows(events, order), codes[order]):
            where = partitions[code]
            fresh = own_events.filter(self._is_fresh(where, own_events))
            remaining = self._without_quarantined(fresh)
            self._check_keys(where[0], remaining)
            queue = self.queues[where]
            places = queue.note(own_events)
            dropped += own_events.num_rows - fresh.num_rows
            if queue.append(remaining, now, places):
                self._counted_as_passed.discard(where)
        for where, end in read.items():
            self.queues[where].read = end
        return dropped

    def _check_keys(self, topic: str, events: pa.Table) -> None:
        """Raises ApplyError for rows of Debezium's connector without a key in a topic of several partitions.  Kafka's
        producer gives a message without a key to any partition (Kafka, BuiltInPartitioner)."""
        count = sum(other == topic for other, _ in self.queues)
        if count == 1 or events["place"].null_count == events.num_rows:
            return
        keyless = pc.and_(pc.equal(events["key"], NO_PRIMARY_KEY), pc.match_substring(events["place"], FILE))
        if (at := pc.index(keyless, True).as_py()) >= 0:
            table = f"{events['schema'][at]}.{events['table'][at]}"
            raise ApplyError(
                f"rows of {table} have no key in a topic of {count} partitions: {_IN_ANY_PARTITION}",
                where=str(position_of(events, at)),
                fix=_IN_ONE_PARTITION,
            )

    def hold_for(self, ends: Mapping[PartitionId, int]) -> None:
        """Applies no row that is later than the last one read of a partition that was not read to its end (offset)."""
        self.unread = {where for where, queue in self.queues.items() if queue.read < ends.get(where, 0)}

    def _without_quarantined(self, events: pa.Table) -> pa.Table:
        """Removes the bad messages that do not stop the partition; they are quarantined when progress passes them."""
        is_bad = pc.equal(events["kind"], int(Kind.BAD))
        if not pc.any(is_bad).as_py():
            return events
        entries = [bad for bad in control_events(events.filter(is_bad)).bad if not self._on_bad_message.stops(bad)]
        self._quarantined += [self._on_bad_message.due(bad, self._next_ts) for bad in entries]
        offsets = pa.array([bad.entry.position.offset for bad in entries], pa.int64())
        return events.filter(pc.invert(pc.and_(is_bad, pc.is_in(events["offset"], offsets))))

    def floor(self, where: PartitionId) -> int:
        """Returns the TSO below which everything of a partition is in the target."""
        queue = self.queues.get(where)
        floor = 0 if queue is None else queue.start.floor
        return max(self._begin(where), floor or 0)

    def _begin(self, where: PartitionId) -> int:
        return max(self._start_ts, self._begins.get(where[0], 0))

    def _is_fresh(self, where: PartitionId, events: pa.Table) -> pa.BooleanArray:
        """Tells which events are not in the target; of event times, which may not be."""
        kinds, times, by_time = (events[name].to_numpy() for name in ("kind", "commit_ts", "by_time"))
        below_begin = latest_beside(times >> TSO_LOGICAL_BITS, 1) < tso_ms(self._begin(where))
        is_below = np.where(by_time, below_begin, times < self.floor(where))
        return pa.array(~((kinds <= Kind.SCHEMA_CHANGE) & is_below))

    def spill(self) -> None:
        """Moves waiting rows to the disk if they exceed `most`.  Call it when a micro-batch has been applied."""
        if self.waiting.exceeds(self._most):
            for queue in self.queues.values():
                queue.to_disk()

    # --- what is applied next

    def next_step(self, judge: Judge, most: Amount) -> Step | None:
        """Takes what is applied next, in one transaction, out of the queues; None when nothing may be applied now.
        most: about how much the transaction may hold."""
        self._find_barrier(judge)
        going = ((w, q) for w, q in sorted(self.queues.items()) if self._stopped.keys() <= {w})
        rows = [(where, queue.rows_up_to(self._bounds_of(where))) for where, queue in going]
        rows = [(where, own_rows) for where, own_rows in rows if len(own_rows.times)]
        before = {where: queue.copy() for where, queue in self.queues.items()}
        counted = Counted(EVENT_SCHEMA.empty_table(), np.empty(0, np.int64), 0, {})
        if rows:
            merged = merge(rows, self._next_ts, most, self._began_anew)
            counted = self._counting.among(merged, self._began_anew)
            self._next_ts = int(merged.table["commit_ts"][-1].as_py()) + 1
            for where, own_rows in merged.rows:
                queue = self.queues[where]
                queue.advance(own_rows.table.num_rows)
                queue.applied, queue.shown = counted.applied[where], max(queue.shown, int(own_rows.times.max()))
        barrier = self.barrier
        changes = self._passed_change()
        if not rows and not changes:
            return None
        rows_due, times, repeated, _ = counted
        passed = barrier if changes else None
        self._present = Step(rows_due, self._next_ts, changes, repeated, times, before, passed)
        return self._present

    def put_back(self, ahead: RowsAhead) -> None:
        """Takes back the present step, which is not in the target, and holds rows back that wait for a schema
        change."""
        step, self._present, self.barrier = self._present, None, None
        assert step is not None  # what is put back was taken
        self.queues.update(step.before)
        self.ahead.append(ahead)

    def _bounds_of(self, where: PartitionId) -> list[Bound]:
        unread = [self.queues[slow] for slow in self.unread]
        anew = self._began_anew
        bounds: list[Bound] = [replace(Moment.at(slow.seen, slow.places.values()), began_anew=anew) for slow in unread]
        if self.barrier is not None and self.barrier.where != where:
            bounds += self.barrier.bounds(anew)
        return [*bounds, *self.ahead, Moment.at(self._hard_bound)]

    @property
    def _began_anew(self) -> tuple[tuple[int, int], ...]:
        """Between which times (TSO) the upstream's binlog began anew, as far as partitions show it."""
        return tuple(sorted({queue.began_anew for queue in self.queues.values() if queue.began_anew}))

    @property
    def _hard_bound(self) -> int:
        return self._bound if self.settling is None else min(self._bound, self.settling - 1)

    def _find_barrier(self, judge: Judge) -> None:
        """Finds the earliest schema change that comes first in its partition, and drops those that must not run."""
        limit = [Moment.at(self._hard_bound)]
        while True:
            stops = [(w, stop) for w, queue in sorted(self.queues.items()) if (stop := queue.first_stop(limit))]
            self._stopped = {where: stop for where, stop in stops if stop.is_bad}
            changes = [(w, stop) for w, stop in stops if not stop.is_bad and stop.moment.ts <= self._hard_bound]
            self._overtaken = {w for w, stop in changes if self._comes_behind_later_rows(w, stop)}
            changes = [(w, stop) for w, stop in changes if w not in self._overtaken]
            if not changes:
                self.barrier = None
                return
            where, stop = changes[in_order([stop.moment for _, stop in changes])[0]]
            places = (self._exact_place(other) for _, other in changes if other is not stop)
            others: list[Bound] = [*self._all_unclear(where, stop), *(place for place in places if place is not None)]
            if self.barrier and (self.barrier.where, self.barrier.stop.event) == (where, stop.event):
                self.barrier = replace(self.barrier, others=others)
                return
            if (change := judge(stop.schema_change, bool(stop.event["by_time"]))) is not None:
                moment = replace(stop.moment, began_anew=self._began_anew)
                tables, unclear = self._repeated_rows.tables_of(change), self._unclear_rows(where, stop)
                late = self._places.lateness(where, moment, change, tables, self._applied, unclear)
                change = replace(change, doubt=change.doubt or late)
                columns = self._column_evidence(where, stop) if stop.event["by_time"] else None
                self.barrier = Barrier(where, stop, change, stop.moment, columns, others)
                return
            self.queues[where].drop(stop)

    def _comes_behind_later_rows(self, where: PartitionId, stop: Stop) -> bool:
        """Tells whether rows that are later by place wait before it: it comes again, or too late, and is no barrier."""
        place = self._exact_place(stop)
        return stop.index > 0 and place is not None and self.queues[where].first_stop([place]) is None

    def _exact_place(self, stop: Stop) -> Moment | None:
        """Gives the moment of a schema change by its place alone; None where no place is exact."""
        moment = replace(stop.moment, by_place_only=True, began_anew=self._began_anew)
        return moment if moment.places and not moment.is_by_sending else None

    @property
    def _applied(self) -> dict[PartitionId, tuple[AppliedRow, int]]:
        return {where: (queue.applied, queue.shown) for where, queue in self.queues.items()}

    def _column_evidence(self, where: PartitionId, stop: Stop) -> ColumnEvidence | None:
        """Gives what columns tell of a schema change."""
        evidence = ColumnEvidence.of(stop.schema_change, stop.moment)
        if evidence is None:
            return None
        undoing = (o for o in self._changes_behind(where, stop) if evidence.may_be_undone_by(o.schema_change))
        until = min((other.moment.ts for other in undoing), default=evidence.until)
        return replace(evidence, table=self._repeated_rows.target(evidence.table), until=until)

    def _changes_behind(self, where: PartitionId, stop: Stop) -> Iterator[Stop]:
        return (other for other in self.queues[where].schema_changes() if other.index > stop.index)

    def _unclear_rows(self, where: PartitionId, stop: Stop) -> UnclearRows | None:
        """Gives the rows that may be on either side of a schema change; None where all of them are clear."""
        change, evidence = stop.schema_change, self._column_evidence(where, stop)
        is_undone = evidence is not None and bool(evidence.gone) and evidence.until <= stop.moment.last
        unclear = UnclearRows.of(change, self._repeated_rows.tables_of(change), is_undone=is_undone)
        if unclear is None or unclear.sent < 0:
            return unclear
        event = stop.event["commit_ts"], stop.event["text"]
        others = ((other.event["commit_ts"], other.event["text"]) for other in self._changes_behind(where, stop))
        return replace(unclear, is_repeated=event in others)

    def _all_unclear(self, where: PartitionId, stop: Stop) -> Iterator[UnclearRows]:
        """Gives the unclear rows of a schema change, and those of the next ones of its partition and second."""
        for change in (stop, *islice(self._changes_behind(where, stop), _MOST_BESIDE)):
            of_its_second = replace(change, event={**change.event, "commit_ts": stop.event["commit_ts"]})
            beside = of_its_second if change.event["place"] else change
            if change.moment.ts <= stop.moment.last and (unclear := self._unclear_rows(where, beside)):
                yield unclear

    def _passed_change(self) -> tuple[SchemaChange, ...]:
        """Takes out the schema change that waits, if every partition has passed it."""
        barrier = self.barrier
        if barrier is None or self.held_by():
            return ()
        change, unclear = barrier.change, self._unclear_rows(barrier.where, replace(barrier.stop, index=0))
        others = [queue for where, queue in self.queues.items() if where != barrier.where]
        if unclear is not None and not change.doubt and any(queue.has(unclear) for queue in others):
            change = replace(change, doubt=unclear.reason)
        if not change.doubt and barrier.moment.is_by_sending:
            stops = (stop.schema_change for queue in others for stop in queue.schema_changes())
            beside = next((other.text[:200] for other in stops if are_side_by_side(change, other)), "")
            change = replace(change, doubt=beside and _SIDE_BY_SIDE.format(beside))
        in_copies = [where for where, queue in self.queues.items() if queue.ends_in_copies]
        if in_copies and not change.doubt:
            change = replace(change, doubt=_BETWEEN_COPIES.format("{}/{}".format(*in_copies[0])))
        queue = self.queues[barrier.where]
        queue.drop(replace(barrier.stop, index=0))
        queue.shown = max(queue.shown, int(barrier.stop.event["commit_ts"]))
        self._repeated_rows.note_change()
        self.barrier = None
        self._counted_as_passed.clear()
        self._next_ts = max(self._next_ts, int(barrier.stop.event["commit_ts"])) + 1
        return (change,)

    # --- waiting

    def held_by(self) -> list[PartitionId]:
        """Returns the partitions that have not passed the schema change that waits."""
        return [where for where, queue in sorted(self.queues.items()) if not self._has_passed(where, queue)]

    def _has_passed(self, where: PartitionId, queue: PartitionQueue) -> bool:
        barrier = self.barrier
        if barrier is None:
            return True
        head = queue.head
        if barrier.where == where:
            return head is not None and head.event == barrier.stop.event
        if head is not None:
            return not head.is_bad and where not in self._overtaken
        if not len(queue):
            return self.ended or where in self._counted_as_passed or queue.boundary > barrier.moment.last
        is_behind = queue.begins_behind([*barrier.bounds(self._began_anew), Moment.at(self._hard_bound)])
        return is_behind or self._begins_ahead(queue, barrier)

    def _begins_ahead(self, queue: PartitionQueue, barrier: Barrier) -> bool:
        """Tells whether a row comes next that waits for a schema change, and is behind the one that waits."""
        if not (waiting := [ahead for ahead in self.ahead if queue.begins_behind([ahead])]):
            return False
        tables = self._repeated_rows.tables_of(barrier.change) or ()
        if any(ahead.is_made_by(barrier.change) for ahead in waiting if ahead.table in tables):
            return True
        is_exact = barrier.moment.places and not barrier.moment.is_by_sending
        return not is_exact and (queue.head_time or 0) >= barrier.moment.ts

    def silent(self, now: float, seconds: float) -> dict[PartitionId, int]:
        """Returns the partitions that hold a schema change back and have been idle for `seconds` since it was read.
        Where a partition ends in copies, it must be idle much longer.  With each, the offset after the last message."""
        if self.barrier is None:
            return {}
        since = self.barrier.stop.arrived
        queues = ((where, self.queues[where]) for where in self.held_by() if not len(self.queues[where]))
        idle = ((w, q, now - max(since, q.arrived)) for w, q in queues)
        return {w: q.read for w, q, quiet in idle if quiet >= seconds * (_IN_MIDST_TIMES if q.ends_in_copies else 1)}

    def count_as_passed(self, where: PartitionId) -> None:
        """Counts a partition as having passed the schema change that waits, until something is read of it."""
        self._counted_as_passed.add(where)

    def slowest(self) -> PartitionId | None:
        """Returns the partition that was not read to its end and holds the others back most; None if there is none."""
        return min(self.unread, key=lambda where: self.queues[where].seen, default=None)

    def end(self) -> None:
        """Notes that nothing more will be read: partitions without a bad message count as having passed everything."""
        self.ended, self.settling = True, None
        self.unread.clear()

    def bad(self) -> list[BadMessage]:
        """Returns the bad messages that come first in their partitions.  Ask when nothing is due."""
        events = [stop.event for stop in self._stopped.values()]
        return list(control_events(pa.Table.from_pylist(events, EVENT_SCHEMA)).bad)

    @property
    def is_at_bound(self) -> bool:
        """Whether a partition has reached `until`, and everything below it that was read is in the target."""
        times = [queue.head_time for queue in self.queues.values() if len(queue)]
        return bool(times) and all(time is not None and time > self._bound for time in times)

    # --- back to boundaries

    def settle(self) -> int | None:
        """Prepares the change to the order of commit ts, when there is no next step; returns its ts when all is ready.

        Once every partition has boundaries, rows at or above the next ts are held until all boundaries have reached it.
        """
        boundaries = [queue.boundary for queue in self.queues.values()]
        if self.ended or not boundaries or not all(boundaries) or self._next_ts > self._bound:
            self.settling = None
            return None
        if self.settling is None:
            self.settling = self._next_ts
        times = [queue.head_time for queue in self.queues.values() if len(queue)]
        at_rest = all(time is not None and time >= self.settling for time in times) and self.barrier is None
        return self.settling if at_rest and min(boundaries) >= self.settling else None

    def settled_positions(self, ts: int) -> Starts:
        """Returns where a restart in the order of commit ts begins, when everything below ts is in the target."""
        boundaries = {where: ts if len(queue) else max(ts, queue.boundary) for where, queue in self.queues.items()}
        return {
            where: PartitionStart(queue.offset, boundaries[where], queue.read, begin=queue.start.begin)
            for where, queue in self.queues.items()
        }

    # --- positions

    @property
    def waiting(self) -> Amount:
        """The row changes that wait, and the bytes of those that are not on disk."""
        queues = list(self.queues.values())
        return Amount(sum(map(len, queues)), sum(queue.bytes_in_memory for queue in queues))

    @property
    def restart_positions(self) -> Starts:
        """Exact offsets, behind the present step: after the last message of each partition that was taken out."""
        return {where: queue.restart for where, queue in self.queues.items()}

    @property
    def quarantined(self) -> tuple[Entry, ...]:
        """The bad messages that the restart positions have passed."""
        passed = self.restart_positions if self._quarantined else {}
        places = [(entry, entry.position) for entry in self._quarantined]
        return tuple(entry for entry, at in places if at.offset < passed[at.topic, at.partition].offset)

    def release(self) -> None:
        """Notes that the present step, if there is one, is in the target."""
        entries = self.quarantined
        self._quarantined = [entry for entry in self._quarantined if entry not in entries]
        step, self._present = self._present, None
        if step is None:
            return
        self._places.note_rows(step.rows, step.times)
        if (passed := step.passed) is not None:
            tables = self._repeated_rows.tables_of(passed.change)
            self._places.note_change(passed.where, passed.moment, tables or ())
            self._counting.note_change()
