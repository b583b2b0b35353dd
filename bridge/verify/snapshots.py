"""Opens snapshots of both sides at one moment, while the bridge goes on, and reads each, one short query at a time.

Every transaction of the bridge starts with the pipeline's progress row.  While verify locks that row, the target stays
at its applied_ts.  Consistent snapshots that are opened meanwhile all show that moment, and the row is released after
tens of milliseconds.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing, contextmanager
from dataclasses import dataclass
from threading import Lock
from typing import Any, Final

from pymysql.err import MySQLError

from bridge.errors import StoppedError, TargetError
from bridge.filters.routes import Routes
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.schema_changes.ddl_fingerprint import may_be_ahead
from bridge.mysql.server_errors import LOST, LockConflictError, error_code, server_words
from bridge.mysql.server_load import MostLoad, excess
from bridge.mysql.state.ddl_journal import OPEN, Journal
from bridge.mysql.state.progress import Progress, ProgressTable
from bridge.mysql.state.routes_record import require_kept_routes

_TABLE_CHANGED: Final = 1412
_LOOK: Final = "bridge_look"
_BUSY_SECONDS: Final = 0.5
_TRIES: Final = 5
_HOLDER_SECONDS: Final = 30
"""The server ends the session that locks the progress row after this many idle seconds: if verify's machine vanishes,
the bridge must not wait for it."""
_PENDING_SECONDS: Final = 10.0
_POLL_SECONDS: Final = 0.2


class SnapshotReader:
    """A session in a consistent snapshot, or in none (`is_snapshot`).

    After each query it rolls back to a savepoint, which releases the metadata lock: a schema change of a table waits
    for one query at most, not for the whole verification (mysqldump --single-transaction does the same).
    """

    def __init__(self, session: Session, *, is_snapshot: bool, place: str) -> None:
        self._session, self._is_snapshot, self._place = session, is_snapshot, place
        if is_snapshot:
            self._session.execute(f"SAVEPOINT {_LOOK}")

    def rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Gives all rows of a query.  Raises StoppedError when the table was altered since the snapshot, or the server
        refuses the query or is lost."""
        return self._rows(self._session.rows, sql)

    def _rows(self, ask: Callable[[str], list[tuple[Any, ...]]], sql: str) -> list[tuple[Any, ...]]:
        try:
            rows = ask(sql)
            if self._is_snapshot:
                self._session.execute(f"ROLLBACK TO SAVEPOINT {_LOOK}")
        except (MySQLError, OSError) as error:
            raise self._stopped(error, sql) from error
        return rows

    def text(self, sql: str, column: int) -> str:
        """Gives one column of the only row of a query.  Bytes that are not UTF-8, such as those of a binary default,
        become surrogates.  Raises what `rows` does."""
        content: bytes = self._rows(self._session.raw_rows, sql)[0][column]
        return content.decode("utf-8", "surrogateescape")

    def _stopped(self, error: Exception, sql: str) -> StoppedError:
        if error_code(error) == _TABLE_CHANGED:
            return StoppedError(
                "a table was altered while it was verified",
                where=f"{self._place}, {sql[:200]}",
                fix="run verify again; a table that is altered often can be left out with --filter",
            )
        failure = "was lost" if isinstance(error, LOST) else "refused a query of verify"
        return StoppedError(
            f"the server {failure}: {server_words(error)}",
            where=f"{self._place}, {sql[:200]}",
            fix="see that the server runs and that the user may read the tables; then run verify again",
        )


@contextmanager
def expected_errors(*places: Target) -> Iterator[None]:
    """Raises TargetError for an error of MySQL's driver."""
    try:
        yield
    except (MySQLError, OSError) as error:
        failure = "cannot be reached" if isinstance(error, LOST) else "refused a statement of verify"
        raise TargetError(
            f"a server {failure}: {server_words(error)}",
            where=" or ".join(map(str, places)),
            fix="see that it runs, and that the user may read the tables and the bridge's own database; comparing"
            " with the messages needs CREATE TEMPORARY TABLES there as well",
        ) from error


class Throttle:
    """Holds back every worker of a verification.

    sessions: one session for each watched server, by the server's name in messages.  report: is called with the reason
    for a wait.
    """

    def __init__(self, limits: MostLoad, sessions: Mapping[str, Session], report: Callable[[str], None]) -> None:
        self._limits, self._sessions, self._report = limits, sessions, report
        self._lock = Lock()
        self._is_stopped = False

    def wait(self) -> None:
        """Returns when every status variable is within its limit; raises StoppedError when verifying is given up."""
        while reason := self._reason():
            self._report(f"waits: {reason}")
            time.sleep(_BUSY_SECONDS)

    def stop(self) -> None:
        """Ends the verification: a worker that would begin a chunk gets StoppedError instead."""
        self._is_stopped = True

    def _reason(self) -> str:
        if self._is_stopped:
            raise StoppedError("the verification was given up", fix="run verify again")
        with self._lock:
            reasons = (excess(session, self._limits, place) for place, session in self._sessions.items())
            return next(filter(None, reasons), "")


@dataclass(frozen=True)
class TargetSnapshot:
    """Sessions that all see the target at one moment.

    progress: the pipeline's row at that moment, None without a pipeline.
    held_seconds: how long the bridge was kept waiting.
    """

    sessions: tuple[Session, ...]
    progress: Progress | None
    held_seconds: float


def open_target_snapshot(
    target: Target,
    table: ProgressTable,
    count: int,
    routes: Routes,
    *,
    beside: Callable[[Progress | None], None] = lambda _: None,
) -> TargetSnapshot:
    """Opens `count` sessions in one snapshot of the target.

    routes: where the tables are looked for; UsageError when the pipeline has written them elsewhere.
    beside: runs at the same moment, to open the source's snapshot.
    Waits for a schema change that is under way; one that stays (held, or refused) counts as not run.  Also waits for a
    step that is written in parts (parallel consistency).
    Raises StoppedError when the progress row cannot be locked, when such a step does not end, and when a schema change
    that counts as not run may have run.
    """
    with ExitStack() as stack:
        sessions = [stack.enter_context(closing(target.connect())) for _ in range(count)]
        with closing(target.connect()) as holder:
            _require_routes(holder, table, routes)
            holder.execute(f"SET SESSION wait_timeout = {_HOLDER_SECONDS}")
            progress, held_seconds = _while_locked(holder, table, lambda progress: _open(sessions, progress, beside))
        stack.pop_all()
        return TargetSnapshot(tuple(sessions), progress, held_seconds)


def _require_routes(session: Session, table: ProgressTable, routes: Routes) -> None:
    progress = table.read(session) if table.exists(session) else None
    if progress is not None:
        require_kept_routes(session, table.schema, progress, routes)
    session.rollback()


def _while_locked(
    holder: Session, table: ProgressTable, inside: Callable[[Progress | None], None]
) -> tuple[Progress | None, float]:
    """Runs `inside` while the progress row is locked; returns the row, and for how many seconds it was locked."""
    if not table.exists(holder):
        inside(None)
        return None, 0.0
    patience = time.monotonic() + _PENDING_SECONDS
    for attempt in range(1, 1 << 30):
        try:
            holder.begin()
            progress = table.read(holder, lock=True)
        except MySQLError as error:
            if not isinstance(error, LockConflictError) or attempt >= _TRIES:
                raise StoppedError(
                    "the pipeline's progress row could not be locked",
                    where=f"pipeline {table.name}",
                    fix="a transaction of the bridge takes very long; run verify again when it has ended",
                ) from error
            continue
        began = time.monotonic()
        try:
            if progress is not None and progress.in_parts and began > patience:
                raise StoppedError(
                    "several connections write beyond the applied ts (parallel consistency), or did when the bridge"
                    " ended",
                    where=f"pipeline {table.name}",
                    fix="start the bridge if it does not run, and run verify again when its applied ts has moved",
                )
            if progress is None or not (_is_changing(holder, table, progress) or progress.in_parts) or began > patience:
                if progress and may_be_ahead(holder, Journal(table.name, table.schema), progress.pending):
                    raise StoppedError(
                        "a schema change runs, or was interrupted, and may be on the target although progress is before"
                        " it",
                        where=f"pipeline {table.name}",
                        fix="run verify again when it has ended; start the bridge if it does not run",
                    )
                inside(progress)
                return progress, time.monotonic() - began
        finally:
            holder.rollback()
        time.sleep(_POLL_SECONDS)
    raise AssertionError("unreachable")


def _is_changing(session: Session, table: ProgressTable, progress: Progress) -> bool:
    """Tells whether a schema change is about to run; one that waits for the operator is not."""
    if not progress.pending:
        return False
    entry = Journal(table.name, table.schema).find(session, progress.pending[0])
    return entry is None or entry.state not in OPEN


def _open(sessions: Sequence[Session], progress: Progress | None, beside: Callable[[Progress | None], None]) -> None:
    for session in sessions:
        begin_snapshot(session)
    beside(progress)


def begin_snapshot(session: Session) -> None:
    """Begins a consistent snapshot: what the session reads from now on is the state of this moment."""
    session.rollback()
    session.execute("SET TRANSACTION ISOLATION LEVEL REPEATABLE READ")
    session.execute("START TRANSACTION WITH CONSISTENT SNAPSHOT")


def open_source(source: Target, count: int) -> tuple[Session, ...]:
    """Opens sessions on the source that are in no snapshot yet."""
    sessions = tuple(source.connect() for _ in range(count))
    for session in sessions:
        # A statement limit of the server's is for queries of users.
        for setting in ("max_execution_time = 0", "max_statement_time = 0"):
            session.try_to_set(setting)
    return sessions


def enter_source_snapshot(sessions: Sequence[Session], progress: Progress | None) -> None:
    """Brings the sessions to the target's moment: on TiDB to just below applied_ts, on other servers to now."""
    for session in sessions:
        if session.is_tidb and progress is not None:
            session.rollback()
            session.execute(f"SET @@tidb_snapshot = '{progress.applied_ts - 1}'")
        else:
            begin_snapshot(session)
