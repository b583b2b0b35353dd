"""`bridge verify` as a command of its own: what a terminal shows, and how it ends when it is cut short."""

from __future__ import annotations

import json
import os
import pty
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable
from tests.support.verify_servers import Pair, execute
from tests.support.waiting import wait_for

SECONDS = 60.0
ROWS = 5_000
WAITING = ("--max-load", "Threads_connected=0")
"""Never comes true."""


def command(pair: Pair, *more: str) -> list[str]:
    """Of one table against the source."""
    places = ("--source", pair.source, "--target", pair.target)
    return [sys.executable, "-m", "bridge", "verify", "--against", "source", *places, *more]


def filled(pair: Pair) -> None:
    """One table, and a pipeline whose progress row is there to be held."""
    pair.both("CREATE DATABASE app; USE app; CREATE TABLE a (id INT PRIMARY KEY, v INT);"
              f"INSERT INTO a SELECT seq, seq FROM seq_1_to_{ROWS}; ANALYZE TABLE a")  # fmt: skip
    table, session = ProgressTable("bridge"), Target(pair.target).connect()
    table.create(session)
    table.begin(session, 1)
    session.commit()
    session.close()


class Terminal:
    """What a process has shown on a terminal that is its stderr."""

    def __init__(self, end: int) -> None:
        self._end, self.shown = end, ""

    def read(self, process: subprocess.Popen[bytes], until: str = "") -> str:
        """All there is until the process ends or has shown some words."""
        deadline = time.monotonic() + SECONDS
        while time.monotonic() < deadline:
            is_over = process.poll() is not None
            if select.select([self._end], [], [], 0.05)[0]:
                self.shown += os.read(self._end, 1 << 16).decode(errors="replace")
            elif is_over:
                break
            if until and until in self.shown:
                break
        return self.shown


@contextmanager
def on_terminal(*arguments: str) -> Iterator[tuple[subprocess.Popen[bytes], Terminal]]:
    """A process whose stderr is a terminal."""
    ours, theirs = pty.openpty()
    environment = {**os.environ, "COLUMNS": "160", "TERM": "xterm"}
    with subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=theirs, env=environment) as process:
        try:
            yield process, Terminal(ours)
        finally:
            process.kill()
            os.close(ours)
            os.close(theirs)


def test_a_terminal_shows_how_far_it_is(pair: Pair) -> None:
    """A bar with rows, share and rate on stderr, the result on stdout; without a terminal, and with --json, nothing but
    the result."""
    filled(pair)
    with on_terminal(*command(pair, "--json")) as (process, terminal):
        shown = terminal.read(process)
        assert process.stdout is not None
        assert json.loads(process.stdout.read())["equal"] is True
    for words in ("verify", "100%", f"{ROWS:,} rows", "rows/s", "app.a"):
        assert words in shown
    piped = subprocess.run(command(pair, "--json"), capture_output=True, check=False)
    assert (piped.returncode, piped.stderr) == (0, b"")
    assert json.loads(piped.stdout)["equal"] is True


def sessions(url: str) -> set[int]:
    """Ids of all but one's own."""
    return {row[0] for row in execute(url, "SELECT id FROM information_schema.processlist WHERE id <> CONNECTION_ID()")}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGKILL, -signal.SIGKILL)])
def test_cut_short_it_leaves_nothing_behind(pair: Pair, number: int, code: int) -> None:
    """It says why it waits.  Ctrl-C ends it, with a code that is neither "equal" nor "different"; however it ends, no
    session and no lock of it stays, and the bridge's progress row is free."""
    filled(pair)
    before = {url: sessions(url) for url in (pair.source, pair.target)}
    with on_terminal(*command(pair, *WAITING)) as (process, terminal):
        assert "waits: Threads_connected of the target is" in terminal.read(process, "waits: Threads_connected")
        process.send_signal(number)
        assert process.wait(SECONDS) == code
        assert "Traceback" not in terminal.read(process)
    wait_for(lambda: not any(sessions(url) - others for url, others in before.items()), "its sessions stay", SECONDS)
    execute(pair.target, "SET innodb_lock_wait_timeout = 0; UPDATE _bridge.progress SET applied_ts = 2;"
                         "SET lock_wait_timeout = 0; ALTER TABLE app.a ADD COLUMN w INT")  # fmt: skip
