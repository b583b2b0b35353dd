"""Finds the row images that need a closer look: the others surely lose nothing in the target's columns."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import chain
from typing import NamedTuple

import numpy as np

from bridge.rows.grouping import Longs
from bridge.rows.literal_offsets import Cells


class Usual(NamedTuple):
    """What a column surely stores unchanged (`codes.FITS_ANY` and so on).  digits: of a fraction, at most."""

    kind: int
    digits: int = 0


def unsure(after: Cells, shape_of: Longs, usual: Sequence[Sequence[Usual]]) -> Longs:
    """Gives the numbers of the images with some literal that may not be stored unchanged, found by a compiled function.

    shape_of: the number of each image's shape.  usual: for each shape, what its columns surely store.
    """
    from bridge.protocols.fast.compiled.functions import fit_images

    found = np.empty(len(after.images), np.int64)
    count, _ = fit_images(
        after.characters, after.offsets, after.separators, after.firsts, after.is_image.view(np.uint8), len(found),
        shape_of, np.cumsum([0, *map(len, usual)]), np.array([*chain.from_iterable(usual)], np.int32).reshape(-1, 2),
        found,
    )  # fmt: skip
    return found[:count]
