"""`bridge check`: looks for everything that would stop a pipeline; one line each, with the fix.

What a check says: one line, how bad it is, and what to do.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from bridge.errors import BridgeError


class Level(StrEnum):
    """How bad it is.  FAIL: a pipeline would stop, or must not run so.  WARN: it runs, with less than it could have."""

    OK = "ok"
    WARN = "warn"
    FAIL = "fail"


@dataclass(frozen=True)
class Finding:
    """The result of one check.

    check: its name, which scripts may rely on.
    fix: what to do; empty when there is nothing to do.
    """

    check: str
    level: Level
    what: str
    fix: str = ""

    @property
    def ok(self) -> bool:
        """Whether a pipeline can run so."""
        return self.level is not Level.FAIL


def ok(check: str, what: str) -> Finding:
    """Makes a line about what is as it should be."""
    return Finding(check, Level.OK, what)


def warn(check: str, what: str, fix: str = "") -> Finding:
    """Makes a line about what works, with less than it could have."""
    return Finding(check, Level.WARN, what, fix)


def fail(check: str, what: str, fix: str) -> Finding:
    """Makes a line about what must be fixed."""
    return Finding(check, Level.FAIL, what, fix)


def failed(check: str, error: BridgeError) -> Finding:
    """Makes a line of an expected failure."""
    return fail(check, error.what + (f" ({error.where})" if error.where else ""), error.fix)
