"""The target's database, as the benchmark makes it and looks at it."""

from __future__ import annotations

from typing import Any

import pymysql
from sqlalchemy import make_url

from tests.bench.workload import Workload, fingerprint_query


def connect(url: str) -> pymysql.connections.Connection[Any]:
    """A session as the bridge's: READ COMMITTED, no autocommit."""
    where = make_url(url)
    return pymysql.connect(
        host=where.host or "127.0.0.1",
        port=where.port or 3306,
        user=where.username,
        charset="utf8mb4",
        init_command="SET SESSION TRANSACTION ISOLATION LEVEL READ COMMITTED",
    )


def make_tables(url: str, workload: Workload) -> None:
    """The workload's tables, empty."""
    with connect(url) as connection, connection.cursor() as cursor:
        for statement in workload.statements:
            cursor.execute(statement)


def fingerprint(url: str, workload: Workload) -> tuple[int, int, int]:
    """What `Upstream.fingerprint` must be."""
    count = total = folded = 0
    with connect(url) as connection, connection.cursor() as cursor:
        for shape in workload.shapes:
            cursor.execute(fingerprint_query(shape))
            rows, crcs, folded_crcs = map(int, cursor.fetchone() or (0, 0, 0))
            count, total, folded = count + rows, total + crcs, folded ^ folded_crcs
    return count, total, folded
