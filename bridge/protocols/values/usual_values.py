"""Converts the usual raw literals of a column (see `untyped`) all together, in Arrow, as their converter would one by
one."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

_TEXT: Final = pa.large_string()
_WHOLE_SECOND: Final = ".000000"
_SECONDS_END: Final = len("2024-01-01 00:00:00")


def as_they_are(literals: pa.Array) -> pa.Array:
    """Gives literals that are ready."""
    return literals


class Usual(NamedTuple):
    """Raw literals that become ready without their converter, as most do.

    pattern: matches the whole of such a literal; RE2 and Python read it alike.
    convert: makes the same of them as the converter, for many at once.
    """

    pattern: str
    convert: Callable[[pa.Array], pa.Array] = as_they_are


def without_quotes(literals: pa.Array) -> pa.Array:
    """Removes the quotation marks, of texts that hold none."""
    return pc.ascii_trim(literals, "'")


def as_double(literals: pa.Array) -> pa.Array:
    """Makes a DOUBLE of a quoted number without an exponent."""
    return _joined(without_quotes(literals), "e0")


def moments(unit: str) -> Callable[[pa.Array], pa.Array]:
    """Makes DATETIMEs of integers since 1970, as if in UTC.  unit: Arrow's name of what they count."""

    def convert(literals: pa.Array) -> pa.Array:
        since = literals.cast(pa.int64()).cast(pa.timestamp(unit)).cast(pa.timestamp("us"))
        texts = since.cast(_TEXT)
        seconds = pc.utf8_slice_codeunits(texts, 0, _SECONDS_END)
        return _joined("'", pc.if_else(pc.ends_with(texts, _WHOLE_SECOND), seconds, texts), "'")

    return convert


def decimals(scale: int) -> Callable[[pa.Array], pa.Array]:
    """Makes DECIMALs of doubles that have at most `scale` digits behind the point, and an exponent of 0."""
    zeros = pa.array(["0" * missing for missing in range(scale)], _TEXT)

    def convert(literals: pa.Array) -> pa.Array:
        texts = pc.utf8_slice_codeunits(literals, 0, -len("e0"))
        digits = pc.subtract(pc.subtract(pc.binary_length(texts), pc.find_substring(texts, ".")), 1)
        return _joined(texts, zeros.take(pc.subtract(scale, digits)))

    return convert


def _joined(*parts: pa.Array | str) -> pa.Array:
    texts = [pa.scalar(part, _TEXT) if isinstance(part, str) else part for part in parts]
    return pc.binary_join_element_wise(*texts, pa.scalar("", _TEXT))
