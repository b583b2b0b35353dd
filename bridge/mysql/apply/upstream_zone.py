"""The zone in which the upstream's sessions run schema changes, as the target takes it.

The bridge's sessions are in UTC.  A statement may mean local times: a default of CURRENT_TIMESTAMP for a DATETIME
column, a column that becomes a TIMESTAMP, the bounds of partitions.
"""

from __future__ import annotations

from typing import Final

from pymysql.constants import ER
from pymysql.err import MySQLError

from bridge.mysql.connection import Session
from bridge.mysql.server_errors import error_code
from bridge.protocols.values.timezones import zone_of

UTC: Final = "+00:00"


def known_zone(session: Session, timezone: str | None) -> str | None:
    """Gives what the session's time_zone has to be for a zone (a name or an offset), UTC where nobody has told it; None
    where the server does not know its name."""
    if timezone is None:
        return UTC
    zone = _in_sql(timezone)
    try:
        session.execute("SET time_zone = %s", (zone,))
    except MySQLError as error:
        if error_code(error) != ER.UNKNOWN_TIME_ZONE:
            raise
        return None
    session.execute("SET time_zone = %s", (UTC,))
    return zone


def _in_sql(timezone: str) -> str:
    offset = zone_of(timezone).utcoffset(None)
    if offset is None:
        return timezone
    minutes = abs(offset).seconds // 60
    return f"{'-' if offset.days < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
