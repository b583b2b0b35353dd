"""The applier: takes decoded micro-batches, and moves the target from one commit ts to the next, as its order decides.

Row changes are folded before they are due, while the server works on those before them.  What was folded is used only
for the very same row changes, with the very same definitions of tables.
"""

from __future__ import annotations

import math
import queue
import sys
import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Final

import structlog

from bridge.ends import Abandoned
from bridge.errors import AheadOfTargetError, ApplyError, BadMessageError, HeldError, SchemaChangeError
from bridge.events import Code
from bridge.filters.routes import Routes
from bridge.filters.table_filter import TableFilter
from bridge.model import Entry, PartitionId, Positions, RowCounts, SchemaChange, Table, TableName
from bridge.mysql.apply.writer import Writer, raise_held
from bridge.mysql.catalog import refuse_one_for_two
from bridge.phases import Phase, PhaseClock
from bridge.pipeline.bad_input import OnBadMessage, bad_message_error, unreadable_change
from bridge.pipeline.by_transactions.reached import Lacks
from bridge.pipeline.order import BadMessage, Due, LeftOutRows, Order, OrderChanged
from bridge.pipeline.steering import Gate
from bridge.protocols import OLD_VALUES_FIX, PROTOCOLS
from bridge.rows.gathering import Amount
from bridge.rows.net_changes import NetChanges, missing_table
from bridge.rows.order_and_slices import OPERATIONS, RowChanges
from bridge.rows.sql.statement import Rendering
from bridge.spark.decoded_batch import MOST_IN_MEMORY, DecodedBatch

log = structlog.get_logger()


@dataclass
class Counts:
    """Counts for the status and the summary.  The applier's thread writes them; other threads may read them."""

    messages: int = 0
    applied: Mapping[TableName, RowCounts] = field(default_factory=dict)
    """The row changes that were applied, by table; replaced as a whole, so that whoever reads it once has one
    moment."""
    quarantined: int = 0
    late: int = 0
    repeated: int = 0
    left_out: Counter[TableName] = field(default_factory=Counter)
    """Row changes that are never written, by table (`ReservedSchemas`)."""
    may_hide: set[TableName] = field(default_factory=set)
    """The tables whose updates may be taken for inserts (`note_keyless`)."""
    tables: set[TableName] = field(default_factory=set)
    """The tables that occurred in messages, replicated or not."""

    @property
    def rows(self) -> int:
        """How many row changes were applied."""
        return sum(map(sum, self.applied.values()))

    def note_applied(self, tables: Mapping[TableName, RowCounts], quarantined: Iterable[Entry]) -> None:
        """Counts the rows of a transaction, but for those that were quarantined instead."""
        refused = Counter(
            (TableName(entry.change.schema, entry.change.table), entry.change.kind)
            for entry in quarantined
            if entry.change is not None
        )
        by_table = dict(self.applied)
        for name, counts in tables.items():
            there = counts.plus((refused[name, kind] for kind in OPERATIONS), -1)
            by_table[name] = by_table.get(name, RowCounts()).plus(there)
        self.applied = by_table

    def note_keyless(self, names: Iterable[TableName]) -> None:
        """Takes tables without a key, of a protocol in which inserts may be updates.  Logs each of them once that gets
        inserts, until some update comes: old values are a setting of the whole changefeed."""
        if any(counts.updates for counts in self.applied.values()):
            return
        for name in names:
            if name not in self.may_hide and self.applied.get(name, RowCounts()).inserts:
                self.may_hide.add(name)
                log.warning("updates_may_be_hidden", table=str(name), fix=OLD_VALUES_FIX)

    def note_left_out(self, left_out: Iterable[LeftOutRows]) -> None:
        """Counts the rows of tables that are not replicated.  Logs each table once to which nothing is ever written."""
        for row, position, rows in left_out:
            name = TableName(row.schema, row.table)
            self.tables.add(name)
            if row.reason is None:
                continue
            if name not in self.left_out:
                log.warning("rows_left_out", table=str(name), why=row.reason, position=str(position))
            self.left_out[name] += rows


TRANSACTION: Final = Amount(50_000, 128 << 20)
RowsOf = Callable[[Iterable[RowChanges], int, int], RowChanges]
"""Makes the row changes of a window from what waits, its low commit_ts and its high commit_ts."""


@dataclass(frozen=True)
class IdlePolicy:
    """How long what waits is waited for, and where partitions end.

    seconds: how long a schema change waits for a partition that is idle.
    ends: looks up where partitions end now (offsets); None when Kafka does not answer.
    row_seconds: how long rows wait for a schema change that makes a table or a column which the target lacks; up to the
        end of the input, if that comes before.
    """

    seconds: float
    ends: Callable[[Collection[PartitionId]], Mapping[PartitionId, int] | None]
    row_seconds: float = math.inf


@dataclass(frozen=True, kw_only=True)
class ApplierConfig:
    """The settings that all appliers of a pipeline share, and the orders that tell them what is due.

    transaction: about how much one target transaction holds.
    until: nothing at or above this commit_ts is applied (TSO); None for no limit.
    boundary_seconds: how long to wait for a first boundary before the order of the partitions takes over; None when a
        boundary is sure to come.
    settles: whether the order of the partitions changes to that of commit ts when boundaries come again.
    most: about how much waits in memory (not in the order of commit ts).
    begins: where the topics begin that do not begin with the pipeline (TSO).
    routes: what tables are called on the target.
    waits_for_operator: waits until a held schema change is released, instead of raising HeldError.
    grace_seconds: how long a transaction may lack rows while later ones come, before the bridge stops.
    incomplete: ids of transactions that are applied without the rows that they lack.
    lacks: asks the upstream, after a failover, what it lacks; None where none is named.
    """

    tables: TableFilter = field(default_factory=TableFilter)
    transaction: Amount = TRANSACTION
    until: int | None = None
    boundary_seconds: float | None = None
    idle: IdlePolicy = field(default_factory=lambda: IdlePolicy(0, lambda _: {}))
    rows_of: RowsOf = RowChanges.joined
    on_bad_message: OnBadMessage = field(default_factory=OnBadMessage)
    most: Amount = MOST_IN_MEMORY
    settles: bool = True
    begins: Mapping[str, int] = field(default_factory=dict)
    routes: Routes = Routes()  # noqa: RUF009  # immutable
    waits_for_operator: bool = False
    gate: Gate | None = None
    unused: frozenset[PartitionId] = frozenset()
    grace_seconds: float = 60
    incomplete: frozenset[str] = frozenset()
    lacks: Lacks | None = None
    clock: Callable[[], float] = time.monotonic


LEAST_ROWS: Final = 10_000
"""Fewer row changes are folded when they are due, which takes no longer than to hand them over."""
HELD_SECONDS: Final = 0.5
"""How often the bridge checks whether the operator has released a held schema change."""
BAD_MESSAGE_GRACE_SECONDS: Final = 10.0
"""How long the bridge waits, before a bad message stops it, for slower partitions to complete what comes before it."""
_UNLIMITED: Final = Amount(1 << 60, 1 << 60)


class FoldedAhead:
    """Pieces of windows that were folded ahead.  One thread calls `fold`, another one calls `folded`.

    A catch-up of 1,200,000 row changes of sysbench took 15.8 s with it and 19.5 s without (two cores; measured).
    """

    def __init__(self) -> None:
        self._pieces: deque[tuple[RowChanges, Future[list[NetChanges] | None]]] = deque()
        """Row changes that one transaction will hold, and their net changes; None where they must be made when due."""
        self._catalog: Mapping[TableName, Table] = {}
        self._rendering = Rendering("")

    def fold(self, pieces: Iterable[RowChanges], catalog: Mapping[TableName, Table]) -> None:
        """Folds pieces, in the order in which they will be due.

        catalog: the target's tables as they are now, in a mapping that is never changed.
        """
        if catalog is not self._catalog:
            self._catalog, self._rendering = catalog, Rendering("")
        coming = [(rows, Future[list[NetChanges] | None]()) for rows in pieces if rows.count >= LEAST_ROWS]
        self._pieces.extend(coming)
        for rows, nets in coming:
            if nets.set_running_or_notify_cancel():
                nets.set_result(self._nets(rows))

    def folded(self, rows: RowChanges, catalog: Mapping[TableName, Table]) -> RowChanges:
        """Gives the rows, with their net changes if they were folded ahead; waits while they are being folded.

        catalog: the target's tables as they are now.
        """
        if rows.is_large:
            return rows
        while self._pieces and self._pieces[0][0].table["commit_ts"][0].as_py() <= rows.last_ts:
            piece, ahead = self._pieces.popleft()
            if not ahead.cancel() and piece.is_same(rows):
                nets = ahead.result()
                is_valid = nets is not None and all(catalog.get(net.table.name) is net.table for net in nets)
                return replace(rows, folded=nets) if nets is not None and is_valid else rows
        return rows

    def _nets(self, rows: RowChanges) -> list[NetChanges] | None:
        try:
            return rows.nets(self._catalog, self._rendering)
        except Exception:  # noqa: BLE001  # whatever is wrong with them is told when they are due
            return None


class Interrupted(Exception):  # noqa: N818  # not an error: the applier was asked to end between two transactions
    """Ends the applier after `interrupt`."""


class Applier:
    """Applies what is due, for one pipeline.

    cascades_are_lost: the log lacks the rows that cascading foreign keys change upstream.
    """

    def __init__(
        self, writer: Writer, order: Order, counts: Counts, config: ApplierConfig, *, cascades_are_lost: bool
    ) -> None:
        self._writer, self._transaction, self._clock = writer, config.transaction, config.clock
        self._on_bad_message, self._cascades_are_lost = config.on_bad_message, cascades_are_lost
        self._on_held = self._wait_for_operator if config.waits_for_operator else raise_held
        self._catalog: Mapping[TableName, Table] = {}
        self._ahead = FoldedAhead()
        self._gate = config.gate or Gate()
        self._interrupted = threading.Event()
        self._held = ""
        self._has_read, self._bad_since = False, 0.0
        self.has_taken = threading.Event()
        """Set while the micro-batch that was given last is being applied."""
        self.order, self.counts = order, counts
        self.committed: Positions = order.positions
        """Where a restart would begin: what is in the target has been read from each partition up to there."""

    @property
    def phases(self) -> PhaseClock:
        """Where the time of the thread goes that calls the applier."""
        return self._writer.phases

    def interrupt(self) -> None:
        """Ends the applier before its next transaction; may be called from any thread."""
        self._interrupted.set()

    def finish_pending(self, pending: tuple[SchemaChange, ...]) -> None:
        """Runs the schema changes that progress lists as still to run, and what the operator runs in the place of those
        that cannot be read.  An earlier run may have left them."""
        with self._with_doubt():
            self._run_pending(pending)
        for change in self._writer.unreadable().to_run:
            self._writer.run_next((change,), self._on_held)
            self._held = ""

    def _run_pending(self, pending: tuple[SchemaChange, ...]) -> None:
        for number in range(len(pending)):
            self._pass_gate()
            self.phases.enter(Phase.SCHEMA_CHANGE)
            self._writer.run_next(pending[number:], self._on_held)
            self._held = ""
        self.phases.enter(Phase.FOLDING)

    def note_empty(self) -> None:
        """Notes that the source holds nothing that is still to be read."""
        self._has_read = True

    def take(self, batch: DecodedBatch) -> None:
        """Takes one micro-batch, then applies everything that is due.

        Raises OrderChanged when the other order takes over, and BadMessageError when a bad message comes next.
        """
        before = _messages(self.order.positions)
        self.order.take(batch)
        self.counts.messages += _messages(self.order.positions) - before
        self._has_read = True
        self.has_taken.set()
        self.advance()

    def fold_ahead(self, batch: DecodedBatch) -> None:
        """Folds what will probably be due once `batch` has been taken.  Another thread calls it while `has_taken` is
        set."""
        rows = self.order.coming(batch)
        if rows is not None:
            pieces = (piece for _, piece in rows.pieces(self._gate.portion(self._transaction)))
            self._ahead.fold((piece for piece in pieces if not self._writer.writes_apart(piece)), self._catalog)

    def advance(self) -> None:
        """Applies everything that is due; raises as `take` does."""
        for due in self.order.due():
            try:
                with self._with_doubt():
                    self._apply(due)
            except AheadOfTargetError as error:
                if not self.order.put_back(error):
                    raise
                self._catalog = {}
        bad = self.order.next_bad()
        self._bad_since = (self._bad_since or self._clock()) if bad else 0.0
        if bad and self._clock() - self._bad_since > BAD_MESSAGE_GRACE_SECONDS:
            raise self._stopped_by(bad)
        handover = self.order.handover()
        if handover is not None:
            advance, reason = handover
            self._writer.apply(advance)
            self.committed = advance.positions
            raise OrderChanged(reason)

    @contextmanager
    def _with_doubt(self) -> Iterator[None]:
        try:
            yield
        except (ApplyError, SchemaChangeError) as error:
            error.fix += self.order.doubt
            raise

    def tick(self) -> None:
        """Applies what has become due by time.  Call it regularly while no micro-batch comes."""
        self.order.tick()
        self.advance()

    def finish(self) -> None:
        """Applies and records everything that is due at the end of the input; raises as `take` does."""
        self.order.end()
        self.advance()
        final_ts = self.order.final_ts()
        if final_ts is not None:
            self._commit(final_ts, None, (), final_ts)
        bad = self.order.next_bad()
        if bad:
            raise self._stopped_by(bad)

    def _stopped_by(self, bad: Sequence[BadMessage]) -> BadMessageError:
        """Makes the error for messages that stop the bridge.  A schema change is recorded for the operator."""
        entry, ts = bad[0].entry, self.order.applied_ts
        if entry.code != Code.SCHEMA_CHANGE:
            return bad_message_error(bad)
        change, again = unreadable_change(entry, ts), unreadable_change(entry, ts, is_again=True)
        return bad_message_error(bad, self._writer.note_unreadable(change, again, entry.reason))

    def waiting_for(self) -> str:
        """Tells what the target waits for, and why; may be called from any thread."""
        if self._gate.is_paused:
            return self._gate.waiting_for
        if self._held:
            return self._held
        if self._gate.waiting_for:
            return self._gate.waiting_for
        if not self._has_read:
            return "the first messages are being read"
        return self.order.waiting_for()

    @property
    def held(self) -> str:
        """What waits for the operator, and what to do; "" when nothing does."""
        return self._gate.waiting_for if self._gate.is_paused else self._held

    @property
    def is_paused(self) -> bool:
        """Whether the operator has paused the pipeline."""
        return self._gate.is_paused

    def _wait_for_operator(self, held: HeldError) -> None:
        """Waits before the schema change is tried again; raises Interrupted after `interrupt`."""
        self._held = f"{held.what}; {held.fix}"
        self._interrupted.wait(HELD_SECONDS)
        self._pass_gate()

    def _pass_gate(self) -> None:
        """Waits while the operator, or a server that is too busy, holds the applier back; raises Interrupted after
        `interrupt`."""
        if not self._gate.is_open():
            self.phases.enter(Phase.HELD_BACK)
            self._gate.wait(self._interrupted)
            self.phases.enter(Phase.FOLDING)
        if self._interrupted.is_set():
            raise Interrupted

    def _apply(self, due: Due) -> None:
        segment, rows, at_once = due
        end: int | None = 0
        most = _UNLIMITED if at_once else self._gate.portion(self._transaction)
        for end, piece in rows.pieces(most) if rows is not None else ():
            is_last = end is None
            high = segment.high if end is None else end
            self._commit(high, piece, segment.changes if is_last else (), segment.high)
        if end is not None:
            self._commit(segment.high, None, segment.changes, segment.high)
        if segment.changes:
            self._run_pending(segment.changes)
            self._catalog = {}

    def _commit(self, high: int, rows: RowChanges | None, changes: tuple[SchemaChange, ...], end: int) -> None:
        """Moves the target to `high` in one transaction; the segment ends at `end`."""
        self._pass_gate()
        step = self.order.advance_to(high, end, changes)
        if rows is None:
            self._writer.apply(step)
        else:
            tables = rows.tables()
            self._gate.take(rows.count)
            self._load_tables(rows)
            rows = self._ahead.folded(rows, self._catalog)
            step = self._on_bad_message.apply(self._writer, step, rows, self._catalog)
            self.counts.note_applied(tables, step.quarantined)
            if PROTOCOLS[self._on_bad_message.protocol].may_hide_updates:
                self.counts.note_keyless(name for name in tables if not self._catalog[name].keys)
        self.counts.quarantined += len(step.quarantined)
        self.order.moved(step)
        self.committed = step.positions
        log.debug("transaction", applied_ts=step.new_ts, rows=rows.count if rows else 0)

    def _load_tables(self, rows: RowChanges) -> None:
        names = rows.tables()
        self.counts.tables.update(names)
        missing = [name for name in names if name not in self._catalog]
        if not missing:
            return
        loaded = self._writer.load_tables(missing, cascades_are_lost=self._cascades_are_lost)
        self._catalog = {**self._catalog, **loaded}
        for name in missing:
            if name not in self._catalog:
                _, first = next(rows.of_tables([name]).pieces(Amount(1, 1)))
                raise missing_table(name, first.table["commit_ts"][0].as_py())
        refuse_one_for_two(self._catalog)


def _messages(positions: Positions) -> int:
    """Counts the messages that were read, plus an offset that does not change."""
    return sum(start.read for start in positions.values())


_TICK_SECONDS: Final = 0.2
_SWITCH_SECONDS: Final = 0.0005
"""A thread that wants to run waits so long for one that runs Python, by default 5 ms.  While the applier waits with its
next statement, the target has nothing to do: a catch-up of `real` from Debezium is 3 % faster so (measured)."""


class ApplierThread:
    """Runs the applier in a thread.  At most one micro-batch waits while another is applied.

    pending: the schema changes that progress lists as still to run; they run first.
    """

    def __init__(self, applier: Applier, pending: tuple[SchemaChange, ...]) -> None:
        self._applier, self._pending = applier, pending
        self._waiting: queue.Queue[DecodedBatch | None] = queue.Queue(maxsize=1)  # None: nothing more comes
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        """The error that ended the thread, or reading."""
        self._thread = threading.Thread(target=self._work, name="applier", daemon=True)

    @property
    def phases(self) -> PhaseClock:
        """Where the time of the thread goes."""
        return self._applier.phases

    def start(self) -> None:
        """Starts the thread."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._thread.start()

    def offer(self, batch: DecodedBatch, stop_waiting: Callable[[], bool]) -> bool:
        """Gives the applier a micro-batch, and waits while another one is waiting.

        Returns False when the thread has ended, or `stop_waiting` returned true, before the applier accepted it.
        """
        while self._thread.is_alive() and not self._stopping.is_set() and not stop_waiting():
            try:
                self._waiting.put(batch, timeout=_TICK_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def fold_ahead(self, batch: DecodedBatch) -> None:
        """Folds what will be due with a micro-batch that was accepted, unless the applier has taken it already."""
        if self._waiting.full() and self._applier.has_taken.wait(_TICK_SECONDS) and self._waiting.full():
            self._applier.fold_ahead(batch)

    def raise_failure(self) -> None:
        """Raises the error that ended the thread or reading, if there is one."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """Makes raise_failure raise an error of reading, unless there was an earlier one."""
        self.failure = self.failure or error

    def drain(self, stop_waiting: Callable[[], bool]) -> bool:
        """Waits until the thread has applied what is waiting and has ended; raises the error that ended it.

        Returns False when `stop_waiting` returned true before.
        """
        while self._thread.is_alive() and not stop_waiting():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=_TICK_SECONDS)
                break
        while self._thread.is_alive() and not stop_waiting():
            self._thread.join(_TICK_SECONDS)
        self.raise_failure()
        return not stop_waiting() and not self._thread.is_alive()

    def stop(self, seconds: float) -> bool:
        """Ends the thread after the present target transaction; False when that takes longer than `seconds`."""
        self._applier.interrupt()
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        phases = self.phases
        try:
            self._applier.finish_pending(self._pending)
            while True:
                try:
                    phases.enter(Phase.WAITING)
                    self._applier.has_taken.clear()
                    batch = self._waiting.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    if self._stopping.is_set():
                        return
                    phases.enter(Phase.FOLDING)
                    self._applier.tick()
                else:
                    if batch is None:
                        return
                    phases.enter(Phase.FOLDING)
                    self._applier.take(batch)
        except (Interrupted, Abandoned):
            return
        except BaseException as error:  # noqa: BLE001  # raised again by raise_failure, in the thread that watches
            self.failure = error
        finally:
            phases.enter(None)
