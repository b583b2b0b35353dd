"""Waits while a server is busy: `--max-load Threads_running=25`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Lock
from typing import Final

from bridge.errors import StoppedError, UsageError
from bridge.mysql.connection import Session

_RULE: Final = re.compile(r"(\w+)=(\d+)")
_POLL_SECONDS: Final = 0.5
_RUNNING: Final = "threads_running"


def parse_max_load(rules: Sequence[str]) -> dict[str, int]:
    """`Name=N` rules of status variables; UsageError for anything else."""
    limits: dict[str, int] = {}
    for rule in (part.strip() for text in rules for part in text.split(",")):
        match = _RULE.fullmatch(rule)
        if match is None:
            raise UsageError(f"--max-load {rule!r} cannot be read", fix="write it as Threads_running=25")
        limits[match[1]] = int(match[2])
    return limits


class Throttle:
    """Holds back every worker of a verification.

    sessions: one session for each watched server, by the server's name in messages.  told: is called with the reason
    for a wait.
    """

    def __init__(self, limits: Mapping[str, int], sessions: Mapping[str, Session], told: Callable[[str], None]) -> None:
        self._limits, self._sessions, self._told = limits, sessions, told
        self._lock = Lock()
        self._streams = 0
        self._is_stopped = False

    def wait(self) -> None:
        """Returns when every status variable is at or below its limit; raises StoppedError when the verification is
        given up."""
        while reason := self._reason():
            self._told(f"waits: {reason}")
            time.sleep(_POLL_SECONDS)

    def stop(self) -> None:
        """Ends the verification: a worker that would begin a chunk gets StoppedError instead."""
        self._is_stopped = True

    @contextmanager
    def streaming(self) -> Iterator[None]:
        """Surrounds a stream: verify's own query runs on each server until it is read to its end, and does not count as
        load."""
        with self._lock:
            self._streams += 1
        try:
            yield
        finally:
            with self._lock:
                self._streams -= 1

    def _reason(self) -> str:
        if self._is_stopped:
            raise StoppedError("the verification was given up", fix="run verify again with --resume")
        with self._lock:
            for place, session in self._sessions.items():
                for name, limit in self._limits.items():
                    found = session.rows("SHOW GLOBAL STATUS LIKE %s", (name,))
                    if not found:
                        raise UsageError(f"the {place} has no status variable {name}", fix="see SHOW GLOBAL STATUS")
                    value = float(found[0][1]) - (self._streams if name.lower() == _RUNNING else 0)
                    if value > limit:
                        return f"{name} of the {place} is {value:,.10g}, above {limit}"
        return ""
