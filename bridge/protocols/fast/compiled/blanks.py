"""Takes the blanks between the tokens of JSON texts (RFC 8259, section 2) out of them, which some relays put there."""

from __future__ import annotations

from typing import Any, Final

from bridge.protocols.fast.compiled.codes import MARK
from bridge.protocols.fast.compiled.json_text import (
    BAD,
    CLOSE_BRACE,
    CLOSE_BRACKET,
    COLON,
    COMMA,
    OPEN_BRACE,
    SPACE,
    string_end,
)
from bridge.protocols.fast.compiled.machine_bytes import Bytes, bytes_at, copy_bytes, entry, inner, numbers_at

_OPEN_BRACKET, _TAB, _LINE_FEED, _CARRIAGE_RETURN = (ord(character) for character in "[\t\n\r")
_LEAST: Final = len('{"":0}')


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
    text, bounds, out, out_bounds = (
        bytes_at(text_at),
        numbers_at(bounds_at),
        bytes_at(out_at),
        numbers_at(out_bounds_at),
    )
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
