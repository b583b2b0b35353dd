"""TiDB's timestamps (TSO): milliseconds and a counter in one number; and the moments that users give."""

from __future__ import annotations

from contextlib import suppress
from datetime import UTC, datetime
from typing import Final

from bridge.errors import UsageError

TSO_LOGICAL_BITS: Final = 18
"""A TSO is physical milliseconds since 1970 shifted left by 18 bits, plus a logical counter (TiDB, TSO)."""
_MAX_TSO: Final = (1 << 63) - 1
_OTHER_CLOCKS: Final = [range(10**9 * unit, 5 * 10**9 * unit) for unit in (1, 10**3, 10**6)]
"""Seconds, milliseconds and microseconds since 1970, of the years 2001 to 2128."""
_DATES: Final = ("%Y%m%d", "%Y%m%d%H%M", "%Y%m%d%H%M%S")
_MOMENT_FIX: Final = "write 470611868434825218 or 2026-11-21T05:10:07Z"


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


def parse_moment(text: str) -> int:
    """`earliest`, a TSO, or a time (ISO 8601; UTC unless it names a zone) as a TSO; UsageError for anything else."""
    if text == "earliest":
        return 0
    tso = int(text) if text.isascii() and text.isdigit() else _tso_of_time(text)
    if not 0 <= tso <= _MAX_TSO:
        raise _no_moment(text)
    if text.isdigit() and _is_of_another_clock(text):
        raise UsageError(f"{text!r} is no TSO of these decades: as one it is {tso_time(tso)}", fix=_MOMENT_FIX)
    return tso


def _is_of_another_clock(number: str) -> bool:
    """Tells whether a number is a date, or counts seconds or their parts.  As a TSO it is a moment of the years 1970 to
    1982, so that a pipeline would begin at the earliest without a word."""
    return any(int(number) in clock for clock in _OTHER_CLOCKS) or any(_is_date(number, form) for form in _DATES)


def _is_date(number: str, form: str) -> bool:
    with suppress(ValueError):
        at = datetime.strptime(number, form)
        return 1970 <= at.year < 2100 and at.strftime(form) == number
    return False


def _tso_of_time(text: str) -> int:
    try:
        moment = datetime.fromisoformat(text)
    except ValueError as error:
        raise _no_moment(text) from error
    if moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return ms_tso(round(moment.timestamp() * 1000))


def _no_moment(text: str) -> UsageError:
    return UsageError(f"{text!r} is neither a TSO nor a time", fix=_MOMENT_FIX)
