"""Runs a pipeline for a command: assembles it, ends it when a signal comes, and tells systemd that it is alive."""

from __future__ import annotations

import os
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
from bridge.cli.stop_signals import StopSignals
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.config import Settings

TOLD_SECONDS: Final = 5.0


def tell_while_alive() -> None:
    """Says that the service has started, and every five seconds that it is alive: as long as this process can run a
    thread, also while it waits for an end that is away.  Without a service manager that listens, nobody is told."""
    if address := os.environ.get("NOTIFY_SOCKET"):
        place = f"\0{address[1:]}" if address.startswith("@") else address
        threading.Thread(target=_tell, args=(place,), name="service-manager", daemon=True).start()


def _tell(place: str) -> None:
    while True:
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
            manager.settimeout(TOLD_SECONDS)
            manager.sendto(b"READY=1\nWATCHDOG=1", place)
        time.sleep(TOLD_SECONDS)


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
    from bridge.ends.end import Abandoned
    from bridge.pipeline.watching.status_reporter import BEFORE_PROGRESS

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    try:
        _handle_signals(interrupt)
        if not stopped.is_set():
            pipeline = assemble(settings, console.note, stopped, once=once)
            _handle_signals(lambda *_: pipeline.stop())
    except (Abandoned, BridgeError, KeyboardInterrupt):  # librdkafka may turn a KeyboardInterrupt into its own error
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
