"""Runs a pipeline for a command: assembles it, ends it when a signal comes, and tells systemd that it is alive.

SIGTERM and Ctrl-C end it cleanly, then by breaking off what it waits for, then by force.  Nothing of it happens in a
signal handler: that could run while the main thread holds a lock, and would not run while a library does not return.
Python writes the signal's number into a pipe, and a thread reads it.
"""

from __future__ import annotations

import os
import select
import signal
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from types import FrameType
from typing import TYPE_CHECKING, Any, Final

from bridge import console
from bridge.cli.early_stop import STOP_SIGNALS
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.config import Settings

_ONE_STOP_SECONDS: Final = 0.5
"""Signals this close together are one stop: `timeout`, for example, signals the process and then its group."""
BREAK_OFF_SECONDS: Final = 10.0
"""So long after the signal, what is waited for is broken off."""
END_SECONDS: Final = 26.0
"""So long after it, the process ends whatever it waits for."""
_CLIENT_SECONDS: Final = 3.0
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
            self._end_client_threads()
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

    def _end_client_threads(self) -> None:
        """The interpreter waits for threads of Kafka's and of Spark's clients before it ends."""
        threading.main_thread().join(_MAIN_SECONDS)
        if not threading.main_thread().is_alive():
            time.sleep(_CLIENT_SECONDS)
            self._end(self._code)

    def _end(self, code: int) -> None:
        with suppress(Exception):
            self._clean_up()
        with suppress(Exception):
            console.flush()
        os._exit(code)


def _nothing(*_: object) -> None:
    """Unlike SIG_IGN it lets the pipe be written to."""


REPORT_SECONDS: Final = 5.0


def tell_while_alive() -> None:
    """Says that the service has started, and every five seconds that it is alive: as long as this process can run a
    thread, also while it waits for an end that is away.  Without a service manager that listens, nobody is told."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        place = f"\0{address[1:]}" if address.startswith("@") else address
        threading.Thread(target=_tell, args=(place,), name="service-manager", daemon=True).start()


def _tell(place: str) -> None:
    while True:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(REPORT_SECONDS)
            manager.sendto(b"READY=1\nWATCHDOG=1", place)
        time.sleep(REPORT_SECONDS)


def run_pipeline(settings: Settings, work: Callable[[Any], Any], *, once: bool, code: int) -> Any:
    """Assembles a pipeline and calls `work` with it; returns the outcome.  A signal ends it, with `code` if need be by
    force.

    A stop signal that arrives before the pipeline exists ends the command at once, since nothing has begun, with the
    exit code that a later signal would give.

    once: whether the pipeline ends with its input.
    """
    stopped = threading.Event()
    # No exception from a signal may interrupt these imports: a module that is half imported cannot be imported again.
    _handle_signals(lambda *_: stopped.set())
    tell_while_alive()
    from bridge.commands.replicate import assemble
    from bridge.ends import Abandoned
    from bridge.pipeline.heartbeat import BEFORE_PROGRESS

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    try:
        _handle_signals(interrupt)
        if not stopped.is_set():
            pipeline = assemble(settings, console.note, stopped, once=once)
            _handle_signals(lambda *_: pipeline.stop())
    except (Abandoned, BridgeError, KeyboardInterrupt, SystemError):  # what becomes of it in librdkafka's client
        _handle_signals(signal.SIG_IGN)  # while the interpreter ends, which waits for Spark
        if not stopped.is_set():
            raise
    if stopped.is_set():
        return BEFORE_PROGRESS
    with StopSignals(pipeline.stop, pipeline.break_off, pipeline.clean_up, code=code):
        return work(pipeline)


def _handle_signals(handler: Callable[[int, FrameType | None], object] | signal.Handlers) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, handler)
