"""Quotes names for SQL."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=100_000)
def quote_name(*parts: str) -> str:
    """Returns the identifier with each part in backticks, joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
