"""Quotes names for SQL."""

from __future__ import annotations

from collections.abc import Collection
from functools import lru_cache
from itertools import chain, count


@lru_cache(maxsize=100_000)
def quote_name(*parts: str) -> str:
    """Returns the identifier with each part in backticks, joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def free_name(name: str, others: Collection[str]) -> str:
    """Returns a name for a column beside others: this one, or with a number behind it where another one has it, in
    whatever case."""
    taken = {other.lower() for other in others}
    return next(one for one in chain([name], (f"{name} {number}" for number in count(2))) if one.lower() not in taken)


def has_long_characters(name: str) -> bool:
    """Tells whether a name has characters of four bytes, such as emojis, which MySQL and MariaDB take in no name."""
    return any(char > "\uffff" for char in name)
