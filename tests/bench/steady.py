"""The steady state: the demo's bank at a fixed rate, a reader of its invariant beside it, then silence.

One life of `bridge run`: first applied row, latency at 200 transactions a second and at one, processor time without
messages and at one boundary a second; at the end the target is compared with the bank.
"""

from __future__ import annotations

import statistics
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pymysql

from bridge.demo.bank import SCHEMA, Bank
from bridge.demo.compare import compare
from bridge.demo.encode import Encoder
from bridge.demo.model import Transaction
from bridge.demo.watcher import Watcher
from bridge.mysql.connection.target import Target
from tests.bench.bridges import Servers, command, started
from tests.bench.database import connect
from tests.bench.encoders import SENDERS
from tests.bench.processes import BRIDGE, Usage
from tests.bench.topics import send
from tests.bench.workload import PARTITIONS
from tests.support.producers import ordered_producer

RATES = (200.0, 1.0)
"""Transactions a second."""
BOUNDARY_SECONDS = 0.2
WARM_UP_SECONDS = 5.0
IDLE_SECONDS = 20.0
POLL_SECONDS = 0.005
PATIENCE_SECONDS = 120.0
_NO_SUCH_TABLE = 1146
_NO_SUCH_DATABASE = 1049


@dataclass
class Feed:
    """Sends the bank's transactions from `start` on, at `rate`, with a boundary each `boundary_seconds`.

    sent: ledger entry -> when its messages were handed to the producer (monotonic seconds).
    """

    servers: str
    topic: str
    bank: Bank
    encoder: Encoder
    expect: Callable[[Transaction], None]
    rate: float = 0.0
    boundary_seconds: float | None = None
    sent: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self._producer: Any = ordered_producer(self.servers, linger_ms=1)
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)

    def __enter__(self) -> Feed:
        for change in self.bank.schema():
            self._send(self.encoder.schema_change(change))
        self._boundary()
        self._producer.flush()
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def transact(self) -> None:
        """One transaction."""
        self.bank.advance_to(round(time.time() * 1000))
        transaction = self.bank.transfer()
        self.expect(transaction)
        self.sent[transaction.entry] = time.monotonic()
        self._send(self.encoder.transaction(transaction))

    def _work(self) -> None:
        due = boundary_due = time.monotonic()
        while not self._end.wait(0.001):
            now = time.monotonic()
            while self.rate and due <= now:
                self.transact()
                due = max(due + 1 / self.rate, now - 1)
            if not self.rate:
                due = now
            if self.boundary_seconds is not None and boundary_due <= now:
                self._boundary()
                boundary_due = now + self.boundary_seconds
            self._producer.poll(0)

    def _boundary(self) -> None:
        self.bank.advance_to(round(time.time() * 1000))
        self._send(self.encoder.boundary(self.bank.boundary()))

    def _send(self, messages: list[Any]) -> None:
        for message in messages:
            send(self._producer, self.topic, message)


class Probe:
    """Asks the target for the newest ledger entry, 200 times a second.

    newest: the entry seen last, 0 before the first.
    latencies: seconds from the produce call to being seen, of every transaction, while `is_timing`.
    """

    def __init__(self, url: str, sent: dict[int, float]) -> None:
        self._url, self._sent = url, sent
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._work, daemon=True)
        self.newest = 0
        self.is_timing = False
        self.latencies: list[float] = []

    def __enter__(self) -> Probe:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._end.set()
        self._thread.join()

    def _work(self) -> None:
        with connect(self._url) as connection, connection.cursor() as cursor:
            connection.autocommit(True)
            while not self._end.wait(POLL_SECONDS):
                newest = _newest(cursor)
                now = time.monotonic()
                if self.is_timing:
                    self.latencies += [now - self._sent[entry] for entry in range(self.newest + 1, newest + 1)]
                self.newest = newest


def _newest(cursor: Any) -> int:
    try:
        cursor.execute(f"SELECT COALESCE(MAX(id), 0) FROM {SCHEMA}.ledger")
    except (pymysql.err.ProgrammingError, pymysql.err.OperationalError) as error:
        if error.args[0] not in (_NO_SUCH_TABLE, _NO_SUCH_DATABASE):
            raise
        return 0
    return int(cursor.fetchone()[0])


def measure(
    servers: Servers, protocol: str, consistency: str, seconds: float, say: Callable[[str], None]
) -> dict[str, Any]:
    """The document of one life of `bridge run`; the pipeline, the topic and the bank are new."""
    name = f"steady-{protocol}-{consistency}"
    servers.kafka.create_topic(name, PARTITIONS)
    with connect(servers.mariadb.url) as connection, connection.cursor() as cursor:
        cursor.execute(f"DROP DATABASE IF EXISTS {SCHEMA}")
    bank = Bank(1)
    watcher = Watcher(Target(servers.mariadb.url))
    encoder = SENDERS[protocol](PARTITIONS)
    with (
        Feed(servers.kafka.bootstrap_servers, name, bank, encoder, watcher.expect) as feed,
        Probe(servers.mariadb.url, feed.sent) as probe,
    ):
        feed.rate, feed.boundary_seconds = 20.0, BOUNDARY_SECONDS
        with _running(command(servers, name, protocol, name, consistency)) as process:
            first = _until(lambda: probe.newest > 0, process)
            say(f"{protocol} {consistency}: first row after {first:.1f} s")
            with watcher:
                latency = [_latency(feed, probe, rate, seconds, process) for rate in RATES]
            watcher.check()
            idle = _idle(feed, servers, process)
            _until(lambda: probe.newest == max(feed.sent), process)
    with connect(servers.mariadb.url):
        compared = compare(Target(servers.mariadb.url).connect(autocommit=True), SCHEMA, bank.tables)
    assert not [table for table in compared if table.difference], compared
    assert not watcher.violations, watcher.first_violations
    return {
        "protocol": protocol,
        "consistency": consistency,
        "first_row_s": round(first, 2),
        "latency_s": latency,
        "idle_percent_of_a_core": idle,
        "snapshots_read": watcher.snapshots,
        "snapshots_wrong": watcher.violations,
    }


@contextmanager
def _running(arguments: list[str]) -> Iterator[subprocess.Popen[str]]:
    with tempfile.TemporaryDirectory(prefix="bridge-bench-") as folder:
        log = Path(folder) / "log"
        with started(["run", *arguments], subprocess.DEVNULL, log) as process:
            try:
                yield process
            except AssertionError as error:
                raise AssertionError(f"{error}: {log.read_text(errors='replace')[-3000:]}") from error
            finally:
                process.terminate()
                process.wait(60)


def _until(condition: Callable[[], bool], process: subprocess.Popen[str]) -> float:
    """Seconds until it comes true."""
    began = time.monotonic()
    while not condition():
        assert process.poll() is None, "the bridge ended"
        assert time.monotonic() < began + PATIENCE_SECONDS, "it does not come"
        time.sleep(0.01)
    return time.monotonic() - began


def _latency(feed: Feed, probe: Probe, rate: float, seconds: float, process: subprocess.Popen[str]) -> dict[str, Any]:
    feed.rate = rate
    time.sleep(WARM_UP_SECONDS)
    probe.latencies = []
    probe.is_timing = True
    with Usage({BRIDGE: process.pid}) as usage:
        time.sleep(seconds)
    probe.is_timing = False
    assert process.poll() is None, "the bridge ended"
    seen = probe.latencies
    assert len(seen) > seconds * rate / 2, f"only {len(seen)} transactions were seen in {seconds} s"
    return {
        "transactions_per_s": rate,
        "boundary_each_s": feed.boundary_seconds,
        "transactions": len(seen),
        "p50": round(statistics.median(seen), 3),
        "p95": round(statistics.quantiles(seen, n=20, method="inclusive")[-1], 3),
        "max": round(max(seen), 3),
        "cores": {kind: round(used / seconds, 2) for kind, used in usage.cpu_seconds.items()},
    }


def _idle(feed: Feed, servers: Servers, process: subprocess.Popen[str]) -> dict[str, float]:
    """Of the bridge: without any message, and at one boundary a second."""
    feed.rate = 0.0
    time.sleep(1)
    found = {}
    for name, boundary_seconds in (("no_messages", None), ("a_boundary_a_second", 1.0)):
        feed.boundary_seconds = boundary_seconds
        time.sleep(2)
        with Usage({BRIDGE: process.pid}) as usage:
            time.sleep(IDLE_SECONDS)
        found[name] = round(100 * sum(usage.cpu_seconds.values()) / IDLE_SECONDS, 1)
    del servers
    return found
