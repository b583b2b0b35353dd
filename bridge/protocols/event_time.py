"""The moment of a change in formats that carry no TSO: an event time in milliseconds, or in whole seconds."""

from __future__ import annotations

from typing import Final

from bridge.events import ms_tso
from bridge.protocols.decoder import DecodeError, shown

_MAX_MS: Final = (1 << 45) - 1
"""The last millisecond whose TSO fits int64, in the year 3084."""
_FIRST_MS: Final = 100_000_000_000
"""What is less is seconds: as milliseconds it would lie before March 1973, as seconds this is the year 5138."""


def event_ts(moment: object, field: str) -> int:
    """The TSO of the first millisecond that an event time (`es`, a number) stands for."""
    if type(moment) is not int or not 0 <= moment <= _MAX_MS:
        raise DecodeError(f"{field} is {shown(moment)}, not a time in milliseconds or seconds since 1970")
    return ms_tso(moment if moment >= _FIRST_MS else moment * 1000)
