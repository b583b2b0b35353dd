"""Processes that die, or are stopped, on request: the requests themselves."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
from contextlib import suppress
from pathlib import Path

import pytest

from tests.support import crashing
from tests.support.crashing import Trace


class Slow:
    """A file that two threads look for at the same time, if they can."""

    def __init__(self, path: Path) -> None:
        self._path, self._both = path, threading.Barrier(2)

    def exists(self) -> bool:
        found = self._path.exists()
        with suppress(threading.BrokenBarrierError):
            self._both.wait(0.3)
        return found

    def write_text(self, text: str, encoding: str) -> None:
        self._path.write_text(text, encoding=encoding)


def test_a_victim_is_stopped_once(tmp_path: Path) -> None:
    """However many threads come to the step at once: stopped again, it would wait for somebody to wake it, and the
    tests for it, until their time is over."""
    stopped = list[str]()
    trace = Trace("begun", Slow(tmp_path / "said"), stop=lambda: stopped.append("once"))  # type: ignore[arg-type]
    threads = [threading.Thread(target=trace, args=("begun",)) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(10)
    assert stopped == ["once"]


def test_a_victim_that_nobody_wakes_is_killed(monkeypatch: pytest.MonkeyPatch) -> None:
    """A test that failed before it woke its victim must not keep those behind it waiting."""
    monkeypatch.setattr(crashing, "SECONDS", 0.2)
    sleeper = subprocess.Popen(["sleep", "60"])
    os.kill(sleeper.pid, signal.SIGSTOP)
    assert crashing._exit_code(sleeper.pid) == -signal.SIGKILL
    sleeper.returncode = -signal.SIGKILL  # it is waited for already
