"""Waits for what comes by itself."""

from __future__ import annotations

import time
from collections.abc import Callable

SECONDS = 60.0
_APART_SECONDS = 0.15
"""InnoDB shows its transactions as they were to who looks again within 0.1 s."""


def wait_for(condition: Callable[[], object], complaint: str, seconds: float = SECONDS) -> None:
    """Returns when the condition is true; fails with the complaint when it is not within so many seconds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{complaint}, after {seconds:g} s"
        time.sleep(_APART_SECONDS)
