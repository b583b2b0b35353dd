"""Turns the usual raw literals of row images (see `protocols.values.untyped`) into ready ones, as their columns'
converters do one by one.

A literal is copied to its new place first, and changed there.

Tells which row images surely lose nothing in the columns of the target (`rows.type_check`).
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.json_text import (
    MINUS,
    ZERO,
    are_digits,
    digits_end,
    is_digit,
    is_integer,
    is_word,
    number_of,
)
from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    copied,
    entry,
    first_of,
    in_all,
    inner,
    long_rows_at,
    marked,
    numbers_at,
    put_word,
    rows_at,
    word,
)
from bridge.protocols.fast.compiled.values import has_long_number, is_moment, is_short_double, way_of
from bridge.protocols.fast.compiled.writing import decoded_base64, put_bytes, put_datetime

_APOSTROPHE, _E, _N, _DOT = (ord(character) for character in "'eN.")
_NULL_SIZE: Final = len("NULL")
_NULS: Final = in_all(b"\0")
_NONE: Final = np.uint64(0)
_EXACT_DIGITS: Final = 15
"""A double tells decimals of so many digits apart."""
_MOST_MILLIS_DIGITS, _MOST_MICROS_DIGITS = 14, 17
"""Of moments up to the year 5138."""


@inner
def _copied_literal(text: Bytes, at: Any, end: Any, behind: Any, out: Bytes, to: Any) -> Any:
    """Copies a literal, which the separator or the end of its image follows; gives where it and its copy end.

    behind: where all text ends; not a byte from there on is looked at.
    """
    while at < end:
        if at + 8 > behind:
            if text[at] == 0:
                break
            out[to] = text[at]
            at, to = at + 1, to + 1
            continue
        eight = word(text, at)
        marks = marked(eight, _NULS)
        usual = min(end - at, 8 if marks == _NONE else first_of(marks))
        put_word(out, to, eight)
        at, to = at + usual, to + usual
        if marks != _NONE:
            break
    return at, to


@inner
def _moment(out: Bytes, at: Any, end: Any, kind: Any, left: Any) -> Any:
    """Makes a DATETIME of a number, unless that has no more digits than are left to the converter."""
    is_millis = kind == codes.MILLISECONDS
    most = _MOST_MILLIS_DIGITS if is_millis else _MOST_MICROS_DIGITS
    if end - at > most or end - at <= left or not are_digits(out, at, end):
        return codes.NOT_READ
    number = number_of(out, at, end)
    if number == 0:  # which may be a zero date
        return codes.NOT_READ
    return put_datetime(1000 * number if is_millis else number, out, at)


@inner
def _decimal(out: Bytes, at: Any, end: Any, scale: Any) -> Any:
    """Makes a DECIMAL of a double that has at most `scale` digits behind the point, and an exponent of 0."""
    first = at + 1 if out[at] == MINUS else at
    dot = digits_end(out, first, end)
    exponent = end - 2
    is_short = 0 < dot - first < _EXACT_DIGITS - scale + 1 and (out[first] != ZERO or dot == first + 1)
    if not is_short or out[dot] != _DOT or exponent - dot - 1 > scale or not are_digits(out, dot + 1, exponent):
        return codes.NOT_READ
    if out[exponent] != _E or out[exponent + 1] != ZERO:
        return codes.NOT_READ
    for place in range(exponent, dot + 1 + scale):
        out[place] = ZERO
    return dot + 1 + scale


@inner
def _of_text(out: Bytes, at: Any, end: Any, usual: Any, scratch: Bytes) -> Any:
    """Converts the text of a literal in quotation marks as a decoder would that knew its column."""
    if out[at] != _APOSTROPHE:
        return codes.NOT_READ
    way = way_of(out, at + 1, end - 1, usual)
    if way == codes.IN_QUOTES:
        return end
    if way == codes.BYTES_OF_BASE64:
        return put_bytes(scratch, decoded_base64(out, at + 1, end - 1, scratch), out, at)
    if way == codes.PLAIN:
        return copied(out, at + 1, end - 1, out, at)
    if way == codes.WITH_EXPONENT:
        to = copied(out, at + 1, end - 1, out, at)
        out[to], out[to + 1] = _E, ZERO
        return to + 2
    return codes.NOT_READ


@inner
def _converted(out: Bytes, at: Any, end: Any, kind: Any, argument: Any, scratch: Bytes) -> Any:
    """Converts a literal that is not NULL; gives where it ends then, or NOT_READ for one that is not usual."""
    if kind == codes.TEXT_OF:
        return _of_text(out, at, end, argument, scratch)
    if kind == codes.MILLISECONDS or kind == codes.MICROSECONDS:
        return _moment(out, at, end, kind, argument)
    if kind == codes.DECIMAL_OF_DOUBLE:
        return _decimal(out, at, end, argument)
    if kind == codes.NATURAL_OF_NUMBER:
        return end if is_integer(out, at, end, False) else codes.NOT_READ
    if kind == codes.DOUBLE_OF_NUMBER:
        has_exponent = end - at > 2 and out[end - 2] == _E and out[end - 1] == ZERO
        return end if has_exponent and is_short_double(out, at, end - 2) else codes.NOT_READ
    if kind == codes.DOCUMENT:
        return codes.NOT_READ if has_long_number(out, at, end) else end
    return codes.NOT_READ


@entry
def convert_images(
    text_at: Any, starts_at: Any, is_there_at: Any, count: Any, shapes_at: Any, firsts_at: Any, rules_at: Any,
    scratch_at: Any, out_at: Any, ends_at: Any, left_at: Any,
) -> Any:  # fmt: skip
    """Copies row images with their usual raw literals converted; gives the number of literals that are left as they
    were, or NOT_READ when an image has another number of literals than its shape.

    text, starts: the images, and where each starts and the last one ends.
    is_there: 0 for an image that is null.
    shapes, firsts, rules: the shape of each image, the first rule of each shape (and behind the last one), and for each
    of its columns what its raw literals are, an argument, and whether NULL stays.
    scratch, out: room for the bytes of the longest literal, and for all literals.
    ends: becomes where each image ends.
    left: room for each literal that is left: its image, its rule, and where its copy begins and ends.
    """
    text, starts, ends = bytes_at(text_at), numbers_at(starts_at), numbers_at(ends_at)
    is_there, shapes, firsts = bytes_at(is_there_at), numbers_at(shapes_at), numbers_at(firsts_at)
    rules, left = rows_at(rules_at, 3), long_rows_at(left_at, 4)
    scratch, out = bytes_at(scratch_at), bytes_at(out_at)
    behind, to, left_count = starts[count], 0, 0
    for number in range(count):
        if is_there[number]:
            at, end = starts[number], starts[number + 1]
            rule, last, is_last = firsts[shapes[number]], firsts[shapes[number] + 1], False
            while rule < last:
                begin = to
                at, to = _copied_literal(text, at, end, behind, out, to)
                kind = rules[rule, 0]
                is_null = to - begin == _NULL_SIZE and out[begin] == _N
                if kind != codes.READY and not (is_null and rules[rule, 2]):
                    ready = codes.NOT_READ if is_null else _converted(out, begin, to, kind, rules[rule, 1], scratch)
                    if ready == codes.NOT_READ:
                        left[left_count, 0], left[left_count, 1] = number, rule
                        left[left_count, 2], left[left_count, 3] = begin, to
                        left_count += 1
                    else:
                        to = ready
                rule += 1
                is_last = at == end
                if is_last:
                    break
                out[to] = 0
                at, to = at + 1, to + 1
            if rule < last or not is_last:
                return codes.NOT_READ
        ends[number] = to
    return left_count


_APOSTROPHE, _X, _DOT, _BLANK = (ord(character) for character in "'x. ")
_NULL: Final = tuple(b"NULL")
_REAL_DIGITS: Final = 15
_DATETIME_SIZE, _TIME_SIZE = len("2024-02-29 12:34:56"), len("12:34:56")


@inner
def _is_quoted(text: Bytes, at: Any, end: Any) -> Any:
    if end - at < 2:
        return False
    return text[at] == _APOSTROPHE or (text[at] == _X and text[at + 1] == _APOSTROPHE)


@inner
def _is_real(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there are few digits, perhaps with a point."""
    first = at + 1 if text[at] == MINUS else at
    if end - first > _REAL_DIGITS or end == first:
        return False
    for place in range(first, end):
        if not is_digit(text[place]) and text[place] != _DOT:
            return False
    return True


@inner
def _is_time(text: Bytes, at: Any, end: Any, kind: Any, digits: Any) -> Any:
    """Tells whether there is a DATE, DATETIME or TIME in quotation marks, with so many digits of a fraction at most, or
    zeros behind them."""
    if end - at < 2 or text[at] != _APOSTROPHE or text[end - 1] != _APOSTROPHE:
        return False
    at, end = at + 1, end - 1
    if kind == codes.FITS_DATE:
        return is_moment(text, at, end, codes.DATE)
    size = _DATETIME_SIZE if kind == codes.FITS_DATETIME else _TIME_SIZE
    if end - at < size or not is_moment(text, at, end, codes.DATETIME if kind == codes.FITS_DATETIME else codes.TIME):
        return False
    while end - at > size + 1 + digits and text[end - 1] == ZERO:
        end -= 1
    return end - at <= size + 1 + digits


@inner
def _surely_fits(text: Bytes, at: Any, end: Any, kind: Any, argument: Any) -> Any:
    if kind == codes.FITS_ANY or is_word(text, at, end, _NULL):
        return True
    if kind == codes.FITS_QUOTED:
        return _is_quoted(text, at, end)
    if kind == codes.FITS_CHAR:
        return _is_quoted(text, at, end) and text[end - 1] == _APOSTROPHE and text[end - 2] != _BLANK
    if end == at:
        return False
    if kind == codes.FITS_WHOLE:
        return are_digits(text, at + 1 if text[at] == MINUS else at, end)
    if kind == codes.FITS_NUMBER:
        return text[at] == MINUS or is_digit(text[at])
    if kind == codes.FITS_REAL:
        return _is_real(text, at, end)
    if kind == codes.FITS_YEAR:
        return end - at == 4 and are_digits(text, at, end)
    if kind == codes.FITS_DATE or kind == codes.FITS_DATETIME or kind == codes.FITS_TIME:
        return _is_time(text, at, end, kind, argument)
    return False


@entry
def fit_images(
    text_at: Any, starts_at: Any, separators_at: Any, places_at: Any, is_there_at: Any, count: Any, shapes_at: Any,
    firsts_at: Any, rules_at: Any, unsure_at: Any,
) -> Any:  # fmt: skip
    """Writes the numbers of the images of which a literal is not surely stored unchanged; gives how many these are.

    text, starts: the images, and where each starts and the last one ends.
    separators, places: where separators are, and for each image which one is its first.
    is_there: 0 for an image that is null.
    shapes, firsts, rules: the shape of each image, the first rule of each shape (and behind the last one), and for each
    of its columns what it surely stores (`codes.FITS_ANY` and so on), and an argument.
    """
    text, starts, separators = bytes_at(text_at), numbers_at(starts_at), numbers_at(separators_at)
    places, is_there, shapes = numbers_at(places_at), bytes_at(is_there_at), numbers_at(shapes_at)
    firsts, rules, unsure = numbers_at(firsts_at), rows_at(rules_at, 2), numbers_at(unsure_at)
    unsure_count = 0
    for number in range(count):
        if is_there[number]:
            at, place = starts[number], places[number]
            rule, last = firsts[shapes[number]], firsts[shapes[number] + 1]
            while rule < last:
                end = separators[place] if rule + 1 < last else starts[number + 1]
                if not _surely_fits(text, at, end, rules[rule, 0], rules[rule, 1]):
                    unsure[unsure_count] = number
                    unsure_count += 1
                    break
                at, place, rule = end + 1, place + 1, rule + 1
    return unsure_count
