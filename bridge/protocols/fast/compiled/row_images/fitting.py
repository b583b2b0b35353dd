"""Tells which row images surely lose nothing in the columns of the target (`rows.types.type_check`)."""

from __future__ import annotations

from typing import Any, Final

from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.json_text import MINUS, ZERO, are_digits, is_digit, is_word
from bridge.protocols.fast.compiled.machine_bytes import Bytes, bytes_at, entry, inner, numbers_at, rows_at
from bridge.protocols.fast.compiled.values import is_moment

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
