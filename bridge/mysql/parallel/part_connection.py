"""One of the driver's connections that write a step together."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import chain
from threading import Thread
from typing import Final

from pymysql.err import MySQLError

from bridge.model import TableName
from bridge.mysql.apply.load_data import LoadRefusedError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.parallel.fenced_part import Fence, FencedError, write_part
from bridge.mysql.parallel.units import Unit, taken_from
from bridge.mysql.server_errors import LOST, LockConflictError, is_lock_wait
from bridge.mysql.state.ownership import Ownership

_ATTEMPTS: Final = 5
"""How often a connection begins anew after a deadlock, before one connection writes the whole step."""


class PartConnection:
    """Writes units, each time in a transaction of its own.

    left: gets the id of each connection that it closes.
    stop_loading: is called with the table that refused a load, in the thread that writes.
    """

    def __init__(
        self,
        target: Target,
        ownership: Ownership,
        left: list[int],
        stop_loading: Callable[[TableName], None],
        trace: Callable[[str], None],
    ) -> None:
        self._target, self._ownership, self._left = target, ownership, left
        self._stop_loading, self._trace = stop_loading, trace
        self._session: Session | None = None

    @property
    def connection_id(self) -> int | None:
        """The id of the open connection; None when there is none."""
        session = self._session
        return session.connection_id if session else None

    def open(self, server: str) -> bool:
        """Connects unless it is connected to this server ("": to any); tells whether it did.  Raises ConnectionError
        when the address leads elsewhere."""
        if self._session is not None and server not in ("", self._session.server):
            self.close()
        if self._session is not None:
            return False
        self._session = self._target.connect()
        if server not in ("", self._session.server):
            elsewhere = self._session.server
            self.close()
            raise ConnectionError(f"the address leads to {elsewhere}, and to {server} from another connection")
        self._ownership.check_progress(self._session)
        self._ownership.mark(self._session)
        return True

    def cut(self) -> None:
        """Ends the connection under who waits for an answer; may be called from any thread."""
        session = self._session
        if session is not None:
            session.cut()

    def close(self) -> None:
        """Ends the connection; an open transaction is rolled back."""
        if self._session is not None:
            self._left.append(self._session.connection_id)
            self._session.close()
            self._session = None

    def write(self, fence: Fence, waiting: deque[Unit], most_bytes: int | None) -> None:
        """Writes units until none is left, in transactions of about `most_bytes`; None: all in one.  After a deadlock
        it puts them back and begins anew.

        Raises OwnedError after a take-over, and the server's error when beginning anew does not help.
        """
        self._write_some(fence, waiting, most_bytes)
        while waiting:
            self._write_some(fence, waiting, most_bytes)

    def _write_some(self, fence: Fence, waiting: deque[Unit], most_bytes: int | None) -> None:
        for attempt in range(_ATTEMPTS):
            taken: list[Unit] = []
            try:
                self._transact(fence, taken_from(waiting, taken, most_bytes))
            except FencedError as error:
                self.close()
                raise self._ownership.lost() from error
            except (MySQLError, OSError, LoadRefusedError) as error:
                waiting.extend(taken)
                self._abandon(error)
                if isinstance(error, LoadRefusedError):
                    self._stop_loading(error.table)
                if not isinstance(error, LockConflictError) or is_lock_wait(error) or attempt == _ATTEMPTS - 1:
                    raise
            except BaseException:
                self.close()
                raise
            else:
                return

    def _transact(self, fence: Fence, taken: Iterator[Unit]) -> None:
        session = self._session
        if session is None:
            raise OSError("the connection is closed")
        write_part(session, fence, chain.from_iterable(taken), self._trace)

    def _abandon(self, error: BaseException) -> None:
        if isinstance(error, LOST):
            self.close()
        elif self._session is not None:
            with suppress(MySQLError, OSError):
                self._session.rollback()


def all_of(parts: list[Callable[[], None]]) -> None:
    """Runs all parts at once and waits for all of them; raises the error of the first one that failed.  The threads are
    daemons, so that a server which does not answer cannot keep the process from ending."""
    failures: list[BaseException] = []

    def run(part: Callable[[], None]) -> None:
        try:
            part()
        except BaseException as failure:  # noqa: BLE001  # raised again below, in the thread that waits
            failures.append(failure)

    threads = [Thread(target=run, args=(part,), name="writer", daemon=True) for part in parts]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for failure in sorted(failures, key=lambda failure: isinstance(failure, MySQLError | OSError | LoadRefusedError)):
        raise failure
