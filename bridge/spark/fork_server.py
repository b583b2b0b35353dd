"""The process that Spark's Python processes are forked from.

It imports everything that planning, reading and decoding need, once, while the JVM starts.  A Python process that the
JVM starts (`python_main`) sends it its standard streams and its environment; it forks one that has them and does the
work.  It ends with the driver.
"""

from __future__ import annotations

import atexit
import os
import pickle
import select
import signal
import socket
import struct
import subprocess
import sys
from importlib import import_module
from runpy import run_module
from typing import Final, NoReturn

SERVER: Final = "FORK_SERVER_OF_BRIDGE"
"""The environment variable with the address to connect to: a name of the kernel's, without a file."""
_NICENESS: Final = 10
"""When all cores are busy, the applier and a target on the same machine come first: everything else waits for them."""
_PLANNING: Final = (
    "bridge.spark.chunk_source",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.daemon",
)
_TASKS: Final = "pyspark.worker"
"""PySpark's module of what runs tasks."""
_STREAMS: Final = 3
_CREDENTIALS: Final = "3i"
"""Process, user and group (struct ucred of Linux)."""


def start_server() -> str:
    """Starts the process, and returns the address to connect to; "" where the system knows no such names."""
    if sys.platform != "linux":
        return ""
    with socket.socket(socket.AF_UNIX) as listener:
        listener.bind("")  # the kernel chooses a name
        listener.listen()
        number = listener.fileno()
        server = subprocess.Popen(
            [sys.executable, "-m", __name__, str(number)],
            stdin=subprocess.PIPE,
            pass_fds=[number],
            process_group=0,  # out of reach of Ctrl-C
            env={**os.environ, "PYTHONHASHSEED": "0"},  # as Spark's scripts have it: shuffles need one for all
        )
        atexit.register(server.communicate)  # behind `kill`; without either it ends with the pipe to it
        atexit.register(server.kill)
        return str(listener.getsockname()[1:].decode())


def hand_over(address: str, arguments: list[str]) -> bool:
    """Lets the server do what this process was started for, and waits for the end.  Returns False where the server is
    not there."""
    with socket.socket(socket.AF_UNIX) as server:
        try:
            server.connect(b"\0" + address.encode())
            if not _is_own(server):
                return False
            socket.send_fds(server, [b"."], range(_STREAMS))
            server.sendall(pickle.dumps((arguments, dict(os.environ))))
            server.shutdown(socket.SHUT_WR)
        except OSError:
            return False
        return not server.recv(1)  # the end of all who hold it


def serve(arguments: list[str]) -> None:
    """Loads what is not loaded, and runs a module of PySpark's.  arguments: its name, and what it is given."""
    os.nice(_NICENESS)
    _load(decodes=_TASKS in arguments)
    _run(arguments)


def _load(*, decodes: bool) -> None:
    from bridge.spark.process_memory import freeze_loaded_modules, keep_freed_memory

    keep_freed_memory()
    if decodes:
        import_module(_TASKS)
        import_module("bridge.sources.kafka.source")
        import_module("bridge.spark.decoded_batch")
        if import_module("bridge.protocols.fast.compiled.native_code").are_compiled():
            import_module("bridge.protocols.fast.loading")  # to compile takes 20 s, which few messages are not worth
    freeze_loaded_modules()


def _run(arguments: list[str]) -> None:
    sys.argv = arguments
    sys.modules.pop(arguments[0], None)  # what is loaded runs a second time, as the module of this process
    run_module(arguments[0], run_name="__main__")


def main() -> None:
    """Serves until the driver ends."""
    listener = socket.socket(fileno=int(sys.argv[1]))
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # nobody waits for what is forked
    os.nice(_NICENESS)
    for name in _PLANNING:
        import_module(name)
    _load(decodes=True)
    while True:
        ready, _, _ = select.select([sys.stdin, listener], [], [])
        if sys.stdin in ready:
            return
        connection, _ = listener.accept()
        with connection:
            if _is_own(connection) and os.fork() == 0:
                listener.close()
                _stand_in(connection)


def _stand_in(connection: socket.socket) -> NoReturn:
    """Does what another process was started for.  The connection stays open for as long as this one lives."""
    code = 1
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        _, streams, _, _ = socket.recv_fds(connection, 1, _STREAMS)
        for number, stream in enumerate(streams):
            os.dup2(stream, number)
            os.close(stream)
        with connection.makefile("rb") as sent:
            arguments, environment = pickle.load(sent)
        os.environ.clear()
        os.environ.update(environment)
        _run(arguments)
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else 1
    finally:
        os._exit(code)


def _is_own(connection: socket.socket) -> bool:
    """Tells whether a process of this user is at the other end."""
    size = struct.calcsize(_CREDENTIALS)
    credentials = connection.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size)
    return bool(struct.unpack(_CREDENTIALS, credentials)[1] == os.getuid())


if __name__ == "__main__":
    main()
