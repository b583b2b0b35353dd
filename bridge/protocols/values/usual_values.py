"""Names the usual raw literals of a column (see `untyped`), which compiled functions convert as its converter does."""

from __future__ import annotations

from typing import Final, NamedTuple

from bridge.protocols.fast.compiled.codes import (
    BYTES_IN_BASE64,
    DATE,
    DATETIME,
    DECIMAL,
    DECIMAL_OF_DOUBLE,
    DOCUMENT,
    DOUBLE,
    DOUBLE_OF_NUMBER,
    INTEGER,
    LEFT,
    MICROSECONDS,
    MILLISECONDS,
    NATURAL,
    NATURAL_OF_NUMBER,
    TEXT_OF,
    TIME,
)

_EXACT_DIGITS: Final = 15
"""A double tells decimals of so many digits apart."""


class Usual(NamedTuple):
    """What the usual raw literals of a column are; all others, and a NULL that its column cannot hold, are left to the
    column's converter."""

    code: int
    argument: int = 0


NONE: Final = Usual(LEFT)
"""The converter converts each."""
NATURAL_NUMBER: Final = Usual(NATURAL_OF_NUMBER)
DOUBLE_NUMBER: Final = Usual(DOUBLE_OF_NUMBER)
"""Numbers that are ready as they are."""
MILLIS, MICROS = Usual(MILLISECONDS), Usual(MICROSECONDS)
"""Integers since 1970-01-01, as if in UTC, that become DATETIMEs; 0 may be a zero date."""
JSON_DOCUMENT: Final = Usual(DOCUMENT)
"""A document without numbers of many digits (`debezium.columns`) stays as it is."""
TEXT_OF_INTEGER, TEXT_OF_NATURAL, TEXT_OF_DECIMAL, TEXT_OF_DOUBLE, TEXT_OF_DATE, TEXT_OF_TIME, TEXT_OF_DATETIME = (
    Usual(TEXT_OF, of) for of in (INTEGER, NATURAL, DECIMAL, DOUBLE, DATE, TIME, DATETIME)
)
"""Strings, of which a converter for the column's type makes literals."""
TEXT_OF_BYTES: Final = Usual(TEXT_OF, BYTES_IN_BASE64)
"""Bytes in base64."""


def decimal_of_double(scale: int) -> Usual | None:
    """Names doubles that become DECIMALs with so many digits behind the point; None where doubles are not exact
    enough."""
    return Usual(DECIMAL_OF_DOUBLE, scale) if 0 < scale < _EXACT_DIGITS else None
