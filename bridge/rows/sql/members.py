"""Writes values of ENUM and SET columns where a server does not read them as messages have them: the error value of an
ENUM, and SETs by the names of their members."""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Sequence
from functools import lru_cache
from typing import Final, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from bridge.model import Column
from bridge.protocols.values import literals
from bridge.rows.literal_offsets import TEXT, Cells, replaced

_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")
_MOST_DIGITS: Final = 5
"""Servers take longer texts for no number."""
_NUMBER: Final = "0"
_NAME: Final = "''"
_DIGIT, _QUOTE = ord("0"), ord("'")


def member_names(column_type: str) -> list[str]:
    """Gives the names of the members of an ENUM or a SET, as information_schema writes its type."""
    return [name.replace("''", "'") for name in _MEMBER.findall(column_type)]


class EnumZero(NamedTuple):
    """How the error value of a column is written.

    literal: of it.
    is_empty_name: whether '' stands for it, as the column has no member of that name.
    """

    literal: str
    is_empty_name: bool


@lru_cache(maxsize=1000)
def zero_of(column_type: str) -> EnumZero | None:
    """Tells how the error value is written into a column of a type (information_schema's column_type); None for a type
    that has none, and where no text of zeros is free."""
    if not column_type.startswith("enum("):
        return None
    members = member_names(column_type)
    digits_of_members = {_digits(name) for name in members}
    free = next((size for size in range(1, _MOST_DIGITS + 1) if "0" * size not in digits_of_members), None)
    return None if free is None else EnumZero(literals.text("0" * free), "" not in members)


def _digits(name: str) -> str:
    """Gives what a collation may compare of a name: any digit may be ASCII's to it, and other characters nothing."""
    letters = (letter for letter in unicodedata.normalize("NFKC", name) if letter.isalnum())
    return "".join(str(unicodedata.digit(letter, letter)) for letter in letters)


def written_literal(column_type: str, literal: str) -> str:
    """Gives the literal by which a value is written into a column."""
    zero = zero_of(column_type)
    if zero is None or not (literal == _NUMBER or (literal == _NAME and zero.is_empty_name)):
        return literal
    return zero.literal


def with_zeros(images: pa.Array, types: Sequence[str]) -> pa.Array:
    """Gives images (large strings, none of them null) with the literals by which error values are written; the same
    object where there are none.

    types: of all their columns.
    """
    zeros = {at: zero for at, column_type in enumerate(types) if (zero := zero_of(column_type)) is not None}
    if not zeros or len(images) == 0:
        return images
    cells = Cells(images, np.zeros(len(images), np.int64), [len(types)])
    if not any(_has_zero(cells, at, zero) for at, zero in zeros.items()):
        return images
    old = cells.literals([list(zeros)])
    new = old.texts
    for place, zero in enumerate(zeros.values()):
        of_column = pc.equal(pa.array(old.place), place)
        names = pa.array([_NUMBER, _NAME] if zero.is_empty_name else [_NUMBER], TEXT)
        new = pc.if_else(pc.and_(of_column, pc.is_in(new, names)), pa.scalar(zero.literal, TEXT), new)
    return replaced(images, old, new)


def _has_zero(cells: Cells, position: int, zero: EnumZero) -> bool:
    begins = cells.begins(np.arange(len(cells.images)), position)
    first, second = cells.characters[begins], cells.characters.take(begins + 1, mode="clip")
    is_zero = first == _DIGIT
    if zero.is_empty_name:
        is_zero |= (first == _QUOTE) & (second == _QUOTE)
    return bool(is_zero.any())


UNSURE: Final = re.compile("[\\\\?\U00010000-\U0010ffff]")
"""What servers show differently in a type: backslashes, and characters for which MySQL shows a question mark."""
_EXACT_MEMBERS: Final = 53
"""So many bits a number of floating point tells apart."""


def compared_literal(column: Column, literal: str) -> str:
    """Gives the literal with which a column is compared without an index."""
    members = _members(column.type)
    return _by_names(members, literal) if len(members) > _EXACT_MEMBERS else literal


def assigned_literal(column: Column, literal: str) -> str:
    """Gives the literal that an UPDATE sets a column to."""
    members = _members(column.type)
    return _by_names(members, literal) if any(map(str.isdecimal, members)) else literal


@lru_cache(maxsize=1000)
def _members(column_type: str) -> tuple[str, ...]:
    """Gives the members of a SET; none for another type, and where names do not tell values."""
    if not column_type.startswith("set(") or UNSURE.search(column_type):
        return ()
    members = tuple(member_names(column_type))
    return () if "" in members else members


def _by_names(members: tuple[str, ...], literal: str) -> str:
    if not literal.isdecimal():
        return literal
    mask = int(literal)
    if mask >> len(members):
        return literal
    return literals.text(",".join(name for bit, name in enumerate(members) if mask >> bit & 1))
