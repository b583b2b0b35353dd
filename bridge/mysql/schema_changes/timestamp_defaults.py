"""Whether a new TIMESTAMP column is what its definition says, and the time that its default gives to rows.

Without explicit_defaults_for_timestamp, the default of MySQL 5.7, a TIMESTAMP column without NULL is NOT NULL, and
turns NULL into the time of the statement.  There, and in MySQL 8, a session may set it with SUPER only
(SESSION_VARIABLES_ADMIN); in MariaDB and TiDB every user may.
"""

from __future__ import annotations

from typing import Final

from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.mysql.connection.session import SQL_MODE, Session
from bridge.mysql.server_errors import LOST

EXPLICIT_DEFAULTS: Final = "SET SESSION explicit_defaults_for_timestamp = 1"
FIX: Final = (
    "SET GLOBAL explicit_defaults_for_timestamp = ON on the target, and in its settings; or give the user SUPER"
    " (SESSION_VARIABLES_ADMIN)"
)


def are_explicit(session: Session) -> bool:
    """Tells whether the session takes definitions of TIMESTAMP columns as they are."""
    return bool(session.value("SELECT @@SESSION.explicit_defaults_for_timestamp"))


def require_explicit_defaults(session: Session, where: str) -> None:
    """Raises TargetError where a TIMESTAMP column would become another one than upstream."""
    if not are_explicit(session):
        raise TargetError(
            "the target would make its TIMESTAMP columns NOT NULL, whatever the statement says:"
            " explicit_defaults_for_timestamp is off, and the bridge's user may not set it",
            where=where,
            fix=FIX,
        )


def reset_session(session: Session) -> None:
    """Gives the session the present time again, UTC, and the mode in which all sessions see the target; one whose
    connection is lost needs none."""
    try:
        session.execute(f"SET timestamp = DEFAULT, time_zone = '+00:00', sql_mode = '{SQL_MODE}'")
    except MySQLError as error:
        if not isinstance(error, LOST):
            raise
