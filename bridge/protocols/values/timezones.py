"""Converts local TIMESTAMP text to UTC: some formats write TIMESTAMP in their sender's zone and do not name it.

The target's session runs in UTC and needs no named zones, which fail on a server without zone tables.
"""

from __future__ import annotations

import difflib
import re
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import timezone as fixed_zone
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from bridge.errors import UsageError
from bridge.events import Code
from bridge.protocols.decoder import DecodeError
from bridge.protocols.values import literals

_NO_ZONE: Final = "this format writes TIMESTAMP in its sender's time zone without naming it: give it with --timezone"
_ZERO: Final = "0000-00-00 00:00:00"
_SECONDS: Final = slice(1, 1 + len(_ZERO))
"""In a literal; its fraction digits stay as they are."""
_OFFSET: Final = re.compile(r"([+-])([0-9]{1,2}):?([0-5][0-9])")
_UTC_NAMES: Final = frozenset({"UTC", "Z", "GMT", "Etc/UTC", "Etc/GMT", "Etc/Zulu", "Zulu"})


@lru_cache(maxsize=16)
def timestamp_converter(timezone: str | None) -> literals.Converter:
    """Makes the converter from TIMESTAMP text of a zone to its literal in UTC, which is `literals.datetime` where the
    text is in UTC already; raises UsageError for an unknown zone."""
    zone = None if timezone is None else zone_of(timezone)
    if zone == UTC:
        return literals.datetime

    @lru_cache(maxsize=65536)
    def to_utc(seconds: str) -> str:
        if seconds == _ZERO:
            return seconds
        if zone is None:
            raise DecodeError(_NO_ZONE, Code.NO_TIMEZONE)
        try:
            local = datetime.fromisoformat(seconds)
            return str(local - _offset(local, zone))
        except (ValueError, OverflowError):
            raise DecodeError(f"TIMESTAMP '{seconds}' is not a valid time") from None

    def convert(value: str) -> str:
        literal = literals.datetime(value)
        return "'" + to_utc(literal[_SECONDS]) + literal[_SECONDS.stop :]

    return convert


def zone_of(timezone: str) -> tzinfo:
    """Gives the zone of a name or an offset; raises UsageError for an unknown one."""
    if timezone in _UTC_NAMES:
        return UTC
    return _fixed_zone(timezone) or _named_zone(timezone)


def _fixed_zone(timezone: str) -> tzinfo | None:
    """Gives the zone of text like "+08:00"; MySQL allows -13:59 to +14:00."""
    match = _OFFSET.fullmatch(timezone)
    if not match:
        return None
    offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
    if offset > timedelta(hours=14):
        raise UsageError(f"time zone {timezone!r} is further than 14 hours from UTC")
    return fixed_zone(-offset if match[1] == "-" else offset)


def _named_zone(name: str) -> tzinfo:
    names = available_timezones()
    if name in names:
        return ZoneInfo(name)
    close = difflib.get_close_matches(name, names, n=3, cutoff=0.5)
    hint = f"did you mean {', '.join(close)}? " if close else ""
    raise UsageError(f"unknown time zone {name!r}", fix=f'{hint}give an IANA name, "UTC" or an offset like "+08:00"')


def _offset(local: datetime, zone: tzinfo) -> timedelta:
    """Gives a local time's offset; raises DecodeError for a time that the zone's clocks showed twice, or never."""
    first = local.replace(tzinfo=zone, fold=0).utcoffset() or timedelta()
    second = local.replace(tzinfo=zone, fold=1).utcoffset() or timedelta()
    if first == second:
        return first
    what = "stands for two moments" if first > second else "does not exist"
    raise DecodeError(
        f"TIMESTAMP '{local}' {what} in {zone}: the format has lost it; run the sender in UTC", Code.LOST_VALUE
    )
