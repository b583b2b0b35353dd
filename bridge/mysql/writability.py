"""Whether a server takes writes from everybody.

An account with all privileges may write on a server that is read-only, as a primary is that was just demoted; what it
writes there is lost to the new primary.  So whatever moves progress carries a condition of SQL, which costs nothing.  A
node of Galera that is not prepared needs none: it refuses every statement (error 1047).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import OPTION_PREVENTS, ReadOnlyError

_FLAGS: Final = (
    *("read_only", "super_read_only", "innodb_read_only"),
    *("tidb_restricted_read_only", "tidb_super_read_only"),
)


def writable(session: Session) -> str:
    """Gives a condition that is true while the session's server takes writes; the server is asked once for what it
    has."""
    if session.writable is None:
        names = ",".join(f"'{name}'" for name in _FLAGS)
        found = session.rows(f"SHOW GLOBAL VARIABLES WHERE Variable_name IN ({names})")
        session.writable = condition(str(name).lower() for name, _ in found)
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
