"""Waits while a server is busy: `--max-load Threads_running=25`."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from threading import Lock
from typing import Final

from bridge.errors import StoppedError
from bridge.mysql.connection.session import Session
from bridge.mysql.server_load import Limits, excess

_POLL_SECONDS: Final = 0.5


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
