"""`bridge ctl`: steers a pipeline, from any machine that reaches its target."""

from __future__ import annotations

import difflib
import getpass
import os
import socket
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from bridge.commands.look_session import open_session
from bridge.errors import UnknownPipelineError, UsageError
from bridge.mysql.connection import Session, Target
from bridge.mysql.server_load.replica_lag import REPLICA_LAG
from bridge.mysql.server_load.status_limits import parse_limits, status_value
from bridge.mysql.state.controls import ControlKind, Controls, ControlTable
from bridge.mysql.state.progress import ProgressTable
from bridge.mysql.writability import require_writable

OFF: Final = "off"
LEVELS: Final = ("debug", "info", "warning", "error")


class Steerer:
    """Sets and lifts what steers one pipeline.  It needs no ownership: the bridge that runs takes it up.

    Every method raises UnknownPipelineError when the target knows no such pipeline.
    """

    def __init__(self, target: Target, table: ProgressTable) -> None:
        self._target, self._table = target, table
        self._controls = ControlTable(table.name, table.schema)

    def read(self) -> Controls:
        """Reads what is set."""
        with self._session() as session:
            return self._controls.read(session)

    def pause(self) -> Controls:
        """Has the bridge apply nothing."""
        return self._change(ControlKind.PAUSE, "")

    def resume(self) -> Controls:
        """Lifts a pause."""
        return self._change(ControlKind.PAUSE, None)

    def rate(self, rows: str) -> Controls:
        """Limits row changes a second; `off` or 0 lifts the limit.  UsageError for anything but a whole number."""
        if rows != OFF and not (rows.isascii() and rows.isdigit()):
            raise UsageError(
                f"{rows!r} is no number of row changes a second", fix="give 5000, or off to lift the limit"
            )
        return self._change(ControlKind.RATE, None if rows == OFF or not int(rows) else str(int(rows)))

    def throttle(self, rules: Sequence[str]) -> Controls:
        """Has the bridge wait while a server is above one of these limits, which replace what was set; `off`
        lifts them.  UsageError for a rule that cannot be read, or that names no number that the target knows."""
        if list(rules) == [OFF]:
            return self._change(ControlKind.THROTTLE, None)
        limits = parse_limits(rules, "the limit")
        with self._session() as session:
            for name in limits.keys() - {REPLICA_LAG}:
                _require_number(session, name)
        return self._change(ControlKind.THROTTLE, ",".join(f"{name}={limit:.10g}" for name, limit in limits.items()))

    def log_level(self, level: str) -> Controls:
        """Sets the level of the log; `off` lifts it.  UsageError for a level that does not exist."""
        if level.lower() not in (*LEVELS, OFF):
            raise UsageError(f"{level!r} is no log level", fix=f"give one of {', '.join(LEVELS)}, or {OFF}")
        return self._change(ControlKind.LOG_LEVEL, None if level.lower() == OFF else level.lower())

    def _change(self, kind: ControlKind, value: str | None) -> Controls:
        with self._session() as session:
            require_writable(session)
            if value is None:
                self._controls.lift(session, kind)
            else:
                self._controls.set(session, kind, value, _who())
            return self._controls.read(session)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with open_session(self._target) as session:
            if not self._table.exists(session) or not self._table.is_known(session):
                raise UnknownPipelineError(self._table.name)
            yield session


def _require_number(session: Session, name: str) -> None:
    known = [str(found) for found, _ in session.rows("SHOW GLOBAL STATUS")]
    if name.lower() not in map(str.lower, known):
        closest = difflib.get_close_matches(name, [*known, REPLICA_LAG], 3)
        hint = f"; the closest are {', '.join(closest)}" if closest else ""
        raise UsageError(
            f"the target has no status variable {name}",
            fix=f"give one of SHOW GLOBAL STATUS, or {REPLICA_LAG}{hint}",
        )
    status_value(session, name, "target")


def _who() -> str:
    """Names the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:255]
