"""The applier of formats without boundaries: the end of a micro-batch is the boundary (internals, decision 13)."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import ClassVar, Final

import pyarrow as pa
import structlog

from bridge.model import Advance, PartitionId, Positions, SchemaChange
from bridge.mysql.apply.writer import Writer
from bridge.mysql.state.progress import Progress
from bridge.pipeline.applier import BAD_MESSAGE_GRACE_SECONDS, Applier, Limits
from bridge.pipeline.backlog import Arrival, without_left_out
from bridge.pipeline.bad_message_policy import OnBadMessage
from bridge.pipeline.bad_messages import bad_message_error
from bridge.pipeline.frontier import Frontier
from bridge.pipeline.ordered.order import OrderChanged
from bridge.pipeline.ordered.partition_backlog import Prefixes
from bridge.pipeline.segments import Segment
from bridge.rows.order_and_slices import DriverRows, TableStore
from bridge.table_filter import TableFilter

POSITIONS_SECONDS: Final = 10.0
"""Positions that move without a change (of tables that are filtered out) are written this often."""
SETTLE_SECONDS: Final = 10.0
"""How long rows are held for boundaries that have begun to come again; TiCDC sends them about once a second."""
SETTLE_AGAIN_SECONDS: Final = 100.0
"""So long after a vain wait they are not waited for again."""

log = structlog.get_logger()


@dataclass(frozen=True)
class Patience:
    """How long a schema change waits for a partition that brings nothing.

    seconds: the idle limit.
    ends: the offsets at which the partitions end, asked when one has been idle for so long; None while nobody knows.
    """

    seconds: float
    ends: Callable[[], Mapping[PartitionId, int] | None]


class SequencedApplier(Applier):
    """Applies prefixes of the partitions, each target transaction with exact offsets."""

    by_partition: ClassVar[bool] = True

    def __init__(
        self,
        writer: Writer,
        progress: Progress,
        prefixes: Prefixes,
        patience: Patience,
        *,
        tables: TableFilter,
        limits: Limits,
        on_bad_message: OnBadMessage = OnBadMessage(),  # noqa: B008  # immutable
        settles: bool = True,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(
            writer, progress, Frontier([], clock), prefixes,
            tables=tables, limits=limits, on_bad_message=on_bad_message, clock=clock,
        )  # fmt: skip
        self._prefixes, self._patience = prefixes, patience
        self._asked: dict[PartitionId, int] = {}
        self._recorded: Positions = prefixes.positions
        self._waiting = ""
        self._read_ts = 0
        self._settling_since: float | None = None
        self._no_settling_before = 0.0 if settles else math.inf

    @property
    def resolved_ts(self) -> int:
        """The highest event time read so far."""
        return max(self.applied_ts, self._read_ts)

    @property
    def until_reached(self) -> bool:
        """Some partition has come to `until`, and everything below it that was read is in the target."""
        return self._limits.until is None or self.applied_ts == self._limits.until

    def take(self, arrival: Arrival) -> None:
        """One micro-batch, all of whose changes are due now."""
        store, control = arrival
        assert isinstance(store, TableStore)
        self._has_read = True
        before = sum(start.read for start in self._prefixes.positions.values())
        events, left_out = without_left_out(store.table)
        self._note_left_out(left_out)
        dropped = self._prefixes.take_in(self._with_cut_rows(events), control.read, self._clock())
        ends = self._patience.ends() if control.is_cut else {}
        if ends is not None:
            self._prefixes.hold_for(ends)
        self.counts.repeated.update(dropped)
        self.counts.messages += sum(start.read for start in self._prefixes.positions.values()) - before
        self.advance()
        self._prefixes.spill()

    def _with_cut_rows(self, events: pa.Table) -> pa.Table:
        """Whatever the order, a message that TiCDC cut has a commit ts, at which its whole row can be read."""
        cut_rows = self._on_bad_message.cut_rows
        return events if cut_rows is None else cut_rows.completed_among(events, self._prefixes.floor)

    def advance(self) -> None:
        """Applies everything that may be; raises OrderChanged when boundaries have taken over."""
        while (step := self._prefixes.next_step(self._judge)) is not None:
            self._asked.clear()
            self._apply_segment(Segment(self.applied_ts, step.high, step.changes), DriverRows(step.rows))
        self._settle()
        self._read_ts = self._prefixes.last_time
        self._bad = self._prefixes.bad()
        self._bad_since = (self._bad_since or self._clock()) if self._bad else 0.0
        self._waiting = self._what_waits()

    def tick(self) -> None:
        """To be called now and then while no micro-batch comes."""
        self._excuse_idle()
        self.advance()
        if self._bad and self._clock() - self._bad_since > BAD_MESSAGE_GRACE_SECONDS:
            raise bad_message_error(self._bad)
        if self._clock() - self._written_at >= POSITIONS_SECONDS:
            self._write_positions()

    def finish(self) -> None:
        """At the end of the input, which counts as every partition's having passed everything."""
        self._prefixes.end()
        self.advance()
        if self._prefixes.is_settling:
            self._prefixes.unsettle()
            self.advance()
        self._write_positions()
        if self._bad:
            raise bad_message_error(self._bad)
        if self._prefixes.is_at_bound and self._limits.until is not None:
            self._write_progress(self._limits.until)

    def waiting_for(self) -> str:
        """What holds the target back, and why."""
        return self._waiting if self._has_read and not self._held else super().waiting_for()

    # --- schema changes

    def _judge(self, change: SchemaChange, by_time: bool) -> SchemaChange | None:
        """The change to run, None for one that the filter leaves out and for a copy of one that ran.

        With a TSO a copy is known by it.  Without, a change of another partition with the same time and text is the
        same one, broadcast; in one partition it happened twice, and runs under a number of its own.
        """
        if not self._wanted(change):
            return None
        runs = self._writer.runs_like(change)
        if not by_time:
            return None if change.commit_ts in runs else change
        if any(_partition_of(position) != _partition_of(change.position) for position in runs.values()):
            return None
        return replace(change, commit_ts=next(ts for ts in range(change.commit_ts, 1 << 63) if ts not in runs))

    def _excuse_idle(self) -> None:
        """Lets partitions pass that have been idle for the limit, when nothing of them is left to read."""
        silent = self._prefixes.silent(self._clock(), self._patience.seconds)
        if any(where not in self._asked for where in silent):
            ends = self._patience.ends()
            if ends is None:
                return
            for where in silent:
                self._asked.setdefault(where, ends.get(where, 0))
        for where, read in silent.items():
            if read >= self._asked[where]:
                self._prefixes.excuse(where)

    # --- boundaries that come again

    def _settle(self) -> None:
        now = self._clock()
        ts = self._prefixes.settle() if now >= self._no_settling_before else None
        if ts is not None:
            self._prefixes_to_boundaries(ts)
        if not self._prefixes.is_settling:
            self._settling_since = None
            return
        self._settling_since = self._settling_since or now
        if now - self._settling_since > SETTLE_SECONDS:
            self._prefixes.unsettle()
            self._no_settling_before = now + SETTLE_AGAIN_SECONDS
            self._settling_since = None
            self.advance()

    def _prefixes_to_boundaries(self, ts: int) -> None:
        put_aside = self._prefixes.put_aside(self.applied_ts, ts)
        self._writer.apply(Advance(self.applied_ts, ts, self._prefixes.settled_positions(ts), put_aside=put_aside))
        self.applied_ts = ts
        raise OrderChanged("every partition has boundaries: transactions are whole from here on")

    # --- progress

    def _bounds(self, end: int) -> tuple[int, ...]:
        """Nothing is resolved: a step ends where its rows do."""
        return (end,)

    def _moved(self, step: Advance) -> None:
        super()._moved(step)
        self._recorded = step.positions

    def _write_positions(self) -> None:
        if self._prefixes.restart_positions(self.applied_ts) != self._recorded:
            self._write_progress(self.applied_ts)

    def _what_waits(self) -> str:
        if self._bad:
            return f"a bad message at {self._bad[0].entry.position} stops its partition"
        change, held_by = self._prefixes.waiting_change, self._prefixes.held_by()
        if change is not None and held_by:
            names = ", ".join(f"{topic}/{partition}" for topic, partition in held_by[:5])
            return (
                f"a schema change at {change.position} waits until {names} {'has' if len(held_by) == 1 else 'have'}"
                f" passed its time or been idle for {self._patience.seconds:g} s: {change.text[:80]}"
            )
        if (slow := self._prefixes.slowest()) is not None and self._prefixes.rows:
            return f"{slow[0]}/{slow[1]} is still being read; what it holds may be earlier than what others brought"
        if self._prefixes.is_settling:
            return "boundaries have begun to come; rows are held until all partitions have reached the same moment"
        if self._limits.until is not None and self._prefixes.is_at_bound:
            return "nothing: --until is reached"
        return "nothing: everything that was read is in the target"


def _partition_of(position: str) -> str:
    return position.rpartition("/")[0]
