"""A /dev/shm of a process's own, of a few megabytes, which can be filled."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

SHM = Path("/dev/shm")
BYTES = 8 << 20
_MOUNT = f'mount -t tmpfs -o size={BYTES} tmpfs {SHM} && exec "$@"'
WITH_OWN = ("unshare", "--mount", "sh", "-c", _MOUNT, "sh")
"""What stands before a command so that it gets one; its process id is that of the command."""


def is_possible() -> bool:
    """Whether this user may mount."""
    try:
        return subprocess.run([*WITH_OWN, "true"], capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        return False


@contextmanager
def filled(pid: int) -> Iterator[None]:
    """The /dev/shm of a process has no room.  Where the process has none of its own, or has ended, nothing is done."""
    try:
        folder = os.open(f"/proc/{pid}/root{SHM}", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        if os.fstat(folder).st_dev != SHM.stat().st_dev:
            _fill(folder)
        yield
    finally:
        with suppress(FileNotFoundError):
            os.unlink("filled", dir_fd=folder)
        os.close(folder)


def _fill(folder: int) -> None:
    file = os.open("filled", os.O_WRONLY | os.O_CREAT, dir_fd=folder)
    try:
        with suppress(OSError):
            for _ in range(2 * BYTES // 4096):
                os.write(file, b"0" * 4096)
    finally:
        os.close(file)
