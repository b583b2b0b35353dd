"""The `bridge` command as the tests call it: in this process, or as processes of their own."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout, suppress
from dataclasses import dataclass
from pathlib import Path

from bridge.cli.app import main

SECONDS = 180.0
"""For anything that a busy machine may take long for."""
SHOWN_LINES = 25
PROGRAM = (sys.executable, "-m", "bridge")


@dataclass(frozen=True)
class Ended:
    """How a command ended, and what it printed."""

    code: int
    out: str
    err: str

    @property
    def last_line(self) -> str:
        """The last line on stderr."""
        return self.err.strip().splitlines()[-1] if self.err.strip() else ""


def bridge(*arguments: str) -> Ended:
    """Runs the command in this process, whose Spark session it shares."""
    out, err, code = io.StringIO(), io.StringIO(), 0
    with _kept_signal_handlers(), redirect_stdout(out), redirect_stderr(err):
        try:
            main(list(arguments))
        except SystemExit as end:
            code = end.code if isinstance(end.code, int) else 0 if end.code is None else 1
    return Ended(code, out.getvalue(), err.getvalue())


@contextmanager
def _kept_signal_handlers() -> Iterator[None]:
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        yield
    finally:
        for number, handler in handlers.items():
            signal.signal(number, handler)


class Process:
    """`python -m bridge ...` as the leader of a session and a process group of its own; what it prints goes to a file.

    program: what stands before the arguments instead.
    """

    def __init__(
        self,
        folder: Path,
        *arguments: str,
        environment: Mapping[str, str] | None = None,
        program: Sequence[str] = PROGRAM,
    ) -> None:
        self._log = folder / f"bridge-{time.monotonic_ns()}.log"
        with self._log.open("wb") as log:
            self._process = subprocess.Popen(
                [*program, *arguments],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
                env={**os.environ, **(environment or {})},
            )
        self.pid = self._process.pid

    def __enter__(self) -> Process:
        return self

    def __exit__(self, *_: object) -> None:
        self.signal_group(signal.SIGCONT)
        self.kill()

    @property
    def log(self) -> str:
        """What it has printed so far."""
        return self._log.read_text(errors="replace")

    @property
    def end_of_log(self) -> str:
        """The last of it, to be shown."""
        return "\n".join(self.lines[-SHOWN_LINES:])

    @property
    def lines(self) -> list[str]:
        """The same, by line."""
        return self.log.splitlines()

    @property
    def last_line(self) -> str:
        """The last line of the command's own, "" without one: the JVM may write behind it."""
        return next((line for line in reversed(self.lines) if line.startswith("bridge: ")), "")

    @property
    def code(self) -> int | None:
        """Its exit code, None while it runs."""
        return self._process.poll()

    def signal_group(self, number: int) -> None:
        """Signals every process of the group."""
        with suppress(ProcessLookupError):
            os.killpg(self.pid, number)

    def signal(self, number: int) -> None:
        """Signals the command's own process only."""
        self._process.send_signal(number)

    def wait_for_end_of_group(self, seconds: float = SECONDS) -> None:
        """Waits until none of its processes is left."""
        deadline = time.monotonic() + seconds
        with suppress(ProcessLookupError):
            while True:
                os.killpg(self.pid, 0)
                assert time.monotonic() < deadline, f"its processes did not end within {seconds} s"
                time.sleep(0.05)

    def kill(self) -> None:
        """SIGKILL for the whole group."""
        self.signal_group(signal.SIGKILL)
        self._process.wait()

    def wait(self, seconds: float = SECONDS) -> int:
        """Its exit code; fails with its log when it does not end."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            raise AssertionError(f"it did not end within {seconds} s:\n{self.end_of_log}") from None

    def wait_for(self, condition: Callable[[], bool], what: str, seconds: float = SECONDS) -> None:
        """Waits for something to come true while it runs; fails with its log when it ends before."""
        deadline = time.monotonic() + seconds
        while not condition():
            assert self.code is None, f"it ended with {self.code} before {what}:\n{self.end_of_log}"
            assert time.monotonic() < deadline, f"no {what} within {seconds} s:\n{self.end_of_log}"
            time.sleep(0.1)  # to ask a server takes 30 ms of the processor

    def says(self, pattern: str, seconds: float = SECONDS) -> None:
        """Waits until it has printed something that matches a pattern."""
        self.wait_for(lambda: re.search(pattern, self.log) is not None, f"{pattern!r}", seconds)
