"""The order of the upstream's transactions: gives each whole transaction commit_ts of its own, and applies them as the
order of commit ts does (internals, decision 17)."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import ClassVar

import numpy as np
import pyarrow as pa
import structlog

from bridge.errors import SourceError
from bridge.events import EVENT_SCHEMA, Code, Kind
from bridge.model import Advance, PartitionId, PartitionStart, SchemaChange
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import ApplierConfig, Counts
from bridge.pipeline.by_boundaries import BoundaryOrder
from bridge.pipeline.by_partitions.repeated_rows import ChangesBetween
from bridge.pipeline.by_transactions.numbering import DueRows, Mark, Reaching
from bridge.pipeline.by_transactions.reached import NOWHERE, Place, Reached, Snapshot
from bridge.pipeline.by_transactions.transaction_queue import TransactionQueue
from bridge.pipeline.order import BadMessage, Order, Starts, control_events
from bridge.protocols.debezium.transactions import NO_TRANSACTION
from bridge.rows.gathering import Amount, Longs, masked
from bridge.rows.order_and_slices import RowChanges, next_offsets
from bridge.spark.decoded_batch import DecodedBatch

_ALWAYS = 1 << 62
_NO_EVENTS = EVENT_SCHEMA.empty_table()
_LATE = (
    "it came behind transactions that stand behind it in the binlog and are in the target: see whether its effect is"
    " there, and whether rows of them are to be kept; then say that it is done, or approve it"
)
_COUNTS = (
    "as its transaction counts it, it stops the bridge with --on-bad-message quarantine, too: name it in"
    " source.quarantine, and its transaction in source.incomplete_transactions"
)

log = structlog.get_logger()


class TransactionOrder(BoundaryOrder):
    """Yields whole transactions in the order of the topic of transactions.  topic: the partition of that topic."""

    takes_rows: ClassVar[bool] = False  # they are counted in the driver

    def __init__(
        self,
        progress: Progress,
        starts: Starts,
        topic: PartitionId,
        changes_between: ChangesBetween,
        config: ApplierConfig,
        counts: Counts,
    ) -> None:
        on_bad_message = replace(config.on_bad_message, quarantine=False)
        super().__init__(
            progress,
            starts,
            replace(config, rows_of=self._window, on_bad_message=on_bad_message, boundary_seconds=None),
            counts,
        )
        places = [start.place for start in progress.positions.values() if start.place]
        self._topic, self._idle, self._grace_seconds = topic, config.idle, config.grace_seconds
        self._changes_between = changes_between
        self._place = Place.read(places[0]) if places else NOWHERE
        self._loose_ends = {where: start.read for where, start in starts.items()}
        next_ts, start_ts, ends = progress.applied_ts, progress.start_ts, dict(self._loose_ends)
        snapshot, reached = Snapshot(changes_between(0, _ALWAYS)), Reached(self._place)
        self._queue = TransactionQueue(
            topic, reached, next_ts, ends, start_ts, config.incomplete, snapshot, most=config.most, lacks=config.lacks
        )
        self._read = {where: start.offset for where, start in starts.items()}
        self._places: list[Reaching] = []
        self._marks: list[Mark] = []
        self._starts: Longs = np.empty(0, np.int64)
        self._batch = 0
        self._settled = 0
        self._ends_to_reach: tuple[int, Mapping[PartitionId, int]] | None = None
        self._below = self._rowless_below = -1.0
        self._with_rows: set[PartitionId] = {topic}
        self._came_at = self._blocked_since = config.clock()
        self._later_end_at = math.inf
        self._blocked = ""

    # --- taking micro-batches

    def take(self, batch: DecodedBatch) -> None:
        """Takes one micro-batch."""
        self._batch += 1
        self._read.update({where: max(end, self._read.get(where, 0)) for where, end in batch.read.items()})
        kinds = batch.events["kind"].to_numpy()
        for_queue = (kinds <= int(Kind.SCHEMA_CHANGE)) | (kinds == int(Kind.TRANSACTION))
        if len(kinds):
            self._came_at = self._clock()
            has_row = (kinds <= int(Kind.DELETE)) | (kinds == int(Kind.TRANSACTION))
            self._with_rows.update(next_offsets(masked(batch.events, has_row)))
        repeated, passed = self._queue.take(masked(batch.events, for_queue), self._batch, self._clock())
        self._counts.repeated += repeated
        late = tuple(change for change in map(self._judge_late, passed) if change is not None)
        self._settle()
        self._hand_on(masked(batch.events, ~for_queue), late)

    def _judge_late(self, change: SchemaChange) -> SchemaChange | None:
        """Gives a schema change whose place is passed, for the operator; None for one that the connector sent again."""
        place = _of_any_server(change.place)
        for earlier in self._changes_between(0, _ALWAYS):
            is_truncation = "TRUNCATE" in earlier.text.upper() and "TRUNCATE" in change.text.upper()
            is_same = is_truncation or earlier.statement_hash == change.statement_hash
            if is_same and _of_any_server(earlier.place) == place:
                return None
        return replace(change, doubt=_LATE)

    def _settle(self) -> None:
        """Asks where partitions end now, and notes how far all of them were read.

        What the connector sent before an END is in Kafka then.  It was read where its partition was read to this end,
        or beyond the END's place.
        """
        ends = {} if self._ended else self._idle.ends(list(self._read))
        if ends is None:
            self._below = self._rowless_below = -1.0
            return
        unread = {where for where, end in ends.items() if self._read.get(where, 0) < end} - {self._topic}
        passed = {where: float(self._queue.passed.get(where, -1)) for where in unread}
        self._below = min(passed.values(), default=math.inf)
        self._rowless_below = min((passed[where] for where in unread - self._with_rows), default=math.inf)
        batch, ends_to_reach = self._ends_to_reach or (self._batch, ends)
        if self._ended or all(self._read.get(where, 0) >= end for where, end in ends_to_reach.items()):
            self._settled, self._ends_to_reach = batch, None
        else:
            self._ends_to_reach = batch, ends_to_reach

    def _hand_on(self, rest: pa.Table, late: tuple[SchemaChange, ...] = ()) -> None:
        """Gives what is due to the order of commit ts, and the events that are no rows, schema changes or marks."""
        now, next_ts = self._clock(), self._queue.next_ts
        is_idle = self._ended or (self._settled == self._batch and now - self._came_at >= self._idle.seconds)
        # before what is due: a process that dies in between reads none again that stands before one that ran
        late = tuple(replace(change, commit_ts=self._queue.next_ts + number) for number, change in enumerate(late))
        self._queue.next_ts += len(late)
        until = self._below, self._rowless_below
        due = self._queue.due(self._settled, now, *until, is_idle=is_idle, is_end=self._ended)
        if is_idle and self._queue.is_empty:  # an interrupted step may have ended later
            self._queue.next_ts = max(self._queue.next_ts, self._begun_ts)
        self._keep(due)
        self._note_shortages()
        self._note_blocked(now)
        firsts = self._queue.first_offsets()
        control = control_events(rest)
        self._take_in(
            {where: firsts.get(where, end) for where, end in self._read.items()},
            RowChanges.here(due.rows),
            replace(
                control,
                boundaries=dict.fromkeys(self._read, self._queue.next_ts),
                changes=(*late, *due.changes),
                bad=tuple(self._with_explanation(bad, next_ts) for bad in control.bad),
            ),
        )

    def _with_explanation(self, bad: BadMessage, next_ts: int) -> BadMessage:
        """Adds to a message that cannot be decoded what it means for its transaction, and where it stands."""
        entry = bad.entry
        if entry.code != Code.SCHEMA_CHANGE:
            entry = replace(entry, reason=f"{entry.reason}; {_COUNTS}")
        return bad._replace(entry=entry, boundary=self._queue.next_ts if self._on_bad_message.stops(bad) else next_ts)

    def _keep(self, due: DueRows) -> None:
        self._places += due.places
        self._marks += due.marks
        if len(due.starts):
            self._starts = np.concatenate([self._starts, due.starts])
        if self.applied_ts < self._begun_ts <= due.end:  # numbers may be others than those of the process before
            behind = int(np.searchsorted(self._starts, self._begun_ts))
            self._begun_ts = int(self._starts[behind]) if behind < len(self._starts) else due.end

    def _note_shortages(self) -> None:
        for lacks, rows in self._queue.shortages:
            self._counts.late += rows
            log.warning(
                "transaction_incomplete",
                why=lacks,
                fix="when the bridge has gone on, run bridge verify --against upstream",
            )
        self._queue.shortages.clear()

    def _note_blocked(self, now: float) -> None:
        """Notes what the first transaction that is not whole lacks.

        A connector that was killed may have sent an END without its rows, and sends these when it is back, before
        another END.  Raises SourceError when an END comes half of the time later, and no row in the other half.
        """
        half = self._grace_seconds / 2
        if self._queue.reason != self._blocked:
            self._blocked, self._blocked_since, self._later_end_at = self._queue.reason, now, math.inf
        elif self._later_end_at == math.inf and self._queue.end_at >= self._blocked_since + half:
            self._later_end_at = self._queue.end_at
        if self._queue.is_short and now >= self._later_end_at + half and not self._ended:
            raise SourceError(
                f"everything was read, and later transactions have come for {half:g} s: {self._blocked}",
                where=self._topic[0],
                fix="read the topics of all tables of the connector, and leave tables out with --filter instead; the"
                " connector may have no transform that drops rows; where rows are gone for good, apply the transaction"
                " without them (--set source.incomplete_transactions=ID), and run bridge verify --against upstream;"
                " where ENDs are, begin again with a pipeline of another --name",
            )

    def tick(self) -> None:
        """Looks whether more is due."""
        if not self._queue.is_empty or self._queue.next_ts < self._begun_ts:
            self._settle()
            self._hand_on(_NO_EVENTS)

    def end(self) -> None:
        """Notes that nothing more will be read."""
        super().end()
        self._settle()
        before = None
        while before != (before := (self._queue.next_ts, self._queue.is_in_doubt)):  # behind a failover, once more
            self._hand_on(_NO_EVENTS)
        if self._queue.is_short:
            log.warning("transaction_waits", why=self._queue.reason, rows=self.waiting.rows)

    # --- what is due

    def _window(self, parts: Iterable[RowChanges], low: int, high: int) -> RowChanges:
        return replace(RowChanges.joined(parts, low, high), starts=self._starts)

    coming = Order.coming  # what is due depends on what all partitions have

    @property
    def _complete_ts(self) -> int:
        """The resolved ts of the frontier, at most the end of the transaction in which `until` lies."""
        resolved: int = self._frontier.resolved_ts
        if self._until is None or self._until >= resolved:
            return resolved
        behind = int(np.searchsorted(self._starts, self._until, "left"))
        first_behind = int(self._starts[behind]) if behind < len(self._starts) else resolved
        waiting = [batch.rows.between(0, first_behind).table for batch in self._backlog.batches]
        last = max((int(rows["commit_ts"][-1].as_py()) for rows in waiting if rows.num_rows), default=-1)
        return max(self._until, min(first_behind, last + 1))

    # --- what a restart needs

    def advance_to(self, high: int, end: int, changes: tuple[SchemaChange, ...] = ()) -> Advance:
        """Adds to each partition's start the place that is reached, and as `read` the offset before which all its rows
        of no transaction are in the target."""
        step = super().advance_to(high, end, changes)
        place, ends = self._place_at(high)
        text = place.text()
        positions: dict[PartitionId, PartitionStart] = {
            where: start._replace(place=text, read=max(start.offset, ends.get(where, 0)))
            for where, start in step.positions.items()
        }
        return replace(step, positions=positions)

    def _place_at(self, high: int) -> tuple[Place, dict[PartitionId, int]]:
        place, ends = self._place, dict(self._loose_ends)
        for reaching in self._places:
            if count := int(np.searchsorted(reaching.behind, high, "right")):
                place = reaching.place(count - 1)
        for where, numbers, behind in self._marks:
            count = int(np.searchsorted(numbers, high, "left"))
            ends[where] = int(behind[:count].max(initial=ends.get(where, 0)))
        return place, ends

    def moved(self, step: Advance) -> None:
        """Notes that a transaction was committed."""
        self._place, self._loose_ends = self._place_at(step.new_ts)
        super().moved(step)
        self._places = [reaching for reaching in self._places if reaching.behind[-1] > step.new_ts]
        self._marks = [mark for mark in self._marks if mark.numbers[-1] >= step.new_ts]
        self._starts = self._starts[max(0, int(np.searchsorted(self._starts, step.new_ts, "left")) - 1) :]

    # --- status

    @property
    def waiting(self) -> Amount:
        """The row changes that wait, and the bytes of those that are not on the disk."""
        return Amount.total([self._backlog.amount, self._queue.waiting])

    def waiting_for(self) -> str:
        """Tells what the first transaction that is not whole lacks."""
        if self._until is not None and self.applied_ts >= self._until:
            return "nothing: --until is reached"
        return self._blocked or "nothing: every transaction that is whole is in the target"


def _of_any_server(place: str) -> str:
    """Gives the GTID of a schema change, which every server has for it; its place where it has none."""
    id_ = place.rpartition("\n")[2]
    return place if id_ == NO_TRANSACTION else id_
