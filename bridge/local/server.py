"""Does what all embedded servers need: a temp folder, a supervisor, start, restart and stop."""

from __future__ import annotations

import json
import os
import random
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, ClassVar, Self

from bridge.local.errors import LocalError

HOST = "127.0.0.1"
READY_SECONDS = 120.0
POLL_SECONDS = 0.05
STOP_SECONDS = 15.0
ATTEMPTS = 3
LOG_LINES = 15
# Below the range that Linux hands out for outgoing connections, so that a port is still free at a restart.
PORTS = range(20000, 32768)


class PortTakenError(LocalError):
    """Raised when another process bound the port first."""


def free_port(taken: int | None = None) -> int:
    """Finds a port of 127.0.0.1 other than `taken` that is free now; another process may bind it a moment later."""
    for port in random.sample(PORTS, 100):
        if port == taken:
            continue
        with socket.socket() as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            try:
                probe.bind((HOST, port))
            except OSError:
                continue
            return port
    raise LocalError(f"none of 100 ports tried between {PORTS.start} and {PORTS.stop} is free", fix="free some")


class Server(ABC):
    """A server with its own data. It runs from `start` to `stop`, and never longer than this process."""

    name: ClassVar[str]
    needs: ClassVar[str]
    """What the machine must have, in words for the user."""

    def __init__(self) -> None:
        self._supervisor: Supervisor | None = None
        self._pid: int | None = None

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(self, *_exception: object) -> None:
        self.stop()

    @property
    def host(self) -> str:
        """The address where it listens: the loopback address, nothing else."""
        return HOST

    @property
    def pid(self) -> int:
        """The server's process id. Raises LocalError when it is not running."""
        if self._pid is None:
            raise LocalError(f"{self.name} is not running", fix="start it first")
        return self._pid

    @property
    def folder(self) -> Path:
        """The temp folder with its data and server.log. Raises LocalError before start and after stop."""
        return self._started().folder

    def start(self) -> Self:
        """Starts with fresh data and returns when it answers. The first start on a machine also fetches it.

        Raises LocalError with the last lines of its log when it does not come up.
        """
        if self._supervisor is not None:
            raise LocalError(f"{self.name} is already started", fix="use restart")
        for _ in range(ATTEMPTS - 1):
            try:
                return self._start_once()
            except PortTakenError:
                continue
        return self._start_once()

    def stop(self, deadline: float = STOP_SECONDS) -> None:
        """Ends the server, by force after `deadline` seconds, and removes its data. Does nothing when it is not
        started."""
        supervisor, self._supervisor, self._pid = self._supervisor, None, None
        if supervisor is not None:
            supervisor.end(deadline)

    def kill(self) -> None:
        """Ends the server by SIGKILL, like a power cut; data and ports stay for `restart`."""
        self._pid = None
        self._started().ask(do="stop", deadline=0)

    def restart(self, deadline: float = STOP_SECONDS) -> None:
        """Starts the server again on the same data and ports; stops it in order first when it still runs."""
        self._pid = None
        self._started().ask(do="stop", deadline=deadline)
        self._launch()

    @abstractmethod
    def _prepare(self, folder: Path) -> None:
        """Chooses ports and fills the folder."""

    @abstractmethod
    def _command(self, folder: Path) -> list[str]:
        """Gives the command line; it runs in the folder."""

    @abstractmethod
    def _answers(self) -> bool:
        """Tells whether the server answers a client now."""

    def _started(self) -> Supervisor:
        if self._supervisor is None:
            raise LocalError(f"{self.name} is not started", fix="start it first")
        return self._supervisor

    def _start_once(self) -> Self:
        self._supervisor = Supervisor(self.name)
        try:
            self._prepare(self.folder)
            self._launch()
        except BaseException:
            self.stop(0)
            raise
        return self

    def _launch(self) -> None:
        self._pid = self._started().start(self._command(self.folder))
        deadline = time.monotonic() + READY_SECONDS
        while (returncode := self._started().poll()) is None:
            if self._answers():
                return
            if time.monotonic() > deadline:
                raise self._failure(f"did not answer within {READY_SECONDS:.0f} s")
            time.sleep(POLL_SECONDS)
        raise self._failure(f"ended with code {returncode}")

    def _failure(self, what: str) -> LocalError:
        self._pid = None
        lines = (self.folder / "server.log").read_text(errors="replace").splitlines()
        kind = PortTakenError if any("already in use" in line for line in lines) else LocalError
        return kind(f"{self.name} {what}; its log ends: " + " | ".join(lines[-LOG_LINES:]), fix=self.needs)


def run_tool(command: Sequence[str], folder: Path, *, failed: str, needs: str) -> None:
    """Runs a program of a server's that prepares its data, and waits for its end.

    Raises LocalError when it fails: `failed` in words, then the last lines of its output.
    """
    done = subprocess.run(
        command,
        cwd=folder,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    if done.returncode != 0:
        raise LocalError(f"{failed}: " + " | ".join(done.stdout.split("\n")[-LOG_LINES:]), fix=needs)


class Supervisor:
    """Talks to `bridge.local.supervisor`. It owns the temp folder and the pipe; when the pipe closes, the server
    ends."""

    def __init__(self, name: str) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix=f"bridge-{name.lower()}-"))
        self._lock = threading.Lock()
        with (self.folder / "server.log").open("wb") as log:
            self._process = subprocess.Popen(
                _supervisor_command(self.folder),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                bufsize=0,  # nothing to flush when the supervisor is gone
                start_new_session=True,  # out of reach of Ctrl-C
            )

    @property
    def pid(self) -> int:
        """The supervisor's own process id."""
        return self._process.pid

    def ask(self, **request: Any) -> dict[str, Any]:
        """Sends one request and gives its answer. Raises LocalError when the supervisor is gone."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        with self._lock:
            try:
                self._process.stdin.write(json.dumps(request).encode() + b"\n")
                line = self._process.stdout.readline()
            except BrokenPipeError:
                line = b""
        if not line:
            raise LocalError(f"the supervisor {self.pid} of {self.folder} is gone, and its server with it")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def start(self, command: Sequence[str]) -> int:
        """Starts the server; returns its process id. Raises LocalError when the program cannot be run."""
        answer = self.ask(do="start", command=command)
        if "error" in answer:
            raise LocalError(f"{command[0]} does not run: {answer['error']}")
        pid: int = answer["pid"]
        return pid

    def poll(self) -> int | None:
        """Gives the server's exit code, None while it runs."""
        returncode: int | None = self.ask(do="poll")["returncode"]
        return returncode

    def end(self, deadline: float) -> None:
        """Ends server and supervisor and removes the folder, also when the supervisor is gone already."""
        with suppress(LocalError):
            self.ask(do="stop", deadline=deadline)
        with self._process:  # closes the pipes and waits: the supervisor ends at the end of its stdin
            pass
        shutil.rmtree(self.folder, ignore_errors=True)


def _supervisor_command(folder: Path) -> list[str]:
    """Gives the command of the supervisor: a script without site packages starts in 20 ms, the package in a second."""
    script = Path(__file__).with_name("supervisor.py")
    return [sys.executable, "-I", "-S", str(script), str(os.getpid()), str(folder)]
