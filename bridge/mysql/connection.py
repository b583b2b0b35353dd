"""Opens connections to a server and runs statements, in one way for all.  SQLAlchemy is used only here (README)."""

from __future__ import annotations

import io
import socket
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any, Final, NamedTuple

import pymysql
import structlog
from pymysql.constants import CLIENT, COMMAND, CR
from pymysql.cursors import SSCursor
from pymysql.err import MySQLError
from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from bridge.errors import TargetError, UsageError
from bridge.foreign_text import keep_secret
from bridge.mysql import tidb
from bridge.mysql.server_errors import (
    CUT_RESULT,
    CUT_VALUE,
    LOGIN_REFUSED,
    LOST,
    NOT_PREPARED,
    PACKET_TOO_LARGE,
    UNKNOWN_OR_DENIED,
    LockConflictError,
    LostConnectionError,
    TooLargeError,
    UnavailableError,
    error_code,
    server_words,
    typed_errors,
)
from bridge.mysql.silence import (
    LOGIN_SECONDS,
    WAIT_SECONDS,
    WHAT_IT_DOES,
    WHICH_SERVER,
    PatientReader,
    keep_alive,
    reason_lost,
)
from bridge.mysql.tls import Tls, in_words, is_encrypted
from bridge.secret_settings import read_secret

log = structlog.get_logger()

SQL_MODE: Final = "STRICT_TRANS_TABLES,ALLOW_INVALID_DATES,NO_AUTO_VALUE_ON_ZERO"
"""Strict, so that nothing is truncated in silence; zero and partly-zero dates are valid values upstream (internals,
15)."""
SESSION_SETTINGS: Final = (
    f"SET SESSION sql_mode = '{SQL_MODE}', "
    "time_zone = '+00:00', foreign_key_checks = 0, innodb_lock_wait_timeout = 50, wait_timeout = 31536000",
    "SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    # Whatever the server has set for others: a SELECT gives all its rows, a statement without a key runs, a COMMIT
    # begins nothing, values of unique keys are looked for, a table that names no engine has transactions, a statement
    # reads as many rows as it must, and there are notes of values that a column has cut (`Session.write`).
    "SET SESSION sql_select_limit = 18446744073709551615, sql_safe_updates = 0, completion_type = 0,"
    " unique_checks = 1, default_storage_engine = InnoDB, sql_big_selects = 1, sql_notes = 1",
)
_NOTES: Final = ("max_error_count = 65535", "note_verbosity = 'basic'")
"""What else keeps such notes: the former needs a privilege in MySQL 8, the latter came with later versions of
MariaDB."""

_IN_URL: Final = frozenset({"unix_socket", "bind_address"})
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORT: Final = 3306
_LEAST_PACKET: Final = 1024
"""No server's max_allowed_packet is less."""
_PACKET_BYTES: Final = 256 * 1024
"""How many bytes of a load one packet holds: fewer than other statements of the bridge."""


class Target:
    """The address of a server, and how to open sessions on it.

    url: ``mysql://user@host:port/``; the password comes from the URL, ``password`` or ``password_file``.
    role: target, or source for the upstream; the flag and the environment variable are named after it.
    timeout_seconds: how long a server may be silent before it is asked what it does (`silence`).
    Raises UsageError for a URL that cannot be read, and for TLS settings or files that cannot be used.
    """

    def __init__(
        self,
        url: str,
        *,
        password: str | None = None,
        password_file: str | None = None,
        role: str = "target",
        tls: Tls = Tls(),  # noqa: B008  # immutable
        timeout_seconds: float = WAIT_SECONDS,
    ) -> None:
        self._role, self._tls, self._timeout = role, tls, timeout_seconds
        parsed = parse_url(url, f"--{role}")
        secret = password if password_file is None else read_secret(password_file, f"{tls.section}.password_file")
        if secret is not None:
            parsed = parsed.set(password=secret)
        keep_secret(str(parsed.password or ""))
        self._url = parsed.set(drivername="mysql+pymysql")
        self._engine = self._make_engine(tls.driver_settings())

    def __getstate__(self) -> dict[str, Any]:
        """Gives what a task of Spark needs to connect as well: all but the engine."""
        return {name: value for name, value in self.__dict__.items() if name != "_engine"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        self.__dict__.update(state)
        keep_secret(str(self._url.password or ""))
        self._engine = self._make_engine(self._tls.driver_settings())

    def _make_engine(self, tls: dict[str, Any]) -> Engine:
        return create_engine(
            self._url,
            poolclass=NullPool,
            pool_reset_on_return=None,  # every connection is closed; a ROLLBACK on a lost one would log a traceback
            connect_args={
                **{"charset": "utf8mb4", "program_name": "bridge"},
                **{"connect_timeout": LOGIN_SECONDS, "read_timeout": LOGIN_SECONDS, "write_timeout": self._timeout},
                "password": str(self._url.password or "").encode(),  # PyMySQL would send it as latin1
                # PyMySQL's local_infile is off: with it, the driver would send any file that a server asks for.
                "client_flag": CLIENT.FOUND_ROWS | (CLIENT.LOCAL_FILES if self._role == "target" else 0),
                **tls,
            },
        )

    def __str__(self) -> str:
        return _shown(self._url.set(drivername="mysql"))

    @property
    def timeout_seconds(self) -> float:
        """How long the server may be silent before it is asked what it does."""
        return self._timeout

    @property
    def place(self) -> str:
        """Gives the host and port, such as db:3306."""
        return f"{self._url.host}:{self._url.port or _PORT}"

    def connect(self, *, autocommit: bool = False, timeout_seconds: float | None = None) -> Session:
        """Opens a new session with the bridge's settings.

        timeout_seconds: as of the target, where this session has another one.
        Raises TargetError when the server refuses the login or TLS cannot be established, MySQLError when it cannot be
        reached.
        """
        with typed_errors():
            try:
                session = Session(self._raw_connection(), autocommit=autocommit)
                session.be_patient(min(self._timeout, timeout_seconds or self._timeout), self._why_lost)
                session.catch_up()
            except MySQLError as error:
                if refusal := self._refusal(error):
                    raise refusal from error
                raise
            return session

    def _why_lost(self, session: Session, seconds: float) -> str:
        """Asks the server, over a connection of its own, whether it still works for a session that is silent."""
        try:
            other = Session(self._raw_connection(), autocommit=True)
            try:
                now, command = other.rows(WHAT_IT_DOES, (session.connection_id,))[0]
            finally:
                other.close()
        except (MySQLError, OSError) as error:
            return f"no answer within {seconds:g} s, nor to another connection: {server_words(error)}"
        return reason_lost(session.server, now, command, session.connection_id, seconds)

    def announce(self, session: Session) -> None:
        """Logs where a session connects to, and how it is protected."""
        log.info("connected", **{self._role: str(self)}, encryption=session.encryption)

    def _raw_connection(self) -> Any:
        try:
            return self._engine.raw_connection()
        except MySQLError as error:
            if not self._tls.falls_back or error_code(error) != CR.CR_SSL_CONNECTION_ERROR:
                raise
        self._engine = self._make_engine({"ssl_disabled": True})
        if self._url.host not in _THIS_MACHINE:
            log.warning(
                "not_encrypted",
                **{self._role: str(self)},
                why="the server offers no TLS",
                fix=f'switch TLS on there, and set {self._tls.section}.tls = "verify-identity"',
            )
        return self._engine.raw_connection()

    def _refusal(self, error: MySQLError) -> TargetError | None:
        if error_code(error) in LOGIN_REFUSED:
            return TargetError(
                f"the {self._role} refused the login: {server_words(error)}",
                where=str(self),
                fix=f"check the user in --{self._role} and the password in BRIDGE_{self._role.upper()}_PASSWORD, and"
                f" {self._tls.section}.tls and tls_cert if the account asks for TLS or a certificate",
            )
        return self._tls.refusal(error, self._role, str(self))


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

    def __init__(self, pooled: Any, *, autocommit: bool) -> None:
        self._pooled = pooled
        self._raw: Any = pooled.driver_connection
        keep_alive(self._raw._sock)
        # PyMySQL would ask the greeting, in which MySQL says that it is on though the server's default is off.
        self.execute(f"SET SESSION autocommit = {int(autocommit)}")
        # Between here and the server may be something that greets in its own name.
        connection_id, version = self.rows("SELECT CONNECTION_ID(), VERSION()")[0]
        self.connection_id, self.is_tidb = int(connection_id), tidb.is_tidb(str(version))
        for setting in SESSION_SETTINGS:
            self.execute(setting)
        if self.is_tidb:
            tidb.prepare(self)
        for setting in _NOTES[: 1 + ("mariadb" in str(version).lower())]:
            self._try_to_set(setting)
        self.server = ""

    def _try_to_set(self, setting: str) -> None:
        try:
            self.execute(f"SET SESSION {setting}")
        except MySQLError as error:
            if error_code(error) not in UNKNOWN_OR_DENIED:
                raise

    def be_patient(self, seconds: float, why_lost: Callable[[Session, float], str]) -> None:
        """From now on answers are waited for as long as `why_lost`, which is asked after so many seconds without a
        byte and again, gives no reason."""
        self.server = str(self.value(f"SELECT {WHICH_SERVER}"))
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
            return self._load(sql, body, meanwhile)

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

    def _load(self, sql: bytes, body: memoryview, meanwhile: Callable[[], None]) -> LoadAnswer:
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

    def rows(self, sql: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Runs one query; gives all its rows."""
        with typed_errors(), self._raw.cursor() as cursor:
            cursor.execute(sql, args or None)
            return list(cursor.fetchall())

    def stream(self, sql: str, count: int) -> Iterator[list[tuple[Any, ...]]]:
        """Runs one query, and gives its rows in blocks of at most `count`, as the server sends them.  Nothing else may
        run on the session meanwhile.  If the stream is not read to its end, the session is closed."""
        cursor = self._raw.cursor(SSCursor)
        is_read = False
        with typed_errors():
            try:
                cursor.execute(sql)
                while rows := cursor.fetchmany(count):
                    yield list(rows)
                is_read = True
            finally:
                if not is_read:
                    if cursor._result is not None:
                        cursor._result.unbuffered_active = False  # otherwise the driver would read to the end
                    self.close()
                cursor.close()

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


def parse_url(url: str, flag: str) -> URL:
    """Reads the address of a server.  Raises UsageError, which names the flag, for one that cannot be used."""
    try:
        parsed = make_url(url)
    except (ArgumentError, ValueError) as error:
        raise UsageError(f"{flag} is not a URL", fix="write it as mysql://user@host:port/") from error
    if parsed.get_backend_name() not in {"mysql", "mariadb"} or not parsed.host:
        raise UsageError(f"{flag} {_shown(parsed)} is not a MySQL address", fix="write it as mysql://user@host:port/")
    _check_place(parsed, flag)
    _check_query(parsed, flag)
    return parsed


def _check_place(parsed: URL, flag: str) -> None:
    if "@" in str(parsed.host):
        raise UsageError(
            f"{flag} has more than one @", fix="write an @ in the password as %40, or set it in the environment"
        )
    try:
        str(parsed.host).encode("idna")
    except UnicodeError as error:
        raise UsageError(f"{flag} {_shown(parsed)} names no host: {error}", fix="check the host's name") from error
    if parsed.port is not None and not 0 < parsed.port < 1 << 16:
        raise UsageError(f"{flag} has the port {parsed.port}", fix="give one of 1 to 65535; 3306 is the usual one")


def _check_query(parsed: URL, flag: str) -> None:
    """Refuses options that the driver does not need to find the server: all others have a setting, or the bridge
    chooses them."""
    for name in parsed.query.keys() - _IN_URL:
        section = "target" if flag == "--target" else "upstream"
        fix = f"leave it out; a URL may hold {' and '.join(sorted(_IN_URL))}"
        if name.startswith(("ssl", "tls")):
            fix = f'set {section}.tls = "verify-identity" (or off, preferred, required, verify-ca) and {section}.tls_ca'
        elif "pass" in name:
            fix = f"set the password in BRIDGE_{flag.removeprefix('--').upper()}_PASSWORD"
        raise UsageError(f"{flag} holds {name}, which the bridge does not read from a URL", fix=fix)


def _shown(url: URL) -> str:
    """Gives the URL without password and query."""
    return str(url.set(query={}).render_as_string(hide_password=True))
