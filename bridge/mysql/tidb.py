"""Sets up sessions on TiDB, and finds connections and schema changes in its cluster."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final, Protocol

from pymysql.constants import ER
from pymysql.err import MySQLError

SETTINGS: Final = (
    # Clusters that began before v3.0.8 are optimistic: there a row is compared, and set, at COMMIT only.
    "tidb_txn_mode = 'pessimistic'",
    # A duplicate key is the statement's own error, not COMMIT's (v6.3).
    "tidb_constraint_check_in_place_pessimistic = ON",
    # Rows bring the values of AUTO_RANDOM columns.
    "allow_auto_random_explicit_insert = ON",
    # A statement that takes AUTO_INCREMENT away was allowed upstream.
    "tidb_allow_remove_auto_inc = ON",
    # A temporary table may be as large as a transaction; else it is full at 64 MB.
    "tidb_tmp_table_max_size = 137438953472",
    # Reads of the past, as of a moment that the whole cluster is given, would show rows as they were (v6.4).
    "tidb_enable_external_ts_read = OFF",
)
CUT_DIGITS: Final = frozenset({1292, 1366})
"""What TiDB only warns of when a DECIMAL loses digits: by UPDATE and by INSERT (tried on v8.5)."""


class _Session(Protocol):
    def try_to_set(self, setting: str) -> bool: ...

    def rows(self, sql: str, args: Sequence[object] = ()) -> list[tuple[Any, ...]]: ...


def is_tidb(version: str) -> bool:
    """Tells whether a server is TiDB by what VERSION() gives: ``8.0.11-TiDB-v8.5.1``."""
    return "tidb" in version.lower()


def set_name(session: _Session, name: str) -> None:
    """Names a connection for all servers of the cluster to see (v7.4)."""
    session.try_to_set(f"tidb_session_alias = '{name}'")


def connections_named(session: _Session, name: str) -> set[int]:
    """Finds the other connections with this name, on every server of the cluster; none before v7.4."""
    try:
        rows = session.rows(
            "SELECT id FROM information_schema.cluster_processlist WHERE id <> CONNECTION_ID() AND session_alias = %s",
            (name,),
        )
    except MySQLError as error:
        if error.args[0] != ER.BAD_FIELD_ERROR:
            raise
        return set()
    return {int(number) for (number,) in rows}


def running(session: _Session, tag: str) -> list[tuple[int, int]]:
    """Finds schema changes whose text begins with `tag`: their jobs, and how many seconds ago they were asked for.

    They are jobs of the cluster, which go on without the connection that asked for them.  Of one with several parts the
    parts are listed too, in states of their own.
    """
    jobs = session.rows(
        "SELECT job_id, TIMESTAMPDIFF(SECOND, create_time, NOW()) FROM information_schema.ddl_jobs"
        " WHERE state NOT IN ('synced', 'cancelled', 'rollback done') AND INSTR(job_type, 'subjob') = 0"
        " AND INSTR(query, %s) = 1",
        (tag,),
    )
    return [(int(job), int(seconds or 0)) for job, seconds in jobs]
