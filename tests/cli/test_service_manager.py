"""What systemd is told of a bridge that it has started."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from pathlib import Path

import pytest

WAITING = ("run", "--bootstrap-servers", "127.0.0.1:1", "--topic", "t", "--target", "mysql://u@127.0.0.1:1/")


TELLING = "import time; from bridge.cli.pipeline_run import tell_while_alive; tell_while_alive(); time.sleep(60)"


@pytest.mark.parametrize(
    ("is_abstract", "program"), [(False, ("-c", TELLING)), (True, ("-m", "bridge", *WAITING))], ids=["file", "name"]
)
def test_it_is_told_that_the_bridge_is_alive(tmp_path: Path, is_abstract: bool, program: tuple[str, ...]) -> None:
    """By a datagram to the socket that it names, a file or a name that is no file, again and again, while the bridge
    waits for a Kafka and a target that are away.  Nobody else has to listen."""
    name = f"{'@' if is_abstract else ''}{tmp_path}/notify"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as manager:
        manager.bind(name.replace("@", "\0", 1))
        manager.settimeout(60)
        environment = {**os.environ, "NOTIFY_SOCKET": name}
        with subprocess.Popen([sys.executable, *program], env=environment, stderr=subprocess.DEVNULL) as process:
            try:
                assert [manager.recv(100) for _ in range(2)] == [b"READY=1\nWATCHDOG=1"] * 2
                assert process.poll() is None
            finally:
                process.terminate()
