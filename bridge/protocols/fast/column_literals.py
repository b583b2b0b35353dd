"""Converts whole columns to literals, with the result that `values.literals` gives for single values.

A value that the patterns here do not match has no literal (null), and its row is left to the plain path.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final, NamedTuple

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc

from bridge.protocols.debezium.columns import raw_literal
from bridge.protocols.decoder import FAILURES, DecodeError
from bridge.protocols.fast.byte_buffer import contents
from bridge.protocols.fast.message_shape import TSO
from bridge.protocols.values import literals
from bridge.protocols.values.literals import NULL, Converter

NATURAL: Final = "[1-9][0-9]{0,18}|0"
INTEGER: Final = NATURAL + "|-[1-9][0-9]{0,17}"
"""Patterns of canonical integers within signed or unsigned 64 bits."""

TEXTS: Final = frozenset({literals.text, raw_literal})
"""Converters of strings whose literal is the string in quotation marks, if nothing must be escaped."""
DIGITS: Final = {
    literals.integer: INTEGER,
    **dict.fromkeys((literals.unsigned, *literals.UNSIGNED.values()), NATURAL),
}
"""Converters of strings of digits whose literal is these digits, each with the pattern of such strings."""
INTEGERS: Final = frozenset({literals.integer_number, raw_literal})
"""Converters of numbers whose literal is the number."""

_DECIMAL: Final = "-?[0-9]{1,40}(?:[.][0-9]{1,20})?"
_IN_QUOTES: Final = {
    literals.date: literals.DATE_PATTERN,
    literals.datetime: literals.DATETIME_PATTERN,
    literals.time: literals.TIME_PATTERN,
}
"""Converters of strings whose literal is the string in quotation marks, each with the pattern of such strings."""

_STRING: Final = pa.string()
_NUMBERS: Final = frozenset({NATURAL, INTEGER, TSO})
_APOSTROPHE, _ZERO, _NINE = b"'09"

Make = Callable[[pa.StringArray], pa.StringArray]


class ColumnForm(NamedTuple):
    """How a column's values are read.

    quoted: whether the values are in quotation marks in JSON, unless they are null.
    make: turns values as JSON writes them, without their quotation marks, into literals; also null, where they have no
    marks.
    wraps: whether the literal is the result of `make` in SQL's quotation marks.
    """

    quoted: bool
    make: Make
    wraps: bool = False


def column_form(convert: Converter, types: set[type]) -> ColumnForm | None:
    """Tells how values of these JSON types are read; None when they cannot be read."""
    types = types - {type(None)}
    if types == {str}:
        return _string_form(convert)
    if not types:
        return ColumnForm(False, _or_null(lambda values: pa.nulls(len(values), _STRING)))
    if types == {int} and convert in INTEGERS:
        return ColumnForm(False, _integers)
    if types <= {int, float} or types == {bool}:
        return ColumnForm(False, _or_null(_each(lambda value: convert(_one_of(types, orjson.loads(value))))))
    return None


def _string_form(convert: Converter) -> ColumnForm:
    if convert in TEXTS:
        return ColumnForm(True, _escaped, wraps=True)
    if convert in DIGITS:
        return ColumnForm(True, _matched(DIGITS[convert]))
    if convert is literals.decimal:
        return ColumnForm(True, _matched(_DECIMAL))
    if convert in _IN_QUOTES:
        return ColumnForm(True, _matched(_IN_QUOTES[convert]), wraps=True)
    return ColumnForm(True, _each(convert))


def _integers(values: pa.StringArray) -> pa.StringArray:
    return values if _are_natural(values) else _or_null(_matched(INTEGER))(values)


def _one_of(types: set[type], value: Any) -> Any:
    if type(value) not in types:
        raise DecodeError("a value of another JSON type")
    return value


def _are_natural(values: pa.StringArray) -> bool:
    """Tells whether all values are numbers of 1 to 18 digits without leading zeros."""
    at, content = contents(values)
    sizes = np.diff(at)
    return len(sizes) == 0 or bool(
        sizes.min() > 0
        and sizes.max() <= 18
        and content.min() >= _ZERO
        and content.max() <= _NINE
        and (content[at[:-1]] != _ZERO).all()
    )


def matched(values: pa.StringArray, pattern: str) -> pa.StringArray:
    """Keeps the values that match a pattern as a whole; the others become null."""
    if pattern in _NUMBERS and _are_natural(values):
        return values
    which = pc.match_substring_regex(values, f"^(?:{pattern})$")
    return values if which.false_count == 0 else pc.if_else(which, values, pa.scalar(None, _STRING))


def _matched(pattern: str) -> Make:
    return lambda values: matched(values, pattern)


def _escaped(values: pa.StringArray) -> pa.StringArray:
    """Does what `literals.text` does between its quotation marks, for strings without backslashes and NUL."""
    has_quotes = (contents(values)[1] == _APOSTROPHE).any()
    return pc.replace_substring(values, "'", "\\'") if has_quotes else values


def _or_null(make: Make) -> Make:
    return lambda values: pc.if_else(pc.equal(values, "null"), pa.scalar(NULL), make(values))


def _each(convert: Callable[[str], str]) -> Make:
    return lambda values: each(convert, values)


def each(convert: Callable[[str], Any], values: pa.StringArray, to: pa.DataType = _STRING) -> pa.Array:
    """Converts values, equal ones only once; those that cannot be converted become null."""
    encoded = values.dictionary_encode()
    found = pa.array([_converted(convert, value) for value in encoded.dictionary.to_pylist()], to)
    return found.take(encoded.indices)


def _converted(convert: Callable[[str], Any], value: str) -> Any:
    try:
        return convert(value)
    except (*FAILURES, DecodeError):
        return None
