"""Servers never outlive the process that started them, however it ends."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pymysql
import pytest

from bridge.local import LocalError, MariaDB

pytestmark = pytest.mark.system

GONE_SECONDS = 10.0
SAID_SECONDS = 120.0

PARENT = """
import os, signal, sys, time
from bridge.local import MariaDB
server = MariaDB().start()
print(server.pid, server.port, server.folder, flush=True)
{then}
"""


@dataclass
class Parent:
    """A process that has started a server."""

    process: subprocess.Popen[bytes]
    server_pid: int
    server_port: int
    folder: Path


@pytest.fixture
def parent() -> Iterator[Callable[..., Parent]]:
    """`parent(then)` starts a process which starts a server and goes on with `then`."""
    started: list[subprocess.Popen[bytes]] = []

    def start(then: str = "time.sleep(600)") -> Parent:
        command = [sys.executable, "-c", PARENT.format(then=then)]
        process = subprocess.Popen(command, stdout=subprocess.PIPE, bufsize=0, start_new_session=True)
        started.append(process)
        pid, port, folder = said_by(process).split(maxsplit=2)
        return Parent(process, int(pid), int(port), Path(folder.strip()))

    yield start
    for process in started:
        process.kill()
        with process:  # closes the pipe and waits
            pass


def said_by(process: subprocess.Popen[bytes]) -> str:
    """The next line that it prints.  Read without a buffer, which would hide from `select` what it holds."""
    assert process.stdout is not None
    assert select.select([process.stdout], [], [], SAID_SECONDS)[0], "it says nothing"
    return process.stdout.readline().decode()


def is_alive(pid: int) -> bool:
    """A zombie, which waits only for its parent to look at it, is not."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def parent_of(pid: int) -> int:
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def becomes_true(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + GONE_SECONDS
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def nothing_is_left(of: Parent, supervisor: int) -> bool:
    return not (is_alive(of.server_pid) or is_alive(supervisor) or of.folder.exists())


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
def test_parent_is_killed(parent: Callable[..., Parent], number: signal.Signals) -> None:
    """A parent that cannot clean up leaves no server, no supervisor and no temp folder."""
    one = parent()
    supervisor = parent_of(one.server_pid)
    assert is_alive(one.server_pid)
    assert one.folder.exists()
    one.process.send_signal(number)
    assert becomes_true(lambda: nothing_is_left(one, supervisor))


def test_parent_ends_without_stop(parent: Callable[..., Parent]) -> None:
    """A forgotten `stop` leaves nothing either."""
    one = parent(then="sys.exit(0)")
    assert one.process.wait(30) == 0
    assert becomes_true(lambda: not (is_alive(one.server_pid) or one.folder.exists()))


def test_parent_is_killed_while_a_fork_of_it_lives(parent: Callable[..., Parent]) -> None:
    """A fork holds a copy of the pipe to the supervisor (multiprocessing does that); the parent's end counts."""
    fork = "if os.fork() == 0: os.setsid(); print('forked', flush=True); os.close(1); time.sleep(20); os._exit(0)\n"
    one = parent(then=fork + "time.sleep(600)")
    supervisor = parent_of(one.server_pid)
    assert said_by(one.process) == "forked\n"
    one.process.kill()
    assert becomes_true(lambda: nothing_is_left(one, supervisor))


def test_server_outlives_the_thread_that_started_it(parent: Callable[..., Parent]) -> None:
    """Only the end of the process counts, not the end of a thread in it."""
    then = "server.stop()\nimport threading\nt = threading.Thread(target=server.start); t.start(); t.join()\n"
    one = parent(then=then + "print(server.pid, flush=True)\ntime.sleep(600)")
    pid = int(said_by(one.process))
    time.sleep(2)
    assert is_alive(pid)


def test_ctrl_c_reaches_the_parent_only(parent: Callable[..., Parent]) -> None:
    """Ctrl-C goes to the terminal's process group; a parent that goes on still has its servers."""
    one = parent(then="signal.signal(signal.SIGINT, signal.SIG_IGN)\nprint('ready', flush=True)\ntime.sleep(600)")
    assert said_by(one.process) == "ready\n"
    os.killpg(one.process.pid, signal.SIGINT)
    time.sleep(1)
    pymysql.connect(host="127.0.0.1", port=one.server_port, user="root").close()


def test_supervisor_is_told_to_end() -> None:
    """SIGTERM to the supervisor ends the server and removes its folder, while the parent lives on."""
    with MariaDB() as server:
        pid, folder = server.pid, server.folder
        os.kill(parent_of(pid), signal.SIGTERM)
        assert becomes_true(lambda: not (is_alive(pid) or folder.exists()))


def test_supervisor_is_killed() -> None:
    """SIGKILL to the supervisor takes the server along; the parent is told so and removes the folder."""
    with MariaDB() as server:
        pid, folder = server.pid, server.folder
        os.kill(parent_of(pid), signal.SIGKILL)
        assert becomes_true(lambda: not is_alive(pid))
        with pytest.raises(LocalError, match=r"supervisor .* is gone"):
            server.restart()
    assert not folder.exists()
