"""Measures how busy servers are: limits on their status variables, and how far replicas are behind."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import Final

from bridge.errors import UsageError
from bridge.model import quote_name
from bridge.mysql.connection.session import Session
from bridge.mysql.state.progress import ProgressTable

MostLoad = Mapping[str, float]
"""Status variables (SHOW GLOBAL STATUS), each with the highest value at which work goes on."""

_RULE: Final = re.compile(r"(\w+)=(\d+(?:\.\d+)?)")


def parse_limits(rules: Sequence[str], origin: str) -> dict[str, float]:
    """Reads `Name=N` rules, several in one text separated by commas; UsageError for anything else.

    origin: the flag or command that names them.
    """
    limits: dict[str, float] = {}
    for rule in (part.strip() for text in rules for part in text.split(",")):
        match = _RULE.fullmatch(rule)
        if match is None:
            raise UsageError(f"{origin} {rule!r} cannot be read", fix="write it as Threads_running=25")
        limits[match[1]] = float(match[2])
    return limits


def status_value(session: Session, name: str, place: str) -> float:
    """Asks a server for a status variable; UsageError when it has none of that name, or one that is no number."""
    rows = session.rows("SHOW GLOBAL STATUS LIKE %s", (name.replace("_", r"\_"),))
    if not rows:
        raise UsageError(f"the {place} has no status variable {name}", fix="see SHOW GLOBAL STATUS")
    try:
        return float(rows[0][1])
    except ValueError as error:
        raise UsageError(
            f"the status variable {name} of the {place} is {str(rows[0][1])!r}, no number",
            fix="limit one that is a number, such as Threads_running",
        ) from error


def excess(session: Session, limits: MostLoad, place: str) -> str:
    """Tells which status variable is above its limit; "" when none is.  Raises as `status_value` does."""
    for name, limit in limits.items():
        value = status_value(session, name, place)
        if value > limit:
            return f"{name} of the {place} is {value:,.10g}, above {limit:,.10g}"
    return ""


REPLICA_LAG: Final = "replica_lag"
"""Stands among limits for the lag of the replicas, in seconds; no server has a status variable of that name."""


def heartbeat_at(session: Session, table: ProgressTable) -> float | None:
    """Reads when the owner's heartbeat was written, in seconds since 1970; None when the server knows no owner."""
    owner = quote_name(table.schema, "owner")
    seconds = session.value(f"SELECT UNIX_TIMESTAMP(heartbeat_at) FROM {owner} WHERE name = %s", (table.name,))
    return None if seconds is None else float(seconds)


def lag_excess(newest: float, replicas: Mapping[str, float | None], limit: float) -> str:
    """Tells which replica is further behind than `limit` seconds; "" when none is.

    newest: the heartbeat on the target.  replicas: the heartbeat that each has, by its place.
    """
    for place, heartbeat in replicas.items():
        if heartbeat is None:
            return f"the replica {place} has no heartbeat of the bridge"
        if newest - heartbeat > limit:
            return f"the replica {place} is {newest - heartbeat:,.0f} s behind, above {limit:,.10g}"
    return ""
