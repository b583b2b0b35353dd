"""A session: one connection to a server, on which statements run in one way for all.

Decides whether a silent server is still working or the connection is lost.

A server may send nothing for hours for a good reason: a schema change or a wait for a lock may take that long.  Or the
network may have failed without telling either end: a proxy has forgotten the connection, or a machine is gone.  So
there is no limit of time.  When nothing has come for a while, the server is asked over another connection whether it is
still working for this one.  As long as it says so, the bridge waits; otherwise the connection is lost.
"""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import pymysql
import structlog
from pymysql.constants import COMMAND, CR
from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.mysql import tidb
from bridge.mysql.connection.tls import in_words, is_encrypted
from bridge.mysql.server_errors import (
    CUT_RESULT,
    CUT_VALUE,
    LOST,
    NOT_PREPARED,
    PACKET_TOO_LARGE,
    UNKNOWN_OR_DENIED,
    LockConflictError,
    LostConnectionError,
    TooLargeError,
    UnavailableError,
    error_code,
    typed_errors,
)

WAIT_SECONDS: Final = 60.0
"""How long a server is silent before it is asked."""
LOGIN_SECONDS: Final = 10.0
"""How long it may be silent while a connection is made."""
_LAST_SECONDS: Final = 1.0
"""How long to wait for an answer that was on its way while the server was asked."""

WHICH_SERVER: Final = "CONCAT_WS(' ', @@hostname, @@port, @@server_id)"
"""Identifies the server: one address may lead to several servers, which use the same ids of connections."""
WHAT_IT_DOES: Final = f"SELECT {WHICH_SERVER}, (SELECT MAX(command) FROM information_schema.processlist WHERE id = %s)"
"""Selects the server's identity, and what it does for a connection; NULL when it does not know the connection."""
_KEEPALIVE: Final = ((socket.TCP_KEEPIDLE, 30), (socket.TCP_KEEPINTVL, 10), (socket.TCP_KEEPCNT, 3))
"""Seconds idle, seconds between probes, number of probes: a target that vanishes is noticed within a minute."""
_IDLE: Final = "Sleep"

log = structlog.get_logger()


def keep_alive(peer: socket.socket) -> None:
    """Has the kernel look for a peer that is gone, where the connection goes over TCP."""
    if peer.family in {socket.AF_INET, socket.AF_INET6}:
        peer.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
        for option, value in _KEEPALIVE:
            peer.setsockopt(socket.IPPROTO_TCP, option, value)


class PatientReader(io.RawIOBase):
    """Reads from a connection, and waits as long as the server works for it.

    why_lost: is called when nothing has come for the socket's timeout; it tells why the connection is lost, "" when
        the server is still working for it.
    """

    def __init__(self, peer: socket.socket, why_lost: Callable[[], str]) -> None:
        self._peer, self._why_lost = peer, why_lost

    def readable(self) -> bool:
        """Tells that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Waits for bytes.  Raises LostConnectionError when the server does not work for the connection any more."""
        while True:
            try:
                return self._peer.recv_into(buffer)
            except TimeoutError:
                if reason := self._why_lost():
                    return self._last_words(buffer, reason)

    def _last_words(self, buffer: Any, reason: str) -> int:
        usual = self._peer.gettimeout()
        self._peer.settimeout(min(_LAST_SECONDS, usual or _LAST_SECONDS))
        try:
            return self._peer.recv_into(buffer)
        except TimeoutError:
            raise LostConnectionError(CR.CR_SERVER_LOST, reason) from None
        finally:
            self._peer.settimeout(usual)


def reason_lost(server: str, now: str, command: str | None, connection: int, seconds: float) -> str:
    """Tells from its answer why a server does not work for a connection any more; "" when it does.

    server, now: the server that the connection leads to, and the server that has answered.
    command: what the server does for the connection; None when it does not know the connection.
    """
    silent = f"no answer within {seconds:g} s"
    if now != server:
        return f"{silent}, and another server answers at the address"
    if command is None:
        return f"{silent}: the server does not know the connection any more"
    if command == _IDLE:
        return f"{silent}: the server has answered, or was never asked, and the network keeps it back"
    log.info("server_still_working", connection=connection, command=command)
    return ""


SQL_MODE: Final = "STRICT_TRANS_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
"""Strict, so that nothing is truncated in silence; zero and partly-zero dates are valid values upstream (internals,
15)."""
SESSION_SETTINGS: Final = (
    # Whatever the server has set for others: a SELECT gives all its rows, a statement without a key runs, a COMMIT
    # begins nothing, values of unique keys are looked for, a table that names no engine has transactions, a statement
    # reads as many rows as it must, and there are notes of values that a column has cut (`Session.write`).
    f"SET SESSION sql_mode = '{SQL_MODE}', "
    "time_zone = '+00:00', foreign_key_checks = 0, innodb_lock_wait_timeout = 50, wait_timeout = 31536000,"
    " sql_select_limit = 18446744073709551615, sql_safe_updates = 0, completion_type = 0,"
    " unique_checks = 1, default_storage_engine = InnoDB, sql_big_selects = 1, sql_notes = 1",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
)
_NOTES: Final = ("max_error_count = 65535", "note_verbosity = 'basic'")
"""What else keeps such notes: the former needs a privilege in MySQL 8, the latter came with later versions of
MariaDB."""

_SET_OPTION, _SEVERAL_STATEMENTS = 0x1B, b"\0\0"
"""COM_SET_OPTION, and MYSQL_OPTION_MULTI_STATEMENTS_ON (MySQL Internals, Text Protocol)."""
_LEAST_PACKET: Final = 1024
"""No server's max_allowed_packet is less."""
_PACKET_BYTES: Final = 256 * 1024
"""How many bytes of a load one packet holds: fewer than other statements of the bridge."""


class LoadAnswer(NamedTuple):
    """What a server answers to a load: the number of warnings, and its counts in words."""

    warnings: int
    message: bytes


def nothing() -> None:
    """Does nothing."""


class Session:
    """One connection.  Statements are sent as they are; only `args` are quoted by the driver.

    connection_id: the id by which KILL finds it.
    is_tidb: whether the server is TiDB.
    load_objection: why rows must not be loaded into its server, "" when they may, None before it was asked
    (`load_data`).
    writable: the condition that its server takes writes, None before it was asked (`writability`).
    """

    load_objection: str | None = None
    writable: str | None = None
    _packet: int | None = None
    _takes_several: bool = False
    ran: int = 0

    def __init__(self, pooled: Any, *, autocommit: bool) -> None:
        self._pooled = pooled
        self._raw: Any = pooled.driver_connection
        keep_alive(self._raw._sock)
        # PyMySQL would ask the greeting, in which MySQL says that it is on though the server's default is off.
        self.execute(f"SET SESSION autocommit = {int(autocommit)}")
        # Between here and the server may be something that greets in its own name.
        connection_id, version, server = self.rows(f"SELECT CONNECTION_ID(), VERSION(), {WHICH_SERVER}")[0]
        self.connection_id, self.is_tidb = int(connection_id), tidb.is_tidb(str(version))
        for setting in SESSION_SETTINGS:
            self.execute(setting)
        notes = _NOTES[: 1 + ("mariadb" in str(version).lower())]
        for setting in (*tidb.SETTINGS, *notes) if self.is_tidb else notes:
            self.try_to_set(setting)
        self.server = str(server)

    def try_to_set(
        self, setting: str, args: Sequence[object] = (), *, tolerated: Collection[int] = UNKNOWN_OR_DENIED
    ) -> bool:
        """Sets a variable of the session, `name = value`; tells whether the server took it.  tolerated: the errors by
        which it may refuse."""
        try:
            self.execute(f"SET SESSION {setting}", args)
        except MySQLError as error:
            if error_code(error) not in tolerated:
                raise
            return False
        return True

    def be_patient(self, seconds: float, why_lost: Callable[[Session, float], str]) -> None:
        """Has the session wait for its answers as long as the server works.

        why_lost: is asked each time that nothing has come for so many seconds; it tells why the connection is lost, ""
            when it is not.
        """
        peer = self._raw._sock
        self._raw._read_timeout = seconds
        self._raw._rfile = io.BufferedReader(PatientReader(peer, lambda: why_lost(self, seconds)))

    def catch_up(self) -> None:
        """Waits until a node of Galera shows everything that its cluster has committed; any other server does.

        A node has received what another one has committed, and may not have applied it yet: a bridge that a failover
        leads there would not find its own last transaction.  Once is enough, since a session stays on its node.
        Raises UnavailableError where the node does not get there within its repl.causal_read_timeout.
        """
        if self.rows("SHOW GLOBAL VARIABLES LIKE 'wsrep_on'") != [("wsrep_on", "ON")]:
            return
        self.execute("SET SESSION wsrep_sync_wait = 1")
        try:
            self.rows("SELECT 1")
        except LockConflictError as error:
            raise UnavailableError(NOT_PREPARED, "WSREP has not applied yet what its cluster has committed") from error
        self.execute("SET SESSION wsrep_sync_wait = DEFAULT")

    @property
    def encryption(self) -> str:
        """How the connection is protected, in words."""
        return in_words(self._raw._sock)

    @property
    def is_encrypted(self) -> bool:
        """Whether it has TLS."""
        return is_encrypted(self._raw._sock)

    def execute(self, sql: str, args: Sequence[object] = ()) -> int:
        """Runs one statement; gives the number of rows matched (the connection has FOUND_ROWS)."""
        with typed_errors(), self._raw.cursor() as cursor:
            return int(cursor.execute(sql, args or None))

    def write(self, sql: bytes, meanwhile: Callable[[], None] = nothing) -> int:
        """Runs one statement that writes rows, in UTF-8; gives the number of rows matched.

        meanwhile: is called while the server works; must not use the session, which is closed when it raises.

        Even a strict server only notes digits that a DECIMAL loses and blanks that a VARCHAR loses; TiDB warns of the
        former.  Here they are a DataError, like any other value that does not fit.  Raises TooLargeError for a
        statement that the server would not read: it would cut the connection instead of saying so.
        """
        self.require_packet(sql)
        with self._whole_exchange():
            self._raw._execute_command(COMMAND.COM_QUERY, sql)
            meanwhile()
            answer = self._raw._read_ok_packet()
        if answer.warning_count:
            self._check_warnings(answer.warning_count)
        return int(answer.affected_rows)

    def write_together(self, statements: Sequence[bytes]) -> bool:
        """Runs statements that write rows in one exchange, and stops at the first that fails, whose number is then
        `ran`.  Tells whether the server warns of one: of what cannot be asked any more."""
        self.ran = 0
        if not self._takes_several:
            with self._whole_exchange():
                self._raw._execute_command(_SET_OPTION, _SEVERAL_STATEMENTS)
                self._raw._read_packet()
            self._takes_several = True
        sql, warned = b";".join(statements), False
        self.require_packet(sql)
        with self._whole_exchange():
            self._raw._execute_command(COMMAND.COM_QUERY, sql)
            while True:
                answer = self._raw._read_ok_packet()
                warned |= bool(answer.warning_count)
                self.ran += 1
                if not answer.has_next:
                    return warned

    def _check_warnings(self, count: int) -> None:
        warnings = self.rows("SHOW WARNINGS")
        for _, code, message in warnings:
            if code == CUT_VALUE or (self.is_tidb and code in tidb.CUT_DIGITS):
                raise pymysql.err.DataError(code, message)
            if code == CUT_RESULT:
                raise TooLargeError(code, message)
        if len(warnings) < count:
            raise TargetError(
                f"the target has kept {len(warnings)} of the {count} warnings of a statement, so that nobody knows"
                " whether it has cut values",
                where=self.server,
                fix="SET GLOBAL max_error_count = 65535 on the target, and in its settings; or give the user"
                " SESSION_VARIABLES_ADMIN",
            )

    def require_packet(self, sql: bytes) -> None:
        """Raises TooLargeError for a statement that the server would not read."""
        size = len(sql) + 1
        if size <= _LEAST_PACKET:
            return
        if self._packet is None:
            self._packet = int(self.value("SELECT @@max_allowed_packet"))
        if size > self._packet:
            words = f"a statement of {size:,} bytes; max_allowed_packet is {self._packet:,}"
            raise TooLargeError(PACKET_TOO_LARGE, words)

    def load(self, sql: bytes, body: memoryview, meanwhile: Callable[[], None] = nothing) -> LoadAnswer:
        """Runs one LOAD DATA LOCAL statement, and sends `body`, whatever file the server asks for.  meanwhile: as
        `write`."""
        with self._whole_exchange():
            self._raw._execute_command(COMMAND.COM_QUERY, sql)
            if not self._raw._read_packet().is_load_local_packet():
                self.close()
                raise LostConnectionError(CR.CR_SERVER_LOST, "the server did not ask for the rows of LOAD DATA")
            for start in range(0, len(body), _PACKET_BYTES):
                self._raw.write_packet(body[start : start + _PACKET_BYTES])
            self._raw.write_packet(b"")
            meanwhile()
            ok = self._raw._read_ok_packet()
            return LoadAnswer(ok.warning_count, ok.message)

    @contextmanager
    def _whole_exchange(self) -> Iterator[None]:
        """Closes the session where an exchange with the server remains incomplete."""
        try:
            with typed_errors():
                yield
        except MySQLError as error:
            if not self._raw.open and not isinstance(error, LOST):
                raise LostConnectionError(CR.CR_SERVER_LOST, str(error)) from error
            raise
        except BaseException:
            self.close()
            raise

    def rows(self, sql: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Runs one query; gives all its rows."""
        with typed_errors(), self._raw.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def raw_rows(self, sql: str) -> list[tuple[Any, ...]]:
        """Runs one query, and gives texts as bytes: SHOW CREATE of MariaDB 11.4 prints binary defaults as they are,
        which may not be UTF-8."""
        self._raw.use_unicode = False
        try:
            return self.rows(sql)
        finally:
            self._raw.use_unicode = True

    def value(self, sql: str, args: Sequence[object] = ()) -> Any:
        """Gives the first column of the first row, None without a row."""
        rows = self.rows(sql, args)
        return rows[0][0] if rows else None

    def variables(self, scope: str, names: tuple[str, ...]) -> dict[str, str]:
        """Reads variables (GLOBAL or SESSION), by their names in lower case; those that the server does not have are
        missing."""
        rows = self.rows(f"SHOW {scope} VARIABLES WHERE Variable_name IN %s", (names,))
        return {str(name).lower(): str(value) for name, value in rows}

    def begin(self) -> None:
        with typed_errors():
            self._raw.begin()

    def commit(self) -> None:
        with typed_errors():
            self._raw.commit()

    def rollback(self) -> None:
        with typed_errors():
            self._raw.rollback()

    def cut(self) -> None:
        """Ends the connection under a thread that waits for its answer; may be called from any thread."""
        with suppress(OSError, AttributeError):
            self._raw._sock.shutdown(socket.SHUT_RDWR)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Runs statements in a transaction of their own; the session must not be in one.

        A statement whose number of rows decides something needs one: alone it is optimistic on TiDB, which runs it
        again after a conflict, and may wait longer than `innodb_lock_wait_timeout`.
        """
        self.begin()
        try:
            yield
        except BaseException:
            with suppress(MySQLError, OSError):
                self.rollback()
            raise
        self.commit()

    def close(self) -> None:
        """Closes at once; an open transaction is rolled back by the server.  Closing twice does nothing."""
        if self._pooled.is_valid:
            self._pooled.invalidate()
