"""Gives memory to write much to, and gives it again when nothing refers to it any more.

A new block costs a page fault, and the clearing of the page, for each of its pages: 2.7 us for 4 KiB on a virtual
machine (measured).  The C library returns blocks of more than 32 MiB to the kernel at once (mallopt(3)).
"""

from __future__ import annotations

import weakref
from collections import deque
from contextlib import suppress
from typing import Any, Final

import numpy as np
import numpy.typing as npt

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
    given = np.frombuffer(memoryview(block), np.uint8, size)  # not a slice: what is made of it would refer to the block
    weakref.finalize(given, _keep, block).atexit = False
    return given


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
