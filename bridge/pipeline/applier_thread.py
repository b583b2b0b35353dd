"""The applier's own thread."""

from __future__ import annotations

import queue
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Final

from bridge.model import SchemaChange
from bridge.pipeline.applier import Applier, Interrupted
from bridge.pipeline.order import DecodedBatch

_TICK_SECONDS: Final = 0.2


class ApplierThread:
    """Runs the applier: at most one micro-batch waits while one is being applied.

    pending: schema changes that an earlier run left in progress; they come first.
    """

    def __init__(self, applier: Applier[Any], pending: tuple[SchemaChange, ...]) -> None:
        self._applier, self._pending = applier, pending
        self._waiting: queue.Queue[DecodedBatch | None] = queue.Queue(maxsize=1)  # None: nothing more comes
        self._no_more = threading.Event()
        self.failure: BaseException | None = None
        """What ended the thread, or reading."""
        self._thread = threading.Thread(target=self._work, name="applier", daemon=True)

    def start(self) -> None:
        """Begins to work."""
        self._thread.start()

    def offer(self, batch: DecodedBatch, given_up: Callable[[], bool]) -> bool:
        """Hands a micro-batch over; waits while another one is waiting, and gives up when the thread has ended or
        `given_up` says so.  Whether it was handed over."""
        while self._thread.is_alive() and not self._no_more.is_set() and not given_up():
            try:
                self._waiting.put(batch, timeout=_TICK_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def raise_failure(self) -> None:
        """Raises what ended the thread, or reading, if anything did."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """Has `error`, met by who reads, raised by raise_failure, if nothing has ended the thread before."""
        self.failure = self.failure or error

    def drain(self, given_up: Callable[[], bool]) -> bool:
        """Lets the thread work off what is waiting, then end; raises what ended it.  False when `given_up` says so
        first."""
        while self._thread.is_alive() and not given_up():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=_TICK_SECONDS)
                break
        while self._thread.is_alive() and not given_up():
            self._thread.join(_TICK_SECONDS)
        self.raise_failure()
        return not given_up() and not self._thread.is_alive()

    def stop(self, seconds: float) -> bool:
        """Ends the thread after the target transaction in hand; False when that takes longer than `seconds`."""
        self._applier.interrupt()
        self._no_more.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        try:
            self._applier.finish_pending(self._pending)
            while True:
                try:
                    batch = self._waiting.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    if self._no_more.is_set():
                        return
                    self._applier.tick()
                else:
                    if batch is None:
                        return
                    self._applier.take(batch)
        except Interrupted:
            return
        except BaseException as error:  # noqa: BLE001  # raised again by raise_failure, in the thread that watches
            self.failure = error
