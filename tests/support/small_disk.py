"""A disk of a few megabytes, which can be filled."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path


@contextmanager
def small_disk(folder: Path, size: int) -> Iterator[Path | None]:
    """Makes a folder with room for `size` bytes; None where this user may not mount."""
    folder.mkdir(parents=True)
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode:
        yield None
        return
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


@contextmanager
def filled(disk: Path) -> Iterator[None]:
    """The disk has no room."""
    path = disk / "filled"
    try:
        with suppress(OSError), path.open("wb", buffering=0) as file:
            while True:
                file.write(b"0" * 4096)
        yield
    finally:
        path.unlink(missing_ok=True)
