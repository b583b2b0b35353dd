"""Asks a target what it can do: its syntax, whether locks and KILL reach every connection of it, and whether it takes
writes from everybody."""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator
from typing import Final, NamedTuple

from pymysql.constants import ER
from pymysql.err import MySQLError

from bridge.ddl.collation_tables import KnownCollations, both_utf8
from bridge.ddl.rule import Capabilities, Flavour, read_version
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import LOST, OPTION_PREVENTS, ReadOnlyError, error_code

OWN_DEFAULTS: Final = "character_set_collations = ''"
"""Has MariaDB take the default collations that it was built with, whatever is set for all sessions.  Schema changes run
so, and what they must say is found out so."""


def probe(session: Session) -> Capabilities:
    """Asks the server for its version and settings."""
    banner, packet, lower_case = session.rows("SELECT VERSION(), @@max_allowed_packet, @@lower_case_table_names")[0]
    flavour, version = read_version(str(banner))
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
    session.execute("SET SESSION group_concat_max_len = 1048576")  # one row: to read a thousand takes 10 ms
    names = str(session.value("SELECT GROUP_CONCAT(collation_name) FROM information_schema.collations"))
    try:
        names += "," + str(
            session.value(
                "SELECT GROUP_CONCAT(full_collation_name) FROM information_schema.collation_character_set_applicability"
            )
        )
    except MySQLError as error:
        if error_code(error) != ER.BAD_FIELD_ERROR:
            raise
    session.try_to_set(OWN_DEFAULTS)
    # information_schema has the defaults that the server was built with: default_collation_for_utf8mb4 is not in it.
    defaults = ((charset, collation) for charset, _, collation, _ in session.rows("SHOW CHARACTER SET"))
    return KnownCollations(
        frozenset(names.lower().split(",")),
        both_utf8({str(charset): str(collation) for charset, collation in defaults}),
        str(session.value("SELECT @@collation_server")),
    )


_ONE_NODE = "a lock and a KILL reach one node only"


class Reach(NamedTuple):
    """Something about the target that ownership depends on.  is_fatal: a pipeline must not run so."""

    is_fatal: bool
    what: str
    fix: str


def find_limits(first: Session, second: Session) -> Iterator[Reach]:
    """Gives what limits locks and KILL, of two sessions that were opened one after the other."""
    yield from _behind_proxy(first, second)
    yield from _of_cluster(first)


def _behind_proxy(first: Session, second: Session) -> Iterator[Reach]:
    lock = f"bridge:check:{uuid.uuid4().hex}"
    first.value("SELECT GET_LOCK(%s, 0)", (lock,))
    holder, other_holder = (session.value("SELECT IS_USED_LOCK(%s)", (lock,)) for session in (first, second))
    if holder is not None and other_holder is None:
        yield Reach(
            True,
            "two connections lead to two servers that do not share locks: a second bridge would not be kept out, and"
            " --take-over could not end the first; only the epoch in the progress row would keep it from writing",
            "give --target an address that leads to one server at a time: the writer, not a balancer",
        )
    elif holder != first.connection_id:
        yield Reach(
            False,
            f"the server knows this connection by another id ({holder}) than the client ({first.connection_id}), as"
            " behind ProxySQL: --take-over ends no connection of another bridge, and waits for the server to do so",
            "give --target the address of the server itself",
        )


def _of_cluster(session: Session) -> Iterator[Reach]:
    variables = session.variables("GLOBAL", ("wsrep_on", "group_replication_single_primary_mode"))
    fix = "give --target an address that leads to one node at a time, for all bridges of this name"
    if variables.get("wsrep_on", "OFF").upper() == "ON":
        yield Reach(False, f"the target is a node of Galera: {_ONE_NODE}", fix)
    if variables.get("group_replication_single_primary_mode", "ON").upper() == "OFF":
        yield Reach(False, f"the target is a member of Group Replication with several primaries: {_ONE_NODE}", fix)


_FLAGS: Final = (
    *("read_only", "super_read_only", "innodb_read_only"),
    *("tidb_restricted_read_only", "tidb_super_read_only"),
)


def writable(session: Session) -> str:
    """Gives a condition that is true while the session's server takes writes; the server is asked once for what it
    has."""
    if session.writable is None:
        session.writable = condition(session.variables("GLOBAL", _FLAGS))
    return session.writable


def condition(flags: Iterable[str]) -> str:
    """Gives the condition that none of these global variables is on: a number, a word, or one of several words
    (MariaDB 12)."""
    return " AND ".join(f"CAST(@@GLOBAL.{flag} AS CHAR) IN ('0', 'OFF')" for flag in sorted(flags)) or "TRUE"


def require_writable(session: Session) -> None:
    """Raises ReadOnlyError unless the session's server takes writes."""
    if not session.value(f"SELECT {writable(session)}"):
        raise read_only()


def read_only() -> ReadOnlyError:
    """Makes the error of a server on which only accounts with special privileges may write."""
    return ReadOnlyError(OPTION_PREVENTS, "the server is read-only, and this user's privileges do not count")
