"""A pipeline's state as the target tells it: nothing else is asked."""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import orjson
from pymysql.err import MySQLError

from bridge.errors import OwnedError, TargetError
from bridge.events import tso_ms
from bridge.stream.status import tso_time
from bridge.target.ownership import STALE_SECONDS, Ownership
from bridge.target.progress import Progress, ProgressTable
from bridge.target.quarantine import count_held
from bridge.target.session import Session, Target, quote_name, server_words


@dataclass(frozen=True)
class PipelineStatus:
    """progress: its row.  owner: who ran it last, with `age` seconds since its heartbeat, empty before the first run.
    running: its heartbeat is fresh and it has not ended.  said: the last status of the owner.
    schema_changes: how many by state.  quarantined: how many are held, by code.
    refused: those that were refused, newest first, with the server's words."""

    progress: Progress
    owner: dict[str, Any]
    running: bool
    said: dict[str, Any]
    schema_changes: dict[str, int]
    quarantined: dict[str, int]
    refused: tuple[tuple[int, str, str], ...]

    def document(self) -> dict[str, Any]:
        """As a JSON document."""
        progress = self.progress
        positions: dict[str, dict[str, dict[str, int]]] = {}
        for (topic, partition), start in sorted(progress.positions.items()):
            positions.setdefault(topic, {})[str(partition)] = start._asdict()
        return {
            "name": progress.name,
            "applied_ts": progress.applied_ts,
            "applied_time": tso_time(progress.applied_ts),
            "lag_seconds": self._lag(),
            "epoch": progress.epoch,
            "running": self.running,
            "owner": self.owner,
            "positions": positions,
            "pending_schema_changes": [change.text for change in progress.pending],
            "schema_changes": self.schema_changes,
            "refused": [dict(zip(("commit_ts", "statement", "words"), row, strict=True)) for row in self.refused],
            "quarantined": sum(self.quarantined.values()),
            "quarantined_by_code": self.quarantined,
            "last_said": self.said,
        }

    def lines(self) -> Iterator[tuple[str, str]]:
        """Name and value of each line shown."""
        progress, lag = self.progress, self._lag()
        yield "pipeline", progress.name
        yield "applied ts", f"{progress.applied_ts} ({tso_time(progress.applied_ts)})"
        yield "lag", "unknown" if lag is None else f"{lag:,.1f} s since the applied ts"
        yield "owner", self._owner_line()
        if self.running and self.said:
            yield "waiting for", str(self.said.get("waiting_for", ""))
        yield "schema changes", ", ".join(f"{n} {state}" for state, n in self.schema_changes.items()) or "none"
        yield "quarantined", ", ".join(f"{n} {code}" for code, n in self.quarantined.items()) or "none"
        for change in progress.pending:
            yield "still to run", f"commit ts {change.commit_ts}: {change.text}"
        for commit_ts, statement, words in self.refused:
            yield "refused", f"commit ts {commit_ts}: {words}: {statement}"
        for (topic, partition), start in sorted(progress.positions.items()):
            yield f"{topic}/{partition}", f"restart offset {start.offset}, read to {start.read}"

    def _lag(self) -> float | None:
        return time.time() - tso_ms(self.progress.applied_ts) / 1000 if self.progress.applied_ts else None

    def _owner_line(self) -> str:
        if not self.owner:
            return "none so far"
        who = f"process {self.owner['pid']} on {self.owner['host']}, heartbeat {self.owner['age']} s ago"
        return who if self.running else f"not running (last: {who})"


def read_status(target: Target, table: ProgressTable) -> PipelineStatus | None:
    """None when the pipeline is unknown; TargetError when the target does not answer."""
    with _Asking(target) as session:
        if not table.exists(session):
            return None
        progress = table.read(session)
        if progress is None:
            return None
        owner, running, said = _owner(session, table)
        journal = quote_name(table.schema, "schema_changes")
        counts = session.rows(f"SELECT state, COUNT(*) FROM {journal} WHERE name = %s GROUP BY state", (table.name,))
        refused = session.rows(
            f"SELECT commit_ts, statement, outcome FROM {journal} WHERE name = %s AND state = 'refused'"
            " ORDER BY commit_ts DESC LIMIT 5",
            (table.name,),
        )
        held = count_held(session, table.schema, table.name)
        return PipelineStatus(progress, owner, running, said, dict(counts), held, tuple(refused))


def forget_pipeline(target: Target, table: ProgressTable) -> bool:
    """Deletes a pipeline's rows; False when it was unknown, OwnedError when a bridge is running it."""
    with _Asking(target) as session:
        if not table.exists(session):
            return False
        ownership = Ownership(target, table)
        try:
            if table.read(session) is None:
                return False
            ownership.acquire(take_over=False)
            return table.forget(session)
        except OwnedError as error:
            raise OwnedError(error.what, where=error.where, mend="stop that bridge first") from error
        finally:
            ownership.release()


def _owner(session: Session, table: ProgressTable) -> tuple[dict[str, Any], bool, dict[str, Any]]:
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


class _Asking:
    """A session for a look, with the driver's errors as the bridge's."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._session: Session | None = None

    def __enter__(self) -> Session:
        try:
            self._session = self._target.connect(autocommit=True)
        except (MySQLError, OSError) as error:
            raise TargetError(
                f"the target does not answer: {server_words(error)}",
                where=str(self._target),
                mend="check --target and that the server runs",
            ) from error
        return self._session

    def __exit__(self, *_: object) -> None:
        if self._session is not None:
            self._session.close()
