"""Names as SQL writes them."""

from __future__ import annotations


def quote_name(*parts: str) -> str:
    """Identifier in backticks, parts joined by dots."""
    return ".".join("`" + part.replace("`", "``") + "`" for part in parts)
