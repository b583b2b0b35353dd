"""Walks through messages along their forms: compares what is the same in all messages of a form, and finds the values.

A form is a list of *steps*, rows of four numbers: what to do, and up to three numbers that say with what.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled.json_text import (
    BAD,
    CLOSE_BRACE,
    COMMA,
    MARK,
    OPEN_BRACE,
    ZERO,
    are_digits,
    is_integer,
    is_null,
    member_end,
    string_end,
    token_end,
)
from bridge.protocols.fast.compiled.machine_bytes import (
    ADDRESS,
    NUMBERS,
    ROW,
    ROWS,
    Bytes,
    bytes_at,
    entry,
    first_bytes,
    inner,
    same,
    word,
)
from bridge.protocols.fast.compiled.machine_bytes import NUMBER as _NUMBER
from bridge.protocols.fast.compiled.machine_bytes import TABLE as _TABLE
from bridge.protocols.fast.compiled.values import CONVERTED, NULL, way_of

CONSTANT, SCHEMA, TABLE, COMMIT_TS, NUMBER, TEXT, MOMENT, SAME, ANY, VALUE = range(10)
"""What a step does.

CONSTANT: compares bytes: where they begin in the constants, and how many they are.
SCHEMA, TABLE: compare the name of the message's kind.
COMMIT_TS: reads a TSO.
NUMBER, TEXT: pass an integer or a string.
MOMENT: notes where a string is.
SAME: passes an object with these members in any order: the first member, their number, the size of their slots.
ANY: passes an object of strings, integers, booleans and nulls.
VALUE: notes a column's value: what its usual strings are, what its other usual values are, the image.
"""
NOT_READ: Final = -1
"""In `firsts`: a message that is not of its form."""
_LONGEST_TSO: Final = 18
_PRIME: Final = np.uint64(0x100000001B3)
_MOST_SLOTS: Final = np.uint64(0xFFFFFFF)


@inner
def slot_of(text: Bytes, at: Any, size: Any) -> Any:
    """Gives a number for bytes that is mostly another one for other bytes (Fowler, Noll and Vo, by words)."""
    found = np.uint64(size)
    while size >= 8:
        found = (found ^ word(text, at)) * _PRIME
        at, size = at + 8, size - 8
    found = (found ^ first_bytes(word(text, at), size)) * _PRIME
    return np.int64((found ^ (found >> np.uint64(29))) & _MOST_SLOTS)


@entry(ADDRESS, ROWS, _NUMBER, ROW)
def fill_slots(consts_at: Any, members: Any, first: Any, slots: Any) -> None:
    """Puts the members from `first` on into free slots, which hold NOT_READ; there are more slots than members, and
    their number is a power of two."""
    consts = bytes_at(consts_at)
    for member in range(first, len(members)):
        slot = slot_of(consts, members[member, 0], members[member, 1]) & (len(slots) - 1)
        while slots[slot] != NOT_READ:
            slot = (slot + 1) & (len(slots) - 1)
        slots[slot] = member


@inner
def _member_of(text: Bytes, at: Any, size: Any, consts: Bytes, members: Any, slots: Any, first: Any, count: Any) -> Any:
    """Gives the member that these bytes are, of those in `count` slots, or NOT_READ."""
    slot = slot_of(text, at, size) & (count - 1)
    while slots[first + slot] != NOT_READ:
        member = slots[first + slot]
        if members[member, 1] == size and same(text, at, consts, members[member, 0], size):
            return member
        slot = (slot + 1) & (count - 1)
    return NOT_READ


@inner
def _object_end(
    text: Bytes,
    at: Any,
    end: Any,
    steps: Any,
    step: Any,
    consts: Bytes,
    members: Any,
    slots: Any,
    seen: Any,
    number: Any,
) -> Any:
    """Of an object of a step SAME or ANY.  seen: for each member, the last message that it was found in."""
    if text[at] != OPEN_BRACE:
        return BAD
    count = 0
    while True:
        start = at + 1
        at = member_end(text, start, end)
        if at == BAD:
            return BAD
        if steps[step, 0] == SAME:
            member = _member_of(text, start, at - start, consts, members, slots, steps[step, 1], steps[step, 3])
            if member == NOT_READ or seen[member] == number:
                return BAD
            seen[member] = number
            count += 1
        if text[at] == CLOSE_BRACE:
            return at + 1 if steps[step, 0] == ANY or count == steps[step, 2] else BAD
        if text[at] != COMMA:
            return BAD


@inner
def _find_value(text: Bytes, at: Any, end: Any, steps: Any, step: Any, values: Any, cell: Any) -> Any:
    """Notes where a value is, without its quotation marks, and how it becomes a literal; gives where it ends."""
    if text[at] == MARK:
        behind = string_end(text, at + 1, end)
        values[cell, 0], values[cell, 1] = at + 1, behind
        if behind == BAD:
            return BAD
        values[cell, 2] = way_of(text, at + 1, behind, steps[step, 1])
        return behind + 1
    behind = token_end(text, at, end)
    values[cell, 0], values[cell, 1] = at, behind
    if behind != BAD:
        values[cell, 2] = NULL if is_null(text, at, behind) else way_of(text, at, behind, steps[step, 2])
    return behind


@inner
def _tso(text: Bytes, at: Any, end: Any) -> Any:
    """Reads a TSO, or gives BAD."""
    if end - at > _LONGEST_TSO or text[at] == ZERO or not are_digits(text, at, end):
        return BAD
    number = 0
    for place in range(at, end):
        number = number * 10 + (text[place] - ZERO)
    return number


@inner
def _walk_one(
    text: Bytes, at: Any, end: Any, steps: Any, first: Any, last: Any, table: Any, kind: Any, consts: Bytes,
    members: Any, slots: Any, seen: Any, number: Any, values: Any, cell: Any, converted: Any, count: Any, moments: Any,
) -> Any:  # fmt: skip
    """Walks through a message; gives the cell and the number of converted values behind its values, or NOT_READ."""
    for step in range(first, last):
        what = steps[step, 0]
        if what == CONSTANT or what == SCHEMA or what == TABLE:
            start, size = steps[step, 1], steps[step, 2]
            if what == SCHEMA:
                start, size = table[kind, 1], table[kind, 2]
            elif what == TABLE:
                start, size = table[kind, 3], table[kind, 4]
            if end - at < size or not same(text, at, consts, start, size):
                return NOT_READ, count
            at += size
        elif what == VALUE:
            at = _find_value(text, at, end, steps, step, values, cell)
            if at == BAD:
                return NOT_READ, count
            if values[cell, 2] == CONVERTED:
                converted[count, 0], converted[count, 1] = cell, step
                count += 1
            cell += 1
        elif what == SAME or what == ANY:
            at = _object_end(text, at, end, steps, step, consts, members, slots, seen, number)
            if at == BAD:
                return NOT_READ, count
        elif what == COMMIT_TS or what == NUMBER:
            behind = token_end(text, at, end)
            if behind == BAD:
                return NOT_READ, count
            if what == COMMIT_TS:
                moments[number, 0] = _tso(text, at, behind)
                if moments[number, 0] == BAD:
                    return NOT_READ, count
            elif not is_integer(text, at, behind, True):
                return NOT_READ, count
            at = behind
        else:
            if text[at] != MARK:
                return NOT_READ, count
            behind = string_end(text, at + 1, end)
            if behind == BAD:
                return NOT_READ, count
            if what == MOMENT:
                moments[number, 0], moments[number, 1] = at + 1, behind
            at = behind + 1
    return (cell if at == end else NOT_READ), count


@entry(
    ADDRESS, NUMBERS, NUMBERS, ROW, ROWS, ROWS, ROWS, ADDRESS, ROWS, ROW, ROWS, NUMBERS, ROWS, _TABLE,
)  # fmt: skip
def walk(
    text_at: Any, starts: Any, ends: Any, kinds: Any, table: Any, forms: Any, steps: Any, consts_at: Any, members: Any,
    slots: Any, values: Any, firsts: Any, converted: Any, moments: Any,
) -> Any:  # fmt: skip
    """Walks through messages, and gives how many values and how many of `converted` there are.

    starts, ends: where each message is.
    kinds: the kind of each message, a row of `table`: its form, and for each of its names (as JSON) where it is in the
    constants and how many bytes it has; -1 for messages that are not read.
    forms: the first step of each form, and the one behind its last.
    values: room for the values: where each begins and ends, and how it becomes a literal (`values`).
    firsts: becomes the number of the first value of each message, or NOT_READ.
    converted: room for the values that their columns' converters convert: the number of the value, and of the step.
    moments: becomes the TSO of each message, or where its moment is, and where that ends.
    """
    text, consts = bytes_at(text_at), bytes_at(consts_at)
    seen = np.full(len(members) + 1, -1, np.int64)
    cell, count = 0, 0
    for number in range(len(starts)):
        firsts[number] = NOT_READ
        if kinds[number] < 0:
            continue
        form = table[kinds[number], 0]
        behind, found = _walk_one(
            text, starts[number], ends[number], steps, forms[form, 0], forms[form, 1], table, kinds[number], consts,
            members, slots, seen, number, values, cell, converted, count, moments,
        )  # fmt: skip
        if behind != NOT_READ:
            firsts[number] = cell
            cell, count = behind, found
    return cell, count
