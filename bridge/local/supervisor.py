"""The process between a parent and its server: when the parent is gone, so are the server and its folder.

    python -m bridge.local.supervisor PARENT_PID FOLDER

Requests are JSON lines on stdin, each answered by one JSON line on stdout:

    {"do": "start", "command": [...]}       -> {"pid": 123}            output goes to FOLDER/server.log
    {"do": "poll"}                          -> {"returncode": null}    null while it runs
    {"do": "stop", "deadline": SECONDS}     -> {"returncode": 0}       SIGTERM, after the deadline SIGKILL

It ends at the end of stdin, when it has another parent than PARENT_PID, or at SIGTERM, SIGINT or SIGHUP; then it
kills the server and removes FOLDER. Two things watch the parent, since a fork of it may hold the pipe open.
If it is killed itself, the server dies with it (Linux), but the folder stays.

It imports the standard library only, so that it also runs as a plain script, which starts faster.
"""

from __future__ import annotations

import ctypes
import json
import os
import select
import shutil
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from types import FrameType
from typing import Any

PARENT_CHECK_SECONDS = 1.0
PR_SET_PDEATHSIG = 1


class Child:
    """The server process, which may be started and stopped any number of times."""

    def __init__(self, log: Path) -> None:
        self._log = log
        self._process: subprocess.Popen[bytes] | None = None

    def answer(self, request: dict[str, Any]) -> dict[str, Any]:
        """Does what the request asks. `start` answers {"error": ...} where the program cannot be run."""
        match request["do"]:
            case "start":
                return self._start(request["command"])
            case "stop":
                self.stop(request["deadline"])
        return {"returncode": self._process.poll() if self._process else 0}

    def stop(self, deadline: float) -> None:
        """Ends the process; it has `deadline` seconds to do so itself."""
        if self._process is None or self._process.poll() is not None:
            return
        if deadline > 0:
            self._process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self._process.wait(deadline)
        self._process.kill()
        self._process.wait()

    def _start(self, command: list[str]) -> dict[str, Any]:
        self.stop(0)
        with self._log.open("ab") as log:
            try:
                self._process = subprocess.Popen(
                    command,
                    cwd=self._log.parent,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    preexec_fn=_die_with(os.getpid()),  # safe: this process has one thread
                )
            except OSError as error:
                return {"error": str(error)}
        return {"pid": self._process.pid}


def _die_with(supervisor: int) -> Callable[[], None]:
    """Gives a function that the child runs before exec. It asks for SIGKILL when the thread that forked the child ends,
    which here means the whole supervisor."""
    libc = ctypes.CDLL(None) if sys.platform == "linux" else None

    def before_exec() -> None:
        if libc is not None:
            libc.prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
        if os.getppid() != supervisor:  # the supervisor died before prctl
            os._exit(1)

    return before_exec


def main() -> None:
    """Serves requests until one of the ends named above."""
    parent, folder = int(sys.argv[1]), Path(sys.argv[2])
    child = Child(folder / "server.log")
    wake = _wake_on_signals()
    try:
        for request in _requests(parent, wake):
            os.write(1, json.dumps(child.answer(request)).encode() + b"\n")
    except BrokenPipeError:
        pass  # the parent is gone
    finally:
        child.stop(0)
        shutil.rmtree(folder, ignore_errors=True)


def _wake_on_signals() -> int:
    """Gives a descriptor that becomes readable at a signal. Handlers that raise could interrupt the clean-up."""
    read, write = os.pipe()
    os.set_blocking(write, False)
    signal.set_wakeup_fd(write, warn_on_full_buffer=False)
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, _ignore)
    return read


def _ignore(_number: int, _frame: FrameType | None) -> None:
    """Handles a signal by doing nothing. Unlike SIG_IGN, it wakes the select below, and the server does not inherit
    it."""


def _requests(parent: int, wake: int) -> Iterator[dict[str, Any]]:
    """Gives the requests, until one of the ends that the module names."""
    pending = b""
    while os.getppid() == parent:
        ready, _, _ = select.select([0, wake], [], [], PARENT_CHECK_SECONDS)
        if wake in ready:
            return
        if 0 not in ready:
            continue
        received = os.read(0, 65536)
        if not received:
            return
        *lines, pending = (pending + received).split(b"\n")
        yield from map(json.loads, lines)


if __name__ == "__main__":
    main()
