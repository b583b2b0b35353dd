"""Finds unique keys that only the target has, and warns of them when a pipeline starts."""

from __future__ import annotations

import structlog
from pymysql.err import MySQLError

from bridge.filters.routes import Routes
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import server_words
from bridge.mysql.target_only_keys import FIX, ExtraKey, find_extra_keys

log = structlog.get_logger()


def extra_keys(target: Target, upstream: Target, routes: Routes) -> list[ExtraKey]:
    """Finds the unique keys of the wanted tables that only the target has.

    Raises the driver's errors, or TargetError when a login is refused.
    """
    here = target.connect(autocommit=True)
    try:
        there = upstream.connect(autocommit=True)
        try:
            found = find_extra_keys(here, there, routes.target)
            return [extra for extra in found if routes.accepts_target(*extra.table)]
        finally:
            there.close()
    finally:
        here.close()


def warn_of_extra_keys(target: Target, upstream: Target, routes: Routes) -> None:
    """Logs a warning for each of these keys.  When a server does not answer, the pipeline starts all the same."""
    try:
        found = extra_keys(target, upstream, routes)
    except (MySQLError, OSError) as error:
        log.warning("unique_keys_not_compared", error=server_words(error))
        return
    for extra in found:
        log.warning("target_only_unique_key", found=str(extra), fix=FIX)
