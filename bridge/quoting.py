"""Quotes names for SQL."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=100_000)
def quote_name(*parts: str) -> str:
    """The identifier in backticks; its parts are joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
