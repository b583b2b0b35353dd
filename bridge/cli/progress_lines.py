"""Progress of long work as lines of the log, where there is no terminal for a bar."""

from __future__ import annotations

import threading
from typing import Any, Final

import structlog

SECONDS: Final = 10.0
"""How often a line is written."""

log = structlog.get_logger()


class ProgressLines:
    """Logs the latest fields every SECONDS, from a thread of its own, for as long as the block lasts.

    event: the name of the line.
    """

    def __init__(self, event: str) -> None:
        self._event = event
        self._fields: dict[str, Any] = {"doing": "starting"}
        self._has_ended = threading.Event()
        self._thread = threading.Thread(target=self._work, name="progress", daemon=True)

    def __enter__(self) -> ProgressLines:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._has_ended.set()
        self._thread.join()

    def show(self, **fields: Any) -> None:
        """Takes fields for the next line; others stay as they are."""
        self._fields = {**self._fields, **fields}

    def _work(self) -> None:
        while not self._has_ended.wait(SECONDS):
            log.info(self._event, **self._fields)
