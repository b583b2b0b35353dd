"""`bridge status` and `bridge reset`: read or delete a pipeline's state, which is in the target alone."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Final

import orjson

from bridge.commands.connections import open_session
from bridge.errors import OwnedError, UsageError
from bridge.model import goes_by_partition, quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import writable
from bridge.mysql.state.controls import Controls, ControlTable, as_document
from bridge.mysql.state.ddl_journal import OPEN, Journal, JournalEntry
from bridge.mysql.state.ownership import STALE_SECONDS, Ownership
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.quarantine import count_held
from bridge.phases import shares
from bridge.pipeline.status import reported_lags
from bridge.tso import tso_ms, tso_time

GUARANTEES: Final = {
    "commit_ts": "commit ts: whole upstream transactions, each exactly once",
    "partition": "the order of each partition: every change exactly once, transactions of several partitions in parts;"
    " when rows change or swap their keys within a second, one of them may be lost or come back",
    "unknown": "nothing was read yet",
}
"""What each order of applying guarantees."""


@dataclass(frozen=True)
class PipelineStatus:
    """A pipeline's state.

    progress: the pipeline's row of `_bridge.progress`.
    owner: the process that ran the pipeline last, with `age`, the seconds since its heartbeat; empty before the first
        run.
    running: whether the heartbeat is fresh and the owner has not ended.
    last_status: the last status that the owner wrote.
    schema_changes: the number of schema changes by state.
    quarantined: the number of held entries by code.
    open_changes: schema changes that are held or were refused; their outcome says why.
    controls: what the operator has set with `bridge ctl`.
    takes_writes: whether the target takes writes; a bridge waits while it does not, and cannot say so there.
    """

    progress: Progress
    owner: dict[str, Any]
    running: bool
    last_status: dict[str, Any]
    schema_changes: dict[str, int]
    quarantined: dict[str, int]
    open_changes: tuple[JournalEntry, ...]
    controls: Controls = field(default_factory=dict)
    takes_writes: bool = True

    def document(self) -> dict[str, Any]:
        """Returns the status as a JSON document."""
        progress = self.progress
        positions: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, partition), start in sorted(progress.positions.items()):
            positions.setdefault(topic, {})[str(partition)] = start._asdict()
        return {
            "name": progress.name,
            "applied_ts": progress.applied_ts,
            "applied_time": tso_time(progress.applied_ts),
            "order": self._order(),
            "lag_seconds": self._lag(),
            "epoch": progress.epoch,
            "running": self.running,
            "owner": self.owner,
            "positions": positions,
            "pending_schema_changes": [change.text for change in progress.pending],
            "schema_changes": self.schema_changes,
            "open_schema_changes": [entry.document() for entry in self.open_changes],
            "quarantined": sum(self.quarantined.values()),
            "quarantined_by_code": self.quarantined,
            "controls": as_document(self.controls),
            "target_takes_writes": self.takes_writes,
            "last_said": self.last_status,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Yields name and value of each line that is shown."""
        progress, lag, reported = self.progress, self._lag(), self._reported_lag()
        yield "pipeline", progress.name
        yield "applied ts", f"{progress.applied_ts} ({tso_time(progress.applied_ts)})"
        yield "order", GUARANTEES[self._order()]
        since = "since the applied ts" if reported is None else "by the bridge's last heartbeat"
        yield "lag", "unknown" if lag is None else f"{lag:,.1f} s {since}"
        yield "owner", self._owner_line()
        for control in self.controls.values():
            yield "steered", control.words
        if not self.takes_writes:
            yield "target", "is read-only: a bridge waits until it, or another server of its name, takes writes"
        elif self.running and "waiting_for" in self.last_status:
            yield "waiting for", str(self.last_status["waiting_for"])
            yield "time goes to", shares(self.last_status.get("phases", {})) or "nothing so far"
            for table, why in sorted(self.last_status.get("by_transaction", {}).items()):
                yield "slow way", f"{table} is written one upstream transaction after the other: {why}"
        yield "schema changes", ", ".join(f"{n} {state}" for state, n in self.schema_changes.items()) or "none"
        yield "quarantined", ", ".join(f"{n} {code}" for code, n in self.quarantined.items()) or "none"
        is_open = {entry.id: entry.state.value for entry in self.open_changes}
        for change in progress.pending:
            text = f"is {is_open[change.id]}" if change.id in is_open else change.text
            yield "still to run", f"{change.id}: {text}"
        for entry in self.open_changes:
            yield entry.state.value, f"{entry.id}: {entry.outcome}: {entry.statement}"
        for (topic, partition), start in sorted(progress.positions.items()):
            yield (
                f"{topic}/{partition}",
                f"restart offset {start.offset}, read to {start.read}"
                + (f", begun at {start.begin}" if start.begin else ""),
            )

    def _order(self) -> str:
        if not self.progress.positions:
            return "unknown"
        return "partition" if goes_by_partition(self.progress.positions) else "commit_ts"

    def _lag(self) -> float | None:
        """Gives the seconds for which the target is behind, as far as it can be told from here."""
        reported = self._reported_lag()
        if reported is not None:
            return reported
        return time.time() - tso_ms(self.progress.applied_ts) / 1000 if self.progress.applied_ts else None

    def _reported_lag(self) -> float | None:
        """Gives the lag that a running bridge said where there are no boundaries; None otherwise.

        Only the bridge knows then whether Kafka holds more: of an idle source the applied ts just grows old.
        """
        lags = reported_lags(self.last_status)
        return sum(lags) if lags and self.running and self._order() == "partition" else None

    def _owner_line(self) -> str:
        if not self.owner:
            return "none so far"
        who = f"process {self.owner['pid']} on {self.owner['host']}, heartbeat {self.owner['age']} s ago"
        return who if self.running else f"not running (last: {who})"


def read_status(target: Target, table: ProgressTable) -> PipelineStatus | None:
    """Reads the pipeline's state; None when it is unknown.  Raises TargetError when the target does not answer."""
    with open_session(target) as session:
        if not table.exists(session):
            return None
        progress = table.read(session)
        if progress is None:
            return None
        owner, running, last_status = read_owner(session, table)
        journal = Journal(table.name, table.schema)
        counts, open_changes = journal.counts(session), tuple(journal.entries(session, OPEN))
        held = count_held(session, table.schema, table.name)
        controls = ControlTable(table.name, table.schema).read(session)
        takes_writes = bool(session.value(f"SELECT {writable(session)}"))
        return PipelineStatus(progress, owner, running, last_status, counts, held, open_changes, controls, takes_writes)


def forget_pipeline(target: Target, table: ProgressTable) -> bool:
    """Deletes a pipeline's rows; False when it was unknown.  Raises OwnedError when a bridge is running it."""
    with open_session(target) as session:
        if not table.is_known(session):
            return False
        with _owned(target, table):
            return table.forget(session)


def forget_topic(target: Target, table: ProgressTable, topic: str) -> bool:
    """Removes a topic from a pipeline, which then no longer reads it; False when the pipeline is unknown.

    Raises UsageError when the pipeline does not read the topic, or has written parts of a step; OwnedError when a
    bridge is running it.
    """
    with open_session(target) as session:
        if not table.is_known(session):
            return False
        with _owned(target, table) as ownership:
            progress = table.read(ownership.control)
            topics = sorted({name for name, _ in progress.positions}) if progress else []
            if topic not in topics:
                raise UsageError(
                    f"the pipeline reads {' and '.join(map(repr, topics)) or 'no topic so far'}, not {topic!r}",
                    where=f"pipeline {table.name}",
                    fix="check --topic and --name",
                )
            if progress and progress.in_parts:
                raise UsageError(
                    f"a step of `parallel` was interrupted, and the target may hold parts of what {topic!r} has for it",
                    where=f"pipeline {table.name}",
                    fix=f"start the bridge with this topic until its applied ts is at least {progress.applying_ts}",
                )
            return table.forget_topic(ownership.control, ownership.epoch, topic)


@contextmanager
def _owned(target: Target, table: ProgressTable) -> Iterator[Ownership]:
    """Owns a pipeline for a moment.  Raises OwnedError when a bridge is running it."""
    ownership = Ownership(target, table)
    try:
        ownership.acquire(0, take_over=False)
        yield ownership
    except OwnedError as error:
        raise OwnedError(error.what, where=error.where, fix="stop that bridge first") from error
    finally:
        ownership.release()


def read_owner(session: Session, table: ProgressTable) -> tuple[dict[str, Any], bool, dict[str, Any]]:
    """Reads who ran the pipeline last, whether that bridge is running, and what it said last."""
    rows = session.rows(
        "SELECT host, pid, epoch, connections, TIMESTAMPDIFF(SECOND, heartbeat_at, NOW(3)), state"
        f" FROM {quote_name(table.schema, 'owner')} WHERE name = %s",
        (table.name,),
    )
    if not rows:
        return {}, False, {}
    host, pid, epoch, connections, age, state = rows[0]
    owner = {"host": host, "pid": pid, "epoch": epoch, "age": age, "here": host == socket.gethostname()}
    return owner, bool(connections) and age <= STALE_SECONDS, orjson.loads(state)
