"""Finds the raw literals of row images that converters have to convert.

Where rows are many, a compiled function converts the usual ones before.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import chain
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa

from bridge.protocols.fast.compiled.codes import NOT_READ, READY
from bridge.protocols.fast.compiled.room import room
from bridge.protocols.values.column_types import ColumnType
from bridge.protocols.values.untyped import usual_values
from bridge.rows.grouping import Longs
from bridge.rows.literal_offsets import Cells, Literals, buffers_of, images_of, slices, to_numpy

_SLACK: Final = 64
"""Bytes behind the literals, since eight are written at a time."""
_LONGEST_OF_NUMBER: Final = len("'2024-02-29 12:34:56.123456'")
"""No number becomes a longer literal than a DATETIME."""


class ValueKind(NamedTuple):
    """A kind of raw values that are converted alike: their form, and the type of the target's column."""

    form: str
    column: ColumnType


class RawImages(NamedTuple):
    """Row images (large strings), and those of their raw literals that are still to be converted.

    The `place` of a literal is the number of its raw column, of all shapes.
    """

    images: pa.Array
    literals: Literals


Kinds = Mapping[int, ValueKind]
"""The kinds of the raw values of a shape, by the positions of their columns, which ascend."""


def all_raw(images: pa.Array, shape_of: Longs, widths: Sequence[int], kinds: Sequence[Kinds]) -> RawImages:
    """Finds all raw literals.

    shape_of: the number of each image's shape.  widths, kinds: for each shape, how many literals its images have, and
    which are raw.
    Raises ValueError when an image has another number of literals.
    """
    return RawImages(images, Cells(images, shape_of, widths).literals([list(one) for one in kinds]))


def unusual_raw(images: pa.Array, shape_of: Longs, widths: Sequence[int], kinds: Sequence[Kinds]) -> RawImages:
    """Converts the usual raw literals with a compiled function, in one pass over the bytes of all tables, and finds the
    others as `all_raw` does (measured with Debezium's rows of 12 to 40 columns: 1.7 us a row instead of 4.1 with
    Arrow)."""
    from bridge.protocols.fast.compiled.functions import convert_images

    rules = np.array(list(chain.from_iterable(map(_rules, widths, kinds))), np.int32)
    firsts = np.cumsum([0, *widths])
    offsets, data = buffers_of(images)
    is_image = to_numpy(images.is_valid())
    most = int(np.array([len(one) for one in kinds])[shape_of[is_image]].sum())
    size = int(offsets[-1] - offsets[0])
    # Bytes in base64 become at most twice as long; a number may become a DATETIME, or a DECIMAL with zeros behind it.
    out = room(2 * size + most * _LONGEST_OF_NUMBER + _SLACK)
    scratch = room(size + _SLACK)
    starts, left = np.zeros(len(images) + 1, np.int64), np.empty((most, 4), np.int64)
    found, _ = convert_images(
        np.frombuffer(data, np.uint8), offsets, is_image.view(np.uint8), len(images), shape_of, firsts, rules, scratch,
        out, starts[1:], left,
    )  # fmt: skip
    if found == NOT_READ:
        raise ValueError("row images do not hold a literal for each of their columns")
    image, rule, begins, ends = np.ascontiguousarray(left[:found].T)
    place = (np.cumsum(rules[:, 0] != READY) - 1)[rule]
    text = pa.py_buffer(out[: starts[-1]])
    return RawImages(
        images_of(starts, text, is_image), Literals(image, place, begins, ends, slices(text, begins, ends))
    )


def _rules(width: int, kinds: Kinds) -> Iterator[tuple[int, int, bool]]:
    """Gives for each column of a shape what its usual literals are, an argument, and whether NULL is ready."""
    for position in range(width):
        kind = kinds.get(position)
        yield (READY, 0, True) if kind is None else (*usual_values(*kind), kind.column.nullable)
