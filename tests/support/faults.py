"""Faults around a running bridge, each with its end: what an operator's night brings.

`Ground` is the bridge, its two servers and the wires between them; a fault is a function of it that returns when the
fault is over.  Whether the bridge has got over it shows in its progress.
"""

from __future__ import annotations

import os
import random
import signal
import threading
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions
from pymysql.err import MySQLError

from bridge.demo.watcher import Watcher
from bridge.errors import TargetError
from bridge.local import Kafka, MariaDB
from bridge.mysql.connection import Session, Target
from bridge.mysql.server_errors import LOST
from tests.support import proxy as wire
from tests.support.bridges import applied_ts, running
from tests.support.command import Process
from tests.support.feeds import Feed
from tests.support.pipelines import admin
from tests.support.proxy import Fault, Link, Proxy

SHORT_SECONDS = 2.0
RECOVERY_SECONDS = 150.0
FAILURES = (MySQLError, OSError, TargetError)
MOST_PARTITIONS = 12
MOST_REDELIVERED = 5000


class PatientWatcher(Watcher):
    """A reader that comes back when its server does."""

    def watch(self) -> None:
        """Until the end, over one connection after the other."""
        while not self._end.wait(0.1):
            with suppress(*LOST):
                super().watch()


@dataclass
class Ground:
    """A bridge that is started again whenever it ends, as a service manager does.

    arguments: of `running`.
    """

    folder: Path
    mariadb: MariaDB
    replica: MariaDB
    kafka: Kafka
    to_target: Proxy
    to_reader: Proxy
    to_kafka: Proxy
    feed: Feed
    topic: str
    more: tuple[str, ...] = ()
    dice: random.Random = field(default_factory=lambda: random.Random(1))
    starts: int = 0
    ends: Counter[int] = field(default_factory=Counter)
    logs: list[str] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    """Why it ended by itself."""
    peak_bytes: int = 0
    process: Process | None = None
    _end: threading.Event = field(default_factory=threading.Event)

    @property
    def url(self) -> str:
        """The target, past the proxy."""
        return self.mariadb.url

    @contextmanager
    def kept_running(self) -> Iterator[None]:
        """For as long as the block lasts; at its end the bridge is asked to stop, and must within 30 s."""
        keeper = threading.Thread(target=self._keep, name="keeper", daemon=True)
        keeper.start()
        try:
            yield
        finally:
            self._end.set()
            keeper.join(90)
            assert not keeper.is_alive(), "the bridge does not stop"

    def _keep(self) -> None:
        kafka, target = f"127.0.0.1:{self.to_kafka.port}", f"mysql://root@127.0.0.1:{self.to_target.port}/"
        while not self._end.is_set():
            with running(self.folder, kafka, self.topic, target, *self.more) as process:
                self.process, self.starts = process, self.starts + 1
                while process.code is None and not self._end.wait(0.5):
                    self.peak_bytes = max(self.peak_bytes, memory_of(process.pid))
                if self._end.is_set() and process.code is None:
                    process.signal(signal.SIGTERM)
                    process.wait(60)
                self.ends[process.code or 0] += 1
                self.logs.append(process.log)
                if process.code not in {0, -signal.SIGKILL}:
                    self.reasons.append(process.lines[-1])

    def applied_ts(self) -> int:
        """How far the target is; 0 while it does not answer."""
        try:
            return applied_ts(self.url)
        except FAILURES:
            return 0

    def recovered(self, boundary: int) -> bool:
        """Waits until everything below a boundary is in the target; whether it came to that."""
        deadline = time.monotonic() + RECOVERY_SECONDS
        while time.monotonic() < deadline:
            self.feed.check()
            if self.applied_ts() >= boundary:
                return True
            time.sleep(0.2)
        return False

    def children(self, word: str) -> list[int]:
        """Processes of the bridge's group whose command line has a word."""
        assert self.process is not None
        return [pid for pid, command in processes_of(self.process.pid) if word in command and pid != self.process.pid]


def processes_of(group: int) -> list[tuple[int, str]]:
    """The processes of a group, with their command lines; zombies do not count."""
    found = []
    for folder in Path("/proc").glob("[0-9]*"):
        with suppress(ProcessLookupError, FileNotFoundError, PermissionError):
            if os.getpgid(int(folder.name)) == group and (folder / "stat").read_text().rpartition(")")[2][1] != "Z":
                found.append((int(folder.name), (folder / "cmdline").read_text().replace("\0", " ")))
    return found


def memory_of(group: int) -> int:
    """What the processes of a group take; what they share counts once (proc(5), Pss)."""
    size = 0
    for pid, _ in processes_of(group):
        with suppress(OSError, ValueError):
            rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
            size += 1024 * int(rollup.partition("\nPss:")[2].split()[0])
    return size


# --- faults


def at_commit(act: Callable[[Link, bytes], None]) -> Callable[[Ground], None]:
    """The wire to the target fails at a COMMIT."""

    def happen(ground: Ground) -> None:
        ground.to_target.arm(Fault("commit", wire.commit, act)).happened.wait(RECOVERY_SECONDS)

    return happen


def in_statement(ground: Ground) -> None:
    """The wire to the target is cut in mid-statement."""
    fault = Fault("statement", wire.query("INSERT INTO `bank`"), wire.cut_within)
    ground.to_target.arm(fault).happened.wait(RECOVERY_SECONDS)


def target_cut(ground: Ground) -> None:
    """All connections to the target end."""
    ground.to_target.cut()


def target_away(ground: Ground) -> None:
    """Nothing answers at the target's address for a while."""
    ground.to_target.refuse()
    time.sleep(ground.dice.uniform(0.5, SHORT_SECONDS))
    ground.to_target.go_on()


def target_stalls(ground: Ground) -> None:
    """The target's address accepts and is silent for a while; what was kept back comes then."""
    ground.to_target.stall()
    time.sleep(ground.dice.uniform(0.5, 4 * SHORT_SECONDS))
    ground.to_target.go_on()


def kafka_cut(ground: Ground) -> None:
    """All connections to the broker end."""
    ground.to_kafka.cut()


def kafka_away(ground: Ground) -> None:
    """Nothing answers at the broker's address for a while."""
    ground.to_kafka.refuse()
    time.sleep(ground.dice.uniform(0.5, SHORT_SECONDS))
    ground.to_kafka.go_on()


def kafka_stalls(ground: Ground) -> None:
    """The broker's address accepts and is silent for a while."""
    ground.to_kafka.stall()
    time.sleep(ground.dice.uniform(0.5, 4 * SHORT_SECONDS))
    ground.to_kafka.go_on()


def table_locked(ground: Ground) -> None:
    """Somebody holds a table for a while."""
    with suppress(*FAILURES), admin(ground.url) as rival:
        rival.execute("SET lock_wait_timeout = 5")
        rival.execute("LOCK TABLES bank.ledger WRITE")
        time.sleep(ground.dice.uniform(0.5, SHORT_SECONDS))


def deadlocks(ground: Ground) -> None:
    """A rival locks rows of all tables in an order of its own, again and again."""
    until = time.monotonic() + SHORT_SECONDS
    with suppress(*FAILURES), admin(ground.url) as rival:
        rival.execute("SET innodb_lock_wait_timeout = 1")
        while time.monotonic() < until:
            with suppress(*FAILURES):
                _lock_rows(rival, ground.dice)
            rival.rollback()


def _lock_rows(rival: Session, dice: random.Random) -> None:
    tables = ["checking", "savings", "brokerage", "ledger"]
    dice.shuffle(tables)
    rival.begin()
    for table in tables:
        rival.rows(f"SELECT 1 FROM bank.{table} LIMIT 40 FOR UPDATE")


def mariadb_stopped(ground: Ground) -> None:
    """The target's process is stopped (SIGSTOP) for a while."""
    pid = ground.mariadb.pid
    os.kill(pid, signal.SIGSTOP)
    time.sleep(ground.dice.uniform(0.5, SHORT_SECONDS))
    os.kill(pid, signal.SIGCONT)


def mariadb_killed(ground: Ground) -> None:
    """The target's process is killed, and started again."""
    ground.mariadb.kill()
    ground.mariadb.restart()


def read_only(ground: Ground) -> None:
    """The target is read-only for a while."""
    with suppress(*FAILURES), admin(ground.url) as session:
        session.execute("SET GLOBAL read_only = ON")
        try:
            time.sleep(ground.dice.uniform(0.5, SHORT_SECONDS))
        finally:
            session.execute("SET GLOBAL read_only = OFF")


def failed_over(ground: Ground) -> None:
    """The replica, which has everything, becomes the primary, and the address leads to it; the old one follows it."""
    old, new = ground.mariadb, ground.replica
    with suppress(*FAILURES), admin(old.url) as primary, admin(new.url) as replica:
        primary.execute("SET lock_wait_timeout = 10")
        primary.execute("SET GLOBAL read_only = ON")
        try:
            primary.execute("FLUSH TABLES WITH READ LOCK")
            if replica.value("SELECT MASTER_GTID_WAIT(%s, 20)", (primary.value("SELECT @@gtid_current_pos"),)) != 0:
                raise OSError("the replica is far behind")
        except FAILURES:
            primary.execute("SET GLOBAL read_only = OFF")
            return
        replica.execute("STOP SLAVE")
        replica.execute("SET GLOBAL read_only = OFF")
        ground.mariadb, ground.replica = new, old
        ground.to_target.lead_to(new.port)
        ground.to_reader.lead_to(new.port)
        primary.execute("UNLOCK TABLES")
        follow(primary, new.port)


def follow(replica: Session, port: int) -> None:
    """Has a server replicate another one, and take no writes from anybody else."""
    replica.execute("SET GLOBAL read_only = ON")
    replica.execute(
        f"CHANGE MASTER TO master_host = '127.0.0.1', master_port = {port}, master_user = 'root',"
        " master_use_gtid = slave_pos, master_connect_retry = 1, master_ssl = 0"
    )
    replica.execute("START SLAVE")


def partition_added(ground: Ground) -> None:
    """The topic gets one partition more, into which the upstream writes from then on; up to a dozen."""
    client = AdminClient({"bootstrap.servers": ground.kafka.bootstrap_servers, "log_level": 0})
    count = len(client.list_topics(ground.topic, 30).topics[ground.topic].partitions) + 1
    if count <= MOST_PARTITIONS:
        client.create_partitions([NewPartitions(ground.topic, count)])[ground.topic].result(30)
        ground.feed.add_partition()


def redelivered(ground: Ground) -> None:
    """Everything that a partition holds, up to some thousands of messages, is sent again, at new offsets."""
    servers = {"bootstrap.servers": ground.kafka.bootstrap_servers, "log_level": 0}
    consumer = Consumer({**servers, "group.id": "again", "auto.offset.reset": "earliest", "enable.auto.commit": False})
    where = TopicPartition(ground.topic, ground.dice.randrange(4), 0)
    try:
        _, high = consumer.get_watermark_offsets(where, timeout=30)
        consumer.assign([where])
        found = consumer.consume(min(high, MOST_REDELIVERED), timeout=10)
    finally:
        consumer.close()
    producer = Producer({**servers, "enable.idempotence": True})
    for message in found:
        producer.produce(ground.topic, message.value(), message.key(), where.partition)
        producer.poll(0)
    producer.flush(30)


def broker_restarted(ground: Ground) -> None:
    """The broker is stopped and started again."""
    ground.kafka.restart()


def worker_killed(ground: Ground) -> None:
    """A Python worker of Spark is killed."""
    for pid in ground.children("python_daemon")[-1:]:
        _send(pid, signal.SIGKILL)


def jvm_stopped(ground: Ground) -> None:
    """Spark's JVM is stopped (SIGSTOP) for a while."""
    pids = ground.children("java")
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    time.sleep(ground.dice.uniform(0.5, SHORT_SECONDS))
    for pid in pids:
        _send(pid, signal.SIGCONT)


def jvm_killed(ground: Ground) -> None:
    """Spark's JVM is killed; the bridge ends, and is started again."""
    for pid in ground.children("java"):
        _send(pid, signal.SIGKILL)


def bridge_stopped(ground: Ground) -> None:
    """The bridge and all its processes are stopped (SIGSTOP) for a while."""
    process = ground.process
    assert process is not None
    process.signal_group(signal.SIGSTOP)
    time.sleep(ground.dice.uniform(0.5, SHORT_SECONDS))
    process.signal_group(signal.SIGCONT)


def bridge_killed(ground: Ground) -> None:
    """The bridge and all its processes are killed, and it is started again."""
    assert ground.process is not None
    ground.process.signal_group(signal.SIGKILL)


def bridge_alone_killed(ground: Ground) -> None:
    """Only the bridge's own process is killed: its JVM and workers have to end by themselves."""
    process = ground.process
    assert process is not None
    with suppress(ProcessLookupError):
        process.signal(signal.SIGKILL)
    deadline = time.monotonic() + 30
    while processes_of(process.pid):
        assert time.monotonic() < deadline, processes_of(process.pid)
        time.sleep(0.1)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)


WIRE: dict[str, Callable[[Ground], None]] = {
    "COMMIT cut before the server": at_commit(wire.cut_before),
    "COMMIT cut before its answer": at_commit(wire.cut_after),
    "COMMIT comes late": at_commit(wire.late(0.5)),
    "COMMIT kept back": at_commit(wire.keep_at_server),
    "COMMIT without an answer": at_commit(wire.stall_after),
    "statement cut": in_statement,
    "target cut": target_cut,
    "target away": target_away,
    "target stalls": target_stalls,
    "Kafka cut": kafka_cut,
    "Kafka away": kafka_away,
    "Kafka stalls": kafka_stalls,
}
SERVERS: dict[str, Callable[[Ground], None]] = {
    "table locked": table_locked,
    "deadlocks": deadlocks,
    "MariaDB stopped": mariadb_stopped,
    "MariaDB killed": mariadb_killed,
    "read-only": read_only,
    "failover": failed_over,
    "broker restarted": broker_restarted,
    "partition added": partition_added,
    "messages sent again": redelivered,
}
PROCESSES: dict[str, Callable[[Ground], None]] = {
    "worker killed": worker_killed,
    "JVM stopped": jvm_stopped,
    "JVM killed": jvm_killed,
    "bridge stopped": bridge_stopped,
    "bridge killed": bridge_killed,
    "bridge alone killed": bridge_alone_killed,
}
FAULTS = {**WIRE, **SERVERS, **PROCESSES}


@dataclass
class Report:
    """What a series of faults did."""

    seconds: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))

    def note(self, fault: str, seconds: float) -> None:
        """How long it took from the beginning of a fault until what was committed upstream then was in the target."""
        self.seconds[fault].append(seconds)

    def lines(self, ground: Ground, *totals: str) -> list[str]:
        """One table."""
        rows = [(fault, len(took), max(took)) for fault, took in sorted(self.seconds.items())]
        table = [f"{'fault':32} {'times':>5} {'longest stall':>13}"]
        table += [f"{fault:32} {times:5} {longest:11.1f} s" for fault, times, longest in rows]
        times, longest = sum(row[1] for row in rows), max(row[2] for row in rows)
        table += [f"{'all':32} {times:5} {longest:11.1f} s"]
        table += [f"starts of the bridge {ground.starts}, exit codes {dict(ground.ends)}"]
        table += ground.reasons
        return [*table, f"peak memory {ground.peak_bytes / 2**20:,.0f} MiB", *totals]


def _replicating(server_id: int) -> list[str]:
    return ["--log-bin=binlog", f"--server-id={server_id}", "--log-slave-updates", "--gtid-strict-mode=ON"]


@contextmanager
def grounds(
    folder: Path, *, consistency: str, seed: int, per_beat: int, more: tuple[str, ...] = ()
) -> Iterator[tuple[Ground, PatientWatcher]]:
    """A bank at work, from an upstream to a target, with a bridge that is kept running and a reader that watches."""
    with ExitStack() as stack:
        to_kafka = stack.enter_context(Proxy())
        to_target, to_reader = stack.enter_context(Proxy(0, wire.mysql_packets)), stack.enter_context(Proxy())
        mariadb, replica = (stack.enter_context(MariaDB(options=_replicating(id_))) for id_ in (1, 2))
        with admin(replica.url) as session:
            follow(session, mariadb.port)
        advertised = f"PLAINTEXT://127.0.0.1:{to_kafka.port}"
        kafka = stack.enter_context(Kafka(properties={"advertised.listeners": advertised}))
        to_kafka.server, to_target.server, to_reader.server = kafka.port, mariadb.port, mariadb.port
        kafka.create_topic("bank", 4)
        watcher = PatientWatcher(Target(f"mysql://root@127.0.0.1:{to_reader.port}/"))
        feed = stack.enter_context(
            Feed(kafka.bootstrap_servers, "bank", seed=seed, per_beat=per_beat, copies=False, expect=watcher.expect)
        )
        feed.open_bank()
        settings = ("target.timeout_seconds=3", "source.timeout_seconds=5", "stream.trigger_ms=100")
        options = [part for one in settings for part in ("--set", one)]
        ground = Ground(
            folder, mariadb, replica, kafka, to_target, to_reader, to_kafka, feed, "bank",
            ("--consistency", consistency, *options, *more), random.Random(seed),
        )  # fmt: skip
        feed.start()
        with watcher, ground.kept_running():
            yield ground, watcher
