"""Runs a pipeline for a command: assembles it, and ends it when a signal comes."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable
from types import FrameType
from typing import TYPE_CHECKING, Any

from bridge import console
from bridge.cli.early_stop import STOP_SIGNALS
from bridge.cli.service_manager import tell_while_alive
from bridge.cli.stop_signals import StopSignals
from bridge.errors import BridgeError

if TYPE_CHECKING:
    from bridge.config import Settings


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
    from bridge.pipeline.watching.outcome import BEFORE_PROGRESS

    def interrupt(*_: object) -> None:
        stopped.set()
        raise KeyboardInterrupt

    try:
        _handle_signals(interrupt)
        if not stopped.is_set():
            pipeline = assemble(settings, console.note, stopped, once=once)
            _handle_signals(lambda *_: pipeline.stop())
    except (Abandoned, BridgeError, KeyboardInterrupt):  # librdkafka may turn a KeyboardInterrupt into its own error
        if not stopped.is_set():
            raise
    if stopped.is_set():
        return BEFORE_PROGRESS
    with StopSignals(pipeline.stop, pipeline.break_off, pipeline.clean_up, code=code):
        return work(pipeline)


def _handle_signals(handler: Callable[[int, FrameType | None], object]) -> None:
    for number in STOP_SIGNALS:
        signal.signal(number, handler)
