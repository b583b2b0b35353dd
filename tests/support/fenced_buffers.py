"""Texts in memory that ends where nobody may read: to look behind the last byte ends the process."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Sequence

import numpy as np
import pyarrow as pa

_NOTHING = 0
_libc = ctypes.CDLL(None, use_errno=True)
_libc.mprotect.argtypes = [ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int]


def fenced(data: bytes) -> pa.Buffer:
    """A copy of these bytes, right before a page that cannot be read.  It is never freed."""
    size = -(-len(data) // mmap.PAGESIZE) * mmap.PAGESIZE
    pages = mmap.mmap(-1, size + mmap.PAGESIZE)
    start = ctypes.addressof(ctypes.c_char.from_buffer(pages))
    pages[size - len(data) : size] = data
    if _libc.mprotect(start + size, mmap.PAGESIZE, _NOTHING):
        raise OSError(ctypes.get_errno(), "mprotect")
    return pa.foreign_buffer(start + size - len(data), len(data), base=pages)


def fenced_texts(texts: Sequence[str | None]) -> pa.Array:
    """Large strings whose characters and offsets are fenced."""
    parts = [(text or "").encode() for text in texts]
    offsets = np.cumsum([0, *map(len, parts)]).astype(np.int64).tobytes()
    is_text = pa.array([text is not None for text in texts]).buffers()[1]
    buffers = [is_text, fenced(offsets), fenced(b"".join(parts))]
    return pa.Array.from_buffers(pa.large_string(), len(texts), buffers)
