"""Takes up what `bridge ctl` has set, while the pipeline runs."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import ExitStack
from typing import Any, Final

import structlog

from bridge.mysql.connection.target import Target
from bridge.mysql.server_load import parse_limits
from bridge.mysql.state.controls import ControlKind, Controls, ControlTable, as_document
from bridge.pipeline.steering.gate import Gate, Limits
from bridge.pipeline.steering.load_watch import KeptSession, LoadWatch, Lookout

BEING_READ: Final = "what `bridge ctl` has set is being read"
BEING_MEASURED: Final = "the load of the servers is being measured"

log = structlog.get_logger()


class Steering:
    """Reads what is set once a second, and sets the gate by it, while the block lasts.

    Nothing passes the gate before the first reading.  When the target does not answer, what was read last counts on.
    Servers are measured on a thread of its own: one that does not answer must not delay a pause.

    tell: is told what is followed, whenever that has changed.
    """

    def __init__(
        self, target: Target, controls: ControlTable, load: LoadWatch, tell: Callable[[Mapping[str, Any]], object]
    ) -> None:
        self._session, self._controls, self._load, self._tell = KeptSession(target), controls, load, tell
        self._told: Controls | None = None
        self._known: Controls = {}
        self.gate = Gate(Limits(paused=BEING_READ))

    def __enter__(self) -> Steering:
        self._threads = ExitStack()
        self._threads.enter_context(Lookout("steering", self.read, self._session.close))
        self._threads.enter_context(Lookout("load", self.measure, self._load.close))
        return self

    def __exit__(self, *_: object) -> None:
        self._threads.close()

    def read(self) -> None:
        """Reads what is set, and takes up what has changed."""
        with self._session.use() as session:
            controls = self._controls.read(session)
        self._log_changes(controls)
        if self._throttle(controls) != self._throttle(self._known):
            self.gate.busy = BEING_MEASURED if self._throttle(controls) else ""
        self._known = controls
        pause, rate = controls.get(ControlKind.PAUSE), controls.get(ControlKind.RATE)
        self.gate.limits = Limits(
            pause.words if pause else "", float(rate.value) if rate else 0.0, rate.words if rate else ""
        )
        if controls != self._told:
            self._told = controls
            self._tell(as_document(controls))

    def measure(self) -> None:
        """Measures the servers while a throttle is set."""
        limits = self._throttle(self._known)
        busy = self._load.busy(parse_limits([limits], "throttle")) if limits else ""
        if limits == self._throttle(self._known):  # otherwise it was measured by limits that count no more
            self.gate.busy = busy

    def _log_changes(self, controls: Controls) -> None:
        for kind, control in controls.items():
            if self._known.get(kind) != control:
                log.info("steered", now=control.words)
        for kind in self._known.keys() - controls.keys():
            log.info("steered", lifted=kind.value)

    @staticmethod
    def _throttle(controls: Controls) -> str:
        control = controls.get(ControlKind.THROTTLE)
        return control.value if control else ""
