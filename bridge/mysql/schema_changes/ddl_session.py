"""The session that schema changes run on: the upstream's settings and zone in it, and what a TIMESTAMP column is there.

The bridge's sessions are in UTC.  A statement may mean local times: a default of CURRENT_TIMESTAMP for a DATETIME
column, a column that becomes a TIMESTAMP, the bounds of partitions.

TiDB always rounds a time where a column holds fewer digits.  MySQL rounds it and MariaDB cuts it; each of these two
knows only the mode that has it do as the other one does.

Without explicit_defaults_for_timestamp, the default of MySQL 5.7, a TIMESTAMP column without NULL is NOT NULL, and
turns NULL into the time of the statement.  There, and in MySQL 8, a session may set it with SUPER only
(SESSION_VARIABLES_ADMIN); in MariaDB and TiDB every user may.
"""

from __future__ import annotations

from typing import Final

import structlog
from pymysql.constants import ER
from pymysql.err import MySQLError

from bridge.ddl.parser import Classified
from bridge.ddl.policy import DdlRules
from bridge.ddl.rule import Capabilities
from bridge.errors import TargetError
from bridge.model import SchemaChange, quote_name
from bridge.mysql.connection.session import SQL_MODE, Session
from bridge.mysql.probe import OWN_DEFAULTS, probe
from bridge.mysql.server_errors import LOST, error_code
from bridge.protocols.values.event_time import zone_of
from bridge.tso import tso_ms

UTC: Final = "+00:00"


def session_zone(session: Session, timezone: str | None) -> str | None:
    """Gives what the session's time_zone has to be for a zone (a name or an offset), UTC where nobody has told it; None
    where the server does not know its name."""
    if timezone is None:
        return UTC
    zone = _in_sql(timezone)
    if not session.try_to_set("time_zone = %s", (zone,), tolerated={ER.UNKNOWN_TIME_ZONE}):
        return None
    session.execute("SET time_zone = %s", (UTC,))
    return zone


def set_fractions(session: Session, source: str) -> None:
    """Has the session treat fractions as schema changes of the source do, where it can.  source: as in `DdlRules`."""
    if session.is_tidb:
        return
    mode = "TIME_TRUNCATE_FRACTIONAL" if source == "mariadb" else "TIME_ROUND_FRACTIONAL"
    session.try_to_set(f"sql_mode = '{SQL_MODE},{mode}'", tolerated={ER.WRONG_VALUE_FOR_VAR})


def _in_sql(timezone: str) -> str:
    offset = zone_of(timezone).utcoffset(None)
    if offset is None:
        return timezone
    minutes = abs(offset).seconds // 60
    return f"{'-' if offset.days < 0 else '+'}{minutes // 60:02}:{minutes % 60:02}"


def require_explicit_defaults(session: Session, where: str) -> None:
    """Raises TargetError where a TIMESTAMP column would become another one than upstream."""
    if not session.value("SELECT @@SESSION.explicit_defaults_for_timestamp"):
        raise TargetError(
            "the target would make its TIMESTAMP columns NOT NULL, whatever the statement says:"
            " explicit_defaults_for_timestamp is off, and the bridge's user may not set it",
            where=where,
            fix="SET GLOBAL explicit_defaults_for_timestamp = ON on the target, and in its settings; or give the user"
            " SUPER (SESSION_VARIABLES_ADMIN)",
        )


def reset_session(session: Session) -> None:
    """Gives the session the present time again, UTC, and the mode in which all sessions see the target; one whose
    connection is lost needs none."""
    try:
        session.execute(f"SET timestamp = DEFAULT, time_zone = '+00:00', sql_mode = '{SQL_MODE}'")
    except MySQLError as error:
        if not isinstance(error, LOST):
            raise


_NOT_SETTABLE: Final = frozenset({1193, 1227, 1229, 1231, 1238})
_SESSION: Final = (
    # Collations and defaults are written out; these two settings would make servers of one flavour differ.
    OWN_DEFAULTS,
    "explicit_defaults_for_timestamp = 1",
    # A table without a key gets none of the server's own (MySQL 8.0.30), which no message has, unless it must have one.
    "sql_generate_invisible_primary_key ="
    " @@SESSION.sql_generate_invisible_primary_key AND @@SESSION.sql_require_primary_key",
    # MariaDB reads IF EXISTS where no statement has it, and with it makes no table LIKE another one (error 1113).
    "sql_if_exists = 0",
)

log = structlog.get_logger()


class DdlSession:
    """The session that one pipeline's schema changes run on.

    rules: as of `SchemaChangeRunner`, with the schema of the bridge's own tables.
    """

    def __init__(self, rules: DdlRules) -> None:
        self._rules = rules
        self._probed: tuple[int, Capabilities] | None = None
        self._zones: dict[int, str | None] = {}

    def capabilities(self, session: Session) -> Capabilities:
        """Gives the target's capabilities, probed once per connection: a server may come back as another version."""
        if self._probed is None or self._probed[0] != session.connection_id:
            self._probed = session.connection_id, probe(session)
            log.info("target", server=str(self._probed[1]))
        return self._probed[1]

    def zone(self, session: Session) -> str | None:
        """Gives the upstream's zone, asked for once per connection; None where the target does not know it."""
        if session.connection_id not in self._zones:
            self._zones = {session.connection_id: session_zone(session, self._rules.timezone)}
        return self._zones[session.connection_id]

    def prepare(self, session: Session, change: SchemaChange, classified: Classified) -> None:
        """Sets the session up.  The current database is the message's.  It may be missing where every name has a
        database."""
        try:
            current = self._rules.routes.whole_database(change.schema) or change.schema
            session.execute(f"USE {quote_name(current or self._rules.own_schema)}")
        except MySQLError as error:
            if error_code(error) != ER.BAD_DB_ERROR or not all(named.is_qualified for named in classified.touched):
                raise
            session.execute(f"USE {quote_name(self._rules.own_schema)}")
        set_fractions(session, self._rules.source)
        for setting in _SESSION:
            session.try_to_set(setting, tolerated=_NOT_SETTABLE)
        # Defaults of CURRENT_TIMESTAMP use the time of the upstream's change, in its zone.
        session.execute(
            f"SET timestamp = {tso_ms(change.commit_ts) / 1000:.3f}, time_zone = '{self.zone(session) or UTC}'"
        )
