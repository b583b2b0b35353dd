"""Warns of unique keys that only the target has, at the start of a pipeline."""

from __future__ import annotations

import structlog
from pymysql.err import MySQLError

from bridge.filters.table_filter import TableFilter
from bridge.mysql.connection import Target
from bridge.mysql.server_errors import server_words
from bridge.mysql.target_only_keys import FIX, ExtraKey, find_extra_keys

log = structlog.get_logger()


def extra_keys(target: Target, upstream: Target, wanted: TableFilter) -> list[ExtraKey]:
    """The unique keys that only the target has, of the wanted tables.  Raises the driver's errors, or TargetError for a
    login that is refused."""
    here = target.connect(autocommit=True)
    try:
        there = upstream.connect(autocommit=True)
        try:
            return [found for found in find_extra_keys(here, there) if wanted(*found.table)]
        finally:
            there.close()
    finally:
        here.close()


def warn_of_extra_keys(target: Target, upstream: Target, wanted: TableFilter) -> None:
    """Names them in the log.  The pipeline starts even when a server does not answer."""
    try:
        found = extra_keys(target, upstream, wanted)
    except (MySQLError, OSError) as error:
        log.warning("the keys of target and upstream could not be compared", error=server_words(error))
        return
    for extra in found:
        log.warning(str(extra), fix=FIX)
