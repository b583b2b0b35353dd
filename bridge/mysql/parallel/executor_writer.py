"""Writes parts of a step in Spark's tasks, over one connection of each Python worker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from pymysql.err import MySQLError

from bridge.errors import BridgeError
from bridge.mysql.apply.load_data import LoadRefusedError
from bridge.mysql.apply.writer import no_trace
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel.fenced_part import Fence, FencedError, write_part
from bridge.mysql.server_errors import LOST, LockConflictError, is_lock_wait, server_words
from bridge.mysql.state.ownership import mark_connection
from bridge.rows.sql.statement import NotWritten, Statement

_ATTEMPTS: Final = 5
"""How often a part is begun anew after a deadlock or a lost connection, before one connection writes the whole step."""

_sessions: Final[dict[tuple[str, int, str], Session]] = {}
"""The session of this process, by the lock of its pipeline, the epoch and the server that the driver writes to: after a
failover, the server before it may go on, with the progress of that time."""


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
