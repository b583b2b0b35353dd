"""Writes messages in Avro's binary encoding (Avro 1.12, "Binary Encoding") as JSON, byte for byte as `debezium.avro`
does of single ones, which says what is refused.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.codes import MARK, NOT_READ
from bridge.protocols.fast.compiled.json_text import BAD, MINUS, ZERO
from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    copied,
    copy_bytes,
    entry,
    inner,
    numbers_at,
    row_at,
    rows_at,
    same,
    word,
)
from bridge.protocols.fast.compiled.writing import put_utf8

_NONE, _ONE, _TEN = np.uint64(0), np.uint64(1), np.uint64(10)
_NULL, _TRUE, _FALSE = (tuple(letters) for letters in (b"null", b"true", b"false"))
_DOT, _PADDING = ord("."), ord("=")
_MORE: Final = 0x80
_LOW_HALF: Final = np.uint64((1 << 32) - 1)
_MOST_BYTES, _MOST_POWER = 10, 6
_MOST_EXACT: Final = 1e15
"""A decimal of at most 15 digits is the shortest one of its double."""
_LEAST_PLAIN: Final = 1e-5


@inner
def _number_end(text: Bytes, at: Any, end: Any) -> Any:
    """Gives where a number ends, BAD for one that is longer than it needs to be, or than 64 bits."""
    last = at
    while last < end and text[last] >= _MORE:
        last += 1
    size = last + 1 - at
    if last >= end or size > _MOST_BYTES or (size > 1 and text[last] == 0):
        return BAD
    return BAD if size == _MOST_BYTES and text[last] > 1 else last + 1


@inner
def _unsigned(text: Bytes, at: Any, end: Any) -> Any:
    """Reads a number up to where it ends."""
    number, shift = _NONE, np.uint64(0)
    for place in range(at, end):
        number |= (np.uint64(text[place]) & np.uint64(0x7F)) << shift
        shift += np.uint64(7)
    return number


@inner
def _put_digits(number: Any, out: Bytes, to: Any) -> Any:
    """Writes a number without a sign."""
    size, rest = 1, number // _TEN
    while rest > _NONE:
        size, rest = size + 1, rest // _TEN
    for place in range(to + size - 1, to - 1, -1):
        out[place] = ZERO + np.int64(number % _TEN)
        number //= _TEN
    return to + size


@inner
def _put_zigzag(number: Any, out: Bytes, to: Any) -> Any:
    if number & _ONE:
        out[to] = MINUS
        return _put_digits((number >> _ONE) + _ONE, out, to + 1)
    return _put_digits(number >> _ONE, out, to)


@inner
def _put_word(letters: Any, out: Bytes, to: Any) -> Any:
    for index in range(len(letters)):
        out[to + index] = letters[index]
    return to + len(letters)


@inner
def _put_base64(text: Bytes, at: Any, end: Any, out: Bytes, to: Any, letters: Bytes) -> Any:
    while at < end:
        size = min(end - at, 3)
        number = np.int64(text[at]) << 16
        if size > 1:
            number |= np.int64(text[at + 1]) << 8
        if size > 2:
            number |= np.int64(text[at + 2])
        out[to], out[to + 1] = letters[number >> 18], letters[number >> 12 & 63]
        out[to + 2] = letters[number >> 6 & 63] if size > 1 else _PADDING
        out[to + 3] = letters[number & 63] if size > 2 else _PADDING
        at, to = at + 3, to + 4
    return to


@inner
def _put_real(number: Any, out: Bytes, to: Any) -> Any:
    """Writes a number that is a decimal of at most 15 digits, six of them behind the point; gives BAD for others."""
    size, power = abs(number), 1.0
    if not _LEAST_PLAIN <= size < _MOST_EXACT:
        return BAD
    digits, decimal = 0, np.rint(size)
    while decimal < _MOST_EXACT and decimal / power != size and digits < _MOST_POWER:
        digits, power = digits + 1, power * 10.0
        decimal = np.rint(size * power)
    if decimal >= _MOST_EXACT or decimal / power != size:
        return BAD
    if number < 0:
        out[to] = MINUS
        to += 1
    whole, scale = np.uint64(decimal), np.uint64(power)
    to = _put_digits(whole // scale, out, to)
    out[to] = _DOT
    fraction = whole % scale
    for place in range(to + digits, to, -1):
        out[place] = ZERO + np.int64(fraction % _TEN)
        fraction //= _TEN
    if digits == 0:
        out[to + 1] = ZERO
    return to + 1 + max(digits, 1)


@inner
def _value(kind: Any, text: Bytes, at: Any, end: Any, out: Bytes, to: Any, letters: Bytes) -> Any:
    """Reads a value of a type and writes it; gives where both go on, BAD for one that is not read."""
    bad = (np.int64(BAD), np.int64(BAD))
    if kind == codes.AVRO_BOOLEAN:
        if at >= end or text[at] > 1:
            return bad
        return at + 1, _put_word(_TRUE, out, to) if text[at] == 1 else _put_word(_FALSE, out, to)
    if kind == codes.AVRO_DOUBLE:
        to = _put_real(np.uint64(word(text, at)).view(np.float64), out, to) if at + 8 <= end else np.int64(BAD)
        return at + 8, to
    if kind == codes.AVRO_FLOAT:
        if at + 4 > end:
            return bad
        return at + 4, _put_real(np.float64(np.uint32(word(text, at) & _LOW_HALF).view(np.float32)), out, to)
    behind = _number_end(text, at, end)
    if behind == BAD:
        return bad
    number = _unsigned(text, at, behind)
    if kind == codes.AVRO_INT or kind == codes.AVRO_LONG:
        return bad if kind == codes.AVRO_INT and number > _LOW_HALF else (behind, _put_zigzag(number, out, to))
    if number & _ONE or number >> _ONE > np.uint64(end - behind):
        return bad
    at, behind = behind, behind + np.int64(number >> _ONE)
    out[to] = MARK
    if kind == codes.AVRO_STRING:
        to = put_utf8(text, at, behind, out, to + 1, True)
        if to == BAD:
            return bad
    elif kind == codes.AVRO_BYTES:
        to = _put_base64(text, at, behind, out, to + 1, letters)
    else:
        return bad
    out[to] = MARK
    return behind, to + 1


@entry
def write_json(
    text_at: Any, starts_at: Any, key_ends_at: Any, ends_at: Any, count: Any, firsts_at: Any, steps_at: Any,
    consts_at: Any, out_at: Any, bounds_at: Any,
) -> Any:  # fmt: skip
    """Writes the keys and values of messages as JSON; gives how many bytes they have together.

    starts, key_ends, ends: where each key starts and ends, and each value ends.
    firsts: the first step of each message; becomes NOT_READ for one that is not read.  Such a one is left empty.
    steps, consts: AVRO_TEXT and so on, with two numbers each; the letters of base64, and the constants.
    bounds: where each key and each value begins in `out`, and the last one ends.
    """
    text, consts, out, bounds = bytes_at(text_at), bytes_at(consts_at), bytes_at(out_at), numbers_at(bounds_at)
    starts, key_ends, ends = numbers_at(starts_at), numbers_at(key_ends_at), numbers_at(ends_at)
    firsts, steps = row_at(firsts_at), rows_at(steps_at, 3)
    to = 0
    for number in range(count):
        begin, at, end = to, starts[number], key_ends[number]
        step = np.int64(firsts[number])
        bounds[2 * number] = bounds[2 * number + 1] = to
        is_read = step == NOT_READ
        while step != NOT_READ:
            kind, one, other = steps[step, 0], np.int64(steps[step, 1]), np.int64(steps[step, 2])
            step += 1
            if kind == codes.AVRO_TEXT:
                to = copied(consts, one, one + other, out, to)
            elif kind < codes.AVRO_NULLABLE:
                at, to = _value(kind, text, at, end, out, to, consts)
                if to == BAD:
                    break
            elif kind == codes.AVRO_NULLABLE:
                if at >= end or (text[at] != 0 and text[at] != 2):
                    break
                if text[at] == one:
                    to, step = _put_word(_NULL, out, to), other
                at += 1
            elif kind == codes.AVRO_SAME:
                if end - at < other or not same(text, at, consts, one, other):
                    break
                at += other
            elif kind == codes.AVRO_KEY_AS_IT_IS:
                copy_bytes(text, at, end - at, out, to)
                at, to = end, to + end - at
            elif at != end or kind == codes.AVRO_UNREADABLE:
                break
            elif kind == codes.AVRO_END:
                is_read = True
                break
            else:
                bounds[2 * number + 1] = to
                at, end = end, ends[number]
        if not is_read:
            firsts[number], to = NOT_READ, begin
            bounds[2 * number + 1] = to
    bounds[2 * count] = to
    return to
