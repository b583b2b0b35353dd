"""Asks a target what it can do."""

from __future__ import annotations

from typing import Final

from pymysql.err import MySQLError

from bridge.ddl.collation_tables import KnownCollations, both_utf8
from bridge.ddl.server_features import Capabilities, Flavour, read_version
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import LOST, UNKNOWN_OR_DENIED, error_code

OWN_DEFAULTS: Final = "SET SESSION character_set_collations = ''"
"""Has MariaDB take the default collations that it was built with, whatever is set for all sessions.  Schema changes run
so, and what they must say is found out so."""
_UNKNOWN_COLUMN: Final = 1054


def probe(session: Session) -> Capabilities:
    """Asks the server for its version and settings."""
    said, packet, lower_case = session.rows("SELECT VERSION(), @@max_allowed_packet, @@lower_case_table_names")[0]
    flavour, version = read_version(str(said))
    collations, encrypts = probe_collations(session), _encrypts(session, flavour)
    return Capabilities(flavour, version, collations, int(packet), int(lower_case), encrypts)


def _encrypts(session: Session, flavour: Flavour) -> bool:
    """Asks whether the server has what manages keys: a plugin, or a component of MySQL."""
    if flavour is Flavour.TIDB:
        return True  # it reads the option, and forgets it
    kind = "plugin_type = 'ENCRYPTION'" if flavour is Flavour.MARIADB else "plugin_name LIKE 'keyring%'"
    active = f"SELECT COUNT(*) FROM information_schema.plugins WHERE {kind} AND plugin_status = 'ACTIVE'"
    if session.value(active):
        return True
    if flavour is Flavour.MARIADB:
        return False
    try:
        return bool(session.value("SELECT COUNT(*) FROM performance_schema.keyring_component_status"))
    except MySQLError as error:
        if isinstance(error, LOST):
            raise
        return False  # a version without components, or without the right to see them


def probe_collations(session: Session) -> KnownCollations:
    """Asks the server for its collations.  From MariaDB 10.10 on, a collation has a name for each character set."""
    names = [name for (name,) in session.rows("SELECT collation_name FROM information_schema.collations")]
    try:
        names += [
            name
            for (name,) in session.rows(
                "SELECT full_collation_name FROM information_schema.collation_character_set_applicability"
            )
        ]
    except MySQLError as error:
        if error_code(error) != _UNKNOWN_COLUMN:
            raise
    try:
        session.execute(OWN_DEFAULTS)
    except MySQLError as error:
        if error_code(error) not in UNKNOWN_OR_DENIED:
            raise
    # information_schema has the defaults that the server was built with: default_collation_for_utf8mb4 is not in it.
    defaults = ((charset, collation) for charset, _, collation, _ in session.rows("SHOW CHARACTER SET"))
    server = str(session.value("SELECT @@collation_server"))
    return KnownCollations(
        frozenset(str(name).lower() for name in names),
        both_utf8({str(charset): str(collation) for charset, collation in defaults}),
        server,
    )
