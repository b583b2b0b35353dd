"""Hashes of many texts."""

from __future__ import annotations

from hashlib import md5
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.protocols.fast.compiled.codes import DIGEST_ROOM
from bridge.protocols.fast.readiness import Readiness
from bridge.rows.literal_offsets import buffers_of

_BLOCK: Final = 64
_PADDING: Final = 8
_MOST_SORTED: Final = 65_535
"""Texts of more blocks come in any order, and are handled by themselves."""
_READINESS: Final = Readiness()


def text_hashes(texts: pa.Array) -> npt.NDArray[np.uint64]:
    """Gives the first 64 bits of the MD5 of each text (large strings); of nulls nothing that means something."""
    return _together(texts) if _READINESS.pays(len(texts)) else _one_by_one(texts)


def _one_by_one(texts: pa.Array) -> npt.NDArray[np.uint64]:
    some = texts.cast(pa.large_binary()).fill_null(b"").to_pylist()
    digests = b"".join([md5(text, usedforsecurity=False).digest() for text in some])
    return np.frombuffer(digests, ">u8")[::2].astype(np.uint64)


def _together(texts: pa.Array) -> npt.NDArray[np.uint64]:
    from bridge.protocols.fast.compiled.functions import digest_texts

    offsets, data = buffers_of(texts)
    blocks = np.minimum((np.diff(offsets) + _PADDING) // _BLOCK, _MOST_SORTED).astype(np.uint16)
    order = np.argsort(blocks, kind="stable")
    found = np.empty(len(texts), np.int64)
    digest_texts(np.frombuffer(data, np.uint8), offsets, order, len(texts), np.empty(DIGEST_ROOM, np.uint8), found)
    return found.view(np.uint64).byteswap()
