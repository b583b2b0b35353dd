"""Hands out ranges of keys of one table to several workers, and adds up what they find; how many rows a range holds."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from threading import Condition
from typing import Final

from bridge.verify.compare.checksums import KeyValues
from bridge.verify.compare.row_diff import Difference

KeyRange = tuple[KeyValues | None, KeyValues | None]
"""The keys above the first and not above the second; None means that there is no bound."""
Boundary = Callable[[KeyValues | None, int], KeyValues | None]
"""Gives the key that is a number of rows behind another key, None behind the last one."""
_FIRST_ROWS: Final = 10_000
_MOST_ROWS: Final = 2_000_000
_FEWEST_ROWS: Final = 100
_LARGEST_STEP: Final = 4.0


class ChunkSize:
    """Keeps chunks at about `seconds` each."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self.rows = min(_FIRST_ROWS, _MOST_ROWS)
        """How many rows the next chunk holds."""

    def adjust(self, seconds: float) -> None:
        """Tells how long the last chunk took; the next one is larger or smaller, by a factor of 4 at most."""
        factor = min(_LARGEST_STEP, max(1 / _LARGEST_STEP, self._seconds / max(seconds, 1e-4)))
        self.rows = min(_MOST_ROWS, max(_FEWEST_ROWS, int(self.rows * factor)))


@dataclass
class Tally:
    """What the comparison of a table has found so far."""

    rows: int = 0
    chunks: int = 0
    differences: list[Difference] = field(default_factory=list)


class RangeWalk:
    """The ranges of one table, in the order of its key.

    Each worker takes the next range when it is free, so that all of them read a large table at once.
    on_chunk: is called with the rows of each range, by one worker at a time.
    """

    def __init__(self, size: ChunkSize, on_chunk: Callable[[int], None]) -> None:
        self._tally, self._size, self._on_chunk = Tally(), size, on_chunk
        self._changed = Condition()
        self._low: KeyValues | None = None
        self._is_last, self._at_work = False, 0
        self._failure: BaseException | None = None

    @property
    def has_more(self) -> bool:
        """Whether there are ranges that no worker has taken yet."""
        return not (self._is_last or self._failure)

    def work(
        self, compare: Callable[[KeyRange], tuple[int, list[Difference]]], boundary: Boundary, pause: Callable[[], None]
    ) -> None:
        """Compares ranges until none is left, beside other workers.  pause: comes before each range, and may wait."""
        try:
            while (chunk := self._take(boundary)) is not None:
                pause()
                began = time.monotonic()
                rows, differences = compare(chunk)
                self._add_result(rows, differences, time.monotonic() - began)
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            raise

    def finished(self) -> Tally:
        """Waits for the ranges that other workers still compare; raises what stopped one of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or (self._is_last and not self._at_work))
            if self._failure:
                raise self._failure
            return self._tally

    def _take(self, boundary: Boundary) -> KeyRange | None:
        with self._changed:
            if not self.has_more:
                return None
            low = self._low
            self._low = boundary(low, self._size.rows)
            if self._low == low:  # no literal finds this key: the rest is one range, instead of the same range again
                self._low = None
            self._is_last = self._low is None
            self._at_work += 1
            return low, self._low

    def _add_result(self, rows: int, differences: Sequence[Difference], seconds: float) -> None:
        with self._changed:
            self._size.adjust(seconds)
            self._tally.rows += rows
            self._tally.chunks += 1
            self._tally.differences += differences
            self._on_chunk(rows)
            self._at_work -= 1
            self._changed.notify_all()
