"""Sessions of commands that look at a target or leave a word there."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.target.session import Session, Target, server_words


@contextmanager
def asking(target: Target) -> Iterator[Session]:
    """A session for a look or a word, with the driver's errors as the bridge's."""
    try:
        session = target.connect(autocommit=True)
    except (MySQLError, OSError) as error:
        raise TargetError(
            f"the target does not answer: {server_words(error)}",
            where=str(target),
            mend="check --target and that the server runs",
        ) from error
    try:
        yield session
    finally:
        session.close()
