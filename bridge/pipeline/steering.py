"""Takes up what `bridge ctl` has set, while the pipeline runs: the gate that every target transaction and every schema
change passes, and how busy servers are."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from typing import Any, Final, Self

import structlog
from pymysql.err import MySQLError

from bridge.errors import BridgeError, TargetError, UsageError
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import server_words
from bridge.mysql.server_load import REPLICA_LAG, MostLoad, excess, heartbeat_at, lag_excess, parse_limits
from bridge.mysql.state.controls import ControlKind, Controls, ControlTable, as_document
from bridge.mysql.state.progress import ProgressTable
from bridge.rows.gathering import Amount

_MEASURE_SECONDS: Final = 1.0
_TIMEOUT_SECONDS: Final = 10.0
"""Shorter than that of other sessions: a heartbeat that comes late lets others take over."""

log = structlog.get_logger()


class ReopeningSession:
    """A session that is opened when it is needed, kept, and opened anew after an error."""

    def __init__(self, target: Target) -> None:
        self._target = target
        self._session: Session | None = None

    @property
    def is_open(self) -> bool:
        """Whether there is a session."""
        return self._session is not None

    @contextmanager
    def use(self) -> Iterator[Session]:
        """Gives the session."""
        try:
            if self._session is None:
                self._session = self._target.connect(autocommit=True, timeout_seconds=_TIMEOUT_SECONDS)
            yield self._session
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Closes the session, if there is one."""
        session, self._session = self._session, None
        if session is not None:
            with suppress(Exception):
                session.close()


class Lookout:
    """Calls `look` every `seconds` while the block lasts, on a thread of its own.  Errors of servers are left to those
    who write there; any other is logged once.

    close: called at the end.
    """

    end_seconds = 1.0  # how long the end waits: a thread that still waits for a server then is left, as a daemon

    def __init__(
        self, name: str, look: Callable[[], None], close: Callable[[], None], seconds: float = _MEASURE_SECONDS
    ) -> None:
        self._look, self._close, self._seconds = look, close, seconds
        self._end = threading.Event()
        self._is_logged = False
        self._thread = threading.Thread(target=self._work, name=name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join(self.end_seconds)

    def _work(self) -> None:
        while not self._end.is_set():
            try:
                self._look()
            except (MySQLError, OSError, BridgeError):
                pass
            except Exception as error:  # noqa: BLE001  # what the operator sets next must still be taken up
                self._log_once(error)
            self._end.wait(self._seconds)
        self._close()

    def _log_once(self, error: Exception) -> None:
        if not self._is_logged:
            self._is_logged = True
            log.error("steering_failed", error=repr(error), fix="this is a bug in the bridge; report it")


NO_REPLICAS: Final = f"{REPLICA_LAG} is limited, but target.replicas names none"


class LoadWatch:
    """Tells whether a server is above its limits.

    replicas: the servers whose lag counts.
    """

    def __init__(self, target: Target, table: ProgressTable, replicas: Sequence[Target]) -> None:
        self._table = table
        self._target = ReopeningSession(target)
        self._replicas = {replica.place: ReopeningSession(replica) for replica in replicas}

    def busy(self, limits: MostLoad) -> str:
        """Tells what is above its limit, or cannot be measured; "" when nothing is."""
        most_lag = limits.get(REPLICA_LAG)
        try:
            with self._target.use() as session:
                reason = excess(session, {n: limit for n, limit in limits.items() if n != REPLICA_LAG}, "target")
                heartbeat = None if most_lag is None else heartbeat_at(session, self._table)
        except UsageError as error:
            return f"{error.what}, and it is limited"
        if reason or most_lag is None or heartbeat is None:
            return reason
        if not self._replicas:
            return NO_REPLICAS
        return self._lag(heartbeat, most_lag)

    def close(self) -> None:
        """Closes its sessions."""
        for session in (self._target, *self._replicas.values()):
            session.close()

    def _lag(self, written_at: float, limit: float) -> str:
        heartbeats: dict[str, float | None] = {}
        for place, replica in self._replicas.items():
            try:
                with replica.use() as session:
                    heartbeats[place] = heartbeat_at(session, self._table)
            except (MySQLError, OSError) as error:
                return f"the replica {place} does not tell how far it is: {server_words(error)}"
            except TargetError as error:
                return f"the replica {place} does not tell how far it is: {error.what}"
        return lag_excess(written_at, heartbeats, limit)


BURST_SECONDS: Final = 1.0
"""What was not used is saved up for so long."""
LOOK_SECONDS: Final = 0.2
"""How often a closed gate is looked at again."""
_LEAST_SECONDS: Final = 0.001
BEING_READ: Final = "what `bridge ctl` has set is being read"
BEING_MEASURED: Final = "the load of the servers is being measured"


@dataclass(frozen=True)
class Limits:
    """What holds the applier back.

    paused: why nothing is applied, "" when it is.
    rate: row changes a second, 0 for no limit; rate_reason: who limits them.
    """

    paused: str = ""
    rate: float = 0.0
    rate_reason: str = ""


class Gate:
    """Holds the applier back between two transactions.

    The applier's thread passes it; other threads set what holds it back, each its own value.  While row changes are
    limited, a transaction may go when none are owed, however large it is; what it takes beyond the content of a bucket
    is paid afterwards.
    """

    def __init__(self, limits: Limits = Limits(), clock: Callable[[], float] = time.monotonic) -> None:
        self.limits = limits
        """What the operator has set."""
        self.busy = ""
        """Which server is too busy, "" when none is."""
        self._waiting_for = ""
        self._clock, self._filled_at = clock, clock()
        self._rate = self._content = 0.0

    @property
    def is_paused(self) -> bool:
        """Whether the operator has paused the pipeline."""
        return bool(self.limits.paused)

    @property
    def waiting_for(self) -> str:
        """Tells what holds the applier back, "" when nothing does; a pause counts although nothing is due."""
        return self.limits.paused or self._waiting_for

    def is_open(self) -> bool:
        """Tells whether the next transaction may go now."""
        return not self._hindrance()[1]

    def wait(self, stop: threading.Event) -> None:
        """Waits until the next transaction may go, or `stop` is set."""
        while not stop.is_set():
            seconds, self._waiting_for = self._hindrance()
            if not self._waiting_for:
                return
            stop.wait(seconds)

    def take(self, rows: int) -> None:
        """Notes that a transaction with so many row changes goes."""
        if self._rate:
            self._content -= rows

    def portion(self, most: Amount) -> Amount:
        """Returns how large a transaction should be: at most `most`, and at most what one second allows."""
        rate = self.limits.rate
        return most._replace(rows=max(1, min(most.rows, int(rate)))) if rate else most

    def _hindrance(self) -> tuple[float, str]:
        limits = self.limits
        owed = self._owed_seconds(limits.rate)
        if limits.paused or self.busy:
            return LOOK_SECONDS, limits.paused or self.busy
        return min(max(owed, _LEAST_SECONDS), LOOK_SECONDS), limits.rate_reason if owed else ""

    def _owed_seconds(self, rate: float) -> float:
        """Fills the bucket; gives after how many seconds nothing is owed.  No rate forgets what is owed."""
        now = self._clock()
        content = min(self._content + (now - self._filled_at) * self._rate, rate * BURST_SECONDS)
        self._content, self._filled_at, self._rate = content if rate else 0.0, now, rate
        return max(0.0, -self._content / rate) if rate else 0.0


class Steering:
    """Reads what is set once a second, and sets the gate by it, while the block lasts.

    Nothing passes the gate before the first reading.  When the target does not answer, what was read last counts on.
    Servers are measured on a thread of its own: one that does not answer must not delay a pause.

    tell: is told what is followed, whenever that has changed.
    """

    def __init__(
        self, target: Target, controls: ControlTable, load: LoadWatch, tell: Callable[[Mapping[str, Any]], object]
    ) -> None:
        self._session, self._controls, self._load, self._tell = ReopeningSession(target), controls, load, tell
        self._announced: Controls | None = None
        self._controls_now: Controls = {}
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
        if self._throttle(controls) != self._throttle(self._controls_now):
            self.gate.busy = BEING_MEASURED if self._throttle(controls) else ""
        self._controls_now = controls
        pause, rate = controls.get(ControlKind.PAUSE), controls.get(ControlKind.RATE)
        self.gate.limits = Limits(
            pause.words if pause else "", float(rate.value) if rate else 0.0, rate.words if rate else ""
        )
        if controls != self._announced:
            self._announced = controls
            self._tell(as_document(controls))

    def measure(self) -> None:
        """Measures the servers while a throttle is set."""
        limits = self._throttle(self._controls_now)
        busy = self._load.busy(parse_limits([limits], "throttle")) if limits else ""
        if limits == self._throttle(self._controls_now):  # otherwise it was measured by limits that count no more
            self.gate.busy = busy

    def _log_changes(self, controls: Controls) -> None:
        for kind, control in controls.items():
            if self._controls_now.get(kind) != control:
                log.info("steered", now=control.words)
        for kind in self._controls_now.keys() - controls.keys():
            log.info("steered", lifted=kind.value)

    @staticmethod
    def _throttle(controls: Controls) -> str:
        control = controls.get(ControlKind.THROTTLE)
        return control.value if control else ""
