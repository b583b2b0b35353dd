"""Measures how busy servers are while `bridge ctl throttle` is set; and a thread that survives what happens to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Final, Self

import structlog
from pymysql.err import MySQLError

from bridge.errors import BridgeError, TargetError, UsageError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import server_words
from bridge.mysql.server_load import REPLICA_LAG, Limits, excess, heartbeat_at, lag_excess
from bridge.mysql.state.progress import ProgressTable

LOOK_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 10.0
"""Shorter than that of other sessions: a heartbeat that comes late lets others take over."""

log = structlog.get_logger()


class KeptSession:
    """A session that is opened when it is needed, kept, and opened anew after an error."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._session: Session | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    @contextmanager
    def use(self) -> Iterator[Session]:
        """Gives the session."""
        try:
            if self._session is None:
                self._session = self._target.connect(autocommit=True, timeout_seconds=_TIMEOUT_SECONDS)
            yield self._session
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the session, if there is one."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()


class Lookout:
    """Calls `look` every `seconds` while the block lasts, on a thread of its own.  Errors of servers are left to those
    who write there; any other is logged once.

    close: called at the end.
    """

    end_seconds = 1.0  # how long the end waits: a thread that still waits for a server then is left, as a daemon

    def __init__(
        self, name: str, look: Callable[[], None], close: Callable[[], None], seconds: float = LOOK_SECONDS
    ) -> None:
        self._look, self._close, self._seconds = look, close, seconds
        self._end = threading.Event()
        self._is_logged = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(self.end_seconds)

    def _work(self) -> None:
        while not self._end.is_set():
            try:
                self._look()
            except (MySQLError, OSError, BridgeError):
                pass
            except Exception as error:  # noqa: BLE001  # what the operator sets next must still be taken up
                self._log_once(error)
            self._end.wait(self._seconds)
        self._close()

    def _log_once(self, error: Exception) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.error("steering_failed", error=repr(error), fix="this is a bug in the bridge; report it")


NO_REPLICAS: Final = f"{REPLICA_LAG} is limited, but throttle.replicas names no replica"


class LoadWatch:
    """Tells whether a server is above its limits.

    replicas: the servers whose lag counts.
    """

    def __init__(self, target: Target, table: ProgressTable, replicas: Sequence[Target]) -> None:
        self._table = table
        self._target = KeptSession(target)
        self._replicas = {replica.place: KeptSession(replica) for replica in replicas}

    def busy(self, limits: Limits) -> str:
        """Tells what is above its limit, or cannot be measured; "" when nothing is."""
        most_lag = limits.get(REPLICA_LAG)
        try:
            with self._target.use() as session:
                found = excess(session, {n: limit for n, limit in limits.items() if n != REPLICA_LAG}, "target")
                written_at = None if most_lag is None else heartbeat_at(session, self._table)
        except UsageError as error:
            return f"{error.what}, and it is limited"
        if found or most_lag is None or written_at is None:
            return found
        if not self._replicas:
            return NO_REPLICAS
        return self._lag(written_at, most_lag)

    def close(self) -> None:
        """Closes its sessions."""
        for session in (self._target, *self._replicas.values()):
            session.close()

    def _lag(self, written_at: float, limit: float) -> str:
        arrived: dict[str, float | None] = {}
        for place, kept in self._replicas.items():
            try:
                with kept.use() as session:
                    arrived[place] = heartbeat_at(session, self._table)
            except (MySQLError, OSError) as error:
                return f"the replica {place} does not tell how far it is: {server_words(error)}"
            except TargetError as error:
                return f"the replica {place} does not tell how far it is: {error.what}"
        return lag_excess(written_at, arrived, limit)
