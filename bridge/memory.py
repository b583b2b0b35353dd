"""How this process treats memory that it has freed."""

from __future__ import annotations

import ctypes
import gc
from typing import Final

_TRIM_THRESHOLD: Final = -1
_MMAP_THRESHOLD: Final = -3
"""Parameters of mallopt (malloc.h of glibc)."""
_KEPT_BYTES: Final = 128 << 20
_LARGEST_ON_THE_HEAP: Final = 32 << 20


def keep_freed_memory() -> None:
    """Has the C library keep up to 128 MiB that are freed for what is wanted next.  It else gives large blocks back at
    once, and every page of the next one costs the system a fault: a third of the time that decoding takes.

    Without effect where the C library is not glibc.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None:
        mallopt(_MMAP_THRESHOLD, _LARGEST_ON_THE_HEAP)
        mallopt(_TRIM_THRESHOLD, _KEPT_BYTES)


def keep_what_is_loaded() -> None:
    """Has the collection of garbage leave alone what is there now: modules and the like, which are never garbage, and
    take 60 ms to be looked at.  PySpark's workers do that after every task."""
    gc.freeze()
