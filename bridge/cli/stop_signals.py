"""How SIGTERM and Ctrl-C end a command that works on: cleanly, then by breaking off what it waits for, then by force.

Nothing of it happens in a signal handler: that could run while the main thread holds a lock, and would not run while a
library does not return.  Python writes the signal's number into a pipe, and a thread reads it.
"""

from __future__ import annotations

import os
import select
import signal
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from bridge import console
from bridge.cli.early_stop import STOP_SIGNALS
from bridge.errors import BridgeError

_ONE_STOP_SECONDS: Final = 0.5
"""Signals this close together are one stop: `timeout`, for example, signals the process and then its group."""
BREAK_OFF_SECONDS: Final = 10.0
"""So long after the signal, what is waited for is broken off."""
END_SECONDS: Final = 26.0
"""So long after it, the process ends whatever it waits for."""
_LEFT_SECONDS: Final = 3.0
"""For threads that are left when the work has ended."""
_MAIN_SECONDS: Final = 10.0
_LOOK_SECONDS: Final = 0.2
_TWICE: Final = 130
"""The exit code when a second signal came."""


class StopSignals:
    """Takes the signals for as long as the block lasts, and sees to it that the process ends once one has come.

    stop: asks the work to end.  break_off: ends what it waits for.  clean_up: comes before an end by force.
    code: the exit code of an end by force.
    """

    def __init__(
        self, stop: Callable[[], object], break_off: Callable[[], object], clean_up: Callable[[], object], *, code: int
    ) -> None:
        self._stop, self._break_off, self._clean_up, self._code = stop, break_off, clean_up, code
        self._read, self._write = os.pipe()
        os.set_blocking(self._write, False)
        self._has_ended = threading.Event()

    def __enter__(self) -> StopSignals:
        threading.Thread(target=self._work, name="stop", daemon=True).start()
        for number in STOP_SIGNALS:
            signal.signal(number, _nothing)
        self._before = signal.set_wakeup_fd(self._write, warn_on_full_buffer=False)
        return self

    def __exit__(self, _: object, error: BaseException | None, __: object) -> None:
        signal.set_wakeup_fd(self._before)
        for number in STOP_SIGNALS:
            signal.signal(number, signal.SIG_IGN)  # which stays while the interpreter ends; `_nothing` does not
        if isinstance(error, BridgeError):
            self._code = error.exit_code
        self._has_ended.set()
        os.close(self._write)

    def _work(self) -> None:
        try:
            if self._next_signal(None):
                self._see_to_the_end(time.monotonic())
        finally:
            os.close(self._read)

    def _see_to_the_end(self, asked_at: float) -> None:
        self._stop()
        while self._next_signal(asked_at + _ONE_STOP_SECONDS):
            pass
        if self._next_signal(asked_at + BREAK_OFF_SECONDS):
            self._end(_TWICE)
        if not self._has_ended.is_set():
            threading.Thread(target=self._break_off, name="break off", daemon=True).start()
        if self._next_signal(asked_at + END_SECONDS):
            self._end(_TWICE)
        if self._has_ended.is_set():
            self._end_left_threads()
            return
        console.note("what the bridge waits for does not end; it ends all the same")
        self._end(self._code)

    def _next_signal(self, until: float | None) -> bool:
        """Waits for the next signal, until a moment or the end of the work; whether one came."""
        while not self._has_ended.is_set() and (until is None or time.monotonic() < until):
            if select.select([self._read], [], [], _LOOK_SECONDS)[0]:
                read = os.read(self._read, 1)
                if not read or read[0] in STOP_SIGNALS:
                    return bool(read)
        return False

    def _end_left_threads(self) -> None:
        """The interpreter waits for threads of Kafka's and of Spark's clients before it ends."""
        threading.main_thread().join(_MAIN_SECONDS)
        if not threading.main_thread().is_alive():
            time.sleep(_LEFT_SECONDS)
            self._end(self._code)

    def _end(self, code: int) -> None:
        with suppress(Exception):
            self._clean_up()
        with suppress(Exception):
            console.flush()
        os._exit(code)


def _nothing(*_: object) -> None:
    """Unlike SIG_IGN it lets the pipe be written to."""
