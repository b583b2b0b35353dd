"""Bridge processes that die, or are stopped, on request."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pyarrow as pa

from tests.support.crashing import CRASHED, SECONDS


class Victims:
    """Processes that die on request; the forking is done by a program without threads.

    url: an empty target, where that program tries a pipeline once.
    """

    def __init__(self, folder: Path, root: Path, url: str) -> None:
        self._folder = folder
        self._process = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-m", "tests.support.crashing", url],
            cwd=root, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True,
        )  # fmt: skip
        assert self.exit_code() == 0

    def keep(self, events: pa.Table) -> str:
        """Puts events where victims find them."""
        path = self._folder / "events.arrow"
        with pa.ipc.new_file(path, events.schema) as file:
            file.write_table(events)
        return str(path)

    def run(self, url: str, events: str, crash_at: int, **options: Any) -> str | None:
        """Runs a pipeline in a process of its own; the step at which it died, None when it came to its end first."""
        said = self._folder / "said"
        self._ask(url, events, crash_at, said, options)
        code = self.exit_code()
        assert code in {0, CRASHED}, "see stderr"
        return said.read_text() if code == CRASHED else None

    def stop_at(self, url: str, events: str, step: str, **options: Any) -> int:
        """Starts a pipeline that stops (SIGSTOP) when it comes to a step the first time; its process id."""
        said = self._folder / "pid"
        said.unlink(missing_ok=True)
        self._ask(url, events, step, said, options)
        deadline = time.monotonic() + SECONDS
        while not said.exists() or not said.read_text() or _state(int(said.read_text())) != "T":
            assert time.monotonic() < deadline, f"it never came to {step!r}"
            time.sleep(0.01)
        return int(said.read_text())

    def exit_code(self) -> int:
        """Waits for the process that was asked for."""
        assert self._process.stdout is not None
        return int(self._process.stdout.readline())

    def _ask(self, url: str, events: str, crash_at: int | str, said: Path, options: dict[str, Any]) -> None:
        request = {"url": url, "events": events, "crash_at": crash_at, "said": str(said), "options": options}
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(request) + "\n")
        self._process.stdin.flush()

    def close(self) -> None:
        with self._process:
            assert self._process.stdin is not None
            self._process.stdin.close()


def _state(pid: int) -> str:
    """R, S, T (stopped) and so on (proc(5))."""
    return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
