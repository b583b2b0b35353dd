"""Limits row changes a second: a token bucket."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final

from bridge.rows.amount import Amount

BURST_SECONDS: Final = 1.0
"""What was not used is saved up for so long."""


class RowBucket:
    """Holds the row changes that may be written now.

    A transaction may go while the bucket owes nothing, however large it is; what it takes beyond the content is paid
    afterwards.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._rate = 0.0
        self._content = 0.0
        self._filled_at = clock()

    def set_rate(self, rate: float) -> None:
        """Sets the row changes a second; 0 for no limit, which also forgets what is owed."""
        self._fill()
        self._content = min(self._content, rate * BURST_SECONDS) if rate else 0.0
        self._rate = rate

    def seconds_left(self) -> float:
        """Returns after how many seconds the next transaction may go; 0 when it may go now."""
        self._fill()
        return max(0.0, -self._content / self._rate) if self._rate else 0.0

    def take(self, rows: int) -> None:
        """Takes the row changes of a transaction."""
        if self._rate:
            self._fill()
            self._content -= rows

    def portion(self, most: Amount) -> Amount:
        """Returns how large a transaction should be: at most `most`, and at most what one second allows."""
        return most._replace(rows=max(1, min(most.rows, int(self._rate)))) if self._rate else most

    def _fill(self) -> None:
        now = self._clock()
        self._content = min(self._content + (now - self._filled_at) * self._rate, self._rate * BURST_SECONDS)
        self._filled_at = now
