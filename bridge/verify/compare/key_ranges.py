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

    def took(self, seconds: float) -> None:
        """Tells how long the last chunk took; the next one is larger or smaller, by a factor of 4 at most."""
        factor = min(_LARGEST_STEP, max(1 / _LARGEST_STEP, self._seconds / max(seconds, 1e-4)))
        self.rows = min(_MOST_ROWS, max(_FEWEST_ROWS, int(self.rows * factor)))


@dataclass
class Tally:
    """What the comparison of a table has found so far."""

    rows: int = 0
    chunks: int = 0
    differences: list[Difference] = field(default_factory=list)
    upto: KeyValues | None = None
    """Everything up to this key has been compared, and was equal."""
    is_done: bool = False
    """Whether the whole table has been compared."""

    def add(self, chunk: KeyRange, rows: int, differences: Sequence[Difference]) -> None:
        """Adds a chunk; all chunks before it must have been added."""
        self.rows += rows
        self.chunks += 1
        self.differences += differences
        if not self.differences and chunk[1] is not None:
            self.upto = chunk[1]


class RangeWalk:
    """The ranges of one table, in the order of its key, beginning behind tally.upto.

    Each worker takes the next range when it is free, so that all of them read a large table at once.  What they find is
    counted in the order of the ranges, whichever worker is first, so that everything up to tally.upto has been
    compared.

    on_chunk: is called with the tally after each range, by one worker at a time.
    """

    def __init__(self, tally: Tally, size: ChunkSize, on_chunk: Callable[[Tally], None]) -> None:
        self.tally = tally
        self._size, self._on_chunk = size, on_chunk
        self._changed = Condition()
        self._low, self._taken, self._is_last = tally.upto, 0, tally.is_done
        self._finished: dict[int, tuple[KeyRange, int, Sequence[Difference]]] = {}
        self._counted = 0
        self._failure: BaseException | None = None

    @property
    def has_more(self) -> bool:
        """Whether there are ranges that no worker has taken yet."""
        return not (self._is_last or self._failure)

    def work(
        self, compare: Callable[[KeyRange], tuple[int, list[Difference]]], boundary: Boundary, pause: Callable[[], None]
    ) -> None:
        """Compares ranges until none is left; several workers may call it at once.  pause: is called before each range,
        and may wait."""
        try:
            while (numbered := self._take(boundary)) is not None:
                number, chunk = numbered
                pause()
                began = time.monotonic()
                rows, differences = compare(chunk)
                self._done(number, chunk, rows, differences, time.monotonic() - began)
        except BaseException as error:
            with self._changed:
                self._failure = self._failure or error
                self._changed.notify_all()
            raise

    def finished(self) -> Tally:
        """Waits for the ranges that other workers still compare; raises what stopped one of them."""
        with self._changed:
            self._changed.wait_for(lambda: self._failure or (self._is_last and self._counted == self._taken))
            if self._failure:
                raise self._failure
            self.tally.is_done = True
            return self.tally

    def _take(self, boundary: Boundary) -> tuple[int, KeyRange] | None:
        with self._changed:
            if self._is_last or self._failure:
                return None
            low, number = self._low, self._taken
            self._low = boundary(low, self._size.rows)
            if self._low == low:  # no literal finds this key: the rest is one range, instead of the same range again
                self._low = None
            self._taken, self._is_last = number + 1, self._low is None
            return number, (low, self._low)

    def _done(self, number: int, chunk: KeyRange, rows: int, differences: Sequence[Difference], seconds: float) -> None:
        with self._changed:
            self._size.took(seconds)
            self._finished[number] = chunk, rows, differences
            while self._counted in self._finished:
                self.tally.add(*self._finished.pop(self._counted))
                self._counted += 1
                self._on_chunk(self.tally)
            self._changed.notify_all()
