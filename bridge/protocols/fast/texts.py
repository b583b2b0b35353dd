"""Puts many texts into one buffer.

Gives memory to write much to, and gives it again when nothing refers to it any more.

A new block costs a page fault, and the clearing of the page, for each of its pages: 2.7 us for 4 KiB on a virtual
machine (measured).  The C library returns blocks of more than 32 MiB to the kernel at once (mallopt(3)).
"""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import Sequence
from contextlib import suppress
from typing import Any, Final, NamedTuple, overload

import numpy as np
import numpy.typing as npt

from bridge.protocols.decoder import Contents

Numbers = npt.NDArray[np.int64]
"""Numbers of texts, or positions in the buffer, in bytes."""
BEHIND: Final = 64
"""How many bytes follow the last text, so that whatever a compiled function looks at is in the buffer."""


class Texts(NamedTuple):
    """Texts in one buffer.

    content: the texts, and BEHIND bytes behind them.
    starts, ends: where each text starts and ends.
    key_ends: where the value of each text begins, if a message's key stands before it; otherwise as `starts`.
    """

    content: bytes
    starts: Numbers
    ends: Numbers
    key_ends: Numbers

    @classmethod
    def of(cls, values: Contents, keys: Contents | None = None) -> Texts:
        """Joins the values of messages, each with its key before it if keys are given; a null one becomes an empty
        text."""
        if isinstance(values, TextColumn):
            return values.texts
        present = [value or b"" for value in values]
        if keys is not None:
            present = [text or b"" for pair in zip(keys, present, strict=True) for text in pair]
        bounds = np.zeros(len(present) + 1, np.int64)
        np.cumsum(np.fromiter(map(len, present), np.int64, len(present)), out=bounds[1:])
        return cls.between(b"".join([*present, bytes(BEHIND)]), bounds, keys is not None)

    @classmethod
    def between(cls, content: bytes, bounds: Numbers, have_keys: bool) -> Texts:
        """Gives texts that are joined already.  bounds: where each key and value begins, and the last one ends."""
        if have_keys:
            return cls(content, bounds[:-1:2].copy(), bounds[2::2].copy(), bounds[1::2].copy())
        starts = bounds[:-1]
        return cls(content, starts, bounds[1:], starts)

    def text(self, number: int) -> bytes:
        """Gives the bytes of one text."""
        return self.content[self.starts[number] : self.ends[number]]

    def numbers(self) -> npt.NDArray[np.uint8]:
        """Gives the buffer as numbers."""
        return np.frombuffer(self.content, np.uint8)

    def without_blanks(self) -> Texts:
        """Takes the blanks between tokens of JSON out of keys and values, if they have any."""
        from bridge.protocols.fast.compiled.functions import compact_texts, count_spaced

        have_keys = self.key_ends is not self.starts
        bounds = np.append(
            np.stack([self.starts, self.key_ends], 1).ravel() if have_keys else self.starts, self.ends[-1:]
        )
        count = len(bounds) - 1
        if count <= 0 or not count_spaced(self.numbers(), bounds, count)[0]:
            return self
        out, out_bounds = np.empty(len(self.content), np.uint8), np.empty(count + 1, np.int64)
        size, _ = compact_texts(self.numbers(), bounds, count, out, out_bounds)
        return Texts.between(out[:size].tobytes() + bytes(BEHIND), out_bounds, have_keys)

    def values(self) -> list[bytes]:
        """Gives the values alone."""
        starts, ends = self.key_ends.tolist(), self.ends.tolist()
        return [self.content[start:end] for start, end in zip(starts, ends, strict=True)]


class TextColumn(Sequence[bytes | None]):
    """The keys or the values of texts, None for an empty one."""

    def __init__(self, texts: Texts, starts: Numbers, ends: Numbers) -> None:
        self.texts, self._starts, self._ends = texts, starts, ends

    def __len__(self) -> int:
        return len(self._starts)

    @overload
    def __getitem__(self, number: int) -> bytes | None: ...
    @overload
    def __getitem__(self, number: slice) -> Contents: ...
    def __getitem__(self, number: int | slice) -> bytes | Contents | None:
        if isinstance(number, slice):
            return [self[place] for place in range(*number.indices(len(self)))]
        return self.texts.content[self._starts[number] : self._ends[number]] or None


_LEAST: Final = 1 << 20
"""Smaller blocks are the C library's."""
_GRAIN: Final = 1 << 20
"""Blocks are whole multiples of this, so that they fit again."""
_LARGEST: Final = 64 << 20
"""The most bytes of a block that is kept."""
_MOST: Final = 128 << 20
"""The most bytes that are kept while nothing refers to them."""
_TIMES: Final = 2
"""A block is given for at least 1 / this of its bytes: rows that wait for long may be in it, and only their own bytes
are counted.  436 MiB of texts took 0.8 GiB at the worst, and 1.6 GiB with 4, which was not quicker (measured)."""
_free: Final[deque[Any]] = deque()
"""What nothing refers to, the longest first.  Each of its methods is one step to other threads."""


def room(size: int) -> npt.NDArray[np.uint8]:
    """Gives so many bytes, which may hold anything.  Slices of them, and Arrow buffers over them, keep them."""
    if size < _LEAST:
        return np.empty(size, np.uint8)
    block = _fitting(size)
    if block is None:
        block = np.empty(-(-size // _GRAIN) * _GRAIN, np.uint8)
    view = np.frombuffer(memoryview(block), np.uint8, size)  # not a slice: what is made of it would refer to the block
    weakref.finalize(view, _keep, block).atexit = False
    return view


def _fitting(size: int) -> Any:
    for _ in range(len(_free)):
        try:
            block = _free.popleft()
        except IndexError:  # another thread was quicker
            return None
        if size <= len(block) <= _TIMES * size:
            return block
        _free.append(block)
    return None


def _keep(block: Any) -> None:
    if len(block) > _LARGEST:
        return
    _free.append(block)
    while sum(map(len, tuple(_free))) > _MOST:
        with suppress(IndexError):  # another thread was quicker
            _free.popleft()
