"""The order of the partitions, for topics without boundaries: everything that was read is due (internals, decision
13)."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from typing import ClassVar, Final

import pyarrow as pa
import structlog

from bridge.errors import AheadOfTargetError
from bridge.model import Advance, PartitionId, Positions, SchemaChange, TableName
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import ApplierConfig, Counts
from bridge.pipeline.by_partitions.late_changes import ADD_TOPIC, NEAR, second_run, unread_topics
from bridge.pipeline.by_partitions.partition_backlog import PartitionBacklog, Step
from bridge.pipeline.by_partitions.repeated_rows import ChangesBetween, RepeatedRows
from bridge.pipeline.by_partitions.row_schemas import RowsAhead
from bridge.pipeline.order import BadMessage, Due, Order, Segment, Starts, is_wanted, without_left_out
from bridge.pipeline.steering import Gate
from bridge.rows.gathering import Amount
from bridge.rows.moments import is_of_sending
from bridge.rows.order_and_slices import RowChanges
from bridge.spark.decoded_batch import DecodedBatch

POSITIONS_SECONDS: Final = 10.0
"""How often positions are recorded that moved without a change, by messages of tables that the filter excludes."""

_MAY_BE_A_COPY: Final = (
    "; if Canal was restarted, this may be a copy or come behind one: without GTIDs (canal.instance.gtidon=true)"
    " nothing tells what it sends again from what is new. Then pass it over, and bring its tables to the upstream's"
    " state: bridge verify --against upstream --fix-sql FILE"
)

log = structlog.get_logger()


class PartitionOrder(Order):
    """Yields what was read of each partition as soon as possible, in its order; every target transaction records exact
    offsets.

    starts: where each partition begins.
    changes_between: gives what is on record, so that a schema change runs once, however often it comes.
    """

    by_partition = True
    takes_rows: ClassVar[bool] = False

    def __init__(
        self, progress: Progress, starts: Starts, changes_between: ChangesBetween, config: ApplierConfig, counts: Counts
    ) -> None:
        self._backlog = PartitionBacklog(progress, starts, RepeatedRows(changes_between, config.routes), config)
        self._changes_between, self._counts, self._tables = changes_between, counts, config.tables
        self._idle, self._until, self._clock = config.idle, config.until, config.clock
        self._on_bad_message = config.on_bad_message
        self._gate, self._transaction = config.gate or Gate(), config.transaction
        self._ends_asked: dict[PartitionId, int] = {}
        self._unread_ends: Mapping[PartitionId, int] | None = {}
        self.positions = starts
        self._recorded: Positions = starts
        self._written_at = -math.inf
        self._waiting = ""
        self._read_ts = 0
        self._is_cut = False
        self._taken_at = self._looked_at = self._clock()
        self._bad: Sequence[BadMessage] = ()
        self._ahead_since: dict[RowsAhead, float] = {}
        self._settles = config.settles
        self._settled_ts: int | None = None
        self.applied_ts = progress.applied_ts

    # --- taking micro-batches

    def take(self, batch: DecodedBatch) -> None:
        """Takes one micro-batch, all of whose changes may be due now."""
        self._looked_at, self._is_cut = self._clock(), batch.is_cut
        if batch.events.num_rows:  # messages of tables that the filter excludes leave none
            self._taken_at = self._looked_at
        events, left_out = without_left_out(batch.events)
        self._counts.note_left_out(left_out)
        self._counts.repeated += self._backlog.take_in(self._with_cut_rows(events), batch.read, self._clock())
        self.positions = self._backlog.restart_positions
        self._look_for_unread(is_cut=batch.is_cut)

    def _look_for_unread(self, *, is_cut: bool) -> None:
        """Holds rows back for what was not read: of all partitions when the micro-batch was cut, or when columns tell
        which rows are behind a schema change, and always of those that have brought no row, as a topic of schema
        changes: the micro-batch may lack one and hold rows behind it, since brokers take what is sent in any order.

        Rows that were held are not held again for what came since: a topic of tables that are left out may never end.
        """
        barrier, queues = self._backlog.barrier, self._backlog.queues
        are_all = is_cut or (barrier is not None and barrier.columns is not None)
        asked = [where for where, queue in queues.items() if are_all or not queue.has_rows]
        if are_all or not self._backlog.unread:
            self._unread_ends = self._idle.ends(asked) if asked and self._backlog.waiting.rows else {}
        if self._unread_ends is not None:
            self._backlog.hold_for(self._unread_ends)

    def _with_cut_rows(self, events: pa.Table) -> pa.Table:
        """Adds the whole rows of messages that hold only the key; such messages of TiCDC have a commit ts in any
        order."""
        cut_rows = self._on_bad_message.cut_rows
        return events if cut_rows is None else cut_rows.completed(events, self._backlog.floor)

    def tick(self) -> None:
        """Counts a partition as having passed a schema change when it was idle for the limit and was read to its
        end."""
        self._looked_at = self._clock()
        silent = self._backlog.silent(self._looked_at, self._idle.seconds)
        if any(where not in self._ends_asked for where in silent):
            ends = self._idle.ends(silent)
            if ends is None:
                return
            for where in silent:
                self._ends_asked.setdefault(where, ends.get(where, 0))
        for where, read in silent.items():
            if read >= self._ends_asked[where]:
                self._backlog.count_as_passed(where)

    def end(self) -> None:
        """Notes that nothing more will be read: every partition counts as having passed every schema change."""
        self._backlog.end()

    # --- what is due

    def due(self) -> Iterator[Due]:
        """Yields the steps of the backlog, and the positions alone when they have not been recorded for long."""
        yield from self._steps()
        self._settled_ts = self._backlog.settle() if self._settles else None
        self._read_ts = max((queue.last_time for queue in self._backlog.queues.values()), default=0)
        self._bad = self._backlog.bad()
        self._waiting = self._current_reason()
        if self._positions_moved() and self._clock() - self._written_at >= POSITIONS_SECONDS:
            yield Due(Segment(self.applied_ts, self.applied_ts), None)
        self._backlog.spill()

    def _steps(self) -> Iterator[Due]:
        since = self._clock() - self._idle.row_seconds
        self._backlog.ahead = [ahead for ahead in self._backlog.ahead if self._ahead_since[ahead] >= since]
        while (step := self._next_step()) is not None:
            self._ends_asked.clear()
            self._counts.repeated += step.repeated
            segment = Segment(self.applied_ts, step.high, step.changes)
            yield Due(segment, RowChanges.here(step.rows), at_once=True)
            if step.changes and self.applied_ts == step.high:  # otherwise it was put back
                self._ahead_since.clear()
                self._backlog.ahead.clear()

    def _next_step(self) -> Step | None:
        """Takes the next step; at the end of the input, rows that wait for a schema change come last."""
        most = self._gate.portion(self._transaction)
        step = self._backlog.next_step(self._judge, most)
        if step is None and self._backlog.ended and self._backlog.ahead:
            self._backlog.ahead.clear()
            step = self._backlog.next_step(self._judge, most)
        return step

    def put_back(self, error: AheadOfTargetError) -> bool:
        """Takes back rows: the schema change that makes what the target lacks may not have been read yet, or wait."""
        ahead = RowsAhead(TableName(*error.table).folded, error.columns)
        now, is_known = self._clock(), ahead in self._ahead_since
        since = self._ahead_since.setdefault(ahead, now)
        if is_known and (self._backlog.ended or now - since >= self._idle.row_seconds):
            return False
        self._backlog.put_back(ahead)
        return True

    @property
    def doubt(self) -> str:
        """Whether what the target refuses may be a copy of what it has."""
        places = (place for queue in self._backlog.queues.values() for place in queue.places.values())
        return _MAY_BE_A_COPY if any(map(is_of_sending, places)) else ""

    def _judge(self, change: SchemaChange, by_time: bool) -> SchemaChange | None:
        """Returns the schema change to run; None for one that the filter excludes, and for a copy of one that ran."""
        if not is_wanted(change, self._tables, self._counts.tables):
            return None
        for table, topic in unread_topics(change, {topic for topic, _ in self._backlog.queues}).items():
            log.warning(
                "table_is_not_read", table=str(table), topic=topic, fix=ADD_TOPIC.format(topic, change.commit_ts)
            )
        at, near = change.commit_ts, NEAR if by_time else 0
        before = self._changes_between(at - near, at + near + 1)
        if by_time:
            shown = max((queue.shown for queue in self._backlog.queues.values()), default=0)
            return second_run(change, before, shown)
        return None if change.id in {one.id for one in before} else change

    def next_bad(self) -> Sequence[BadMessage]:
        """Returns the bad messages that come next in their partitions."""
        return self._bad

    # --- back to boundaries

    def handover(self) -> tuple[Advance, str] | None:
        """Changes to the order of commit ts at a moment that all boundaries have reached."""
        ts = self._settled_ts
        if ts is None:
            return None
        positions, quarantined = self._backlog.settled_positions(ts), self._backlog.quarantined
        advance = Advance(self.applied_ts, ts, positions, quarantined=quarantined)
        return advance, "every partition has boundaries again: from now on transactions are applied whole"

    def final_ts(self) -> int | None:
        """Returns `until`, or the applied ts where that has counted beyond it, once all below `until` is in the target;
        otherwise the applied ts if positions have moved."""
        if self._until is not None and self._is_at_until:
            return max(self._until, self.applied_ts)
        return self.applied_ts if self._positions_moved() else None

    # --- what a restart needs

    def advance_to(self, high: int, end: int, changes: tuple[SchemaChange, ...] = ()) -> Advance:
        """Returns the change of progress: without a resolved ts, the end of the segment is its only limit."""
        backlog = self._backlog
        return Advance(self.applied_ts, high, backlog.restart_positions, changes, backlog.quarantined, (end,))

    def moved(self, step: Advance) -> None:
        self.applied_ts = step.new_ts
        self._backlog.release()
        self._written_at = self._clock()
        self._recorded = step.positions

    def _positions_moved(self) -> bool:
        return self._backlog.restart_positions != self._recorded

    # --- status

    @property
    def resolved_ts(self) -> int:
        """The highest event time that was read (TSO)."""
        return max(self.applied_ts, self._read_ts)

    @property
    def quiet_seconds(self) -> float:
        """For how long no change has come of a source that was read to its end, by the last look."""
        return 0.0 if self._is_cut else max(0.0, self._looked_at - self._taken_at)

    @property
    def until_reached(self) -> bool:
        """Whether a partition has reached `until`, and everything below it that was read is in the target."""
        return self._until is None or self.applied_ts == self._until or self._is_at_until

    @property
    def _is_at_until(self) -> bool:
        return self._backlog.is_at_bound and not self._bad

    @property
    def waiting(self) -> Amount:
        return self._backlog.waiting

    def waiting_for(self) -> str:
        """Tells what the target waited for when something was last applied."""
        return self._waiting

    def _current_reason(self) -> str:
        if self._bad:
            return f"a bad message at {self._bad[0].entry.position} stops all partitions"
        barrier, held_by = self._backlog.barrier, self._backlog.held_by()
        if barrier is not None and held_by:
            change = barrier.change
            names = ", ".join(f"{topic}/{partition}" for topic, partition in held_by[:5])
            return (
                f"a schema change at {change.position} waits until {names} {'has' if len(held_by) == 1 else 'have'}"
                f" passed its time or been idle for {self._idle.seconds:g} s: {change.text[:80]}"
            )
        if self._backlog.ahead:
            table = self._backlog.ahead[0].table
            return f"rows of {table} wait for the schema change that makes the table, or columns that the target lacks"
        if (slow := self._backlog.slowest()) is not None and self._backlog.waiting.rows:
            return f"{slow[0]}/{slow[1]} is still being read; it may hold earlier changes than the other partitions"
        if self._backlog.settling is not None:
            return (
                "boundaries have begun to come; rows are held until all partitions have reached the same moment: if no"
                " more of them come, start the bridge again with --set debezium.without_boundaries=true"
            )
        if self._until is not None and self._backlog.is_at_bound:
            return "nothing: --until is reached"
        return "nothing: everything that was read is in the target"
