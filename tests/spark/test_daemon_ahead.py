"""The parent process of Python workers that is there before the JVM wants it."""

from __future__ import annotations

import os
import signal
import socket
import struct
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

import pytest

from bridge.spark.daemon_ahead import VARIABLE, DaemonAhead, _address, hand_over
from bridge.spark.session import starts_workers_here
from bridge.spark.tuning import switch_off

SECRET = "secret"
SECONDS = 60.0


@contextmanager
def as_the_jvm_starts_it() -> Iterator[subprocess.Popen[bytes]]:
    """The process that Spark's JVM starts, which ends when its input does."""
    given = {**os.environ, "PYTHON_WORKER_FACTORY_SECRET": SECRET}
    command = [sys.executable, "-m", "bridge.spark.python_daemon", "pyspark.worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=given) as process:
        try:
            yield process
        finally:
            assert process.stdin is not None
            process.stdin.close()
            process.wait(SECONDS)


@contextmanager
def worker_of(process: subprocess.Popen[bytes]) -> Iterator[int]:
    """A Python worker, by its process id, made as the JVM has it made."""
    assert process.stdout is not None
    [port] = struct.unpack("!i", process.stdout.read(4))
    with socket.create_connection(("127.0.0.1", port), SECONDS) as connection:
        [pid] = struct.unpack("!i", connection.recv(4, socket.MSG_WAITALL))
        connection.sendall(struct.pack("!i", len(SECRET)) + SECRET.encode())
        assert connection.recv(6, socket.MSG_WAITALL) == struct.pack("!i", 2) + b"ok"
        yield pid


def parent_of(pid: int) -> int:
    """The process id of its parent."""
    return int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1])


def environment_of(pid: int) -> Mapping[str, str]:
    """As it was when the process started."""
    pairs = Path(f"/proc/{pid}/environ").read_text().split("\0")
    return dict(pair.partition("=")[::2] for pair in pairs)


@pytest.fixture
def ahead(monkeypatch: pytest.MonkeyPatch) -> Iterator[DaemonAhead]:
    """Not started yet."""
    monkeypatch.setenv(VARIABLE, "")  # so that it is restored
    switch_off([])
    made = DaemonAhead()
    yield made
    made.close()
    if made._process is not None:
        made._process.kill()
        made._process.wait()


def process_of(ahead: DaemonAhead) -> subprocess.Popen[bytes]:
    """The process ahead."""
    assert ahead._process is not None
    return ahead._process


def test_workers_come_from_the_process_ahead(ahead: DaemonAhead) -> None:
    """It has the secret that only the JVM's process was given; all end together."""
    ahead.start()
    with as_the_jvm_starts_it() as process, worker_of(process) as worker:
        assert parent_of(worker) == process_of(ahead).pid
        assert environment_of(process_of(ahead).pid)["PYTHONHASHSEED"] == "0"
    process_of(ahead).wait(SECONDS)


def test_where_none_was_started_the_jvm_has_its_own(ahead: DaemonAhead) -> None:
    """As for a topic of few messages."""
    assert ahead._process is None
    with as_the_jvm_starts_it() as process, worker_of(process) as worker:
        assert parent_of(worker) == process.pid


def test_a_second_one_is_the_jvms_own(ahead: DaemonAhead) -> None:
    """Spark starts another when the first was killed."""
    ahead.start()
    with as_the_jvm_starts_it() as process:
        with worker_of(process):
            process_of(ahead).send_signal(signal.SIGKILL)
        process.wait(SECONDS)  # so that the JVM sees that it has ended
    with as_the_jvm_starts_it() as process, worker_of(process) as worker:
        assert parent_of(worker) == process.pid


def test_it_ends_with_the_bridge(ahead: DaemonAhead) -> None:
    """Although no JVM has come: its input ends with the bridge's process."""
    ahead.start()
    ahead.close()
    assert process_of(ahead).wait(SECONDS) == 0


def test_it_needs_no_temporary_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    """That may be full, or its name too long for a socket, and a bridge that is killed would leave something there."""
    monkeypatch.setenv(VARIABLE, "")  # so that it is restored
    monkeypatch.setattr(tempfile, "tempdir", "/no/such/folder")
    DaemonAhead().close()


@pytest.fixture
def listener(monkeypatch: pytest.MonkeyPatch) -> Iterator[socket.socket]:
    """The socket to which this process would hand over."""
    monkeypatch.setenv(VARIABLE, f"test-{os.getpid()}")
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(_address(os.environ[VARIABLE]))
        made.listen(1)
        yield made


def test_one_that_ends_before_it_takes_over_is_none(listener: socket.socket) -> None:
    """The JVM would otherwise wait for the port of a daemon that has ended, and fail the task."""
    with ThreadPoolExecutor(1) as pool:
        is_handed_over = pool.submit(hand_over)
        with listener.accept()[0] as connection:
            while connection.recv(1 << 16):
                pass
        assert is_handed_over.result(SECONDS) is False


def test_nothing_is_handed_to_another_user(monkeypatch: pytest.MonkeyPatch, listener: socket.socket) -> None:
    """Every user sees the names of such sockets, and could listen at one once its process has ended."""
    monkeypatch.setattr(os, "geteuid", lambda: -1)
    assert not hand_over()
    with listener.accept()[0] as connection:
        assert connection.recv(1) == b""


def test_switched_off(ahead: DaemonAhead) -> None:
    """Nothing is started."""
    switch_off(["daemon-ahead"])
    ahead.start()
    assert ahead._process is None
    switch_off([])


@pytest.mark.parametrize(
    ("settings", "starts"),
    [
        ({}, True),
        ({"spark.master": "local[4]", "spark.pyspark.python": sys.executable}, True),
        ({"spark.master": "spark://there:7077"}, False),
        ({"spark.pyspark.python": "/bin/sh"}, False),
        ({"spark.pyspark.python": "/no/such/python"}, True),
        ({"spark.python.daemon.module": "pyspark.daemon"}, False),
    ],
)
def test_only_for_workers_that_spark_would_start_the_same_way(
    monkeypatch: pytest.MonkeyPatch, settings: Mapping[str, str], starts: bool
) -> None:
    """On this machine, with this Python."""
    monkeypatch.delenv("PYSPARK_PYTHON", raising=False)
    assert starts_workers_here(settings) is starts
