"""How the catch-up rate changes with partitions, events, tables and columns: flat or better, nothing quadratic."""

from __future__ import annotations

import statistics
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from tests.bench.bridges import Measured, Servers
from tests.bench.catching_up import CONNECTIONS, Case, filled, replayed
from tests.bench.ceiling import ReadyMade
from tests.bench.workload import PARTITIONS, WORKLOADS, Workload

PROTOCOL = "canal-json"


@dataclass(frozen=True)
class Point:
    """One size.  value: where on the axis."""

    value: int
    workload: Workload
    events: int
    partitions: int = PARTITIONS


@dataclass(frozen=True)
class Axis:
    """What grows.

    unit: what is counted in a second: row changes, or column values where rows grow.
    """

    name: str
    unit: str
    points: tuple[Point, ...]

    def of(self, share: float) -> Axis:
        """The same with a share of the row changes; the places on the axis stay."""
        return replace(self, points=tuple(replace(p, events=round(p.events * share)) for p in self.points))


def axes(largest: int, share: float = 1) -> dict[str, Axis]:
    """All of them; largest: the most events; share: of the row changes of each point."""
    core = WORKLOADS["sysbench"]
    sizes = [size for size in (100_000, 300_000, 1_000_000, 3_000_000, 10_000_000) if size <= largest]
    every = (
        Axis("partitions", "row changes", tuple(Point(n, core, 600_000, n) for n in (1, 2, 4, 8, 16))),
        Axis("events", "row changes", tuple(Point(size, core, size) for size in sizes)),
        Axis(
            "tables",
            "row changes",
            tuple(
                Point(n, Workload(f"tables{n}", tables=n), 600_000 if n <= 1000 else 200_000)
                for n in (1, 10, 100, 1000, 10_000)
            ),
        ),
        Axis(
            "columns",
            "column values",
            tuple(Point(n, Workload(f"columns{n}", columns=n), 12_000_000 // (n + 16)) for n in (4, 20, 60, 200)),
        ),
    )
    return {axis.name: axis.of(share) for axis in every}


def measure(
    servers: Servers, wanted: Sequence[Axis], consistency: str, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """Per axis its points."""
    found = {}
    for axis in wanted:
        points = []
        for point in axis.points:
            points.append(_point(servers, axis, point, consistency, rounds))
            per_s, ceiling = (points[-1][name] for name in ("per_s", "ceiling_per_s"))
            say(f"{axis.name} {point.value:,}: {per_s:,} {axis.unit}/s, the server's ceiling {ceiling:,}")
        found[axis.name] = {"protocol": PROTOCOL, "consistency": consistency, "unit": axis.unit, "points": points}
    return found


def _point(servers: Servers, axis: Axis, point: Point, consistency: str, rounds: int) -> dict[str, Any]:
    topic = filled(servers, point.workload, PROTOCOL, point.events, point.partitions)
    case = Case(point.workload.name, PROTOCOL, consistency)
    runs: list[Measured] = []
    limits: list[float] = []
    with tempfile.TemporaryDirectory(prefix="bridge-bench-") as folder:
        ceiling = ReadyMade(Path(folder), point.workload, point.events, CONNECTIONS[consistency])
        for number in range(rounds):
            limits.append(ceiling.rate(servers.mariadb.url))
            runs.append(replayed(servers, topic, case, f"{topic.name}-{consistency}-{number}"))
    return {
        "at": point.value,
        "events": point.events,
        "per_s": _median_per_second(axis, point, [run.rate for run in runs]),
        "ceiling_per_s": _median_per_second(axis, point, limits),
        "cpu_seconds_per_million": runs[-1].cpu_per_million,
        "peak_mib": dict(runs[-1].peak_mib),
    }


def _median_per_second(axis: Axis, point: Point, rates: Sequence[float]) -> int:
    """In the axis's unit, of rates in row changes."""
    return round(statistics.median(rates) * (point.value if axis.unit == "column values" else 1))
