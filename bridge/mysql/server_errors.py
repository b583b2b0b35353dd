"""Gives errors of a server a type that tells whether a retry may help.

The driver's errors carry a number.  Where they enter the bridge, in `connection`, `typed_errors` gives a type to those
that a retry may cure; any other error of the driver is terminal.

MySQLError                  terminal: the server refuses the statement
+-- LostConnectionError     transient: the connection ended, and nobody knows what the statement did
+-- LockConflictError       transient: another transaction was in the way
OSError                     transient: the connection ended below the driver

Code that retries catches one of the tuples LOST and TRANSIENT.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pymysql.err import InterfaceError, MySQLError, OperationalError

LOST_CONNECTION: Final = frozenset({1053, 1077, 1079, 1080, 1152, 1159, 1161, 1927, 2006, 2013, 2014, 2055})
"""The server is shutting down, or the connection was killed or cut (MariaDB error codes; 1927 is "Connection was
killed")."""
UNREACHABLE: Final = frozenset({1040, 2002, 2003, 2005})
LOCK_CONFLICT: Final = frozenset({1205, 1213})
DUPLICATE_KEY: Final = frozenset({1062, 1586})
LOGIN_REFUSED: Final = frozenset({1044, 1045, 1698})
CUT_VALUE: Final = 1265
"""Digits or blanks were cut off; a server reports it only as a note where strict mode allows it."""
REFUSED_VALUE: Final = frozenset(
    {1048, 1118, 1264, CUT_VALUE, 1292, 1300, 1364, 1366, 1367, 1406, 1411, 1416}
    | {1525, 1526, 1690, 1748, 3140, 3819, 4025}
)
"""NULL in a NOT NULL column, too long, out of range, not of the type or character set, not in the list, no partition
for it, a CHECK constraint (MariaDB and MySQL error codes)."""


class LostConnectionError(OperationalError):
    """Raised when the connection ended before the answer came, or could not be made: nobody knows what the statement
    did."""


class LockConflictError(OperationalError):
    """Raised when another transaction was in the way; the server has rolled back this one, or the statement."""


LOST: Final = (LostConnectionError, OSError)
TRANSIENT: Final = (*LOST, LockConflictError)


@contextmanager
def typed_errors() -> Iterator[None]:
    """Raises the driver's errors with their type."""
    try:
        yield
    except MySQLError as error:
        typed = typed_error(error)
        if typed is error:
            raise
        raise typed from error


def typed_error(error: MySQLError) -> MySQLError:
    """Gives an error of the driver a type that says whether it is transient; the same error when it is terminal."""
    if isinstance(error, TRANSIENT):
        return error
    if isinstance(error, InterfaceError) or error_code(error) in LOST_CONNECTION | UNREACHABLE:
        return LostConnectionError(*error.args)
    return LockConflictError(*error.args) if error_code(error) in LOCK_CONFLICT else error


def error_code(error: BaseException) -> int:
    """Gives the server's (or client library's) number of an error; 0 for a cut connection without one."""
    return int(error.args[0]) if error.args and isinstance(error.args[0], int) else 0


def server_words(error: BaseException) -> str:
    """Gives an error in the server's words: ``1146 (Table 'a.b' doesn't exist)``."""
    return f"{error.args[0]} ({error.args[1]})" if len(error.args) > 1 else str(error)
