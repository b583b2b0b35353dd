"""Notices that Kafka is away while nothing is read from it."""

from __future__ import annotations

import threading
import time
from typing import Final

from bridge.ends.end import End
from bridge.errors import SourceError, UnansweredError
from bridge.sources.source import Source

WATCH_SECONDS: Final = 5.0
_WORK: Final = "watching"


class SourceWatch:
    """Asks the source for its topics now and then, on a thread of its own, for as long as the block lasts."""

    def __init__(self, source: Source, end: End) -> None:
        self._source, self._end = source, end
        self._is_over = threading.Event()
        self._unanswered: UnansweredError | None = None
        self._thread = threading.Thread(target=self._work, name="source-watch", daemon=True)

    def __enter__(self) -> SourceWatch:
        if self._source.is_kafka:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._is_over.set()  # a question that Kafka does not answer need not be waited for

    def raise_failure(self) -> None:
        """Raises the last UnansweredError when the source has been away for too long."""
        if self._unanswered is not None and self._end.is_given_up(_WORK):
            raise self._unanswered

    def _work(self) -> None:
        while not self._is_over.wait(WATCH_SECONDS):
            began = time.monotonic()
            try:
                self._source.topics()
            except UnansweredError as error:
                self._unanswered = error
                self._end.failed(_WORK, "does not answer", time.monotonic() - began)
            except SourceError:
                self._end.answered(_WORK)  # what is wrong with a topic is found where it is read
            else:
                self._end.answered(_WORK)
