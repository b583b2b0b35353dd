"""Starts Spark while a pipeline is put together and begins to read: the JVM takes most of a start, and works by
itself."""

from __future__ import annotations

import atexit
import threading
import time
from collections.abc import Callable, Mapping
from typing import Final

import structlog
from pyspark.sql import SparkSession

from bridge.ends.end import Abandoned
from bridge.errors import SourceError
from bridge.spark.process_memory import freeze_loaded_modules, keep_freed_memory, use_small_pages
from bridge.spark.session import start_session

_TICK_SECONDS: Final = 0.05
_LATE_SECONDS: Final = 60.0
"""After so long, and again and again, the log says that Spark is not there."""
_MOST_SECONDS: Final = 600.0
"""How long Spark may take: a cluster may let it wait for a place."""
_END_SECONDS: Final = 5.0
"""How long the end of the process waits for a start: PySpark removes a temporary folder then."""
_WHY_LATE: Final = (
    "look whether the disk of spark.local.dir or TMPDIR is full, and whether the cluster has room; `--set"
    " log.spark=warn` shows what Spark says"
)

log = structlog.get_logger()


class StartingSession:
    """A Spark session that a thread starts.  If nobody waits for it, it ends with the process.

    settings: properties of Spark.  log_level: see start_session.
    started_at: when it was there, by the monotonic clock; None before.
    """

    def __init__(self, settings: Mapping[str, str], log_level: str) -> None:
        self._settings, self._log_level = settings, log_level
        self._session: SparkSession | None = None
        self._failure: BaseException | None = None
        self.started_at: float | None = None
        self._is_over = threading.Event()
        self._began, self._late = time.monotonic(), 0.0
        self._is_told = False
        keep_freed_memory()
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._thread.start()
        atexit.register(self._thread.join, _END_SECONDS)

    @property
    def slots(self) -> int:
        """How many tasks run at once; 0 while the session is not there."""
        return self._session.sparkContext.defaultParallelism if self._session is not None else 0

    def wait(self, abandoned: Callable[[], bool]) -> None:
        """Waits until the session is there or has failed to start, or until `abandoned` says that nobody waits."""
        while not self._is_over.is_set() and not abandoned():
            self._look_at_the_time()
            self._is_over.wait(_TICK_SECONDS)

    def get(self, abandoned: Callable[[], bool] = lambda: False) -> SparkSession:
        """Waits for the session, and returns it.

        Raises what `start_session` raises, and Abandoned when `abandoned` said so before.
        """
        self.wait(abandoned)
        if self._failure is not None:
            raise self._failure
        if self._session is None or self.started_at is None:
            raise Abandoned
        if not self._is_told:
            log.info("spark_started", seconds=round(self.started_at - self._began, 1))
            self._is_told = True
        return self._session

    def _look_at_the_time(self) -> None:
        """Says when Spark takes long, and ends the start when it takes too long: a JVM that has failed may stay, and
        PySpark waits for it for ever."""
        seconds = time.monotonic() - self._began
        if self._is_over.is_set() or seconds < self._late + _LATE_SECONDS:
            return
        if seconds < _MOST_SECONDS:
            log.warning("spark_is_late", seconds=round(seconds), fix=_WHY_LATE)
            self._late = seconds
            return
        self._failure = SourceError(f"Spark has not started within {seconds:.0f} s", fix=_WHY_LATE)
        self._is_over.set()

    def _start(self) -> None:
        try:
            self._session = start_session(self._settings, log_level=self._log_level)
            freeze_loaded_modules()
            use_small_pages()  # after the start of the JVM, which so keeps the large pages for its workers
            self.started_at = time.monotonic()
        except BaseException as failure:  # noqa: BLE001  # raised where the session is waited for
            self._failure = failure
        self._is_over.set()
