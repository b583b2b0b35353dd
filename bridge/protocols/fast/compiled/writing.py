"""Writes the images of rows: the literals of their values, joined by NUL (`events`), as `protocols.values.literals`
makes them of single values.

Writes the places of events (`protocols.values.event_time`), dates and times, and copies the texts of rows.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.codes import PLACE_NUMBERS
from bridge.protocols.fast.compiled.json_text import (
    BACKSLASH,
    BAD,
    HIGH_SURROGATE,
    LOW_SURROGATE,
    SPACE,
    ZERO,
    U,
    hexadecimal,
    number_of,
    wide_end,
)
from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    copied,
    copy_bytes,
    entry,
    first_of,
    in_all,
    inner,
    long_rows_at,
    marked,
    marked_below,
    numbers_at,
    put_word,
    row_at,
    rows_at,
    word,
)
from bridge.protocols.fast.compiled.values import six_bits

_APOSTROPHE, _DASH, _DOT, _COLON, _SPACE = (ord(character) for character in "'-.: ")
_SECOND, _DAY_SECONDS = 1_000_000, 86_400
_ERA_DAYS, _ERA_START = 146_097, 719_468
"""The days of 400 years, and those from 0000-03-01 to 1970-01-01."""
_DIGITS: Final = 19
"""`protocols.values.event_time.NUMBER_DIGITS`."""


@inner
def put_digits(number: Any, size: Any, out: Bytes, to: Any) -> Any:
    """Writes the last digits of a number that is not below 0; gives where they end."""
    for place in range(to + size - 1, to - 1, -1):
        out[place] = ZERO + number % 10
        number //= 10
    return to + size


@inner
def put_date(days: Any, out: Bytes, to: Any) -> Any:
    """Writes the date that is so many days after 1970-01-01 (Howard Hinnant, chrono-compatible low-level date
    algorithms)."""
    days += _ERA_START
    era = days // _ERA_DAYS
    day = days - era * _ERA_DAYS
    year = (day - day // 1460 + day // 36_524 - day // 146_096) // 365
    day -= 365 * year + year // 4 - year // 100
    month = (5 * day + 2) // 153
    day -= (153 * month + 2) // 5
    month = month + 3 if month < 10 else month - 9
    to = put_digits(400 * era + year + (1 if month <= 2 else 0), 4, out, to)
    out[to] = _DASH
    to = put_digits(month, 2, out, to + 1)
    out[to] = _DASH
    return put_digits(day + 1, 2, out, to + 1)


@inner
def put_datetime(microseconds: Any, out: Bytes, to: Any) -> Any:
    """Writes a DATETIME after 1970-01-01, in quotation marks, with six digits of a fraction or none."""
    seconds, fraction = microseconds // _SECOND, microseconds % _SECOND
    second = seconds % _DAY_SECONDS
    out[to] = _APOSTROPHE
    to = put_date(seconds // _DAY_SECONDS, out, to + 1)
    out[to] = _SPACE
    to = put_digits(second // 3600, 2, out, to + 1)
    out[to] = _COLON
    to = put_digits(second // 60 % 60, 2, out, to + 1)
    out[to] = _COLON
    to = put_digits(second % 60, 2, out, to + 1)
    if fraction:
        out[to] = _DOT
        to = put_digits(fraction, 6, out, to + 1)
    out[to] = _APOSTROPHE
    return to + 1


@entry
def write_places(
    templates_at: Any,
    count: Any,
    firsts_at: Any,
    parts_at: Any,
    consts_at: Any,
    places_at: Any,
    out_at: Any,
    ends_at: Any,
) -> Any:
    """Writes the place of each of `count` events, and gives how many bytes they all have.

    templates: the template of each event.
    firsts, parts: for each template (and behind the last one) its first part; for each part where its name is in the
    constants, how many bytes that has, and which of the numbers follows it.
    places: the numbers of each event's place.
    ends: becomes where the place of each event ends, behind that of the event before.
    """
    templates, firsts, parts, consts = (
        row_at(templates_at),
        row_at(firsts_at),
        rows_at(parts_at, 3),
        bytes_at(consts_at),
    )
    places, out, ends = long_rows_at(places_at, PLACE_NUMBERS), bytes_at(out_at), row_at(ends_at)
    to = 0
    for event in range(count):
        for part in range(firsts[templates[event]], firsts[templates[event] + 1]):
            copy_bytes(consts, parts[part, 0], parts[part, 1], out, to)
            to += parts[part, 1]
            to = put_digits(places[event, parts[part, 2]], _DIGITS, out, to)
        ends[event] = to
    return to


_LINE_FEED: Final = ord("\n")


@entry
def copy_texts(addresses_at: Any, sizes_at: Any, count: Any, are_lines: Any, out_at: Any) -> Any:
    """Copies texts one behind the other; gives how many bytes are written.

    addresses, sizes: where each text is in memory, and how many bytes it has.
    are_lines: 1 to write a line feed behind each text.
    """
    addresses, sizes, out = numbers_at(addresses_at), numbers_at(sizes_at), bytes_at(out_at)
    to = 0
    for number in range(count):
        copy_bytes(bytes_at(addresses[number]), 0, sizes[number], out, to)
        to += sizes[number]
        if are_lines:
            out[to] = _LINE_FEED
            to += 1
    return to


_APOSTROPHE, _E, _X, _A, _MINUS, _DOT, _SPACE = (ord(character) for character in "'exa-. ")
_CONTROLS: Final = tuple((ord(name), value) for name, value in zip("nrtbf", (10, 13, 9, 8, 12), strict=True))
_APOSTROPHES, _MARKS, _BACKSLASHES = (in_all(character) for character in (b"'", b'"', b"\\"))
_ONES, _SPACES = in_all(b"\1"), in_all(b" ")
_NONE: Final = np.uint64(0)
_NULL: Final = tuple(b"NULL")


@inner
def _put_code(code: Any, out: Bytes, to: Any) -> Any:
    """Writes a character that is not ASCII in UTF-8."""
    if code < 0x800:
        out[to] = 0xC0 | code >> 6
    else:
        if code < 0x10000:
            out[to] = 0xE0 | code >> 12
        else:
            out[to] = 0xF0 | code >> 18
            to += 1
            out[to] = 0x80 | code >> 12 & 0x3F
        to += 1
        out[to] = 0x80 | code >> 6 & 0x3F
    out[to + 1] = 0x80 | code & 0x3F
    return to + 2


@inner
def _put_escaped(character: Any, out: Bytes, to: Any) -> Any:
    """Writes an ASCII character inside of quotation marks."""
    if character == BACKSLASH or character == _APOSTROPHE or character == 0:
        out[to] = BACKSLASH
        to += 1
    out[to] = character if character != 0 else ZERO
    return to + 1


@inner
def _put_escape(text: Bytes, at: Any, out: Bytes, to: Any) -> Any:
    """Writes the character that a backslash and what follows it stand for; gives where both go on."""
    kind = text[at + 1]
    if kind != U:
        for name, character in _CONTROLS:
            if kind == name:
                out[to] = character
                return at + 2, to + 1
        return at + 2, _put_escaped(kind, out, to)
    code = hexadecimal(text, at + 2)
    at += 6
    if code < 128:
        return at, _put_escaped(code, out, to)
    if HIGH_SURROGATE <= code < LOW_SURROGATE:
        code = 0x10000 + ((code - HIGH_SURROGATE) << 10) + hexadecimal(text, at + 2) - LOW_SURROGATE
        at += 6
    return at, _put_code(code, out, to)


@inner
def _put_text(text: Bytes, at: Any, end: Any, out: Bytes, to: Any) -> Any:
    """Writes the content of a JSON string as SQL does, inside of quotation marks."""
    while at < end:
        eight = word(text, at)
        marks = marked(eight, _BACKSLASHES) | marked(eight, _APOSTROPHES)
        usual = min(end - at, 8 if marks == _NONE else first_of(marks))
        put_word(out, to, eight)
        at, to = at + usual, to + usual
        if marks != _NONE and at < end:
            if text[at] == BACKSLASH:
                at, to = _put_escape(text, at, out, to)
            else:
                to = _put_escaped(_APOSTROPHE, out, to)
                at += 1
    return to


@inner
def decoded_base64(text: Bytes, at: Any, end: Any, out: Bytes) -> Any:
    """Decodes base64 to `out`, and gives how many bytes that are."""
    to, size = 0, 0
    while at < end:
        number, size = np.int64(0), 0
        for place in range(at, at + 4):
            bits = six_bits(text[place])
            number = number << 6 | max(bits, 0)
            size += bits != BAD
        out[to], out[to + 1], out[to + 2] = number >> 16, number >> 8 & 0xFF, number & 0xFF
        at, to = at + 4, to + 3
    return to - (4 - size) if to > 0 else 0


@inner
def _hexadecimal_digit(number: Any) -> Any:
    return number + ZERO if number < 10 else number - 10 + _A


@inner
def _put_character(character: Any, out: Bytes, to: Any) -> Any:
    """Writes an ASCII character as JSON does."""
    if character >= SPACE and character != codes.MARK and character != BACKSLASH:
        out[to] = character
        return to + 1
    out[to] = BACKSLASH
    out[to + 1] = character
    if character >= SPACE:
        return to + 2
    for name, control in _CONTROLS:
        if character == control:
            out[to + 1] = name
            return to + 2
    out[to + 1], out[to + 2], out[to + 3] = U, ZERO, ZERO
    out[to + 4], out[to + 5] = _hexadecimal_digit(character >> 4), _hexadecimal_digit(character & 15)
    return to + 6


@inner
def put_utf8(text: Bytes, at: Any, end: Any, out: Bytes, to: Any, as_json: Any) -> Any:
    """Writes text as JSON or as SQL does, inside of quotation marks; gives BAD for what is no UTF-8."""
    lowest, quotation_marks = (_SPACES, _MARKS) if as_json else (_ONES, _APOSTROPHES)
    while at < end:
        eight = word(text, at)
        marks = marked_below(eight, lowest) | marked(eight, _BACKSLASHES) | marked(eight, quotation_marks)
        usual = min(end - at, 8 if marks == _NONE else first_of(marks))
        put_word(out, to, eight)
        at, to = at + usual, to + usual
        if marks != _NONE and at < end:
            if text[at] < 128:
                character = np.int64(text[at])
                to = _put_character(character, out, to) if as_json else _put_escaped(character, out, to)
                at += 1
                continue
            behind = wide_end(text, at)
            if behind == BAD or behind > end:
                return BAD
            to = copied(text, at, behind, out, to)
            at = behind
    return to


@inner
def put_bytes(content: Bytes, size: Any, out: Bytes, to: Any) -> Any:
    """Writes bytes as SQL does, with their quotation marks."""
    if size > 0:
        out[to] = _X
        to += 1
    out[to] = _APOSTROPHE
    to += 1
    for at in range(size):
        byte = np.int64(content[at])
        out[to], out[to + 1] = _hexadecimal_digit(byte >> 4), _hexadecimal_digit(byte & 15)
        to += 2
    out[to] = _APOSTROPHE
    return to + 1


@inner
def _latin1(text: Bytes, at: Any, end: Any, out: Bytes) -> Any:
    """Writes the bytes that a JSON string of characters of ISO-8859-1 stands for to `out`; gives how many they are."""
    to = 0
    while at < end:
        if text[at] == BACKSLASH and text[at + 1] == U:
            out[to] = hexadecimal(text, at + 2)
            at += 6
        elif text[at] == BACKSLASH:
            out[to] = text[at + 1]
            for name, character in _CONTROLS:
                if text[at + 1] == name:
                    out[to] = character
            at += 2
        elif text[at] < 0x80:
            out[to] = text[at]
            at += 1
        else:
            out[to] = (text[at] & 3) << 6 | (text[at + 1] & 0x3F)
            at += 2
        to += 1
    return to


@inner
def _put_unscaled(content: Bytes, size: Any, scale: Any, out: Bytes, to: Any) -> Any:
    """Writes a DECIMAL, whose unscaled number has one to eight bytes, the highest first (two's complement)."""
    number = np.int64(content[0]) - (256 if content[0] >= 128 else 0)
    for at in range(1, size):
        number = number << 8 | np.int64(content[at])
    rest = np.uint64(number)
    if number < 0:
        out[to] = _MINUS
        to += 1
        rest = ~rest + np.uint64(1)
    digits, left = np.int64(1), rest // np.uint64(10)
    while left != _NONE:
        digits, left = digits + 1, left // np.uint64(10)
    digits = max(digits, scale + 1)
    behind = to + digits + (1 if scale > 0 else 0)
    at = behind
    for place in range(digits):
        at -= 1
        if scale > 0 and place == scale:
            out[at] = _DOT
            at -= 1
        out[at] = ZERO + np.int64(rest % np.uint64(10))
        rest = rest // np.uint64(10)
    return behind


@inner
def _put_since_1970(text: Bytes, at: Any, end: Any, way: Any, out: Bytes, to: Any) -> Any:
    number = number_of(text, at, end)
    if way != codes.FROM_DAYS:
        return put_datetime(1000 * number if way == codes.FROM_MILLIS else number, out, to)
    out[to] = _APOSTROPHE
    to = put_date(number, out, to + 1)
    out[to] = _APOSTROPHE
    return to + 1


@inner
def _put_zoned(text: Bytes, at: Any, end: Any, out: Bytes, to: Any) -> Any:
    """Writes a TIMESTAMP in UTC, without its zone."""
    out[to] = _APOSTROPHE
    copied(text, at, end - 1, out, to + 1)
    out[to + 11] = _SPACE
    out[to + end - at] = _APOSTROPHE
    return to + end - at + 1


@inner
def _put_null(out: Bytes, to: Any) -> Any:
    for letter in _NULL:
        out[to] = letter
        to += 1
    return to


@entry
def write_images(
    image: Any, text_at: Any, count: Any, kinds_at: Any, table_at: Any, templates_at: Any, steps_at: Any,
    values_at: Any, firsts_at: Any, made_numbers_at: Any, made_ends_at: Any, made_at: Any, scratch_at: Any,
    out_at: Any, ends_at: Any,
) -> Any:  # fmt: skip
    """Writes one of the images of each of `count` messages, and gives how many bytes they all have.

    What `walk` has read of the messages is described there.  firsts: becomes NOT_READ for a message with a value that
    a converter refuses, or with a text that is not UTF-8.
    made_numbers: for each value that its column's converter makes, the number of its literal, or NOT_READ.
    made_ends, made: where each of these literals ends behind the one before, and their bytes.
    scratch, out: room for the longest value, and for all literals.
    ends: becomes where the image of each message ends, behind that of the message before; a message that is not read
    has none.
    """
    text, literals = bytes_at(text_at), bytes_at(made_at)
    scratch, out = bytes_at(scratch_at), bytes_at(out_at)
    kinds, table, templates, steps = (
        row_at(kinds_at),
        rows_at(table_at, 5),
        rows_at(templates_at, 2),
        rows_at(steps_at, 4),
    )
    values, firsts, made = rows_at(values_at, 3), numbers_at(firsts_at), row_at(made_numbers_at)
    made_ends, ends = numbers_at(made_ends_at), row_at(ends_at)
    to = 0
    for number in range(count):
        begin, cell = to, firsts[number]
        if cell != codes.NOT_READ:
            template = table[kinds[number], 0]
            for step in range(templates[template, 0], templates[template, 1]):
                if steps[step, 0] != codes.VALUE:
                    continue
                if steps[step, 3] == image:
                    if to > begin:
                        out[to] = 0
                        to += 1
                    at, end, way = values[cell, 0], values[cell, 1], values[cell, 2]
                    if way == codes.NULL:
                        to = _put_null(out, to)
                    elif way == codes.PLAIN:
                        to = copied(text, at, end, out, to)
                    elif way == codes.WITH_EXPONENT:
                        to = copied(text, at, end, out, to)
                        out[to], out[to + 1] = _E, ZERO
                        to += 2
                    elif way == codes.BYTES_OF_LATIN1:
                        to = put_bytes(scratch, _latin1(text, at, end, scratch), out, to)
                    elif way == codes.BYTES_OF_BASE64:
                        to = put_bytes(scratch, decoded_base64(text, at, end, scratch), out, to)
                    elif way == codes.FROM_UNSCALED:
                        size = decoded_base64(text, at, end, scratch)
                        to = _put_unscaled(scratch, size, steps[step, 1] - codes.UNSCALED, out, to)
                    elif way == codes.FROM_DAYS or way == codes.FROM_MILLIS or way == codes.FROM_MICROS:
                        to = _put_since_1970(text, at, end, way, out, to)
                    elif way == codes.FROM_ZONED:
                        to = _put_zoned(text, at, end, out, to)
                    elif way != codes.CONVERTED:
                        out[to] = _APOSTROPHE
                        if way == codes.IN_QUOTES:
                            to = copied(text, at, end, out, to + 1)
                        elif way == codes.ESCAPED:
                            to = _put_text(text, at, end, out, to + 1)
                        else:
                            size = decoded_base64(text, at, end, scratch)
                            to = put_utf8(scratch, 0, size, out, to + 1, False)
                        if to != BAD:
                            out[to] = _APOSTROPHE
                            to += 1
                    elif made[cell] == codes.NOT_READ:
                        to = BAD
                    else:
                        start = made_ends[made[cell] - 1] if made[cell] > 0 else 0
                        to = copied(literals, start, made_ends[made[cell]], out, to)
                    if to == BAD:
                        firsts[number] = codes.NOT_READ
                        to = begin
                        break
                cell += 1
        ends[number] = to
    return to
