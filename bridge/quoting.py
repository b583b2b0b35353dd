"""Names as SQL writes them."""

from __future__ import annotations

from functools import lru_cache


@lru_cache(maxsize=100_000)
def quote_name(*parts: str) -> str:
    """Identifier in backticks, parts joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
