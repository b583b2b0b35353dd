"""Splits row images in Arrow columns, and joins them; and finds where their literals are, for images of many tables at
once, without splitting the images.

Work per image costs nanoseconds, work per table or per call costs microseconds.  So all images of a transaction are
handled together, each by the rules of its shape.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import chain, pairwise
from typing import Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from bridge.events import SEP
from bridge.protocols.fast.readiness import Readiness
from bridge.rows.gathering import Bools, Longs, offsets_of, one_piece

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


def runs(texts: pa.Array, byte_limit: int, count_limit: int | None = None) -> Iterator[pa.Array]:
    """Cuts texts (large strings, no nulls) to runs of about so many bytes, and at most so many texts; none is empty."""
    size, offsets = len(texts), offsets_of(texts)
    count_limit = size if count_limit is None else count_limit
    start = 0
    while start < size:
        end = min(start + count_limit, size)
        if offsets[end] - offsets[start] > byte_limit:
            end = max(start + 1, int(offsets.searchsorted(offsets[start] + byte_limit, side="right")) - 1)
        yield texts.slice(start, end - start)
        start = end


_NOWHERE = (-1, -1)
_BLOCK: Final = 256 << 10
"""So many bytes are compared at once: they stay in the processor's cache (half the time, measured with 40 MB)."""
_readiness: Final = Readiness()


class Cells:
    """Images (large strings, null where there is none), with the places where their literals begin and end.

    shape_of: the number of each image's shape.  widths: for each shape, how many literals its images have.
    offsets, separators: where each image begins, and where separators are, in `characters`; firsts: which separator is
    the first of each image.
    Raises ValueError when an image has another number of literals.
    """

    def __init__(self, images: pa.Array, shape_of: Longs, widths: Sequence[int]) -> None:
        self.images, self._shape_of, self._widths = images, shape_of, np.array(widths, np.int64)
        self.is_image = to_numpy(images.is_valid())
        self.offsets, self._data = buffers_of(images)
        self.characters = np.frombuffer(self._data, np.uint8)
        counts = np.where(self.is_image, self._widths[shape_of] - 1, 0)
        firsts = np.cumsum(counts)
        places = separators(self.characters, self.offsets, int(firsts[-1]) if len(firsts) else 0)
        self.separators, self.firsts = np.append(places, 0), firsts - counts

    def begins(self, images: Longs, position: int) -> Longs:
        """Tells where the literal at a position of each of these images, no nulls, begins in `characters`."""
        if position == 0:
            return self.offsets[images]
        starts: Longs = self.separators[self.firsts[images] + position - 1] + 1
        return starts

    def joined(self, positions: Sequence[Sequence[int]]) -> pa.Array:
        """Gives the literals of each image at its shape's positions, joined by SEP; null without image or position."""
        runs = [_runs(places) for places in positions]
        part_count = max(map(len, runs))
        parts = [
            self._literals_between([spans[i] if i < len(spans) else _NOWHERE for spans in runs])
            for i in range(part_count)
        ]
        text = parts[0] if parts else pa.nulls(len(self.images), TEXT)
        for part in parts[1:]:  # null where the shape has fewer
            text = pc.coalesce(joined([text, part]), text)
        return text

    def literals(self, positions: Sequence[Sequence[int]]) -> Literals:
        """Gives the literals of each image at the positions of its shape, which ascend."""
        sizes = np.array([len(places) for places in positions])
        counts = np.where(self.is_image, sizes[self._shape_of], 0)
        image = np.repeat(np.arange(len(counts)), counts)
        nth = np.arange(len(image)) - np.repeat(np.cumsum(counts) - counts, counts)
        place = (np.cumsum(sizes) - sizes)[self._shape_of[image]] + nth
        position = np.array(list(chain.from_iterable(positions)), np.int64)[place]
        begins, ends = self._bounds(image, position, position)
        return Literals(image, place, begins, ends, slices(self._data, begins, ends))

    def _literals_between(self, runs: Sequence[tuple[int, int]]) -> pa.Array:
        """Gives the literals between two positions, with their separators.  runs: the positions of each shape."""
        first, last = np.array(runs, np.int64)[self._shape_of].T
        is_there = self.is_image & (first >= 0)
        begins, ends = self._bounds(slice(None), first, last)
        return slices(
            self._data,
            np.where(is_there, begins, self.offsets[:-1]),
            np.where(is_there, ends, self.offsets[:-1]),
            is_there,
        )

    def _bounds(self, image: Longs | slice, first: Longs, last: Longs) -> tuple[Longs, Longs]:
        """Tells where literals begin and end in the characters; the answer means nothing where there is no image."""
        starts, firsts = self.offsets[:-1][image], self.firsts[image]
        before, behind = (self.separators.take(firsts + i, mode="clip") for i in (first - 1, last))
        begins = np.where(first > 0, before + 1, starts)
        ends = np.where(last < self._widths[self._shape_of[image]] - 1, behind, self.offsets[1:][image])
        return begins, ends


class Literals(NamedTuple):
    """Literals of images, in order.  image: the number of each literal's image; place: which of the requested positions
    it has; begins, ends: its place in the characters of all images."""

    image: Longs
    place: Longs
    begins: Longs
    ends: Longs
    texts: pa.Array


def replaced(images: pa.Array, old: Literals, new: pa.Array) -> pa.Array:
    """Gives images (large strings) with new literals in the places of old ones."""
    offsets, data = buffers_of(images)
    bounds = np.stack([old.begins, old.ends], axis=1).reshape(-1)
    bounds = np.concatenate([offsets[:1], bounds, offsets[-1:]])
    texts = _texts(data, bounds)
    pieces = pc.replace_with_mask(texts, pa.array(np.arange(len(texts)) % 2 == 1), new)
    growth = np.cumsum(np.append(0, pc.binary_length(new).to_numpy() - (old.ends - old.begins)))
    before = np.searchsorted(old.image, np.arange(len(offsets)))
    start, data = buffers_of(pieces)
    return images_of(offsets - offsets[0] + growth[before] + start[0], data, to_numpy(images.is_valid()))


def images_of(offsets: Longs, data: pa.Buffer, is_image: Bools) -> pa.Array:
    """Makes images, null where `is_image` is not, of where each begins and the last one ends, and their characters."""
    return pa.Array.from_buffers(TEXT, len(is_image), [pa.array(is_image).buffers()[1], pa.py_buffer(offsets), data])


def buffers_of(images: pa.Array) -> tuple[Longs, pa.Buffer]:
    """Tells where each image begins, and where the last one ends, in the characters of all."""
    data = images.buffers()[2]
    return offsets_of(images), data if data is not None else pa.py_buffer(b"")


def slices(data: pa.Buffer, begins: Longs, ends: Longs, is_there: Bools | None = None) -> pa.Array:
    """Gives the texts between ascending positions, null where `is_there` is not.

    Slices and the gaps between them form an array of texts over the same characters; every second text is a slice.
    """
    if len(begins) == 0:
        return pa.array([], TEXT)
    texts = _texts(data, np.stack([begins, ends], axis=1).reshape(-1))
    mask = None if is_there is None or is_there.all() else ~is_there
    return texts.take(pa.array(np.arange(0, len(texts), 2), mask=mask))


def _texts(data: pa.Buffer, bounds: Longs) -> pa.Array:
    """Gives texts that follow one another in the same characters."""
    return pa.Array.from_buffers(TEXT, len(bounds) - 1, [None, pa.py_buffer(bounds), data])


def separators(characters: npt.NDArray[np.uint8], offsets: Longs, expected: int) -> Longs:
    """Tells where separators are in images that follow one another.  offsets: where the images begin in the characters,
    and where the last one ends.

    Raises ValueError when there are not as many as expected.
    """
    start, end = int(offsets[0]), int(offsets[-1])
    if _readiness.pays(expected):
        from bridge.protocols.fast.compiled.functions import find_zeros

        places = np.empty(expected, np.int64)
        count, _ = find_zeros(characters, start, end, expected, places)
    else:
        blocks = [at + np.flatnonzero(characters[at : min(at + _BLOCK, end)] == 0) for at in range(start, end, _BLOCK)]
        places = np.concatenate(blocks) if blocks else np.empty(0, np.int64)
        count = len(places)
    if count != expected:
        raise ValueError("row images do not hold a literal for each of their columns")
    return places


def _runs(positions: Sequence[int]) -> list[tuple[int, int]]:
    """Unites positions that follow one another, as first and last: 1 2 3 0 is (1, 3) (0, 0)."""
    cuts = [i for i, (position, following) in enumerate(pairwise(positions), 1) if following != position + 1]
    return [(positions[i], positions[j - 1]) for i, j in pairwise([0, *cuts, len(positions)])] if positions else []


def whole(column: pa.ChunkedArray) -> pa.Array:
    """Gives a column of images in one piece, which may be larger than 2 GiB."""
    return one_piece(column, TEXT)


def to_numpy(flags: pa.BooleanArray) -> Bools:
    """Gives booleans, none of which is null, to NumPy."""
    booleans: Bools = flags.to_numpy(zero_copy_only=False)
    return booleans
