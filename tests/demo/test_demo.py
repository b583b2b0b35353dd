"""`bridge demo` as a user runs it."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.shown_output import assert_shown

pytestmark = pytest.mark.system

DEMO_SECONDS = 240
GONE_SECONDS = 20.0


@pytest.fixture
def mark() -> Iterator[str]:
    """A mark in the environment of a process and of all that it starts; the test fails when one of them is left."""
    name = f"DEMO_TEST_OF_BRIDGE_{uuid.uuid4().hex}"
    yield name
    until = time.monotonic() + GONE_SECONDS
    while (left := _marked(name)) and time.monotonic() < until:
        time.sleep(0.2)
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert not left


def _marked(name: str) -> list[int]:
    return [int(path.parent.name) for path in Path("/proc").glob("[0-9]*/environ") if _has(path, name)]


def _has(environment: Path, name: str) -> bool:
    try:
        return f"{name}=".encode() in environment.read_bytes()
    except OSError:
        return False


def _demo(mark: str, folder: Path, *flags: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "bridge", "demo", *flags],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, mark: "1", "TMPDIR": str(folder)},
    )


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
def test_the_demo_ends_equal(mark: str, tmp_path: Path) -> None:
    """Exit 0, every table equal, also to `bridge verify`; no snapshot torn; one kill; only its log is left; what it
    prints is what the README shows."""
    with _demo(mark, tmp_path) as demo:
        printed, said = demo.communicate(timeout=DEMO_SECONDS)
    assert demo.returncode == 0, said
    for table in ("brokerage", "checking", "ledger", "pension", "savings"):
        assert re.search(rf"bank\.{table}\s+│\s+\d+\s+│\s+equal", printed), printed
    assert re.search(r"snapshots read +[1-9][\d,]*, of which 0 ", printed)
    assert re.search(r"bridge killed +1 time\b", printed)
    assert re.search(r"bridge verify +equal after", printed)
    assert re.search(r"result +equal", printed)
    assert "Traceback" not in said
    lines = [line for line in said.splitlines(keepends=True) if re.match(r"bridge: \d\d:", line)]
    shown = re.sub(rf"{re.escape(str(tmp_path))}/bridge-demo-\w+", "/tmp/bridge-demo", "".join(lines) + printed)
    assert_shown("demo", shown)
    assert [path.name for path in tmp_path.glob("*/*")] == ["bridge.log"]


@pytest.mark.skipif(sys.platform != "linux", reason="finds processes by /proc")
def test_the_demo_is_stopped_by_sigterm(mark: str, tmp_path: Path) -> None:
    """Whatever it is doing: exit 130, one line, nothing left running."""
    with _demo(mark, tmp_path) as demo:
        assert demo.stderr is not None
        for line in demo.stderr:
            if "the bank is open" in line:
                break
        demo.terminate()
        printed, said = demo.communicate(timeout=DEMO_SECONDS)
    assert demo.returncode == 130
    assert printed == ""
    assert said.endswith("interrupted; everything is stopped\n")
