"""A wall clock that is moved under a process and its children: Python, its JVM and the workers, librdkafka.

A small library (`moved_clock.c`) stands before the C library's own functions.  The monotonic clock and other processes'
clocks stay as they are.
"""

from __future__ import annotations

import shutil
import struct
import subprocess
from pathlib import Path

HOUR = 3600


class MovedClock:
    """The clock of the processes that get `environment`; `move` takes effect in all of them at once."""

    def __init__(self, folder: Path) -> None:
        library, self._offset = folder / "moved_clock.so", folder / "moved_clock"
        self.move(0)
        source = Path(__file__).with_name("moved_clock.c")
        subprocess.run(["cc", "-shared", "-fPIC", "-O2", "-o", library, source, "-ldl"], check=True)
        self.environment = {"LD_PRELOAD": str(library), "MOVED_CLOCK": str(self._offset)}

    @staticmethod
    def is_possible() -> bool:
        """Whether there is a C compiler."""
        return shutil.which("cc") is not None

    def move(self, seconds: int) -> None:
        """Sets how far it is from the machine's."""
        with self._offset.open("r+b" if self._offset.exists() else "wb", buffering=0) as file:
            file.write(struct.pack("=q", seconds))
