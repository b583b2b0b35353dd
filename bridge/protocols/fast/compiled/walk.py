"""Walks through messages along their templates: compares what is the same in all of one, and finds the values.

A template is a list of *steps*, rows of four numbers: what to do, and up to three numbers that say with what.
"""

from __future__ import annotations

from typing import Any, Final

import numpy as np

from bridge.protocols.fast.compiled import codes
from bridge.protocols.fast.compiled.json_text import (
    BAD,
    CLOSE_BRACE,
    COMMA,
    OPEN_BRACE,
    ZERO,
    are_digits,
    digits_end,
    is_integer,
    is_null,
    is_placeholder,
    member_end,
    number_of,
    scalar_end,
    string_end,
    token_end,
)
from bridge.protocols.fast.compiled.machine_bytes import (
    Bytes,
    bytes_at,
    entry,
    first_bytes,
    inner,
    long_rows_at,
    numbers_at,
    row_at,
    rows_at,
    same,
    word,
)
from bridge.protocols.fast.compiled.values import way_of

_LONGEST_TSO: Final = 18
_FIRST_MS, _LAST_MS = 100_000_000_000, (1 << 45) - 1
"""Smaller event times are in seconds, later ones have no TSO (`values.event_time.event_ts`)."""
_LONGEST_MS, _SECOND_MS, _TSO_OF_MS = 14, 1000, 1 << 18
_LONGEST_FILE, _LAST_FILE, _FILE, _LAST_POSITION = 10, (1 << 31) - 1, 1 << 32, (1 << 32) - 1
"""Of the numbers of a binlog's files, and of the positions in them (`values.event_time.place_in_binlog`)."""
_LONGEST_ROW: Final = 9
_LAST_SENT_MS, _BATCHES = (1 << 41) - 1, 1 << 22
"""Of the moment and the batch of a sending (`values.event_time.place_of_sending`)."""
_PRIME: Final = np.uint64(0x100000001B3)
_MOST_SLOTS: Final = np.uint64(0xFFFFFFF)


@inner
def slot_of(text: Bytes, at: Any, size: Any) -> Any:
    """Gives a number for bytes that is mostly another one for other bytes (Fowler, Noll and Vo, by words)."""
    mixed = np.uint64(size)
    while size >= 8:
        mixed = (mixed ^ word(text, at)) * _PRIME
        at, size = at + 8, size - 8
    mixed = (mixed ^ first_bytes(word(text, at), size)) * _PRIME
    return np.int64((mixed ^ (mixed >> np.uint64(29))) & _MOST_SLOTS)


@entry
def fill_slots(consts_at: Any, members_at: Any, first: Any, behind: Any, slots_at: Any, count: Any) -> Any:
    """Puts the members from `first` on into free slots, which hold NOT_READ; there are more slots than members, and
    their number is a power of two."""
    consts, members, slots = bytes_at(consts_at), rows_at(members_at, 2), row_at(slots_at)
    for member in range(first, behind):
        slot = slot_of(consts, members[member, 0], members[member, 1]) & (count - 1)
        while slots[slot] != codes.NOT_READ:
            slot = (slot + 1) & (count - 1)
        slots[slot] = member
    return behind - first


@inner
def _member_of(text: Bytes, at: Any, size: Any, consts: Bytes, members: Any, slots: Any, first: Any, count: Any) -> Any:
    """Gives the member that these bytes are, of those in `count` slots, or NOT_READ."""
    slot = slot_of(text, at, size) & (count - 1)
    while slots[first + slot] != codes.NOT_READ:
        member = slots[first + slot]
        if members[member, 1] == size and same(text, at, consts, members[member, 0], size):
            return member
        slot = (slot + 1) & (count - 1)
    return codes.NOT_READ


@inner
def _object_end(
    text: Bytes, at: Any, end: Any, steps: Any, step: Any, consts: Bytes, members: Any, slots: Any, seen: Any,
    number: Any,
) -> Any:  # fmt: skip
    """Of an object of a step SAME or ANY.  seen: for each member, the last message that it was found in."""
    if text[at] != OPEN_BRACE:
        return BAD
    count = 0
    while True:
        start = at + 1
        at = member_end(text, start, end)
        if at == BAD:
            return BAD
        if steps[step, 0] == codes.SAME:
            member = _member_of(text, start, at - start, consts, members, slots, steps[step, 1], steps[step, 3])
            if member == codes.NOT_READ or seen[member] == number:
                return BAD
            seen[member] = number
            count += 1
        if text[at] == CLOSE_BRACE:
            return at + 1 if steps[step, 0] == codes.ANY or count == steps[step, 2] else BAD
        if text[at] != COMMA:
            return BAD


@inner
def _find_value(text: Bytes, at: Any, end: Any, steps: Any, step: Any, values: Any, cell: Any) -> Any:
    """Notes where a value is, without its quotation marks, and how it becomes a literal; gives where it ends."""
    if text[at] == codes.MARK:
        behind = string_end(text, at + 1, end)
        values[cell, 0], values[cell, 1] = at + 1, behind
        if behind == BAD or is_placeholder(text, at + 1, behind):
            return BAD
        values[cell, 2] = way_of(text, at + 1, behind, steps[step, 1])
        return behind + 1
    behind = token_end(text, at, end)
    values[cell, 0], values[cell, 1] = at, behind
    if behind != BAD:
        values[cell, 2] = codes.NULL if is_null(text, at, behind) else way_of(text, at, behind, steps[step, 2])
    return behind


@inner
def _old_row_end(
    text: Bytes, at: Any, end: Any, steps: Any, step: Any, consts: Bytes, members: Any, values: Any, first: Any,
    cell: Any,
) -> Any:  # fmt: skip
    """Of an object of a step OLD.  first: the first cell of the message."""
    columns = steps[step, 2]
    for column in range(columns):
        for part in range(3):
            values[cell + column, part] = values[first + steps[step, 3] + column, part]
    if text[at] != OPEN_BRACE:
        return BAD
    column = 0
    while text[at] == COMMA or column == 0:
        at += 1
        while column < columns:
            member = steps[step, 1] + column
            if end - at >= members[member, 1] and same(text, at, consts, members[member, 0], members[member, 1]):
                break
            column += 1
        if column == columns:
            return BAD
        at = _find_value(
            text, at + members[steps[step, 1] + column, 1], end, steps, step + 1 + column, values, cell + column
        )
        if at == BAD:
            return BAD
        column += 1
    return at + 1 if text[at] == CLOSE_BRACE else BAD


@inner
def _natural(text: Bytes, at: Any, end: Any, longest: Any) -> Any:
    """Reads so many digits at most, the first of which may be 0, or gives BAD."""
    if end - at > longest or not are_digits(text, at, end):
        return BAD
    return number_of(text, at, end)


@inner
def _event_tso(text: Bytes, at: Any, end: Any, in_seconds: Any) -> Any:
    """Reads an event time as a TSO, or gives BAD."""
    number = _natural(text, at, end, _LONGEST_MS)
    if text[at] == ZERO or number < _FIRST_MS or number > _LAST_MS:
        return BAD
    if in_seconds:
        number -= number % _SECOND_MS
    return number * _TSO_OF_MS


@inner
def _place_number(text: Bytes, at: Any, behind: Any, what: Any) -> Any:
    """Reads a number of a place, or gives BAD."""
    if what == codes.FILE_NUMBER:
        number = _natural(text, at, behind, _LONGEST_FILE)
        return number * _FILE if BAD < number <= _LAST_FILE else BAD
    number = _natural(text, at, behind, _LONGEST_TSO)
    if what != codes.COORDINATE and not is_integer(text, at, behind, False):
        return BAD
    if what == codes.FILE_POSITION:
        return min(number, _LAST_POSITION)
    if what == codes.SENT_MS:
        return number * _BATCHES if _FIRST_MS <= number <= _LAST_SENT_MS else BAD
    if number <= 0:
        return BAD
    return number % _BATCHES if what == codes.BATCH else number


@inner
def _tso(text: Bytes, at: Any, end: Any) -> Any:
    """Reads a TSO, or gives BAD."""
    return BAD if text[at] == ZERO else _natural(text, at, end, _LONGEST_TSO)


@inner
def _walk_one(
    text: Bytes, at: Any, end: Any, key_end: Any, steps: Any, first: Any, last: Any, table: Any, kind: Any,
    consts: Bytes, members: Any, slots: Any, seen: Any, number: Any, values: Any, cell: Any, converted: Any, count: Any,
    moments: Any, places: Any,
) -> Any:  # fmt: skip
    """Walks through a message; gives the cell and the number of converted values behind its values, or NOT_READ."""
    first_cell, walked = cell, first
    while at != BAD and walked < last:
        step, walked = walked, walked + 1
        what = steps[step, 0]
        if what <= codes.TABLE:
            start, size = steps[step, 1], steps[step, 2]
            if what == codes.SCHEMA:
                start, size = table[kind, 1], table[kind, 2]
            elif what == codes.TABLE:
                start, size = table[kind, 3], table[kind, 4]
            at = at + size if end - at >= size and same(text, at, consts, start, size) else BAD
        elif what == codes.VALUE:
            at = _find_value(text, at, end, steps, step, values, cell)
            if values[cell, 2] == codes.CONVERTED:
                converted[count, 0], converted[count, 1] = cell, step
                count += 1
            cell += 1
        elif what == codes.SAME or what == codes.ANY:
            at = _object_end(text, at, end, steps, step, consts, members, slots, seen, number)
        elif what <= codes.NUMBER:
            behind = token_end(text, at, end)
            if behind == BAD:
                at = BAD
            elif what <= codes.EVENT_SECOND:
                in_seconds = what == codes.EVENT_SECOND
                tso = _tso(text, at, behind) if what == codes.COMMIT_TS else _event_tso(text, at, behind, in_seconds)
                moments[number, 0] = tso
                at = behind if tso != BAD else BAD
            else:
                at = behind if is_integer(text, at, behind, True) else BAD
        elif codes.COORDINATE <= what <= codes.BATCH:
            behind = digits_end(text, at, end)
            part = _place_number(text, at, behind, what)
            if part != BAD:
                places[number, steps[step, 1]] += part
            at = behind if part != BAD else BAD
        elif what == codes.ROW_OF_EVENT:
            behind = digits_end(text, at, end)
            if behind - at > _LONGEST_ROW or not is_integer(text, at, behind, False):
                return codes.NOT_READ, count
            places[number, codes.INDEX] = 2 * _natural(text, at, behind, _LONGEST_ROW) + steps[step, 1]
            at = behind
        elif what == codes.OLD:
            at = _old_row_end(text, at, end, steps, step, consts, members, values, first_cell, cell)
            walked += steps[step, 2]
            for column in range(steps[step, 2]):
                if values[cell, 2] == codes.CONVERTED:
                    converted[count, 0], converted[count, 1] = cell, step + 1 + column
                    count += 1
                cell += 1
        elif what == codes.SCALAR:
            at = scalar_end(text, at, end)
        elif what == codes.KEY_END:
            at = at if at == key_end else BAD
        else:
            behind = string_end(text, at + 1, end) if text[at] == codes.MARK else BAD
            if what == codes.MOMENT:
                moments[number, 0], moments[number, 1] = at + 1, behind
            at = BAD if behind == BAD or is_placeholder(text, at + 1, behind) else behind + 1
    return (cell if at == end else codes.NOT_READ), count


@entry
def walk(
    text_at: Any, starts_at: Any, key_ends_at: Any, ends_at: Any, count: Any, kinds_at: Any, table_at: Any,
    templates_at: Any, steps_at: Any, consts_at: Any, members_at: Any, slots_at: Any, seen_at: Any, values_at: Any,
    firsts_at: Any, converted_at: Any, moments_at: Any, places_at: Any,
) -> Any:  # fmt: skip
    """Walks through messages, and gives how many values and how many of `converted` there are.

    starts, key_ends, ends: where each of the `count` messages begins, its value begins, and ends.
    kinds: the kind of each message, a row of `table`: its template, and for each of its names (as JSON) where it is in
    the constants and how many bytes it has; -1 for messages that are not read.
    templates: the first step of each template, and the one behind its last.
    members, slots: the members of objects, and the slots that `fill_slots` has put them into.
    seen: a number for each member, all NOT_READ.
    values: room for the values: where each begins and ends, and how it becomes a literal (`codes`).
    firsts: becomes the number of the first value of each message, or NOT_READ.
    converted: room for the values that their columns' converters convert: the number of the value, and of the step.
    moments: becomes the TSO of each message, or where its moment is, and where that ends.
    places: the numbers of each message's place, all 0; to these is added.
    """
    text, consts = bytes_at(text_at), bytes_at(consts_at)
    starts, key_ends, ends = numbers_at(starts_at), numbers_at(key_ends_at), numbers_at(ends_at)
    kinds, table = row_at(kinds_at), rows_at(table_at, 5)
    templates, steps, members, slots = (
        rows_at(templates_at, 2),
        rows_at(steps_at, 4),
        rows_at(members_at, 2),
        row_at(slots_at),
    )
    seen, values, firsts = numbers_at(seen_at), rows_at(values_at, 3), numbers_at(firsts_at)
    converted, moments = rows_at(converted_at, 2), long_rows_at(moments_at, 2)
    places = long_rows_at(places_at, codes.PLACE_NUMBERS)
    cell, conversions = 0, 0
    for number in range(count):
        firsts[number] = codes.NOT_READ
        if kinds[number] < 0:
            continue
        template = table[kinds[number], 0]
        behind, more = _walk_one(
            text, starts[number], ends[number], key_ends[number], steps, templates[template, 0], templates[template, 1],
            table, kinds[number], consts, members, slots, seen, number, values, cell, converted, conversions, moments,
            places,
        )  # fmt: skip
        if behind != codes.NOT_READ:
            firsts[number] = cell
            cell, conversions = behind, more
    return cell, conversions
