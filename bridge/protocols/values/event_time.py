"""Makes TSOs for formats that carry none, from an event time in milliseconds or in whole seconds; and the places of
events in a binlog.

A place is a text of one or more *coordinates*, joined by COORDINATES_SEP.  A coordinate is a name, a space, and a
number of NUMBER_DIGITS digits.  Numbers of one name ascend as the events do; those of two names tell nothing of each
other.  `bridge.rows.moments` compares places.

name                          number                     sent by
gtid READER/UUID              of the transaction         Debezium (MySQL: uuid:5, with a tag uuid:tag:5), Canal
gtid READER/DOMAIN            of the transaction         Debezium (MariaDB: domain-server-sequence), Canal
file READER/BASE/SERVER       of the file and position   Debezium
sent                          of the sending             Canal without GTIDs
snapshot                      0                          Debezium's snapshots: their schema changes

READER is who names the places (Debezium: `source.name`; Canal names nobody, "").  A GTID is the same on every server
that has the transaction.  A binlog's files are comparable within one server only, so their name holds its server_id
(a promoted server's has the former one's id with what that wrote; GTIDs tell there); SNAPSHOT_SERVER stands for a
snapshot of whichever server.  All events of a transaction have one GTID; where Debezium tells it, the file and position
come behind it in the text and order them.

Canal's `gtid` is the set of all transactions so far, as in uuid:1-5,uuid2:1-3: the place has the last number of each.
Without GTIDs its place is when the message was made, and in which batch (`place_of_sending`): where it was sent, not
where it is in the binlog, so that what is sent again has a later one.

Converts local TIMESTAMP text to UTC: some formats write TIMESTAMP in their sender's zone and do not name it.

The target's session runs in UTC and needs no named zones, which fail on a server without zone tables.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from datetime import UTC, datetime, timedelta, tzinfo
from datetime import timezone as fixed_zone
from functools import lru_cache
from typing import Final
from zoneinfo import ZoneInfo, available_timezones

from bridge.errors import UsageError, meant
from bridge.events import Code
from bridge.protocols.decoder import DecodeError, excerpt
from bridge.protocols.values import literals
from bridge.tso import ms_tso

_ZONE_MISSING: Final = (
    "this format writes TIMESTAMP in its sender's time zone without naming it: give it with --timezone"
)
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
            raise DecodeError(_ZONE_MISSING, Code.NO_TIMEZONE)
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
    raise UsageError(
        f"unknown time zone {name!r}", fix=f'{meant(name, names)}give an IANA name, "UTC" or an offset like "+08:00"'
    )


def _offset(local: datetime, zone: tzinfo) -> timedelta:
    """Gives a local time's offset; raises DecodeError for a time that the zone's clocks showed twice, or never."""
    first = local.replace(tzinfo=zone, fold=0).utcoffset() or timedelta()
    second = local.replace(tzinfo=zone, fold=1).utcoffset() or timedelta()
    if first == second:
        return first
    fault = "stands for two moments" if first > second else "does not exist"
    raise DecodeError(
        f"TIMESTAMP '{local}' {fault} in {zone}: the format has lost it; run the sender in UTC", Code.LOST_VALUE
    )


_MAX_MS: Final = (1 << 45) - 1
"""The last millisecond whose TSO fits int64; it is in the year 3084."""
_FIRST_MS: Final = 100_000_000_000
"""A smaller number is in seconds: in milliseconds it would be before March 1973; in seconds, this one is in the year
5138."""
NUMBER_DIGITS: Final = 19
COORDINATES_SEP: Final = "\n"
GTID: Final = "gtid "
"""How the name of a GTID's coordinate begins."""
FILE: Final = "file "
"""How the name of a file's coordinate begins."""
SENT: Final = "sent"
"""The name of the coordinate of a sending."""
BATCH_BITS: Final = 22
"""How many bits of the number of a sending are the batch's; above them is the time in milliseconds."""
_LAST_SENT_MS: Final = (1 << 41) - 1
SNAPSHOT_SERVER: Final = "0"
"""The server_id of what is not from the binlog: Debezium's snapshots."""
SNAPSHOT_PLACE: Final = f"snapshot {0:0{NUMBER_DIGITS}}"
_FILE: Final = re.compile(r"(.+)\.([0-9]{1,10})")
_LAST_FILE: Final = (1 << 31) - 1
"""The last file of MySQL's and MariaDB's binlog."""
POSITION_BITS: Final = 32
"""How many bits of the number of a file and position are the position's."""
LAST_POSITION: Final = (1 << POSITION_BITS) - 1
_OF_MARIADB_TOO: Final = frozenset({"0.", "1.", "2."})
_MOST_ROWS: Final = 1_000_000_000
"""Of an event; a message that names more tells nothing."""
_MOST_NUMBER: Final = (1 << 63) - 1
_MYSQL_GTID: Final = re.compile(r"([0-9A-Za-z-]{1,64}(?::[a-z_][a-z0-9_]{0,31})?):([0-9]{1,19})")
_MARIADB_GTID: Final = re.compile(r"([0-9]{1,10})-[0-9]{1,10}-([0-9]{1,19})")
_GTIDS_OF_SERVER: Final = re.compile(
    r"([0-9A-Za-z-]{1,64}):((?:[0-9]{1,19}(?:-[0-9]{1,19})?)(?::[0-9]{1,19}(?:-[0-9]{1,19})?)*)"
)
_GTIDS_WITHOUT_GAPS: Final = re.compile(r"(\s*(?:([0-9A-Za-z-]{1,64}):1-|([0-9]{1,10})-[0-9]{1,10}-))[1-9][0-9]{0,17}")
_NUMBER: Final = re.compile("[0-9]+")
_LOCAL: Final = re.compile(r"[0-9]{14}")
_LOCAL_FORMAT: Final = "%Y%m%d%H%M%S"
_NO_ZONE: Final = "ckafka writes TIME and TIMESTAMP in a time zone that it does not name: give it with --timezone"


def event_ts(moment: object, field: str) -> int:
    """Gives the TSO of the first millisecond of an event time (`es`, a number); raises DecodeError."""
    if type(moment) is int:
        ms = moment if moment >= _FIRST_MS else moment * 1000
        if 0 <= ms <= _MAX_MS:
            return ms_tso(ms)
    raise DecodeError(f"{field} is {excerpt(moment)}, not a time in milliseconds or seconds since 1970")


def place_in_binlog(reader: str, file: str, position: int, server: object = None, gtid: object = None) -> str | None:
    """Makes the place of an event that Debezium's connector names; None where it names none that can be compared.

    reader: `source.name`.  file: as in binlog.000003.  position: in the file.  server: `source.server_id`.
    gtid: `source.gtid`, one of MySQL or MariaDB.
    """
    coordinate = _file(file)
    place = None
    if coordinate is not None and position >= 0:
        base, start = coordinate
        place = f"{FILE}{reader}/{base}/{server} {start + min(position, LAST_POSITION):019}"
    if type(gtid) is str and (match := _MYSQL_GTID.fullmatch(gtid) or _MARIADB_GTID.fullmatch(gtid)):
        of_gtid = _coordinate(f"{GTID}{reader}/{match[1].lower()}", int(match[2]))
        return of_gtid if place is None else f"{of_gtid}{COORDINATES_SEP}{place}"
    return place


def row_index(row: object, connector: object, version: object, *, is_deleted: bool) -> int:
    """Gives a row of an event of the binlog its `RowChange.index`, which ascends within that event and is above 0; 0
    where the message does not tell the row, or its position is not that of the event.

    row, connector, version: of `source` of Debezium's connector.  Rows count from 0; a changed key is a delete and a
        create of one row.  All events of a transaction of MariaDB 11.4 have one position (connector 3.5.0), which
        connectors named mysql could read before 3.0.
    """
    if connector != "mysql" or type(version) is not str or version[:2] in _OF_MARIADB_TOO:
        return 0
    return 2 * row + (1 if is_deleted else 2) if type(row) is int and 0 <= row < _MOST_ROWS else 0


def file_and_position(file: str, position: int) -> tuple[str, int]:
    """Gives the base name of a file of the binlog, and a number that ascends with the file and the position in it.
    Raises DecodeError for another file or position."""
    coordinate = _file(file)
    if coordinate is None or not 0 <= position <= LAST_POSITION:
        raise DecodeError(f"no position of a binlog: {excerpt(file)}, {excerpt(position)}")
    return coordinate[0], coordinate[1] + position


def text_before_number(gtid: str) -> str | None:
    """Gives what stands before the number of a GTID of MySQL or MariaDB, which is the same in all of its server or
    domain that come from one server; None for another text."""
    match = _MYSQL_GTID.fullmatch(gtid) or _MARIADB_GTID.fullmatch(gtid)
    return None if match is None else gtid[: match.start(2)]


def parts_of_set(gtids: str) -> list[tuple[str, str]] | None:
    """Gives for each GTID of a set what stands before its last number, and the name of its coordinate; None for a set
    whose last numbers do not tell its place alone."""
    parts = [_GTIDS_WITHOUT_GAPS.fullmatch(part) for part in gtids.split(",")]
    pairs = [
        ("," * (number > 0) + part[1], f"{GTID}/{(part[2] or part[3]).lower()}")
        for number, part in enumerate(parts)
        if part
    ]
    return pairs if len({name for _, name in pairs}) == len(parts) else None


def base_of_file(name: str) -> str | None:
    """Gives what stands before the number of a file of the binlog; None for another file."""
    return None if _file(name) is None else name[: name.rindex(".") + 1]


@lru_cache(maxsize=1024)
def _file(name: str) -> tuple[str, int] | None:
    """Gives the base name of a file of the binlog, and the number of its first position; None for another file."""
    match = _FILE.fullmatch(name)
    if match is None or int(match[2]) > _LAST_FILE:
        return None
    return match[1], int(match[2]) << POSITION_BITS


@lru_cache(maxsize=1024)
def place_in_gtid_set(gtids: str) -> str | None:
    """Makes the place of an event whose sender tells all transactions up to it; None where it tells none.

    gtids: as MySQL writes a set (uuid:1-5:7,uuid2:1-3), or MariaDB (0-1-5,1-2-9); one GTID is a set of one.
    Source: Canal 1.1.7, whose flat message has the set of its binlog reader (LogHeader.getGtidSetStr).
    """
    last: dict[str, int] = {}
    for part in gtids.split(","):
        text = part.strip()
        if of_domain := _MARIADB_GTID.fullmatch(text):
            name, number = of_domain[1], int(of_domain[2])
        elif of_server := _GTIDS_OF_SERVER.fullmatch(text):
            name, number = of_server[1].lower(), max(map(int, _NUMBER.findall(of_server[2])))
        else:
            return None
        last[name] = max(number, last.get(name, 0))
    return COORDINATES_SEP.join(_coordinate(f"{GTID}/{name}", number) for name, number in sorted(last.items()))


def place_of_sending(ms: object, batch: object) -> str | None:
    """Makes the place of an event by its sending; None where the message does not tell it.

    ms: when Canal made the message (`ts`).  batch: the number of the batch that its client took (`id`), from 1 in each
        run of the server.
    Source: Canal 1.1.7 makes a batch's messages one after the other in the order of the binlog, and takes the next one
    when all of them are in Kafka (MQMessageUtils.messageConverter, CanalKafkaProducer.send).
    """
    if type(ms) is not int or type(batch) is not int or not (_FIRST_MS <= ms <= _LAST_SENT_MS and batch > 0):
        return None
    return f"{SENT} {(ms << BATCH_BITS) | (batch & ((1 << BATCH_BITS) - 1)):019}"


def is_change_of_snapshot(place: str) -> bool:
    """Tells whether a schema change with this place is a snapshot's, thus the text of SHOW CREATE TABLE."""
    return place == SNAPSHOT_PLACE or f"/{SNAPSHOT_SERVER}\n" in place


def is_of_canal(place: str) -> bool:
    """Tells whether a place is one that official Canal tells, which names no reader."""
    return place.startswith((f"{SENT} ", f"{GTID}/"))


def is_of_connector(place: str) -> bool:
    """Tells whether a place is one that Debezium's connector tells, or of its snapshot."""
    return bool(place) and not is_of_canal(place)


def is_of_debezium(place: str) -> bool:
    """Tells whether a place is one that Debezium's connector tells."""
    return is_of_connector(place) and not place.startswith(SNAPSHOT_PLACE)


def _coordinate(name: str, number: int) -> str:
    return f"{name} {min(number, _MOST_NUMBER):0{NUMBER_DIGITS}}"


def is_seconds(moment: object) -> bool:
    """Tells whether an event time is in whole seconds."""
    return type(moment) is int and moment < _FIRST_MS


def local_event_ts(timezone: str | None) -> Callable[[str], int]:
    """Makes the function from a local time, written YYYYMMDDhhmmss, to the TSO of the first millisecond of its second.

    Where the zone's clocks show a time twice, it takes the first.  Raises UsageError for an unknown zone.
    """
    zone = None if timezone is None else zone_of(timezone)

    @lru_cache(maxsize=4096)
    def read(text: str) -> int:
        if zone is None:
            raise DecodeError(_NO_ZONE, Code.NO_TIMEZONE)
        if not _LOCAL.fullmatch(text):
            raise DecodeError(f"TIME is {excerpt(text)}, not a time like 20160611015029")
        try:
            ms = 1000 * int(datetime.strptime(text, _LOCAL_FORMAT).replace(tzinfo=zone).timestamp())
        except (ValueError, OverflowError):
            ms = -1
        if not 0 <= ms <= _MAX_MS:
            raise DecodeError(f"TIME is {excerpt(text)}, which is not a time from 1970 on")
        return ms_tso(ms)

    return read
