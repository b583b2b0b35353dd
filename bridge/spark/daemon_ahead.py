"""Starts the parent process of Spark's Python workers while the JVM starts.

The JVM starts that process when the first task needs a worker, and the first task then waits until it has imported
what decoding needs (0.7 s of processor time).  So the bridge starts one ahead.  What the JVM starts later only hands
over to it: its standard input and output, over which the JVM speaks with it, its environment and its arguments.  It
does so through a socket without a file, which a bridge that is killed would leave behind.  Such a socket is open to
every user, so both ends look who the other one is.  Where nobody takes over, the process imports everything itself.
"""

from __future__ import annotations

import os
import pickle
import secrets
import select
import socket
import struct
import subprocess
import sys
from contextlib import suppress
from typing import Final, NamedTuple

from bridge.spark.tuning import is_on

VARIABLE: Final = "_BRIDGE_PYTHON_DAEMON"
"""The environment variable with the name of the socket.  It is no setting, which begin with BRIDGE_."""
_FROM_JVM: Final = (0, 1, 2)
_LISTENER: Final = "--listener"
_TAKEN: Final = b"\0"
_CREDENTIALS: Final = struct.Struct("3i")
"""Process, user and group."""


class _Handover(NamedTuple):
    """What the process ahead takes from the one that the JVM has started."""

    environment: dict[str, str]
    arguments: list[str]
    path: list[str]


class DaemonAhead:
    """The process ahead, which ends with this one at the latest.

    Make it before the JVM, which has to inherit the variable.
    """

    def __init__(self) -> None:
        self._name = os.environ[VARIABLE] = secrets.token_hex()
        self._process: subprocess.Popen[bytes] | None = None

    def start(self) -> None:
        """Starts the process, once.  Nothing happens where that fails: it only saves time."""
        if self._process is not None or not is_on("daemon-ahead"):
            return
        with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as listener:
            listener.bind(_address(self._name))
            listener.listen(1)
            number = listener.fileno()
            self._process = subprocess.Popen(
                [sys.executable, "-m", "bridge.spark.python_daemon", _LISTENER, str(number)],
                stdin=subprocess.PIPE,  # whose end says that this process has ended
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                pass_fds=[number],
                process_group=0,
                env={"PYTHONHASHSEED": "0", **os.environ},  # as Spark's workers have it
            )

    def close(self) -> None:
        """Lets the process end, unless the JVM has it by now: then it ends with the JVM."""
        if self._process is not None and self._process.stdin is not None:
            self._process.stdin.close()


def listener_of(arguments: list[str]) -> socket.socket | None:
    """Returns the socket at which a process listens that was started ahead, by its arguments; None in any other."""
    if arguments[1:2] != [_LISTENER]:
        return None
    return socket.socket(fileno=int(arguments[2]))


def take_over(listener: socket.socket) -> socket.socket:
    """Waits for the process that the JVM starts, and takes its place.  Exits when the bridge has ended.

    Returns the connection to that process, which lives until it is closed.
    """
    with listener:
        connection = _accepted(listener)
        while not _is_of_this_user(connection):
            connection.close()
            connection = _accepted(listener)
    with connection.makefile("rb") as received:
        _, numbers, _, _ = socket.recv_fds(connection, 1, len(_FROM_JVM))
        handover: _Handover = pickle.load(received)
    for number, own in zip(numbers, _FROM_JVM, strict=True):
        os.dup2(number, own)
        os.close(number)
    os.environ.clear()
    os.environ.update(handover.environment)
    sys.argv[:], sys.path[:] = handover.arguments, handover.path
    connection.sendall(_TAKEN)
    return connection


def hand_over() -> bool:
    """Hands over to the process ahead, and waits for its end; returns False, at once, where none takes over."""
    name = os.environ.get(VARIABLE)
    if name is None:
        return False
    with suppress(OSError), socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.connect(_address(name))
        if not _is_of_this_user(connection):
            return False
        socket.send_fds(connection, [b"\0"], _FROM_JVM)
        connection.sendall(pickle.dumps(_Handover(dict(os.environ), sys.argv, sys.path)))
        connection.shutdown(socket.SHUT_WR)
        if connection.recv(1) == _TAKEN:
            with suppress(OSError):
                connection.recv(1)
            return True
    return False


def _address(name: str) -> str:
    """Returns the address of a socket without a file."""
    return f"\0bridge-{name}"


def _accepted(listener: socket.socket) -> socket.socket:
    ready, _, _ = select.select([listener, sys.stdin], [], [])
    if listener not in ready:
        sys.exit()
    return listener.accept()[0]


def _is_of_this_user(connection: socket.socket) -> bool:
    found = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, _CREDENTIALS.size)
    return bool(_CREDENTIALS.unpack(found)[1] == os.geteuid())
