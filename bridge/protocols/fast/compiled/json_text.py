"""Reads JSON texts: where a value ends, and that it is JSON (RFC 8259) in UTF-8 (RFC 3629); and takes out the blanks
between tokens, which some relays put there.

Each function `..._end` takes where a value begins and where its text ends, and gives where the value ends, or BAD.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled.codes import MARK, PLACEHOLDERS
from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    copy_bytes,
    entry,
    first_of,
    in_all,
    inner,
    marked,
    marked_below,
    numbers_at,
    word,
)

BAD: Final = -1
"""There is no such value here."""

BACKSLASH, COMMA, COLON, MINUS, ZERO, NINE, SPACE, U = (ord(character) for character in "\\,:-09 u")
OPEN_BRACE, CLOSE_BRACE, CLOSE_BRACKET = (ord(character) for character in "{}]")
_ESCAPED: Final = tuple(ord(character) for character in '"\\/bfnrt')
_TRUE, _FALSE, _NULL = (tuple(word) for word in (b"true", b"false", b"null"))
_PLACEHOLDER, _PLACEHOLDER_BASE64 = (tuple(word) for word in PLACEHOLDERS)
_MARKS, _BACKSLASHES, _SPACES = (in_all(character) for character in (b'"', b"\\", b" "))
_NONE: Final = np.uint64(0)
_OPEN_BRACKET, _TAB, _LINE_FEED, _CARRIAGE_RETURN = (ord(character) for character in "[\t\n\r")
_LEAST: Final = len('{"":0}')
HIGH_SURROGATE, LOW_SURROGATE, BEHIND_SURROGATES = 0xD800, 0xDC00, 0xE000


@inner
def is_digit(character: Any) -> Any:
    """Tells whether a byte is a decimal digit."""
    return ZERO <= character <= NINE


@inner
def are_digits(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there are digits and nothing else, at least one."""
    for place in range(at, end):
        if not is_digit(text[place]):
            return False
    return end > at


@inner
def digits_end(text: Bytes, at: Any, end: Any) -> Any:
    """Of digits, none or more."""
    while at < end and is_digit(text[at]):
        at += 1
    return at


@inner
def number_of(text: Bytes, at: Any, end: Any) -> Any:
    """Gives the number that digits write."""
    number = np.int64(0)
    for place in range(at, end):
        number = 10 * number + (np.int64(text[place]) - ZERO)
    return number


@inner
def hexadecimal(text: Bytes, at: Any) -> Any:
    """Reads four hexadecimal digits as a number, or gives BAD."""
    number = 0
    for place in range(at, at + 4):
        character = text[place]
        if is_digit(character):
            digit = character - ZERO
        elif 97 <= character <= 102:  # a to f
            digit = character - 87
        elif 65 <= character <= 70:  # A to F
            digit = character - 55
        else:
            return BAD
        number = number * 16 + digit
    return number


@inner
def _escape_end(text: Bytes, at: Any) -> Any:
    """Of what a backslash begins; a surrogate is read with the other half of its pair."""
    kind = text[at + 1]
    if kind != U:
        for character in _ESCAPED:
            if kind == character:
                return at + 2
        return BAD
    code = hexadecimal(text, at + 2)
    if HIGH_SURROGATE <= code < LOW_SURROGATE:
        if text[at + 6] != BACKSLASH or text[at + 7] != U:
            return BAD
        low = hexadecimal(text, at + 8)
        return at + 12 if LOW_SURROGATE <= low < BEHIND_SURROGATES else BAD
    return BAD if code == BAD or LOW_SURROGATE <= code < BEHIND_SURROGATES else at + 6


@inner
def wide_end(text: Bytes, at: Any) -> Any:
    """Of a character that is not ASCII (RFC 3629, section 4)."""
    first, second = text[at], text[at + 1]
    if first < 0xC2 or first > 0xF4 or second & 0xC0 != 0x80:
        return BAD
    if first < 0xE0:
        return at + 2
    if text[at + 2] & 0xC0 != 0x80:
        return BAD
    if first < 0xF0:
        return BAD if (first == 0xE0 and second < 0xA0) or (first == 0xED and second >= 0xA0) else at + 3
    if text[at + 3] & 0xC0 != 0x80 or (first == 0xF0 and second < 0x90) or (first == 0xF4 and second >= 0x90):
        return BAD
    return at + 4


@inner
def string_end(text: Bytes, at: Any, end: Any) -> Any:
    """Of a string, from behind its first quotation mark; gives where the last one is."""
    while at < end:
        eight = word(text, at)
        marks = marked_below(eight, _SPACES) | marked(eight, _MARKS) | marked(eight, _BACKSLASHES)
        if marks == _NONE:
            at += 8
            continue
        at += first_of(marks)
        if at >= end:
            return BAD
        character = text[at]
        if character == MARK:
            return at
        if character < SPACE:
            return BAD
        at = _escape_end(text, at) if character == BACKSLASH else wide_end(text, at)
        while at != BAD and text[at] >= 128 and at < end:
            at = wide_end(text, at)
        if at == BAD:
            return BAD
    return BAD


@inner
def token_end(text: Bytes, at: Any, end: Any) -> Any:
    """Of a number, or of true, false or null, whose characters are not looked at; it is never empty."""
    start = at
    while at < end:
        character = text[at]
        if character == COMMA or character == CLOSE_BRACE or character == CLOSE_BRACKET:
            break
        if character <= SPACE or character == MARK or character >= 123:  # an opening brace, or not ASCII
            return BAD
        at += 1
    return at if at > start else BAD


@inner
def is_integer(text: Bytes, at: Any, end: Any, may_be_negative: Any) -> Any:
    """Tells whether there is an integer in its shortest form, of at most 19 digits, or 18 behind a minus sign."""
    is_negative = text[at] == MINUS
    if is_negative:
        if not may_be_negative:
            return False
        at += 1
    size = end - at
    if size > (18 if is_negative else 19) or not are_digits(text, at, end):
        return False
    return text[at] != ZERO or (size == 1 and not is_negative)


@inner
def is_word(text: Bytes, at: Any, end: Any, letters: Any) -> Any:
    """Tells whether there are these letters and nothing else."""
    if end - at != len(letters):
        return False
    for index in range(len(letters)):
        if text[at + index] != letters[index]:
            return False
    return True


@inner
def is_null(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there is null."""
    return is_word(text, at, end, _NULL)


@inner
def is_placeholder(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether there is one of PLACEHOLDERS."""
    return is_word(text, at, end, _PLACEHOLDER) or is_word(text, at, end, _PLACEHOLDER_BASE64)


@inner
def scalar_end(text: Bytes, at: Any, end: Any) -> Any:
    """Of a string, an integer, true, false or null."""
    if text[at] == MARK:
        at = string_end(text, at + 1, end)
        return BAD if at == BAD else at + 1
    behind = token_end(text, at, end)
    if behind == BAD:
        return BAD
    is_such = (
        is_integer(text, at, behind, True)
        or is_null(text, at, behind)
        or is_word(text, at, behind, _TRUE)
        or is_word(text, at, behind, _FALSE)
    )
    return behind if is_such else BAD


@inner
def member_end(text: Bytes, at: Any, end: Any) -> Any:
    """Of a member of an object, name and value; the value is a string, an integer, true, false or null."""
    if text[at] != MARK:
        return BAD
    at = string_end(text, at + 1, end)
    if at == BAD or text[at + 1] != COLON:
        return BAD
    return scalar_end(text, at + 2, end)


@inner
def _is_blank(character: Any) -> Any:
    return character == SPACE or character == _LINE_FEED or character == _CARRIAGE_RETURN or character == _TAB


@inner
def _has_blanks(text: Bytes, at: Any, end: Any) -> Any:
    """Tells whether an object has a blank around one of its braces, or beside its first colon."""
    if end - at < _LEAST:
        return False
    if _is_blank(text[at]) or _is_blank(text[at + 1]) or _is_blank(text[end - 1]):
        return True
    if text[at] != OPEN_BRACE or text[at + 1] != MARK:
        return False
    behind = string_end(text, at + 2, end)
    return behind != BAD and (_is_blank(text[behind + 1]) or _is_blank(text[behind + 2]))


@inner
def _compacted(text: Bytes, start: Any, end: Any, out: Bytes, to: Any) -> Any:
    """Copies a text without the blanks beside braces, brackets, colons and commas outside of strings; others stay, as
    two tokens would become one."""
    at, begin = start, to
    while at < end:
        character = text[at]
        if character == MARK:
            behind = string_end(text, at + 1, end)
            behind = end if behind == BAD else behind + 1
            copy_bytes(text, at, behind - at, out, to)
            to += behind - at
            at = behind
            continue
        if _is_blank(character):
            behind = at + 1
            while behind < end and _is_blank(text[behind]):
                behind += 1
            before = out[to - 1] if to > begin else COMMA
            after = text[behind] if behind < end else COMMA
            at = behind
            if (
                before == OPEN_BRACE
                or before == _OPEN_BRACKET
                or before == COMMA
                or before == COLON
                or after == CLOSE_BRACE
                or after == CLOSE_BRACKET
                or after == COMMA
                or after == COLON
            ):
                continue
            character = SPACE
            at -= 1
        out[to] = character
        at, to = at + 1, to + 1
    return to


@entry
def count_spaced(text_at: Any, bounds_at: Any, count: Any) -> Any:
    """Gives how many of the texts look as if they had blanks between their tokens.

    bounds: where each text begins, and the one before it ends.
    """
    text, bounds, spaced = bytes_at(text_at), numbers_at(bounds_at), 0
    for number in range(count):
        spaced += _has_blanks(text, bounds[number], bounds[number + 1])
    return spaced


@entry
def compact_texts(text_at: Any, bounds_at: Any, count: Any, out_at: Any, out_bounds_at: Any) -> Any:
    """Copies texts, those with blanks between their tokens without these; gives how many bytes they have.

    bounds, out_bounds: where each text, and its copy, begins, and the one before it ends.
    """
    text, bounds = bytes_at(text_at), numbers_at(bounds_at)
    out, out_bounds = bytes_at(out_at), numbers_at(out_bounds_at)
    to = 0
    out_bounds[0] = 0
    for number in range(count):
        at, end = bounds[number], bounds[number + 1]
        if _has_blanks(text, at, end):
            to = _compacted(text, at, end, out, to)
        else:
            copy_bytes(text, at, end - at, out, to)
            to += end - at
        out_bounds[number + 1] = to
    return to
