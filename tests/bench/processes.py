"""Memory and processor time of a process and everything below it, read from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Iterator
from pathlib import Path

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")


class Usage(threading.Thread):
    """Looks at a process tree five times a second until `stop`.

    peak_mib: highest sum of resident memory by kind of process ("python", "java"), and "total".
    cpu_seconds: user and system time by kind, as far as seen.
    """

    def __init__(self, pid: int) -> None:
        super().__init__(daemon=True)
        self._pid = pid
        self._end = threading.Event()
        self._cpu: dict[int, tuple[str, float]] = {}
        self.peak_mib: dict[str, float] = {}

    @property
    def cpu_seconds(self) -> dict[str, float]:
        totals: dict[str, float] = {}
        for kind, seconds in self._cpu.values():
            totals[kind] = round(totals.get(kind, 0.0) + seconds, 2)
        return totals

    def run(self) -> None:
        while not self._end.wait(0.2):
            self._look()

    def stop(self) -> None:
        self._end.set()
        self.join()

    def _look(self) -> None:
        sizes: dict[str, float] = {"total": 0.0}
        for pid in _tree(self._pid):
            try:
                fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)
                resident = int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * _PAGE / 2**20
            except (OSError, IndexError):
                continue
            kind = "java" if "java" in fields[0] else "python"
            user, system = map(int, fields[1].split()[11:13])
            self._cpu[pid] = kind, (user + system) / _TICKS
            sizes[kind] = sizes.get(kind, 0.0) + resident
            sizes["total"] += resident
        for kind, size in sizes.items():
            self.peak_mib[kind] = max(self.peak_mib.get(kind, 0.0), round(size, 1))


def _tree(pid: int) -> Iterator[int]:
    yield pid
    try:
        children = Path(f"/proc/{pid}/task").glob("*/children")
        below = [int(child) for listed in children for child in listed.read_text().split()]
    except OSError:
        return
    for child in below:
        yield from _tree(child)
