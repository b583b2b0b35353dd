"""How far a replica of the target is behind it.

The bridge's own heartbeat tells: it is written on the target every few seconds and reaches the replica in the order of
the binary log, behind all that the replica has not applied yet.  Unlike Seconds_Behind_Master this needs no privilege
beyond reading the bridge's own database, means the same on every server, and grows when replication has stopped.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from bridge.mysql.connection.session import Session
from bridge.mysql.state.progress import ProgressTable
from bridge.quoting import quote_name

REPLICA_LAG: Final = "replica_lag"
"""Stands among limits for the lag of the replicas, in seconds; no server has a status variable of that name."""


def heartbeat_at(session: Session, table: ProgressTable) -> float | None:
    """Reads when the owner's heartbeat was written, in seconds since 1970; None when the server knows no owner."""
    owner = quote_name(table.schema, "owner")
    found = session.value(f"SELECT UNIX_TIMESTAMP(heartbeat_at) FROM {owner} WHERE name = %s", (table.name,))
    return None if found is None else float(found)


def lag_excess(written_at: float, replicas: Mapping[str, float | None], limit: float) -> str:
    """Tells which replica is further behind than `limit` seconds; "" when none is.

    written_at: the heartbeat on the target.  replicas: the heartbeat that each has, by its place.
    """
    for place, arrived in replicas.items():
        if arrived is None:
            return f"the replica {place} has no heartbeat of the bridge"
        if written_at - arrived > limit:
            return f"the replica {place} is {written_at - arrived:,.0f} s behind, above {limit:,.10g}"
    return ""
