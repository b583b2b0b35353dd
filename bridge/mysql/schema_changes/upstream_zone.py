"""What the upstream's sessions do with times in schema changes, as the target takes it: their zone, and fractions.

The bridge's sessions are in UTC.  A statement may mean local times: a default of CURRENT_TIMESTAMP for a DATETIME
column, a column that becomes a TIMESTAMP, the bounds of partitions.

TiDB always rounds a time where a column holds fewer digits.  MySQL rounds it and MariaDB cuts it; each of these two
knows only the mode that has it do as the other one does.
"""

from __future__ import annotations

from typing import Final

from pymysql.constants import ER
from pymysql.err import MySQLError

from bridge.mysql.connection.session import SQL_MODE, Session
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


def set_fractions(session: Session, source: str) -> None:
    """Has the session treat fractions as schema changes of the source do, where it can.  source: as in `DdlRules`."""
    if session.is_tidb:
        return
    mode = "TIME_TRUNCATE_FRACTIONAL" if source == "mariadb" else "TIME_ROUND_FRACTIONAL"
    try:
        session.execute(f"SET SESSION sql_mode = '{SQL_MODE},{mode}'")
    except MySQLError as error:
        if error_code(error) != ER.WRONG_VALUE_FOR_VAR:
            raise


def _in_sql(timezone: str) -> str:
    offset = zone_of(timezone).utcoffset(None)
    if offset is None:
        return timezone
    minutes = abs(offset).seconds // 60
    return f"{'-' if offset.days < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"
