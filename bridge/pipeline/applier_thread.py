"""Runs the applier in a thread."""

from __future__ import annotations

import queue
import sys
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from bridge.ends.end import Abandoned
from bridge.ends.phases import Phase, PhaseClock
from bridge.model import SchemaChange
from bridge.pipeline.applier import Applier, Interrupted
from bridge.spark.decoded_batch import DecodedBatch

_TICK_SECONDS: Final = 0.2
_SWITCH_SECONDS: Final = 0.0005
"""A thread that wants to run waits so long for one that runs Python, by default 5 ms.  While the applier waits with its
next statement, the target has nothing to do: a catch-up of `real` from Debezium is 3 % faster so (measured)."""


class ApplierThread:
    """Runs the applier in a thread.  At most one micro-batch waits while another is applied.

    pending: the schema changes that progress lists as still to run; they run first.
    """

    def __init__(self, applier: Applier, pending: tuple[SchemaChange, ...]) -> None:
        self._applier, self._pending = applier, pending
        self._waiting: queue.Queue[DecodedBatch | None] = queue.Queue(maxsize=1)  # None: nothing more comes
        self._stopping = threading.Event()
        self.failure: BaseException | None = None
        """The error that ended the thread, or reading."""
        self._thread = threading.Thread(target=self._work, name="applier", daemon=True)

    @property
    def phases(self) -> PhaseClock:
        """Where the time of the thread goes."""
        return self._applier.phases

    def start(self) -> None:
        """Starts the thread."""
        sys.setswitchinterval(_SWITCH_SECONDS)
        self._thread.start()

    def offer(self, batch: DecodedBatch, stop_waiting: Callable[[], bool]) -> bool:
        """Gives the applier a micro-batch, and waits while another one is waiting.

        Returns False when the thread has ended, or `stop_waiting` returned true, before the applier accepted it.
        """
        while self._thread.is_alive() and not self._stopping.is_set() and not stop_waiting():
            try:
                self._waiting.put(batch, timeout=_TICK_SECONDS)
            except queue.Full:
                continue
            return True
        return False

    def fold_ahead(self, batch: DecodedBatch) -> None:
        """Folds what will be due with a micro-batch that was accepted, unless the applier has taken it already."""
        if self._waiting.full() and self._applier.has_taken.wait(_TICK_SECONDS) and self._waiting.full():
            self._applier.fold_ahead(batch)

    def raise_failure(self) -> None:
        """Raises the error that ended the thread or reading, if there is one."""
        if self.failure is not None:
            raise self.failure

    def fail(self, error: BaseException) -> None:
        """Makes raise_failure raise an error of reading, unless there was an earlier one."""
        self.failure = self.failure or error

    def drain(self, stop_waiting: Callable[[], bool]) -> bool:
        """Waits until the thread has applied what is waiting and has ended; raises the error that ended it.

        Returns False when `stop_waiting` returned true before.
        """
        while self._thread.is_alive() and not stop_waiting():
            with suppress(queue.Full):
                self._waiting.put(None, timeout=_TICK_SECONDS)
                break
        while self._thread.is_alive() and not stop_waiting():
            self._thread.join(_TICK_SECONDS)
        self.raise_failure()
        return not stop_waiting() and not self._thread.is_alive()

    def stop(self, seconds: float) -> bool:
        """Ends the thread after the present target transaction; False when that takes longer than `seconds`."""
        self._applier.interrupt()
        self._stopping.set()
        if self._thread.is_alive():
            self._thread.join(seconds)
        return not self._thread.is_alive()

    def _work(self) -> None:
        phases = self.phases
        try:
            self._applier.finish_pending(self._pending)
            while True:
                try:
                    phases.enter(Phase.WAITING)
                    self._applier.has_taken.clear()
                    batch = self._waiting.get(timeout=_TICK_SECONDS)
                except queue.Empty:
                    if self._stopping.is_set():
                        return
                    phases.enter(Phase.FOLDING)
                    self._applier.tick()
                else:
                    if batch is None:
                        return
                    phases.enter(Phase.FOLDING)
                    self._applier.take(batch)
        except (Interrupted, Abandoned):
            return
        except BaseException as error:  # noqa: BLE001  # raised again by raise_failure, in the thread that watches
            self.failure = error
        finally:
            phases.enter(None)
