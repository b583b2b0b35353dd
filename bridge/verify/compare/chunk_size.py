"""Chooses how many rows a chunk holds by how long the last chunk took.  Pure."""

from __future__ import annotations

from typing import Final

_FIRST_ROWS: Final = 10_000
_MOST_ROWS: Final = 2_000_000
_FEWEST_ROWS: Final = 100
_LARGEST_STEP: Final = 4.0


class ChunkSize:
    """Keeps chunks at about `seconds` each."""

    def __init__(self, seconds: float, rows: int = _FIRST_ROWS) -> None:
        self._seconds = seconds
        self.rows = min(rows, _MOST_ROWS)
        """How many rows the next chunk holds."""

    def took(self, seconds: float) -> None:
        """Tells how long the last chunk took; the next one is larger or smaller, by a factor of 4 at most."""
        factor = min(_LARGEST_STEP, max(1 / _LARGEST_STEP, self._seconds / max(seconds, 1e-4)))
        self.rows = min(_MOST_ROWS, max(_FEWEST_ROWS, int(self.rows * factor)))
