"""What servers raise outside of a comparison, in the bridge's own words."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from pymysql.err import MySQLError

from bridge.errors import TargetError
from bridge.mysql.connection import Target, is_lost_connection, server_words


@contextmanager
def expected_errors(*places: Target) -> Iterator[None]:
    """Errors of MySQL's driver leave as TargetError."""
    try:
        yield
    except (MySQLError, OSError) as error:
        what = "cannot be reached" if is_lost_connection(error) else "refused a statement of verify"
        raise TargetError(
            f"a server {what}: {server_words(error)}",
            where=" or ".join(map(str, places)),
            fix="see that it runs, and that the user may read the tables and the bridge's own database; comparing"
            " with the messages needs CREATE TEMPORARY TABLES there as well",
        ) from error
