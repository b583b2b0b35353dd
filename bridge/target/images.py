"""Row images as Arrow columns: taking them apart and joining them to statements without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP

TEXT: Final = pa.large_string()
"""Images are wide: 64-bit offsets."""


def parts_of(images: pa.Array, positions: Sequence[int]) -> list[pa.Array]:
    """The literals at these positions of each image; null where the image is null."""
    pieces = pc.split_pattern(images, SEP, max_splits=max(positions) + 1)
    return [pc.list_element(pieces, position) for position in positions]


def joined(parts: Sequence[pa.Array], separator: str = SEP) -> pa.Array:
    """Element-wise join; null where any part is null."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(separator, TEXT))


def wrapped(template: Sequence[str], parts: Sequence[pa.Array]) -> pa.Array:
    """Element-wise text: template[0] + part 0 + template[1] + part 1 + ... + template[-1]."""
    pieces: list[pa.Array | pa.Scalar] = [pa.scalar(template[0], TEXT)]
    for part, after in zip(parts, template[1:], strict=True):
        pieces += [part, pa.scalar(after, TEXT)]
    return pc.binary_join_element_wise(*pieces, pa.scalar("", TEXT))


def groups(texts: pa.Array, separator: str, limit: int, most: int | None = None) -> Iterator[str]:
    """Texts in order, joined in groups of about `limit` bytes and at most `most` texts; never an empty group."""
    if len(texts) == 0:
        return
    ends = np.cumsum(pc.fill_null(pc.binary_length(texts), 0).to_numpy(zero_copy_only=False), dtype=np.int64)
    start = 0
    while start < len(texts):
        base = ends[start - 1] if start else 0
        end = max(start + 1, int(np.searchsorted(ends, base + limit, side="right")))
        if most is not None:
            end = min(end, start + most)
        yield separator.join(texts.slice(start, end - start).to_pylist())
        start = end
