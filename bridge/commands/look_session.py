"""Sessions of commands that read the target or write an operator's decision there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import TRANSIENT, server_words, trouble


@contextmanager
def open_session(target: Target) -> Iterator[Session]:
    """Opens a session for a few queries; turns the driver's errors into TargetError."""
    try:
        session = target.connect(autocommit=True)
        try:
            yield session
        finally:
            session.close()
    except (MySQLError, OSError) as error:
        what = trouble(error) if isinstance(error, TRANSIENT) else "refused the query"
        raise TargetError(
            f"the target {what}: {server_words(error)}",
            where=str(target),
            fix="check --target, that the server runs and, for what changes something, takes writes, and that the user"
            " may read and write the bridge's own database",
        ) from error
