"""Waits while a server is busy: `--max-load Threads_running=25`."""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from bridge.errors import UsageError
from bridge.target.session import Session

_RULE: Final = re.compile(r"(\w+)=(\d+)")
_POLL_SECONDS: Final = 0.5


def parse_max_load(rules: Sequence[str]) -> dict[str, int]:
    """`Name=N` rules of status variables; UsageError for anything else."""
    limits: dict[str, int] = {}
    for rule in (part.strip() for text in rules for part in text.split(",")):
        match = _RULE.fullmatch(rule)
        if match is None:
            raise UsageError(f"--max-load {rule!r} cannot be read", mend="write it as Threads_running=25")
        limits[match[1]] = int(match[2])
    return limits


class Throttle:
    """sessions: one per server that is looked at, by what it is called in words; told: hears why it waits."""

    def __init__(self, limits: Mapping[str, int], sessions: Mapping[str, Session], told: Callable[[str], None]) -> None:
        self._limits, self._sessions, self._told = limits, sessions, told

    def wait(self) -> None:
        """Returns when every status variable is at or below its limit."""
        while reason := self._reason():
            self._told(f"waits: {reason}")
            time.sleep(_POLL_SECONDS)

    def _reason(self) -> str:
        for place, session in self._sessions.items():
            for name, limit in self._limits.items():
                found = session.rows("SHOW GLOBAL STATUS LIKE %s", (name,))
                if not found:
                    raise UsageError(f"the {place} has no status variable {name}", mend="see SHOW GLOBAL STATUS")
                if float(found[0][1]) > limit:
                    return f"{name} of the {place} is {found[0][1]}, above {limit}"
        return ""
