"""Reads one snapshot of one server, one short query at a time, and turns errors of the driver into the bridge's own.

Waits while a server is busy: `--max-load Threads_running=25`.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from threading import Lock
from typing import Any, Final

from pymysql.err import MySQLError

from bridge.errors import StoppedError, TargetError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOST, error_code, server_words
from bridge.mysql.server_load import Limits, excess

_TABLE_CHANGED: Final = 1412
_LOOK: Final = "bridge_look"
_POLL_SECONDS: Final = 0.5


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
                fix="run verify again with --resume: what was found equal is not read again",
            )
        what = "was lost" if isinstance(error, LOST) else "refused a query of verify"
        return StoppedError(
            f"the server {what}: {server_words(error)}",
            where=f"{self._place}, {sql[:200]}",
            fix="see that the server runs and that the user may read the tables; then run verify again with --resume",
        )


@contextmanager
def expected_errors(*places: Target) -> Iterator[None]:
    """Raises TargetError for an error of MySQL's driver."""
    try:
        yield
    except (MySQLError, OSError) as error:
        what = "cannot be reached" if isinstance(error, LOST) else "refused a statement of verify"
        raise TargetError(
            f"a server {what}: {server_words(error)}",
            where=" or ".join(map(str, places)),
            fix="see that it runs, and that the user may read the tables and the bridge's own database; comparing"
            " with the messages needs CREATE TEMPORARY TABLES there as well",
        ) from error


class Throttle:
    """Holds back every worker of a verification.

    sessions: one session for each watched server, by the server's name in messages.  report: is called with the reason
    for a wait.
    """

    def __init__(self, limits: Limits, sessions: Mapping[str, Session], report: Callable[[str], None]) -> None:
        self._limits, self._sessions, self._report = limits, sessions, report
        self._lock = Lock()
        self._is_stopped = False

    def wait(self) -> None:
        """Returns when every status variable is at or below its limit; raises StoppedError when the verification is
        given up."""
        while reason := self._reason():
            self._report(f"waits: {reason}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Ends the verification: a worker that would begin a chunk gets StoppedError instead."""
        self._is_stopped = True

    def _reason(self) -> str:
        if self._is_stopped:
            raise StoppedError("the verification was given up", fix="run verify again with --resume")
        with self._lock:
            reasons = (excess(session, self._limits, place) for place, session in self._sessions.items())
            return next(filter(None, reasons), "")
