"""Quotes names for SQL."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=100_000)
def quote_name(*parts: str) -> str:
    """Returns the identifier with each part in backticks, joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)


def has_long_characters(name: str) -> bool:
    """Tells whether a name has characters of four bytes, such as emojis, which MySQL and MariaDB take in no name."""
    return any(char > "\uffff" for char in name)
