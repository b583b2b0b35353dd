"""Takes the signals before anything else is imported.

What a start imports takes a second on a busy machine.  A SIGTERM in it ended the process with 143; the first process of
a container, which the system protects from signals that it does not take, did not even get it.
"""

from __future__ import annotations

import os
import signal
from collections.abc import Mapping, Sequence
from typing import Final

CLEAN_STOPS: Final[Mapping[str, int]] = {"run": 0, "replay": 4}
"""The exit codes of commands that a signal ends cleanly."""
STOP_SIGNALS: Final = (signal.SIGTERM, signal.SIGINT)


def end_before_work(arguments: Sequence[str]) -> None:
    """Has the signals end the process with the command's exit code of a stop, until a work takes them: nothing has
    begun yet.

    arguments: those of the command line, without the program.
    """
    if (code := CLEAN_STOPS.get(next(iter(arguments), ""))) is not None:
        for number in STOP_SIGNALS:
            signal.signal(number, lambda *_: os._exit(code))
