"""The catch-up rate on a Spark standalone cluster, with one executor and with two, of one core each."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any

from tests.bench.bridges import Measured, Servers
from tests.bench.catching_up import Case, Spread, filled, replayed
from tests.bench.workload import WORKLOADS
from tests.support.clusters import Cluster

EXECUTORS = (1, 2)


def measure(
    servers: Servers, protocol: str, consistency: str, events: int, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The document: rates by number of executors, and the ratio of two to one."""
    topic = filled(servers, WORKLOADS["sysbench"], protocol, events)
    case = Case("sysbench", protocol, consistency)
    runs: dict[int, list[Measured]] = {executors: [] for executors in EXECUTORS}
    with Cluster(max(EXECUTORS)) as cluster:
        for number in range(rounds):
            for executors in EXECUTORS:
                settings = {
                    "master": cluster.url,
                    "cores.max": executors,
                    "executor.memory": "512m",
                    "pyspark.python": sys.executable,
                }
                more = [part for key, value in settings.items() for part in ("--set", f"spark.spark.{key}={value}")]
                name = f"cluster-{executors}-{number}"
                runs[executors].append(replayed(servers, topic, case, name, more, cluster.pids))
                say(f"round {number + 1}: {executors} executors: {runs[executors][-1].rate:,.0f}/s")
    ratios = [two.rate / one.rate for one, two in zip(runs[1], runs[2], strict=True)]
    return {
        "events": events,
        "protocol": protocol,
        "consistency": consistency,
        "rows_per_s": {executors: Spread.of(run.rate for run in done)._asdict() for executors, done in runs.items()},
        "two_to_one": Spread.of(ratios)._asdict(),
        "cpu_seconds_per_million": {executors: done[-1].cpu_per_million for executors, done in runs.items()},
    }
