"""Waits for what comes by itself."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

SECONDS = 60.0
_APART_SECONDS = 0.15
"""InnoDB shows its transactions as they were to who looks again within 0.1 s."""


def wait_for(condition: Callable[[], object], complaint: str, seconds: float = SECONDS) -> None:
    """Returns when the condition is true; fails with the complaint when it is not within so many seconds."""
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until, f"{complaint}, after {seconds:g} s"
        time.sleep(_APART_SECONDS)


@contextmanager
def at_work(work: Callable[[], object]) -> Iterator[threading.Thread]:
    """Something that goes on beside the block, whose end waits for it; what it raised is raised then."""
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as failure:  # noqa: BLE001  # raised again below
            failures.append(failure)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    yield thread
    thread.join(SECONDS)
    assert not thread.is_alive(), "it waits for ever"
    for failure in failures:
        raise failure
