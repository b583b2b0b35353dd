"""Starts Spark while the rest of a pipeline is put together: the JVM takes most of a start, and works by itself."""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping
from typing import TYPE_CHECKING, Final

from pyspark.sql import SparkSession

from bridge.spark.process_memory import keep_freed_memory
from bridge.spark.session import start_session
from bridge.spark.tuning import switch_off

if TYPE_CHECKING:
    from bridge.config import Tuning

_TICK_SECONDS: Final = 0.05


class StartingSession:
    """A Spark session that a thread starts.  If nobody waits for it, it ends with the process.

    settings: properties of Spark.  log_level: see start_session.  tuning_off: the speed-ups that are switched off.
    """

    def __init__(self, settings: Mapping[str, str], log_level: str, tuning_off: Collection[Tuning]) -> None:
        self._settings, self._log_level = settings, log_level
        self._started: SparkSession | None = None
        self._failure: BaseException | None = None
        switch_off(tuning_off)
        keep_freed_memory()
        self._thread = threading.Thread(target=self._start, name="spark-start", daemon=True)
        self._thread.start()

    def wait(self, abandoned: Callable[[], bool]) -> SparkSession | None:
        """Waits for the session, and returns it; None when `abandoned` said so before.

        Raises what `start_session` raises.
        """
        while self._thread.is_alive() and not abandoned():
            self._thread.join(_TICK_SECONDS)
        if self._failure is not None:
            raise self._failure
        return self._started

    def _start(self) -> None:
        try:
            self._started = start_session(self._settings, log_level=self._log_level)
        except BaseException as failure:  # noqa: BLE001  # raised where the session is waited for
            self._failure = failure
