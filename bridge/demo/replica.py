"""The bridge of the demo: a process of its own, started, killed and stopped as an operator would."""

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
    folder: for its log, and while this lives for its temporary files, which a killed process leaves behind.
    """

    def __init__(self, arguments: Sequence[str], folder: Path) -> None:
        self._scratch = folder / "tmp"
        local = {"local.dir": self._scratch, "driver.extraJavaOptions": f"-Djava.io.tmpdir={self._scratch}"}
        assignments = [part for name, value in local.items() for part in ("--set", f"spark.spark.{name}={value}")]
        self._arguments = [*arguments, *assignments]
        self.log = folder / "bridge.log"
        """Takes what it prints."""
        self._process: subprocess.Popen[bytes] | None = None

    def __enter__(self) -> Replica:
        self._scratch.mkdir()
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.kill()
        shutil.rmtree(self._scratch, ignore_errors=True)

    def start(self) -> None:
        """Starts it; Ctrl-C in the terminal does not reach it."""
        with self.log.open("ab") as log:
            self._process = self._started("run", log, log)

    def ask(self, command: str) -> tuple[int, str]:
        """Another `bridge` command with the same arguments, to its end: its exit code, and what it printed."""
        with self.log.open("ab") as log:
            process = self._process = self._started(command, subprocess.PIPE, log)
        printed, _ = process.communicate()
        self.kill()
        return process.returncode, printed.decode()

    def _started(self, command: str, output: Any, log: Any) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            [sys.executable, "-m", "bridge", command, *self._arguments],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=log,
            process_group=0,
            env={**os.environ, "TMPDIR": str(self._scratch), "XDG_STATE_HOME": str(self._scratch)},
        )

    def check(self) -> None:
        """Raises StoppedError, with the end of its log, when it has ended by itself."""
        if self._process is not None and (code := self._process.poll()) is not None:
            raise self._failure(f"the bridge ended by itself with exit code {code}")

    def kill(self) -> None:
        """SIGKILL for the whole group; nothing when it is not running."""
        process, self._process = self._process, None
        if process is not None:
            with suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def stop(self) -> None:
        """SIGTERM; raises StoppedError unless it ends within 30 s with exit code 0."""
        self.check()
        assert self._process is not None
        self._process.terminate()
        try:
            code = self._process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            raise self._failure(f"the bridge did not end within {STOP_SECONDS:.0f} s of SIGTERM") from None
        if code != 0:
            raise self._failure(f"the bridge ended with exit code {code} at SIGTERM")
        self.kill()  # what it might have left of its group

    def _failure(self, what: str) -> StoppedError:
        lines = self.log.read_text(errors="replace").splitlines() or ["empty"]
        return StoppedError(f"{what}; the end of its log is: {lines[-1]}", fix=f"read {self.log}")
