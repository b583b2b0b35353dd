"""Turns errors that servers raise outside of a comparison into the bridge's own."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOST, server_words


@contextmanager
def expected_errors(*places: Target) -> Iterator[None]:
    """Raises TargetError for an error of MySQL's driver."""
    try:
        yield
    except (MySQLError, OSError) as error:
        what = "cannot be reached" if isinstance(error, LOST) else "refused a statement of verify"
        raise TargetError(
            f"a server {what}: {server_words(error)}",
            where=" or ".join(map(str, places)),
            fix="see that it runs, and that the user may read the tables and the bridge's own database; comparing"
            " with the messages needs CREATE TEMPORARY TABLES there as well",
        ) from error
