"""The bridge of the demo: a process that is started, killed and stopped as an operator would do it."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Final

from bridge.errors import StoppedError

STOP_SECONDS: Final = 30.0


class Replica:
    """`bridge run` as a subprocess that leads its own process group.

    arguments: what follows `bridge run`.
    folder: holds its log and, until `__exit__`, its temporary files, which a killed process would leave.
    """

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._scratch = folder / "tmp"
        local = {"local.dir": self._scratch, "driver.extraJavaOptions": f"-Djava.io.tmpdir={self._scratch}"}
        assignments = [part for name, value in local.items() for part in ("--set", f"spark.spark.{name}={value}")]
        self._arguments = [*arguments, *assignments]
        self.log = folder / "bridge.log"
        """The file that its output is appended to."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Replica:
        self._scratch.mkdir()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def start(self) -> None:
        """Starts the bridge.  Ctrl-C in the terminal does not reach it."""
        with self.log.open("ab") as log:
            self._process = self._spawn("run", log, log)

    def run_command(self, command: str) -> tuple[int, str]:
        """Runs another `bridge` command with the same arguments; returns its exit code and its standard output."""
        with self.log.open("ab") as log:
            process = self._process = self._spawn(command, subprocess.PIPE, log)
        printed, _ = process.communicate()
        self.kill()
        return process.returncode, printed.decode()

    def _spawn(self, command: str, output: Any, log: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "bridge", command, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            process_group=0,
            env={**os.environ, "TMPDIR": str(self._scratch)},
        )

    def check(self) -> None:
        """Raises StoppedError, with the last line of the log, when the bridge has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise self._failure(f"the bridge ended by itself with exit code {code}")

    def kill(self) -> None:
        """Sends SIGKILL to the whole process group, if it is running."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        """Sends SIGTERM; raises StoppedError unless the bridge ends within 30 s with exit code 0."""
        self.check()
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure(f"the bridge did not end within {STOP_SECONDS:.0f} s after SIGTERM") from None
        if code != 0:
            raise self._failure(f"the bridge ended with exit code {code} after SIGTERM")
        self.kill()  # whatever is left of its process group

    def _failure(self, what: str) -> StoppedError:
        lines = self.log.read_text(errors="replace").splitlines() or ["empty"]
        return StoppedError(f"{what}; the last line of its log is: {lines[-1]}", fix=f"read {self.log}")
