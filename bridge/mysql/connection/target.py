"""The address of a server, and how sessions on it are opened.  SQLAlchemy is used only here (README)."""

from __future__ import annotations

from typing import Any, Final

import structlog
from pymysql.constants import CLIENT, CR
from pymysql.err import MySQLError
from sqlalchemy import URL, Engine, create_engine, make_url
from sqlalchemy.exc import ArgumentError
from sqlalchemy.pool import NullPool

from bridge.errors import TargetError, UsageError
from bridge.foreign_text import keep_secret
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.silence import LOGIN_SECONDS, WAIT_SECONDS, WHAT_IT_DOES, reason_lost
from bridge.mysql.connection.tls import Tls
from bridge.mysql.server_errors import LOGIN_REFUSED, error_code, server_words, typed_errors
from bridge.secret_settings import read_secret

log = structlog.get_logger()

_IN_URL: Final = frozenset({"unix_socket", "bind_address"})
_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORT: Final = 3306


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
