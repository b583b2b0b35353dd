"""Tells of many values at once which are literals already, or are once they are quoted.

Arrow and NumPy look at a value in some nanoseconds, a converter of `values.literals` in some hundred.  What is not
certain here is left to the converter, so that both give the same literals.
"""

from __future__ import annotations

from collections.abc import Callable
from enum import IntEnum
from typing import Final

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from bridge.protocols.values import literals
from bridge.protocols.values.literals import Converter

Mask = npt.NDArray[np.bool_]
Numbers = npt.NDArray[np.int64]


class Form(IntEnum):
    """The form of literals: how a value is written, apart from its marks, and what has to be checked."""

    BARE = 0
    """Without marks; checked already."""
    MARKED = 1
    """In quotation marks; checked already."""
    BYTES = 2
    """x'...'; checked already."""
    NULL = 3
    TEXT = 4
    """In quotation marks, with escapes."""
    INTEGER = 5
    NATURAL = 6
    DECIMAL = 7
    DATE = 8
    DATETIME = 9
    OTHER = 10
    """Only the column's own converter can tell."""


_QUOTED: Final = frozenset({Form.MARKED, Form.TEXT, Form.DATE, Form.DATETIME})
BEFORE: Final = {form: "'" if form in _QUOTED else "x'" if form is Form.BYTES else "" for form in Form}
BEHIND: Final = {form: "'" if BEFORE[form] else "" for form in Form}
"""What stands before and behind a value in its literal."""

_FORMS: Final[dict[Converter, Form]] = {
    literals.text: Form.TEXT,
    literals.integer: Form.INTEGER,
    **dict.fromkeys((literals.unsigned, *literals.UNSIGNED.values()), Form.NATURAL),
    literals.decimal: Form.DECIMAL,
    literals.date: Form.DATE,
    literals.datetime: Form.DATETIME,
}

_DAY: Final = ("0000-00-00", "9999-19-39")
_MOMENT: Final = ("0000-00-00 00:00:00.000000", "9999-19-39 29:59:59.999999")
"""The least and the greatest character at each place."""
_TENS: Final = ((5, "1", "2"), (8, "3", "1"), (11, "2", "3"))
"""Places of two digits: behind the greatest first digit, the second one is at most this."""
_SIZES_OF_DATETIME: Final = frozenset({19, *range(21, 27)})
_LONGEST_NATURAL: Final = 19
_LONGEST_NEGATIVE: Final = 19
_LONGEST_DECIMAL: Final = literals.MAX_DECIMAL_DIGITS
_MINUS, _POINT, _ZERO = b"-.0"
_DIGITS: Final = 10


def form_of(convert: Converter) -> Form:
    """Tells the form of a converter's literals."""
    return _FORMS.get(convert, Form.OTHER)


def contents(values: pa.StringArray) -> tuple[Numbers, npt.NDArray[np.uint8]]:
    """Gives where texts begin, and where the last one ends, and all their bytes."""
    _, offsets, content = values.buffers()
    at = np.frombuffer(offsets, np.int32)[values.offset : values.offset + len(values) + 1].astype(np.int64)
    return at - at[0], np.frombuffer(content or b"", np.uint8)[at[0] : at[-1]]


def _no_digits(at: Numbers, content: npt.NDArray[np.uint8]) -> tuple[Numbers, Numbers]:
    """Gives the places of characters that are no digits, and the values that they are in."""
    places = np.flatnonzero(content - _ZERO >= _DIGITS)
    return places, np.searchsorted(at, places, "right") - 1


def _naturals(values: pa.StringArray) -> Mask:
    at, content = contents(values)
    sizes = np.diff(at)
    good = (sizes > 0) & (sizes <= _LONGEST_NATURAL)
    good[_no_digits(at, content)[1]] = False
    firsts = np.flatnonzero(good & (sizes > 1))
    good[firsts] = content[at[firsts]] != _ZERO
    return good


def _integers(values: pa.StringArray) -> Mask:
    at, content = contents(values)
    places, owners = _no_digits(at, content)
    if not len(places):
        return _naturals(values)
    sizes, begins = np.diff(at), at[:-1].copy()
    is_sign = (content[places] == _MINUS) & (places == at[owners])
    begins[owners[is_sign]] += 1
    good = (begins < at[1:]) & (sizes <= _LONGEST_NEGATIVE)
    good[owners[~is_sign]] = False
    firsts = np.flatnonzero(good & (sizes > 1))
    good[firsts] = content[begins[firsts]] != _ZERO
    return good


def _decimals(values: pa.StringArray) -> Mask:
    at, content = contents(values)
    places, owners = _no_digits(at, content)
    begins = at[:-1].copy()
    is_sign = (content[places] == _MINUS) & (places == at[owners])
    begins[owners[is_sign]] += 1
    good = (begins < at[1:]) & (np.diff(at) <= _LONGEST_DECIMAL)
    rest, of = places[~is_sign], owners[~is_sign]
    is_point = (content[rest] == _POINT) & (rest > begins[of]) & (rest < at[of + 1] - 1)
    is_point[1:] &= of[1:] != of[:-1]
    good[of[~is_point]] = False
    return good


def _dates(values: pa.StringArray) -> Mask:
    return _between(values, _DAY, frozenset({len(_DAY[0])}))


def _datetimes(values: pa.StringArray) -> Mask:
    return _between(values, _MOMENT, _SIZES_OF_DATETIME)


def _between(values: pa.StringArray, bounds: tuple[str, str], sizes: frozenset[int]) -> Mask:
    at, content = contents(values)
    found = np.diff(at)
    good = np.zeros(len(values), np.bool_)
    for size in sizes:
        which = found == size
        if which.any():
            some = content if which.all() else contents(values.filter(pa.array(which)))[1]
            good[which] = _are_between(some.reshape(-1, size), *(bound[:size].encode() for bound in bounds))
    return good


def _are_between(texts: npt.NDArray[np.uint8], low: bytes, high: bytes) -> Mask:
    inside = (texts >= np.frombuffer(low, np.uint8)) & (texts <= np.frombuffer(high, np.uint8))
    good = np.ones(len(texts), np.bool_)
    if not inside.all():
        good &= inside.all(axis=1)
    for place, first, second in _TENS:
        if place < len(low):
            good &= (texts[:, place] < ord(first)) | (texts[:, place + 1] <= ord(second))
    return good


CHECKS: Final[dict[Form, Callable[[pa.StringArray], Mask]]] = {
    Form.INTEGER: _integers,
    Form.NATURAL: _naturals,
    Form.DECIMAL: _decimals,
    Form.DATE: _dates,
    Form.DATETIME: _datetimes,
}
"""Tells of values which of them need no more than their quotation marks.  Any text is a TEXT once it is escaped."""
