"""Catch-up rates beside the ceiling of the same run: rounds in which every case has its turn."""

from __future__ import annotations

import itertools
import statistics
import tempfile
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import Future, ProcessPoolExecutor
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path
from typing import Any, NamedTuple

from tests.bench.bridges import Measured, Servers, catch_up, command
from tests.bench.ceiling import ReadyMade
from tests.bench.database import fingerprint, make_tables
from tests.bench.encoders import MEASURED
from tests.bench.topics import fill
from tests.bench.workload import PARTITIONS, WORKLOADS, Upstream, Workload, messages

_TOPICS = itertools.count(1)
"""Numbers of topics: several axes of growth have points of one size."""
CONNECTIONS = {"atomic": 1, "parallel": 2}
"""Whose ceiling a consistency is compared with."""


class Case(NamedTuple):
    """What is measured."""

    workload: str
    protocol: str
    consistency: str

    def __str__(self) -> str:
        return " ".join(self)


class Limit(NamedTuple):
    """A ceiling: whose statements, on how many connections."""

    workload: str
    connections: int

    def __str__(self) -> str:
        return f"{self.workload}, {self.connections} connection{'s' * (self.connections > 1)}"


class Spread(NamedTuple):
    """Of several rounds."""

    min: float
    median: float
    max: float

    @classmethod
    def of(cls, values: Iterable[float]) -> Spread:
        """Three digits behind the point."""
        values = list(values)
        return cls(*(round(value, 3) for value in (min(values), statistics.median(values), max(values))))


@dataclass
class Topic:
    """A filled topic, and what its replay must lead to."""

    name: str
    workload: Workload
    rows: int
    expected: tuple[int, int, int]


def filled(servers: Servers, workload: Workload, protocol: str, events: int, partitions: int = PARTITIONS) -> Topic:
    """Makes a topic and fills it."""
    return _filled(*_new_topic(servers, workload, protocol, events, partitions))


def _filled(bootstrap: str, name: str, workload: Workload, protocol: str, events: int, partitions: int) -> Topic:
    upstream = Upstream(workload)
    count = fill(bootstrap, name, messages(upstream, MEASURED[protocol](partitions), events))
    return Topic(name, workload, count, upstream.fingerprint())


def replayed(
    servers: Servers, topic: Topic, case: Case, name: str, more: Sequence[str] = (), roots: dict[str, int] | None = None
) -> Measured:
    """One catch-up into empty tables, whose end is compared."""
    make_tables(servers.mariadb.url, topic.workload)
    arguments = command(servers, name, case.protocol, topic.name, case.consistency, more)
    measured = catch_up(servers, arguments, roots)
    found = fingerprint(servers.mariadb.url, topic.workload)
    assert found == topic.expected, f"{case}: the end differs: {found} instead of {topic.expected}"
    return measured


def measure(
    servers: Servers, cases: Sequence[Case], events: int, rounds: int, say: Callable[[str], None]
) -> dict[str, Any]:
    """The document of the part `catch-up`."""
    with tempfile.TemporaryDirectory(prefix="bridge-bench-") as folder:
        ceilings, topics = _prepared(servers, Path(folder), cases, events, say)
        limits: defaultdict[Limit, list[float]] = defaultdict(list)
        found: defaultdict[Case, list[Measured]] = defaultdict(list)
        for number in range(rounds):
            for limit, ready in ceilings.items():
                limits[limit].append(ready.rate(servers.mariadb.url))
                say(f"round {number + 1}: ceiling of {limit}: {limits[limit][-1]:,.0f}/s")
            for case in cases:
                topic = topics[case.workload, case.protocol]
                found[case].append(replayed(servers, topic, case, f"{case}-{number}".replace(" ", "-")))
                say(f"round {number + 1}: {case}: {found[case][-1].rate:,.0f}/s")
    return {
        "events": events,
        "ceilings": [{**limit._asdict(), "rows_per_s": Spread.of(rates)._asdict()} for limit, rates in limits.items()],
        "cases": [_case(case, runs, limits[_bound(case)]) for case, runs in found.items()],
    }


def _bound(case: Case) -> Limit:
    return Limit(WORKLOADS[case.workload].bound_by or case.workload, CONNECTIONS[case.consistency])


def _prepared(
    servers: Servers, folder: Path, cases: Sequence[Case], events: int, say: Callable[[str], None]
) -> tuple[dict[Limit, ReadyMade], dict[tuple[str, str], Topic]]:
    """Statements and topics, made in processes of their own, one for each core."""
    names = dict.fromkeys(_bound(case).workload for case in cases)
    limits = [Limit(name, connections) for name in names for connections in CONNECTIONS.values()]
    topics = list(dict.fromkeys((case.workload, case.protocol) for case in cases))
    say(f"making statements and topics: {', '.join(map(str, [*limits, *map(' '.join, topics)]))}")
    with ProcessPoolExecutor(mp_context=get_context("spawn")) as pool:
        filling = {
            (name, protocol): pool.submit(_filled, *_new_topic(servers, WORKLOADS[name], protocol, events))
            for name, protocol in topics
        }
        making = {
            limit: pool.submit(ReadyMade, folder, *_sized(WORKLOADS[limit.workload], events), limit.connections)
            for limit in limits
        }
        return _results(making), _results(filling)


def _results(futures: dict[Any, Future[Any]]) -> dict[Any, Any]:
    return {key: future.result() for key, future in futures.items()}


def _sized(workload: Workload, events: int) -> tuple[Workload, int]:
    return workload, round(events * workload.share)


def _new_topic(
    servers: Servers, workload: Workload, protocol: str, events: int, partitions: int = PARTITIONS
) -> tuple[str, str, Workload, str, int, int]:
    events = round(events * workload.share)
    name = f"{workload.name}-{protocol}-{events}-{partitions}-{next(_TOPICS)}"
    servers.kafka.create_topic(name, partitions)
    return servers.kafka.bootstrap_servers, name, workload, protocol, events, partitions


def _case(case: Case, runs: Sequence[Measured], limits: Sequence[float]) -> dict[str, Any]:
    median = sorted(runs, key=lambda run: run.rate)[len(runs) // 2]
    return {
        **case._asdict(),
        "rows_per_s": Spread.of(run.rate for run in runs)._asdict(),
        "ratio": Spread.of(run.rate / limit for run, limit in zip(runs, limits, strict=True))._asdict(),
        "ratio_of_command": Spread.of(
            run.rate_of_command / limit for run, limit in zip(runs, limits, strict=True)
        )._asdict(),
        "cpu_seconds_per_million": median.cpu_per_million,
        "peak_mib": {kind: max(run.peak_mib.get(kind, 0.0) for run in runs) for kind in ("python", "jvm", "total")},
    }
