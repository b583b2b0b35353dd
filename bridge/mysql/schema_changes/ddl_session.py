"""Sets the control session up for a schema change, and knows what holds as long as its connection does."""

from __future__ import annotations

from typing import Final

import structlog
from pymysql.err import MySQLError

from bridge.ddl.parser import Classified
from bridge.ddl.policy import DdlRules
from bridge.ddl.server_features import Capabilities
from bridge.model import SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.probe import OWN_DEFAULTS, probe
from bridge.mysql.schema_changes.timestamp_defaults import EXPLICIT_DEFAULTS
from bridge.mysql.schema_changes.upstream_zone import UTC, known_zone, set_fractions
from bridge.mysql.server_errors import error_code
from bridge.quoting import quote_name
from bridge.tso import tso_ms

NO_SUCH_DATABASE: Final = 1049
_NOT_SETTABLE: Final = frozenset({1193, 1227, 1229, 1231, 1238})
_SESSION: Final = (
    # Collations and defaults are written out; these two settings would make servers of one flavour differ.
    OWN_DEFAULTS,
    EXPLICIT_DEFAULTS,
    # A table without a key gets none of the server's own (MySQL 8.0.30), which no message has, unless it must have one.
    "SET SESSION sql_generate_invisible_primary_key ="
    " @@SESSION.sql_generate_invisible_primary_key AND @@SESSION.sql_require_primary_key",
    # MariaDB reads IF EXISTS where no statement has it, and with it makes no table LIKE another one (error 1113).
    "SET SESSION sql_if_exists = 0",
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
            self._zones = {session.connection_id: known_zone(session, self._rules.timezone)}
        return self._zones[session.connection_id]

    def prepare(self, session: Session, change: SchemaChange, classified: Classified) -> None:
        """Sets the session up.  The current database is the message's.  It may be missing where every name has a
        database."""
        try:
            current = self._rules.routes.whole_database(change.schema) or change.schema
            session.execute(f"USE {quote_name(current or self._rules.own_schema)}")
        except MySQLError as error:
            if error_code(error) != NO_SUCH_DATABASE or not all(named.is_qualified for named in classified.touched):
                raise
            session.execute(f"USE {quote_name(self._rules.own_schema)}")
        set_fractions(session, self._rules.source)
        for setting in _SESSION:
            try:
                session.execute(setting)
            except MySQLError as error:
                if error_code(error) not in _NOT_SETTABLE:
                    raise
        # Defaults of CURRENT_TIMESTAMP use the time of the upstream's change, in its zone.
        session.execute(
            f"SET timestamp = {tso_ms(change.commit_ts) / 1000:.3f}, time_zone = '{self.zone(session) or UTC}'"
        )
