"""Makes the archive of Spark's classes for a run of tests: bridges start sooner with it."""

from __future__ import annotations

import fcntl
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TextIO

from bridge.spark.process_memory import java_options

_MAKE = [sys.executable, "-m", "bridge.spark.class_archive"]


def begin(folder: Path) -> Callable[[], None]:
    """Begins to make it, unless it is there; the lock in `folder` is held as long as that goes on.  Returns what ends
    it, done or not."""
    if java_options():
        return lambda: None
    with _locked(folder) as lock:
        making = subprocess.Popen(_MAKE, stdout=subprocess.DEVNULL, pass_fds=[lock.fileno()])

    def end() -> None:
        making.terminate()
        making.wait()

    return end


def ensure(folder: Path) -> None:
    """Waits for whoever makes it, or makes it."""
    with _locked(folder):
        if not java_options():
            subprocess.run(_MAKE, check=True, stdout=subprocess.DEVNULL)


def _locked(folder: Path) -> TextIO:
    """The lock's file; it is held until this file, and whoever inherited it, is closed."""
    lock = (folder / "class_archive.lock").open("w")
    fcntl.flock(lock, fcntl.LOCK_EX)
    return lock
