"""Writes parts of a step in Spark's tasks, over one connection of each Python worker, in transactions that can only be
committed while the step is being written."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pymysql.err import MySQLError

from bridge.errors import BridgeError
from bridge.mysql.apply import load_data
from bridge.mysql.apply.load_data import LoadRefusedError
from bridge.mysql.apply.run_statement import check_matched, matched_rows
from bridge.mysql.apply.writer import no_trace
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOST, LockConflictError, is_lock_wait, server_words
from bridge.mysql.state.ownership import mark_connection
from bridge.mysql.state.progress import ProgressTable
from bridge.rows.sql.statement import NotWritten, Statement

_ATTEMPTS: Final = 5
"""How often a part is begun anew after a deadlock or a lost connection, before one connection writes the whole step."""

_sessions: Final[dict[tuple[str, int, str], Session]] = {}
"""The session of this process, by the lock of its pipeline, the epoch and the server that the driver writes to: after a
failover, the server before it may go on, with the progress of that time."""


class FencedError(Exception):
    """Raised when a step is no longer written by this owner, or is done."""


@dataclass(frozen=True)
class Fence:
    """Tells by the progress row whether a step is still being written: its owner has the epoch, progress is where the
    step begins, and the row is marked as it was for the step.  A step that begins again with other changes, as after
    the loss of an executor, mostly ends elsewhere.

    marked_ts: what `ProgressTable.mark` gave for the step: its end, or that of a longer step that was interrupted
    before.
    """

    table: ProgressTable
    epoch: int
    old_ts: int
    marked_ts: int

    def hold(self, session: Session, lock: str) -> None:
        """Keeps the progress row as it is until the session's transaction ends: nobody can take over meanwhile, and the
        step cannot end.  Raises FencedError when either has happened."""
        if self.table.standing(session, lock) != (self.epoch, self.old_ts, self.marked_ts):
            raise FencedError("progress is not where the step begins, or is to go elsewhere")


def write_part(
    session: Session, fence: Fence, statements: Iterable[Statement], trace: Callable[[str], None] = no_trace
) -> None:
    """Runs statements in one transaction.

    TiDB has no shared lock: there the connections take turns, one COMMIT long.
    """
    session.begin()
    if not session.is_tidb:
        fence.hold(session, "LOCK IN SHARE MODE")
    trace("part begun")
    for statement in statements:
        if statement.load is not None:
            load_data.run(session, statement.sql, statement.load)
        else:
            check_matched(statement, matched_rows(session, statement))
    if session.is_tidb:
        fence.hold(session, "FOR UPDATE")
    trace("before part commit")
    session.commit()
    trace("part committed")


@dataclass(frozen=True)
class ExecutorWriter:
    """Writes parts of one step; it is sent to tasks.

    lock: the name of the pipeline's lock, by which others recognise its connections.
    server: the driver's, which alone knows what the progress row is, and has the locks on it; "" for a TiDB, whose
        servers are one.
    trace: told the name of each step (tests crash there).
    """

    target: Target
    fence: Fence
    lock: str
    server: str
    trace: Callable[[str], None] = no_trace

    def __call__(self, statements: Sequence[Statement]) -> NotWritten | None:
        """Commits the statements in one transaction; tells why not when it cannot."""
        outcome: NotWritten | None = None
        for _ in range(_ATTEMPTS):
            try:
                session = self._session()
            except (MySQLError, OSError, BridgeError) as error:
                return _not_written(error)._replace(cannot_connect=True)
            outcome, may_help = self._attempt(session, statements)
            if outcome is None or not may_help:
                break
        return outcome

    def _attempt(self, session: Session, statements: Sequence[Statement]) -> tuple[NotWritten | None, bool]:
        """Returns why the statements are not committed, and whether another attempt may help."""
        try:
            write_part(session, self.fence, statements, self.trace)
        except LoadRefusedError as refusal:
            self.close()
            return NotWritten(str(refusal), refused_load=refusal.table), False
        except (MySQLError, OSError, BridgeError, FencedError) as error:
            if isinstance(error, LockConflictError):
                with suppress(MySQLError, OSError):
                    session.rollback()
            else:
                self.close()
            may_help = isinstance(error, (LockConflictError, *LOST)) and not is_lock_wait(error)
            return _not_written(error), may_help
        except BaseException:
            self.close()
            raise
        return None, False

    def _session(self) -> Session:
        key = (self.lock, self.fence.epoch, self.server)
        if key not in _sessions:
            self.close()
            session = self.target.connect()
            if self.server not in ("", session.server):
                session.close()
                raise ConnectionError(f"the address leads to {session.server}, and to {self.server} from the driver")
            mark_connection(session, self.lock)
            _sessions[key] = session
        return _sessions[key]

    @staticmethod
    def close() -> None:
        """Ends the session of this process; an open transaction is rolled back."""
        while _sessions:
            _sessions.popitem()[1].close()


def _not_written(error: Exception) -> NotWritten:
    if isinstance(error, BridgeError):
        return NotWritten(error.what, error.fix)
    if is_lock_wait(error):
        return NotWritten(str(error.args[-1]), waits=True)
    return NotWritten(server_words(error) if isinstance(error, MySQLError) else str(error))
