"""A thread that looks at servers once a second, and survives whatever happens to them."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Final

import structlog
from pymysql.err import MySQLError

from bridge.errors import BridgeError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target

LOOK_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 10.0
_END_SECONDS: Final = 1.0
"""A thread that still waits for a server is left: it is a daemon."""

log = structlog.get_logger()


class KeptSession:
    """A session that is opened when it is needed, kept, and opened anew after an error."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._session: Session | None = None

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
    """Calls `look` once a second while the block lasts, on a thread of its own.  Errors of servers are left to those
    who write there; any other is logged once.

    close: called at the end.
    """

    def __init__(self, name: str, look: Callable[[], None], close: Callable[[], None]) -> None:
        self._look, self._close = look, close
        self._end = threading.Event()
        self._is_logged = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> Lookout:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(_END_SECONDS)

    def _work(self) -> None:
        while not self._end.is_set():
            try:
                self._look()
            except (MySQLError, OSError, BridgeError):
                pass
            except Exception as error:  # noqa: BLE001  # what the operator sets next must still be taken up
                self._log_once(error)
            self._end.wait(LOOK_SECONDS)
        self._close()

    def _log_once(self, error: Exception) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.error("steering_failed", error=repr(error), fix="this is a bug in the bridge; report it")
