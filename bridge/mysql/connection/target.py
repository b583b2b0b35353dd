"""How sessions on a server are opened."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from typing import Any, Final

import structlog
from pymysql.constants import CLIENT, CR
from pymysql.err import MySQLError
from sqlalchemy import Engine, create_engine
from sqlalchemy.pool import NullPool

from bridge.console import keep_secret
from bridge.errors import TargetError
from bridge.mysql.connection.server_url import parse_url, shown_url
from bridge.mysql.connection.session import LOGIN_SECONDS, WAIT_SECONDS, WHAT_IT_DOES, Session, reason_lost
from bridge.mysql.connection.tls import Tls
from bridge.mysql.server_errors import LOGIN_REFUSED, TRANSIENT, error_code, server_words, trouble, typed_errors
from bridge.secret_settings import read_secret

log = structlog.get_logger()

_THIS_MACHINE: Final = frozenset({"localhost", "127.0.0.1", "::1"})
_PORT: Final = 3306


class Target:
    """The address of a server, and how to open sessions on it.

    url: ``mysql://user@host:port/``; the password comes from the URL, ``password`` or ``password_file``.
    role: target or upstream; the flag and the environment variable are named after it.
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
            _initialize=False,  # nobody asks its dialect, which would send eight statements on the first connection
            connect_args={
                **{"charset": "utf8mb4", "program_name": "bridge", "autocommit": None},
                **{"connect_timeout": LOGIN_SECONDS, "read_timeout": LOGIN_SECONDS, "write_timeout": self._timeout},
                "password": str(self._url.password or "").encode(),  # PyMySQL would send it as latin1
                # PyMySQL's local_infile is off: with it, the driver would send any file that a server asks for.
                "client_flag": CLIENT.FOUND_ROWS | (CLIENT.LOCAL_FILES if self._role == "target" else 0),
                **tls,
            },
        )

    def __str__(self) -> str:
        return shown_url(self._url.set(drivername="mysql"))

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

    @contextmanager
    def expected_errors(self) -> Iterator[None]:
        """Turns the driver's errors into TargetError."""
        try:
            yield
        except (MySQLError, OSError) as error:
            what = trouble(error) if isinstance(error, TRANSIENT) else "refused a statement of the bridge's own"
            raise TargetError(
                f"the target {what}: {server_words(error)}",
                where=str(self),
                fix="check --target, that the server runs and, for what changes something, takes writes, and that the"
                " user may create, read and write the bridge's own database",
            ) from error

    def _why_lost(self, session: Session, seconds: float) -> str:
        """Asks the server, over a connection of its own, whether it still works for a session that is silent."""
        try:
            with closing(Session(self._raw_connection(), autocommit=True)) as other:
                now, command = other.rows(WHAT_IT_DOES, (session.connection_id,))[0]
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
            if self._tls.mode != "preferred" or error_code(error) != CR.CR_SSL_CONNECTION_ERROR:
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
