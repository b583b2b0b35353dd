"""Writes values of SET columns by their names where a server does not read their numbers as INSERT does.

Messages have numbers, which INSERT takes as they are, and so do conditions by an index.  Others do not (tried): MySQL
5.7 and 8.0 and TiDB compare floating point, so that of more than 53 members two values may be one; and to all servers a
value with the 64th member is a negative number, or an error.  UPDATE of TiDB takes the number 8 for a member that is
called 8.
"""

from __future__ import annotations

import re
from functools import lru_cache
from typing import Final

from bridge.model import Column
from bridge.protocols.values import literals

_MEMBER: Final = re.compile(r"'((?:[^']|'')*)'")
_UNSURE: Final = re.compile("[\\\\?\U00010000-\U0010ffff]")
"""What servers show differently in a type: backslashes, and characters for which MySQL shows a question mark."""
_EXACT_MEMBERS: Final = 53
"""So many bits a number of floating point tells apart."""


def compared(column: Column, literal: str) -> str:
    """Gives the literal with which a column is compared without an index."""
    members = _members(column.type)
    return _named(members, literal) if len(members) > _EXACT_MEMBERS else literal


def assigned(column: Column, literal: str) -> str:
    """Gives the literal that an UPDATE sets a column to."""
    members = _members(column.type)
    return _named(members, literal) if any(map(str.isdecimal, members)) else literal


@lru_cache(maxsize=1000)
def _members(column_type: str) -> tuple[str, ...]:
    """Gives the members of a SET; none for another type, and where names do not tell values."""
    if not column_type.startswith("set(") or _UNSURE.search(column_type):
        return ()
    members = tuple(name.replace("''", "'") for name in _MEMBER.findall(column_type))
    return () if "" in members else members


def _named(members: tuple[str, ...], literal: str) -> str:
    if not literal.isdecimal():
        return literal
    mask = int(literal)
    if mask >> len(members):
        return literal
    return literals.text(",".join(name for bit, name in enumerate(members) if mask >> bit & 1))
