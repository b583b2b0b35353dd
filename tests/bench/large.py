"""A backlog and a transaction that no memory should hold: time, and peak memory of Python and JVM together."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from bridge.demo.encode import EncodedMessage, Encoder
from tests.bench.bridges import Servers
from tests.bench.catching_up import Case, Topic, replayed
from tests.bench.encoders import SENDERS
from tests.bench.topics import fill
from tests.bench.workload import PARTITIONS, START_TS, TICK, WORKLOADS, Upstream, messages

LIMIT_MIB = 3072
"""For Python and JVM together."""

Fill = Callable[[Upstream, Encoder, int], Iterator[EncodedMessage]]


def backlog(upstream: Upstream, encoder: Encoder, rows: int) -> Iterator[EncodedMessage]:
    """Ordinary transactions of which none is complete before the last message: the only boundary."""
    return messages(upstream, encoder, rows, boundary_every=0)


def transaction(upstream: Upstream, encoder: Encoder, rows: int) -> Iterator[EncodedMessage]:
    """A tenth of the rows in ordinary transactions, then one transaction of as many changes as `rows`."""
    yield from messages(upstream, encoder, rows // 10)
    ts = START_TS + rows * TICK
    yield from encoder.transaction(upstream.transaction(rows, ts))
    yield from encoder.boundary(ts + 1)


SHAPES: dict[str, Fill] = {"backlog": backlog, "transaction": transaction}


def measure(
    servers: Servers, wanted: dict[str, int], protocol: str, consistency: str, say: Callable[[str], None]
) -> dict[str, Any]:
    """The document: per shape its rows, rate and peak memory."""
    found = []
    for shape, rows in wanted.items():
        name = f"large-{shape}-{rows}"
        servers.kafka.create_topic(name, PARTITIONS)
        upstream = Upstream(WORKLOADS["sysbench"])
        say(f"making a {shape} of {rows:,} row changes")
        sent = fill(servers.kafka.bootstrap_servers, name, SHAPES[shape](upstream, SENDERS[protocol](PARTITIONS), rows))
        topic = Topic(name, upstream.workload, sent, upstream.fingerprint())
        del upstream
        run = replayed(servers, topic, Case("sysbench", protocol, consistency), name)
        peak = dict(run.peak_mib)
        say(f"{shape}: {run.rate:,.0f}/s, at most {peak['total']:,.0f} MiB")
        found.append(
            {
                "shape": shape,
                "rows": run.rows,
                "rows_per_s": round(run.rate),
                "seconds": round(run.seconds, 1),
                "cpu_seconds_per_million": run.cpu_per_million,
                "peak_mib": {kind: peak[kind] for kind in ("python", "jvm", "total")},
                "within_limit": peak["total"] <= LIMIT_MIB,
            }
        )
    return {"protocol": protocol, "consistency": consistency, "limit_mib": LIMIT_MIB, "shapes": found}
