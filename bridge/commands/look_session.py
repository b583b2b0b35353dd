"""Sessions of commands that look at a target or leave a word there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.mysql.connection import Session, Target, is_lost_connection, server_words


@contextmanager
def asking(target: Target) -> Iterator[Session]:
    """A session for a look or a word, with the driver's errors as the bridge's."""
    try:
        session = target.connect(autocommit=True)
        try:
            yield session
        finally:
            session.close()
    except (MySQLError, OSError) as error:
        what = "does not answer" if is_lost_connection(error) else "refused a look"
        raise TargetError(
            f"the target {what}: {server_words(error)}",
            where=str(target),
            fix="check --target, that the server runs, and that the user may read the bridge's own database",
        ) from error
