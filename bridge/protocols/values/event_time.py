"""Makes TSOs for formats that carry none, from an event time in milliseconds or in whole seconds; and the places of
events in a binlog."""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import datetime
from functools import lru_cache
from typing import Final

from bridge.events import Code
from bridge.protocols.decoder import DecodeError, shown
from bridge.protocols.values.timezones import zone_of
from bridge.tso import ms_tso

_MAX_MS: Final = (1 << 45) - 1
"""The last millisecond whose TSO fits int64; it is in the year 3084."""
_FIRST_MS: Final = 100_000_000_000
"""A smaller number is in seconds: in milliseconds it would be before March 1973; in seconds, this one is in the year
5138."""
_FILE: Final = re.compile(r"(.+)\.([0-9]{1,10})")
_PLACE_DIGITS: Final = 30
_LOCAL: Final = re.compile(r"[0-9]{14}")
_LOCAL_FORMAT: Final = "%Y%m%d%H%M%S"


def event_ts(moment: object, field: str) -> int:
    """Gives the TSO of the first millisecond of an event time (`es`, a number); raises DecodeError."""
    if type(moment) is int:
        ms = moment if moment >= _FIRST_MS else moment * 1000
        if 0 <= ms <= _MAX_MS:
            return ms_tso(ms)
    raise DecodeError(f"{field} is {shown(moment)}, not a time in milliseconds or seconds since 1970")


def place_in_binlog(reader: str, file: str, position: int) -> str | None:
    """Makes the place of an event in a binlog: texts of one reader and one binlog ascend as the events do.

    reader: who names the places (Debezium: `source.name`).  file: as in binlog.000003; there is no place in a file of
    another name.
    """
    found = _FILE.fullmatch(file)
    if found is None or position < 0:
        return None
    return f"{reader}/{found[1]}/{int(found[2]):010}{position:020}"


def binlog_of(place: str) -> str:
    """Names the binlog of a place."""
    return place[:-_PLACE_DIGITS]


def is_seconds(moment: object) -> bool:
    """Tells whether an event time is in whole seconds."""
    return type(moment) is int and moment < _FIRST_MS


def local_event_ts(timezone: str | None) -> Callable[[str], int]:
    """Makes the function from a local time, written YYYYMMDDhhmmss, to the TSO of the first millisecond of its second.

    Where the zone's clocks show a time twice, it takes the first.  Raises UsageError for an unknown zone.
    """
    if timezone is None:
        return _no_zone
    zone = zone_of(timezone)

    @lru_cache(maxsize=4096)
    def read(text: str) -> int:
        if not _LOCAL.fullmatch(text):
            raise DecodeError(f"TIME is {shown(text)}, not a time like 20160611015029")
        try:
            ms = 1000 * int(datetime.strptime(text, _LOCAL_FORMAT).replace(tzinfo=zone).timestamp())
        except (ValueError, OverflowError):
            ms = -1
        if not 0 <= ms <= _MAX_MS:
            raise DecodeError(f"TIME is {shown(text)}, which is not a time from 1970 on")
        return ms_tso(ms)

    return read


def _no_zone(_text: str) -> int:
    reason = "ckafka writes TIME and TIMESTAMP in a time zone that it does not name: give it with --timezone"
    raise DecodeError(reason, Code.NO_TIMEZONE)
