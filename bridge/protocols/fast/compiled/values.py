"""Tells how a value becomes a literal: most do so in a simple way, the others by their column's own converter.

The patterns are those of `protocols.values.literals`, or narrower.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.json_text import (
    BACKSLASH,
    BAD,
    MINUS,
    ZERO,
    U,
    are_digits,
    digits_end,
    hexadecimal,
    is_digit,
    is_integer,
)
from bridge.protocols.fast.compiled.machine_bytes import Bytes, inner

_DASH, _DOT, _COLON, _SPACE = (ord(character) for character in "-.: ")
_MOST_DECIMALS, _MOST_INTEGERS = 20, 40
_MOST_DIGITS, _MOST_ZEROS = 15, 4
_PADDING: Final = ord("=")
_NO_NUMBER: Final = 1000
_MANY_DIGITS: Final = 18
"""A document with a number of so many digits and points is left to its converter (`debezium.columns`)."""
_T, _Z, _SEVEN = (ord(character) for character in "TZ7")
_SHORTEST_ZONED: Final = len("2024-02-29T12:34:56Z")
_MOST_DAYS_DIGITS, _MOST_MILLIS_DIGITS, _MOST_MICROS_DIGITS = 6, 14, 17
"""Of moments up to the year 5138, and of days up to 4707."""


@inner
def _number(text: Bytes, at: Any) -> Any:
    """Reads two digits; gives _NO_NUMBER where there is something else."""
    if not is_digit(text[at]) or not is_digit(text[at + 1]):
        return _NO_NUMBER
    return 10 * (np.int64(text[at]) - ZERO) + (np.int64(text[at + 1]) - ZERO)


@inner
def _is_date(text: Bytes, at: Any) -> Any:
    return (
        are_digits(text, at, at + 4)
        and text[at + 4] == _DASH
        and _number(text, at + 5) <= 12
        and text[at + 7] == _DASH
        and _number(text, at + 8) <= 31
    )


@inner
def _are_minutes(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there are minutes, seconds, and perhaps a fraction of up to six digits."""
    if end - at < 5 or _number(text, at) > 59 or text[at + 2] != _COLON or _number(text, at + 3) > 59:
        return False
    return end - at == 5 or (end - at <= 12 and text[at + 5] == _DOT and are_digits(text, at + 6, end))


@inner
def _is_decimal(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there is a decimal number with so few digits that no type is too short for it."""
    if text[at] == MINUS:
        at += 1
    dot = digits_end(text, at, end)
    if dot == at or dot - at > _MOST_INTEGERS:
        return False
    return dot == end or (text[dot] == _DOT and end - dot - 1 <= _MOST_DECIMALS and are_digits(text, dot + 1, end))


@inner
def is_moment(text: Bytes, at: Any, end: Any, way: Any) -> Any:
    """Tells whether there is a DATE, DATETIME or TIME; a TIME of 100 hours and more is not told."""
    if way == codes.TIME:
        hours = at + 1 if text[at] == MINUS else at
        return _number(text, hours) < _NO_NUMBER and text[hours + 2] == _COLON and _are_minutes(text, hours + 3, end)
    if end - at < 10 or not _is_date(text, at):
        return False
    if way == codes.DATE:
        return end - at == 10
    return (
        text[at + 10] == _SPACE
        and _number(text, at + 11) <= 23
        and text[at + 13] == _COLON
        and _are_minutes(text, at + 14, end)
    )


@inner
def is_short_double(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there is a number as Python writes a DOUBLE, which is so for decimals of at most 15 digits."""
    if text[at] == MINUS:
        at += 1
    dot = digits_end(text, at, end)
    if dot == at or end - at > _MOST_DIGITS + 1 or (text[at] == ZERO and dot > at + 1):
        return False
    if text[dot] != _DOT or not are_digits(text, dot + 1, end):
        return False
    has_zeros_behind = text[end - 1] == ZERO and end > dot + 2
    zeros = dot + 1
    while zeros < end and text[zeros] == ZERO:
        zeros += 1
    is_tiny = text[at] == ZERO and zeros > dot + _MOST_ZEROS and zeros < end
    return not has_zeros_behind and not is_tiny


@inner
def _is_base64(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there is base64 with its padding (RFC 4648, section 4)."""
    if (end - at) % 4 != 0:
        return False
    if end > at and text[end - 1] == _PADDING:
        end -= 2 if text[end - 2] == _PADDING else 1
    for place in range(at, end):
        if six_bits(text[place]) == BAD:
            return False
    return True


@inner
def _is_latin1(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether a JSON string has only characters of ISO-8859-1, in UTF-8 or as an escape by number."""
    while at < end:
        if text[at] == BACKSLASH and text[at + 1] == U:
            if hexadecimal(text, at + 2) > 0xFF:
                return False
            at += 6
        elif text[at] == BACKSLASH:
            at += 2
        elif text[at] < 0x80:
            at += 1
        elif text[at] < 0xC4:  # two bytes
            at += 2
        else:
            return False
    return True


@inner
def six_bits(character: Any) -> Any:
    """Gives what a character of base64 stands for, or BAD."""
    if 65 <= character <= 90:  # A to Z
        return np.int64(character) - 65
    if 97 <= character <= 122:  # a to z
        return np.int64(character) - 71
    if is_digit(character):
        return np.int64(character) + 4
    if character == 43:  # plus
        return np.int64(62)
    return np.int64(63 if character == 47 else BAD)  # slash


@inner
def has_long_number(out: Bytes, at: Any, end: Any) -> Any:
    """Tells whether so many digits and points follow one another that they may be a number of many digits."""
    size = 0
    for place in range(at, end):
        if is_digit(out[place]) or (size > 0 and out[place] == _DOT):
            size += 1
            if size == _MANY_DIGITS:
                return True
        else:
            size = 0
    return False


@inner
def _is_plain_document(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether a document has neither a number of many digits nor an escape by number, which may be a digit."""
    for place in range(at, end):
        if text[place] == BACKSLASH and text[place + 1] == U:
            return False
    return not has_long_number(text, at, end)


@inner
def _is_zoned(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there is a TIMESTAMP in UTC, whose fraction has up to six digits and does not end with 0."""
    last, month, day = end - 1, _number(text, at + 5), _number(text, at + 8)
    if end - at < _SHORTEST_ZONED or text[last] != _Z or text[at + 10] != _T or not _is_date(text, at):
        return False
    if text[at] == ZERO or month == 0 or day == 0:
        return False
    if _number(text, at + 11) > 23 or text[at + 13] != _COLON or not _are_minutes(text, at + 14, last):
        return False
    if end - at > _SHORTEST_ZONED and text[last - 1] == ZERO:
        return False
    return text[at + 3] != ZERO or text[at + 2] != _SEVEN or month > 1 or day > 1  # 1970-01-01 may be a zero timestamp


@inner
def _is_unscaled(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there is base64 of one to eight bytes."""
    if end - at < 4 or end - at > 12 or not _is_base64(text, at, end):
        return False
    return end - at < 12 or text[end - 1] == _PADDING


@inner
def _is_since_1970(text: Bytes, at: Any, end: Any, usual: Any) -> Any:
    """Tells whether there are days, milliseconds or microseconds after 1970-01-01, before the year 5138."""
    longest = _MOST_MILLIS_DIGITS if usual == codes.MILLIS else _MOST_MICROS_DIGITS
    if usual == codes.DAYS:
        longest = _MOST_DAYS_DIGITS
    return text[at] != ZERO and end - at <= longest and are_digits(text, at, end)


@inner
def way_of(text: Bytes, at: Any, end: Any, usual: Any) -> Any:
    """Tells how a value that is not null becomes a literal, in a column whose usual values are such."""
    if usual == codes.TEXT:
        return codes.ESCAPED
    if usual == codes.INTEGER or usual == codes.NATURAL:
        return codes.PLAIN if is_integer(text, at, end, usual == codes.INTEGER) else codes.CONVERTED
    if usual == codes.DECIMAL:
        return codes.PLAIN if _is_decimal(text, at, end) else codes.CONVERTED
    if usual == codes.BASE64 or usual == codes.BYTES_IN_BASE64:
        if not _is_base64(text, at, end):
            return codes.CONVERTED
        return codes.FROM_BASE64 if usual == codes.BASE64 else codes.BYTES_OF_BASE64
    if usual == codes.LATIN1:
        return codes.BYTES_OF_LATIN1 if _is_latin1(text, at, end) else codes.CONVERTED
    if usual == codes.DOUBLE or usual == codes.INTEGER_OR_DOUBLE:
        if usual == codes.INTEGER_OR_DOUBLE and is_integer(text, at, end, True):
            return codes.PLAIN
        return codes.WITH_EXPONENT if is_short_double(text, at, end) else codes.CONVERTED
    if usual == codes.JSON_TEXT:
        return codes.ESCAPED if _is_plain_document(text, at, end) else codes.CONVERTED
    if usual == codes.ZONED:
        return codes.FROM_ZONED if _is_zoned(text, at, end) else codes.CONVERTED
    if usual == codes.DAYS or usual == codes.MILLIS or usual == codes.MICROS:
        if not _is_since_1970(text, at, end, usual):
            return codes.CONVERTED
        if usual == codes.DAYS:
            return codes.FROM_DAYS
        return codes.FROM_MILLIS if usual == codes.MILLIS else codes.FROM_MICROS
    if usual >= codes.UNSCALED:
        return codes.FROM_UNSCALED if _is_unscaled(text, at, end) else codes.CONVERTED
    if usual != codes.UNUSUAL and is_moment(text, at, end, usual):
        return codes.IN_QUOTES
    return codes.CONVERTED
