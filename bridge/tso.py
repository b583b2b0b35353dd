"""TiDB's timestamps (TSO): milliseconds and a counter in one number."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final

TSO_LOGICAL_BITS: Final = 18
"""A TSO is physical milliseconds since 1970 shifted left by 18 bits, plus a logical counter (TiDB, TSO)."""


def tso_ms(tso: int) -> int:
    """Returns the milliseconds since 1970 of a TSO."""
    return tso >> TSO_LOGICAL_BITS


def ms_tso(ms: int) -> int:
    """Returns the first TSO of a millisecond (since 1970)."""
    return ms << TSO_LOGICAL_BITS


def tso_time(tso: int) -> str:
    """Returns a TSO as wall-clock time in UTC (ISO 8601), "never" for 0."""
    if tso == 0:
        return "never"
    return (
        datetime.fromtimestamp((tso >> TSO_LOGICAL_BITS) / 1000, UTC)
        .isoformat(timespec="milliseconds")
        .replace("+00:00", "Z")
    )
