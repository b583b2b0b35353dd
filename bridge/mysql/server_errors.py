"""Gives errors of a server a type that tells whether a retry may help.

The driver's errors carry a number.  Where they enter the bridge, in `connection`, `typed_errors` gives a type to those
that a retry may cure; any other error of the driver is terminal.

MySQLError                  terminal: the server refuses the statement
+-- TooLargeError           terminal: a row or a transaction is larger than a limit of the server
+-- LostConnectionError     transient: the connection ended, and nobody knows what the statement did
|   +-- UnavailableError    transient: this server does no work now; a new connection may lead to one that does
|       +-- ReadOnlyError   transient: it takes no writes: the primary is another one now, or will be this one again
+-- LockConflictError       transient: another transaction was in the way
+-- NoRoomError             transient: the server's disk is full, until somebody makes room
OSError                     transient: the connection ended below the driver

Code that retries catches one of the tuples LOST and TRANSIENT.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Final

from pymysql.err import InterfaceError, InternalError, MySQLError, OperationalError

LOST_CONNECTION: Final = frozenset(
    {1053, 1077, 1079, 1080, 1152, 1156, 1158, 1159, 1160, 1161, 1927, 3169, 4031} | {2006, 2013, 2014, 2055}
)
"""The server is shutting down, or the connection was killed or cut (MariaDB and MySQL error codes; 1927 is "Connection
was killed", 3169 "The session was killed", 4031 "disconnected because of inactivity")."""
UNREACHABLE: Final = frozenset({2002, 2003, 2005})
"""Nothing answers at the address, or its name is not known (client error codes)."""
TOO_MANY: Final = frozenset({1040, 1129, 1203, 1226, 1637})
"""Connections, of all or of this user; failed ones; requests of this user; transactions at once."""
READ_ONLY: Final = frozenset({1792, 1836, 1874})
"""The transaction, the server (TiDB too), or InnoDB is read-only."""
OPTION_PREVENTS: Final = 1290
"""An option of the server forbids the statement: --read-only, --super-read-only or --innodb-read-only, or another."""
NOT_PREPARED: Final = 1047
"""An unknown command; of a node of Galera: "WSREP has not yet prepared node for application use"."""
OFFLINE: Final = 3032
BUSY_CLUSTER: Final = frozenset({8027, 8120, 8229, 8251, 8252, 9001, 9002, 9003, 9004, 9005, 9006, 9008, 9010, 9011})
"""TiDB, "Error Codes and Troubleshooting": PD or TiKV is away, busy or behind; the transaction has grown too old; the
resource group has used up its quota.
9001 is also ProxySQL's, which has found no server in time."""
LOCK_CONFLICT: Final = frozenset({1205, 1213, 3101, 8002, 8005, 8022, 8028, 9007})
"""Lock wait, deadlock, a conflict in Group Replication; TiDB: a write conflict or a schema change has rolled the
transaction back."""
LOCK_WAIT: Final = 1205
PACKET_TOO_LARGE: Final = 1153
TOO_LARGE_ROW: Final = frozenset({PACKET_TOO_LARGE, 1301, 1713, 8025})
"""More than max_allowed_packet, as a statement or as a result; than an undo record; than TiDB's
txn-entry-size-limit."""
TOO_LARGE_TRANSACTION: Final = frozenset({1197, 1206, 3019, 8001, 8004, 8175, 9500})
"""More than the cache of the binary log, the table of locks, the undo log; TiDB: than txn-total-size-limit or
tidb_mem_quota_query."""
NO_ROOM: Final = frozenset({1021, 1114})
"""The disk, or a temporary table, is full."""
_FILE_ERRORS: Final = frozenset({3, 20, 1026, 1030})
_NO_SPACE: Final = re.compile(r"No space left on device|[Ee]r(?:ror|rno|rcode):? 28\b")
"""What servers say of a file that they cannot write since the disk is full: ENOSPC is 28."""
DUPLICATE_KEY: Final = frozenset({1062, 1586})
UNKNOWN_OR_DENIED: Final = frozenset({1193, 1227})
"""A variable that came with a later version, or that takes a privilege to set; a managed cluster keeps some for
itself."""
LOGIN_REFUSED: Final = frozenset({1044, 1045, 1698})
CUT_VALUE: Final = 1265
"""Digits or blanks were cut off; a server reports it only as a note where strict mode allows it."""
CUT_RESULT: Final = 1301
"""A function gave more than max_allowed_packet, so that NULL is written; a server reports it only as a warning where
strict mode allows it."""
KEY_TOO_LONG: Final = frozenset({1071, 1709})
"""A key is longer than the format of its table takes."""
NO_DEFAULT: Final = 1364
"""A column without a default is not in the statement."""
NO_NULL: Final = 1048
"""NULL in a NOT NULL column."""
REFUSED_VALUE: Final = frozenset(
    {NO_NULL, 1118, 1264, CUT_VALUE, 1292, 1300, NO_DEFAULT, 1366, 1367, 1406, 1411, 1416}
    | {1525, 1526, 1690, 1748, 3140, 3819, 4025}
)
"""NULL in a NOT NULL column, too long, out of range, not of the type or character set, not in the list, no partition
for it, a CHECK constraint (MariaDB and MySQL error codes)."""


class TooLargeError(OperationalError):
    """Raised when a row or a transaction is larger than a limit of the server, as it is each time it is sent."""


class LostConnectionError(OperationalError):
    """Raised when the connection ended before the answer came, or could not be made: nobody knows what the statement
    did."""


class UnavailableError(LostConnectionError):
    """Raised when the server answers, and does no work now.  The connection is of no use any more."""


class ReadOnlyError(UnavailableError):
    """Raised when the server takes no writes."""


class LockConflictError(OperationalError):
    """Raised when another transaction was in the way; the server has rolled back this one, or the statement."""


class NoRoomError(OperationalError):
    """Raised when the server has no room on its disk for what is written."""


LOST: Final = (LostConnectionError, OSError)
TRANSIENT: Final = (*LOST, LockConflictError, NoRoomError)
_TYPED: Final = (*TRANSIENT, TooLargeError)


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
    if isinstance(error, _TYPED):
        return error
    kind = _type_of(error_code(error), server_words(error))
    if isinstance(error, InterfaceError) or (isinstance(error, InternalError) and not error_code(error)):
        kind = LostConnectionError  # the driver has closed the connection, without a number of the server's
    return error if kind is None else kind(*error.args)


def _type_of(code: int, words: str) -> type[MySQLError] | None:
    if code in READ_ONLY or (code == OPTION_PREVENTS and "read-only" in words.lower().replace("_", "-")):
        return ReadOnlyError
    if code in TOO_MANY | BUSY_CLUSTER | {OFFLINE} or (code == NOT_PREPARED and "wsrep" in words.lower()):
        return UnavailableError
    if code in LOST_CONNECTION | UNREACHABLE:
        return LostConnectionError
    if code in TOO_LARGE_ROW | TOO_LARGE_TRANSACTION:
        return TooLargeError
    if code in NO_ROOM or (code in _FILE_ERRORS and _NO_SPACE.search(words)):
        return NoRoomError
    return LockConflictError if code in LOCK_CONFLICT else None


def trouble(error: BaseException) -> str:
    """Says what is wrong with a server that raised a transient error, as in "the target ... is read-only"."""
    code = error_code(error)
    if isinstance(error, ReadOnlyError):
        return "is read-only"
    if code in TOO_MANY:
        return "has too many connections"
    if isinstance(error, NoRoomError):
        return f"has no room, as it says {server_words(error)},"
    if isinstance(error, UnavailableError):
        return f"does no work, as it says {server_words(error)},"
    if is_lock_wait(error):
        return f"has another transaction in the way, {LOCK_FIX},"
    if isinstance(error, LockConflictError):
        return "has another transaction in the way"
    return "does not answer"


LOCK_FIX: Final = (
    "find the transaction that holds the rows (information_schema.innodb_trx; on TiDB data_lock_waits), and end it"
)


def is_lock_wait(error: BaseException) -> bool:
    """Tells whether another transaction has held a row for longer than the server waits: unlike after a deadlock, a
    retry at once would only wait for as long again."""
    return isinstance(error, LockConflictError) and error_code(error) == LOCK_WAIT


def limit_fix(error: BaseException) -> str:
    """Says which limit of the server a TooLargeError is about, as something to do."""
    return _LIMIT_FIXES.get(error_code(error), "raise the server's limit on the size of a transaction")


_MEMORY_OF_TIDB: Final = "raise performance.txn-total-size-limit, tidb_mem_quota_query or tidb_server_memory_limit"
_LIMIT_FIXES: Final = {
    **dict.fromkeys(NO_ROOM, "give the server's disk, or its temporary tables, more room"),
    1153: "raise max_allowed_packet on the target, up to 1G",
    1197: "raise max_binlog_cache_size on the target",
    1206: "raise innodb_buffer_pool_size on the target",
    1301: "raise max_allowed_packet on the target, up to 1G",
    1713: "give the table ROW_FORMAT=DYNAMIC or fewer indexes on long columns",
    3019: "give the target's undo tablespaces more space",
    8001: _MEMORY_OF_TIDB,
    8004: _MEMORY_OF_TIDB,
    8025: "raise performance.txn-entry-size-limit or tidb_txn_entry_size_limit on the target",
    8175: _MEMORY_OF_TIDB,
    9500: _MEMORY_OF_TIDB,
}


def error_code(error: BaseException) -> int:
    """Gives the server's (or client library's) number of an error; 0 for a cut connection without one."""
    return int(error.args[0]) if error.args and isinstance(error.args[0], int) else 0


def server_words(error: BaseException) -> str:
    """Gives an error in the server's words: ``1146 (Table 'a.b' doesn't exist)``."""
    return f"{error.args[0]} ({error.args[1]})" if len(error.args) > 1 else str(error)
