"""Measures how busy the target and its replicas are while `bridge ctl throttle` is set."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

from pymysql.err import MySQLError

from bridge.errors import TargetError, UsageError
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import server_words
from bridge.mysql.server_load import REPLICA_LAG, Limits, excess, heartbeat_at, lag_excess
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.steering.lookout import KeptSession

NO_REPLICAS: Final = f"{REPLICA_LAG} is limited, but throttle.replicas names no replica"


class LoadWatch:
    """Tells whether a server is above its limits.

    replicas: the servers whose lag counts.
    """

    def __init__(self, target: Target, table: ProgressTable, replicas: Sequence[Target]) -> None:
        self._table = table
        self._target = KeptSession(target)
        self._replicas = {replica.place: KeptSession(replica) for replica in replicas}

    def busy(self, limits: Limits) -> str:
        """Tells what is above its limit, or cannot be measured; "" when nothing is."""
        most_lag = limits.get(REPLICA_LAG)
        try:
            with self._target.use() as session:
                found = excess(session, {n: limit for n, limit in limits.items() if n != REPLICA_LAG}, "target")
                written_at = None if most_lag is None else heartbeat_at(session, self._table)
        except UsageError as error:
            return f"{error.what}, and it is limited"
        if found or most_lag is None or written_at is None:
            return found
        if not self._replicas:
            return NO_REPLICAS
        return self._lag(written_at, most_lag)

    def close(self) -> None:
        """Closes its sessions."""
        for session in (self._target, *self._replicas.values()):
            session.close()

    def _lag(self, written_at: float, limit: float) -> str:
        arrived: dict[str, float | None] = {}
        for place, kept in self._replicas.items():
            try:
                with kept.use() as session:
                    arrived[place] = heartbeat_at(session, self._table)
            except (MySQLError, OSError) as error:
                return f"the replica {place} does not tell how far it is: {server_words(error)}"
            except TargetError as error:
                return f"the replica {place} does not tell how far it is: {error.what}"
        return lag_excess(written_at, arrived, limit)
