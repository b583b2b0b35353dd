"""Memory and processor time of processes and everything below them, read from /proc."""

from __future__ import annotations

import os
import threading
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_PAGE = os.sysconf("SC_PAGE_SIZE")
LOOK_SECONDS = 0.25
BRIDGE = "bridge"


class _Process(NamedTuple):
    parent: int
    command: str
    ticks: int
    pages: int


class Usage:
    """Looks at process trees four times a second for as long as the block lasts.

    roots: name -> process id.  What is below the root `BRIDGE` counts by kind: driver, jvm, workers; what is below
    others counts under their names.
    shares: a page that several processes have counts for each by its share, which takes long to find out.
    peak_mib: highest sums of resident memory (without `shares` shared pages count for each process that has them):
        "python", "jvm" and "total" of the bridge, and the others'.
    """

    def __init__(self, roots: Mapping[str, int], *, shares: bool = False) -> None:
        self._roots, self._shares = dict(roots), shares
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self._before: dict[int, int] = {}
        self._ticks: dict[int, tuple[str, int]] = {}
        self.peak_mib: dict[str, float] = {}

    def __enter__(self) -> Usage:
        self._look()
        self._before = {pid: ticks for pid, (_, ticks) in self._ticks.items()}
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    @property
    def cpu_seconds(self) -> dict[str, float]:
        """User and system time by kind since the block began, as far as seen."""
        totals: dict[str, float] = {}
        for pid, (kind, ticks) in self._ticks.items():
            totals[kind] = totals.get(kind, 0.0) + (ticks - self._before.get(pid, 0)) / _TICKS
        return {kind: round(seconds, 2) for kind, seconds in totals.items()}

    def _work(self) -> None:
        while not self._end.wait(LOOK_SECONDS):
            self._look()
        self._look()

    def _look(self) -> None:
        processes = _processes()
        sizes: dict[str, float] = {}
        for pid, kind in _kinds(processes, self._roots).items():
            found = processes[pid]
            self._ticks[pid] = kind, found.ticks
            size = _share(pid) if self._shares else found.pages * _PAGE / 2**20
            for group in _groups(kind):
                sizes[group] = sizes.get(group, 0.0) + size
        for group, size in sizes.items():
            self.peak_mib[group] = max(self.peak_mib.get(group, 0.0), round(size, 1))


def _groups(kind: str) -> tuple[str, ...]:
    if kind in ("driver", "workers"):
        return "python", "total"
    return ("jvm", "total") if kind == "jvm" else (kind,)


def _kinds(processes: Mapping[int, _Process], roots: Mapping[str, int]) -> dict[int, str]:
    """Of every process that has a root above it, or is one."""
    names = {pid: name for name, pid in roots.items()}
    kinds = {}
    for pid, found in processes.items():
        above = pid
        while above not in names and above in processes:
            above = processes[above].parent
        if above in names:
            is_bridge = names[above] == BRIDGE
            kinds[pid] = _part(found, is_root=pid == above) if is_bridge else names[above]
    return kinds


def _part(process: _Process, *, is_root: bool) -> str:
    if process.command.startswith("java"):
        return "jvm"
    return "driver" if is_root else "workers"


def _share(pid: int) -> float:
    """MiB of a process's memory (Pss of proc(5)), 0 when it has ended."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("Pss:")), 0.0)


def _processes() -> dict[int, _Process]:
    found = {}
    for folder in Path("/proc").iterdir():
        if folder.name.isdigit():
            try:
                command, fields = (folder / "stat").read_text().split("(", 1)[1].rsplit(")", 1)
            except (OSError, IndexError):
                continue
            values = fields.split()
            found[int(folder.name)] = _Process(
                int(values[1]), command, int(values[11]) + int(values[12]), int(values[21])
            )
    return found
