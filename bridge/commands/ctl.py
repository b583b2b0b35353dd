"""`bridge ctl`: steers a pipeline, from any machine that reaches its target."""

from __future__ import annotations

import getpass
import os
import socket
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any, Final, NamedTuple

from bridge.commands.connections import open_session
from bridge.commands.status import read_owner
from bridge.errors import UnknownPipelineError, UsageError, meant
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import require_writable
from bridge.mysql.server_load import REPLICA_LAG, parse_limits, status_value
from bridge.mysql.state.controls import ControlKind, Controls, ControlTable, as_document
from bridge.mysql.state.progress import ProgressTable

OFF: Final = "off"
TAKE_UP_SECONDS: Final = 5.0
"""How long a command waits for the bridge that runs, which looks once a second."""
_LOOK_SECONDS: Final = 0.05


class Steered(NamedTuple):
    """What is set after a change, and whether it is followed.

    runner: the bridge that runs; "" when none does.
    seconds: after how long it has taken the change up; None when it has not within TAKE_UP_SECONDS.
    """

    controls: Controls
    runner: str = ""
    seconds: float | None = None

    def document(self) -> dict[str, Any]:
        """Returns it as a JSON document."""
        taken_up = {"by": self.runner, "seconds": self.seconds} if self.runner else None
        return {**as_document(self.controls), "taken_up": taken_up}

    @property
    def words(self) -> str:
        """Says who follows it."""
        if not self.runner:
            return "no bridge runs this pipeline now; the next one takes it up at its start"
        if self.seconds is None:
            return f"{self.runner} has not taken it up within {TAKE_UP_SECONDS:g} s; see its log, and bridge status"
        return f"taken up by {self.runner} after {self.seconds:.1f} s"


class Steerer:
    """Sets and lifts what steers one pipeline.  It needs no ownership: the bridge that runs takes it up, which is
    waited for.

    Every method raises UnknownPipelineError when the target knows no such pipeline.
    """

    def __init__(self, target: Target, table: ProgressTable) -> None:
        self._target, self._table = target, table
        self._controls = ControlTable(table.name, table.schema)

    def read(self) -> Controls:
        """Reads what is set."""
        with self._session() as session:
            return self._controls.read(session)

    def pause(self) -> Steered:
        """Has the bridge apply nothing."""
        return self._change(ControlKind.PAUSE, "")

    def resume(self) -> Steered:
        """Lifts a pause."""
        return self._change(ControlKind.PAUSE, None)

    def rate(self, rows: str) -> Steered:
        """Limits row changes a second; `off` or 0 lifts the limit.  UsageError for anything but a whole number."""
        if rows != OFF and not (rows.isascii() and rows.isdigit()):
            raise UsageError(
                f"{rows!r} is no number of row changes a second", fix="give 5000, or off to lift the limit"
            )
        return self._change(ControlKind.RATE, None if rows == OFF or not int(rows) else str(int(rows)))

    def throttle(self, rules: Sequence[str]) -> Steered:
        """Has the bridge wait while a server is above one of these limits, which replace what was set; `off`
        lifts them.  UsageError for a rule that cannot be read, or that names no number that the target knows."""
        if list(rules) == [OFF]:
            return self._change(ControlKind.THROTTLE, None)
        limits = parse_limits(rules, "the limit")
        with self._session() as session:
            for name in limits.keys() - {REPLICA_LAG}:
                _require_number(session, name)
        return self._change(ControlKind.THROTTLE, ",".join(f"{name}={limit:.10g}" for name, limit in limits.items()))

    def _change(self, kind: ControlKind, value: str | None) -> Steered:
        with self._session() as session:
            require_writable(session)
            if value is None:
                self._controls.lift(session, kind)
            else:
                self._controls.set(session, kind, value, _who())
            return self._await_take_up(session, self._controls.read(session))

    def _await_take_up(self, session: Session, controls: Controls) -> Steered:
        began, document = time.monotonic(), as_document(controls)
        while True:
            owner, is_running, state = read_owner(session, self._table)
            seconds = time.monotonic() - began
            if not is_running:
                return Steered(controls)
            runner = f"process {owner['pid']} on {owner['host']}"
            if state.get("steered") == document:
                return Steered(controls, runner, seconds)
            if seconds > TAKE_UP_SECONDS:
                return Steered(controls, runner)
            time.sleep(_LOOK_SECONDS)

    @contextmanager
    def _session(self) -> Iterator[Session]:
        with open_session(self._target) as session:
            if not self._table.exists(session) or not self._table.is_known(session):
                raise UnknownPipelineError(self._table.name)
            yield session


def _require_number(session: Session, name: str) -> None:
    names = [str(variable) for variable, _ in session.rows("SHOW GLOBAL STATUS")]
    if name.lower() not in map(str.lower, names):
        hint = meant(name, [*names, REPLICA_LAG])
        raise UsageError(
            f"the target has no status variable {name}", fix=f"{hint}give one of SHOW GLOBAL STATUS, or {REPLICA_LAG}"
        )
    status_value(session, name, "target")


def _who() -> str:
    """Names the user and the machine."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container may run as a user without a name
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:255]
