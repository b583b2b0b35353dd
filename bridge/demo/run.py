"""`bridge demo`: starts servers, upstream, bridge and reader, kills the bridge once, and shows the result."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from pymysql.err import MySQLError

from bridge import console
from bridge.cache import cache_folder
from bridge.commands.status import read_status
from bridge.demo.bank import SCHEMA, Bank
from bridge.demo.compare import ComparedTable, compare
from bridge.demo.encode import ENCODERS
from bridge.demo.producer import BankProducer
from bridge.demo.replica import Replica
from bridge.demo.result import DemoResult
from bridge.demo.watcher import Watcher
from bridge.errors import BridgeError, StoppedError
from bridge.exits import INTERRUPTED
from bridge.local import Kafka, LocalError, MariaDB
from bridge.mysql.connection.target import Target
from bridge.mysql.state.progress import ProgressTable

SEED: Final = 1
PIPELINE: Final = "demo"
PROTOCOL: Final = "canal-json"
TOPIC: Final = "bank"
PARTITIONS: Final = 4
PER_BEAT: Final = 40
"""Transactions between two boundaries."""
KEPT_PER_BEAT: Final = 2
"""Transactions between two boundaries with --keep, which may run for days."""
TOPIC_SETTINGS: Final = {"retention.bytes": str(256 << 20), "segment.bytes": str(32 << 20)}
LIVE_SECONDS: Final = 4.0
"""How long the bridge replicates before it is killed, and after it has caught up again."""
CATCH_UP_SECONDS: Final = 150.0
POLL_SECONDS: Final = 0.25


class DemoInterrupted(KeyboardInterrupt):
    """Ends the demo after Ctrl-C, SIGTERM or SIGHUP."""


class Interruption:
    """Raises DemoInterrupted at the first signal, and ignores later ones, so that the clean-up is not interrupted.

    Python throws away what is raised while an object is finalised, and librdkafka may raise an error of its own.  So
    waits call `check`, and whoever catches an error looks at `has_come`.
    """

    def __init__(self) -> None:
        self.has_come = False

    def __call__(self, *_: object) -> None:
        """Handles a signal."""
        if not self.has_come:
            self.has_come = True
            raise DemoInterrupted

    def check(self) -> None:
        """Raises DemoInterrupted when a signal has come."""
        if self.has_come:
            raise DemoInterrupted


@dataclass
class Servers:
    """Everything that the demo has started, and what it has found.

    began: the time of the start, monotonic seconds.
    """

    kafka: Kafka
    mariadb: MariaDB
    target: Target
    upstream: BankProducer
    watcher: Watcher
    replica: Replica
    interruption: Interruption
    began: float
    kills: int = 0
    compared: list[ComparedTable] = field(default_factory=list)
    verified: str = ""
    """The last line of `bridge verify`; "" unless the tables were equal."""

    def check(self) -> None:
        """Raises the error that ended one of them, and DemoInterrupted after a signal."""
        self.interruption.check()
        self.upstream.check()
        self.watcher.check()
        self.replica.check()

    def result(self) -> DemoResult:
        """Returns what was found until now."""
        sent, watcher = self.upstream.sent, self.watcher
        return DemoResult(
            tables=tuple(self.compared),
            transactions=sent.transactions,
            schema_changes=sent.schema_changes,
            row_changes=sent.rows,
            sending_seconds=sent.seconds,
            kills=self.kills,
            snapshots=watcher.snapshots,
            violations=watcher.violations,
            first_violations=tuple(watcher.first_violations),
            latency=watcher.latency(),
            verified=self.verified,
            seconds=time.monotonic() - self.began,
        )

    def places(self, *, keep: bool) -> dict[str, str]:
        """Returns where things are, each under what it is called.

        keep: they stay, with what can be done there.
        """
        host, port = self.mariadb.host, self.mariadb.port
        was = "is" if keep else "was"
        places = {
            f"target {was}": f"{self.mariadb.url}{SCHEMA}",
            f"Kafka {was}": f"{self.kafka.bootstrap_servers}, topic {TOPIC}",
            "bridge's log": str(self.replica.log),
        }
        if keep:
            places["its status"] = f"bridge status --name {PIPELINE} --target {self.mariadb.url}"
            places["open target"] = f"mysql -h {host} -P {port} -u root {SCHEMA}"
        return places


def run_demo(*, keep: bool = False, as_json: bool = False) -> int:
    """Runs the demo, and returns its exit code.

    0: every snapshot of the target was a state of the upstream, and at the end both were equal.  1: they were not.
    Raises StoppedError when the demo did not get to the comparison.
    keep: continues to replicate after the comparison, until Ctrl-C or SIGTERM.
    as_json: prints one JSON document instead of tables.
    """
    with interruptible() as interruption:
        try:
            with ExitStack() as stack:
                return _run(stack, interruption, keep=keep, as_json=as_json)
        except (DemoInterrupted, BridgeError, LocalError, KafkaException, MySQLError, OSError) as error:
            if interruption.has_come:
                console.note("interrupted; everything is stopped")
                return INTERRUPTED
            raise StoppedError(f"the demo failed: {error}") from error


def _run(stack: ExitStack, interruption: Interruption, *, keep: bool, as_json: bool) -> int:
    servers = _start(stack, interruption)
    _replicate(servers)
    _compare(servers)
    _verify(servers)
    interruption.check()
    result = servers.result()
    _print(result, servers.places(keep=keep), as_json=as_json)
    if keep:
        _keep(servers)
    return 0 if result.is_good else 1


def _print(result: DemoResult, places: Mapping[str, str], *, as_json: bool) -> None:
    if as_json:
        console.print_json({**result.document(), "places": places})
    else:
        result.print()
        for name, value in places.items():
            console.line(f"{name:16}{value}")
    console.flush()


def _start(stack: ExitStack, interruption: Interruption) -> Servers:
    began = time.monotonic()
    fetched = all(any(cache_folder().glob(f"{name}-*/")) for name in ("kafka", "mariadb"))
    _say("starting MariaDB and Kafka" + ("" if fetched else "; the first start fetches them, which takes a minute"))
    mariadb = stack.enter_context(MariaDB())
    kafka = stack.enter_context(Kafka())
    kafka.create_topic(TOPIC, PARTITIONS, TOPIC_SETTINGS)
    target = Target(mariadb.url)
    replica = Replica(_bridge_arguments(kafka, mariadb), Path(tempfile.mkdtemp(prefix="bridge-demo-")))
    _say(f"starting the bridge; its log is {replica.log}")
    stack.enter_context(replica)
    watcher = stack.enter_context(Watcher(target))
    bank, encoder = Bank(SEED), ENCODERS[PROTOCOL](PARTITIONS)
    upstream = BankProducer(bank, encoder, kafka.bootstrap_servers, TOPIC, PER_BEAT, watcher.expect)
    stack.enter_context(upstream)
    return Servers(kafka, mariadb, target, upstream, watcher, replica, interruption, began)


def _bridge_arguments(kafka: Kafka, mariadb: MariaDB) -> list[str]:
    return [
        *("--name", PIPELINE, "--protocol", PROTOCOL, "--topic", TOPIC),
        *("--bootstrap-servers", kafka.bootstrap_servers, "--target", mariadb.url),
        *("--set", "target.retry_seconds=30"),  # so that the bridge ends soon when the demo is killed
    ]


def _replicate(servers: Servers) -> None:
    upstream, replica = servers.upstream, servers.replica
    _say("the bank is open: money moves, a reader watches the target")
    _catch_up(servers, upstream.sent.boundary)
    _say("ALTER TABLE upstream")
    upstream.schedule(upstream.bank.add_column)
    _replicate_steadily(servers)
    _say("killing the bridge (SIGKILL) and starting it again; CREATE TABLE upstream meanwhile")
    replica.kill()
    servers.kills += 1
    upstream.schedule(upstream.bank.create_table)
    replica.start()
    _catch_up(servers, upstream.sent.boundary)
    _replicate_steadily(servers)
    _say("the upstream pauses; waiting for the bridge")
    _catch_up(servers, upstream.pause())


def _compare(servers: Servers) -> None:
    _say("stopping the bridge (SIGTERM) and comparing")
    servers.replica.stop()
    session = servers.target.connect()
    try:
        servers.compared = compare(session, SCHEMA, servers.upstream.bank.tables)
    finally:
        session.close()


def _verify(servers: Servers) -> None:
    _say("bridge verify: Spark computes every row anew from the messages")
    code, printed = servers.replica.run_command("verify")
    servers.verified = printed.splitlines()[-1] if code == 0 else ""


def _keep(servers: Servers) -> None:
    """Replicates until it is interrupted."""
    servers.upstream.per_beat = KEPT_PER_BEAT
    servers.upstream.start()
    servers.replica.start()
    _say("replicating until Ctrl-C")
    try:
        _wait(servers, lambda: False, None)
    except DemoInterrupted:
        watcher = servers.watcher
        _say(
            f"stopping; {watcher.snapshots:,} snapshots were read in all, {watcher.violations} of them were violations"
        )


def _replicate_steadily(servers: Servers) -> None:
    """Waits until the bridge has caught up, then lets it replicate for some seconds and measures the latency."""
    _catch_up(servers, servers.upstream.sent.boundary)
    servers.watcher.is_timing = True
    until = time.monotonic() + LIVE_SECONDS
    _wait(servers, lambda: time.monotonic() >= until, None)
    servers.watcher.is_timing = False


def _catch_up(servers: Servers, boundary: int) -> None:
    """Waits until everything below a boundary (TSO) is in the target; StoppedError after 150 s."""
    table = ProgressTable(PIPELINE)

    def has_passed() -> bool:
        status = read_status(servers.target, table)
        return status is not None and status.progress.applied_ts >= boundary

    _wait(servers, has_passed, time.monotonic() + CATCH_UP_SECONDS)


def _wait(servers: Servers, is_over: Callable[[], bool], deadline: float | None) -> None:
    while not is_over():
        servers.check()
        if deadline is not None and time.monotonic() > deadline:
            raise StoppedError(
                f"the bridge did not catch up within {CATCH_UP_SECONDS:.0f} s",
                where=str(servers.replica.log),
                fix="its log says what it waited for; a busy machine needs longer",
            )
        time.sleep(POLL_SECONDS)


def _say(text: str) -> None:
    console.note(f"{time.strftime('%H:%M:%S')} {text}")


@contextmanager
def interruptible() -> Iterator[Interruption]:
    """Has signals handled by an Interruption until the block ends."""
    interruption = Interruption()
    numbers = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP)
    before = [signal.signal(number, interruption) for number in numbers]
    try:
        yield interruption
    finally:
        sys.stdout.flush()
        for number, handler in zip(numbers, before, strict=True):
            signal.signal(number, handler)
