"""Splits row images in Arrow columns, and joins them to statements, without a Python object per row."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP

TEXT: Final = pa.large_string()
"""Images are wide, so their offsets have 64 bits."""


def parts_of(images: pa.Array, positions: Sequence[int]) -> list[pa.Array]:
    """Gives the literals at these positions of each image, null where the image is null."""
    pieces = pc.split_pattern(images, SEP, max_splits=max(positions) + 1)
    return [pc.list_element(pieces, position) for position in positions]


def joined(parts: Sequence[pa.Array], separator: str = SEP) -> pa.Array:
    """Joins arrays of texts element by element; null where any part is null."""
    return parts[0] if len(parts) == 1 else pc.binary_join_element_wise(*parts, pa.scalar(separator, TEXT))


def wrapped(template: Sequence[str], parts: Sequence[pa.Array]) -> pa.Array:
    """Joins texts element by element: template[0] + part 0 + template[1] + part 1 + ... + template[-1]."""
    pieces: list[pa.Array | pa.Scalar] = [pa.scalar(template[0], TEXT)]
    for part, after in zip(parts, template[1:], strict=True):
        pieces += [part, pa.scalar(after, TEXT)]
    return pc.binary_join_element_wise(*pieces, pa.scalar("", TEXT))


def runs(texts: pa.Array, limit: int, most: int | None = None) -> Iterator[pa.Array]:
    """Cuts texts (large strings, none of them null), in order, to runs of about `limit` bytes and at most `most` texts.
    No run is empty."""
    size = len(texts)
    if size == 0:
        return
    offsets = np.frombuffer(texts.buffers()[1], np.int64)[texts.offset : texts.offset + size + 1]
    most = size if most is None else most
    start = 0
    while start < size:
        end = min(start + most, size)
        if offsets[end] - offsets[start] > limit:
            end = max(start + 1, int(offsets.searchsorted(offsets[start] + limit, side="right")) - 1)
        yield texts.slice(start, end - start)
        start = end
