"""Names the usual raw literals of a column (see `untyped`), which compiled functions convert as its converter does."""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.protocols.fast.compiled import codes

_EXACT_DIGITS: Final = 15
"""A double tells decimals of so many digits apart."""


class Usual(NamedTuple):
    """What the usual literals of a column are; all others, and a NULL that its column cannot hold, are left to Python:
    raw ones to the column's converter, ready ones to the check of what the column stores unchanged."""

    code: int
    argument: int = 0


NONE: Final = Usual(codes.LEFT)
"""The converter converts each."""
NATURAL_NUMBER: Final = Usual(codes.NATURAL_OF_NUMBER)
DOUBLE_NUMBER: Final = Usual(codes.DOUBLE_OF_NUMBER)
"""Numbers that are ready as they are."""
MILLIS, MICROS = Usual(codes.MILLISECONDS), Usual(codes.MICROSECONDS)
"""Integers since 1970-01-01, as if in UTC, that become DATETIMEs; 0 may be a zero date."""
JSON_DOCUMENT: Final = Usual(codes.DOCUMENT)
"""A document without numbers of many digits (`debezium.columns`) stays as it is."""
TEXT_OF_INTEGER, TEXT_OF_NATURAL, TEXT_OF_DECIMAL, TEXT_OF_DOUBLE, TEXT_OF_DATE, TEXT_OF_TIME, TEXT_OF_DATETIME = (
    Usual(codes.TEXT_OF, of)
    for of in (codes.INTEGER, codes.NATURAL, codes.DECIMAL, codes.DOUBLE, codes.DATE, codes.TIME, codes.DATETIME)
)
"""Strings, of which a converter for the column's type makes literals."""
TEXT_OF_BYTES: Final = Usual(codes.TEXT_OF, codes.BYTES_IN_BASE64)
"""Bytes in base64."""


def decimal_of_double(scale: int) -> Usual:
    """Names doubles that become DECIMALs with so many digits behind the point, where doubles are exact enough."""
    return Usual(codes.DECIMAL_OF_DOUBLE, scale) if 0 < scale < _EXACT_DIGITS else NONE
