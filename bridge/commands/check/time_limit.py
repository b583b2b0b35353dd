"""Looks at several places at once, each within a limit of time, so that a silent one cannot keep the others."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from typing import Generic, TypeVar

T = TypeVar("T")


class SilentError(Exception):
    """A place gave no answer within its time; says which."""


class Look(Generic[T]):
    """Work that has begun in a thread of its own, which does not keep the process from ending.

    place: what is looked at, in words.
    seconds: how long the work may take, from now on.
    """

    def __init__(self, place: str, seconds: float, work: Callable[[], T]) -> None:
        self._place, self._seconds, self._work = place, seconds, work
        self._until = time.monotonic() + seconds
        self._found: list[T] = []
        self._error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, name=f"check {place}", daemon=True)
        self._thread.start()

    def result(self) -> T:
        """Gives what was found, or raises what the work raised; SilentError when its time is over."""
        self._thread.join(max(0.0, self._until - time.monotonic()))
        if self._error is not None:
            raise self._error
        if not self._found:
            raise SilentError(f"{self._place} gave no answer within {self._seconds:g} s")
        return self._found[0]

    def _run(self) -> None:
        try:
            self._found.append(self._work())
        except BaseException as error:  # noqa: BLE001  # the thread that asks raises it
            self._error = error
