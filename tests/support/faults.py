"""Faults around a running bridge, each with its end: what an operator's night brings.

What a fault does is a function of a `Ground` that returns when the fault is over.  Whether the bridge has got over it
shows in its progress.
"""

from __future__ import annotations

import os
import random
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from dataclasses import dataclass

from confluent_kafka import Consumer, TopicPartition
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewPartitions

from bridge.local import LocalError, MariaDB
from bridge.mysql.connection.session import Session
from tests.support import proxy as wire
from tests.support.grounds import FAILURES, RECOVERY_SECONDS, Ground, follow, processes_of
from tests.support.pipelines import admin
from tests.support.producers import SurvivingProducer
from tests.support.proxy import Link, Proxy
from tests.support.small_disk import filled
from tests.support.waiting import wait_for

SHORT_SECONDS = 2.0
LONG_SECONDS = 8.0
"""Longer than the timeouts of the bridge under test."""
MOST_PARTITIONS = 12
MOST_REDELIVERED = 5000
SETTLED_SECONDS = 0.5
BROKER_STARTS = 5
Act = Callable[[Ground], None]
State = Callable[[Ground], AbstractContextManager[None]]


@dataclass(frozen=True)
class Fault:
    """Something that happens to a part; those of one part wait for one another, since each puts back what it changes.

    seconds: of a fault that lasts so long, and comes once in a night.
    """

    name: str
    part: str
    act: Act
    seconds: float | None = None


def for_a_while(state: State, longest: float = SHORT_SECONDS) -> Act:
    """Has a state last for a random time."""

    def act(ground: Ground) -> None:
        with state(ground):
            time.sleep(ground.dice.uniform(0.5, longest))

    return act


def lasting(name: str, part: str, state: State, seconds: float) -> Fault:
    """Has a state last for so long."""

    def act(ground: Ground) -> None:
        with state(ground):
            time.sleep(seconds)

    return Fault(name, part, act, seconds)


# --- wires


def at_commit(act: Callable[[Link, bytes], None]) -> Act:
    """The wire to the target fails at a COMMIT."""

    def happen(ground: Ground) -> None:
        ground.to_target.arm(wire.Fault("commit", wire.commit, act)).happened.wait(RECOVERY_SECONDS)

    return happen


def in_statement(ground: Ground) -> None:
    """The wire to the target is cut in mid-statement."""
    fault = wire.Fault("statement", wire.query("INSERT INTO `bank`"), wire.cut_within)
    ground.to_target.arm(fault).happened.wait(RECOVERY_SECONDS)


def target_cut(ground: Ground) -> None:
    """All connections to the target end."""
    ground.to_target.cut()


def kafka_cut(ground: Ground) -> None:
    """All connections to the broker end."""
    ground.to_kafka.cut()


@contextmanager
def _until_it_goes_on(proxy: Proxy, fails: Callable[[], None]) -> Iterator[None]:
    fails()
    try:
        yield
    finally:
        proxy.go_on()


def target_away(ground: Ground) -> AbstractContextManager[None]:
    """Nothing answers at the target's address."""
    return _until_it_goes_on(ground.to_target, ground.to_target.refuse)


def target_silent(ground: Ground) -> AbstractContextManager[None]:
    """The target's address accepts and is silent; what was kept back comes at the end."""
    return _until_it_goes_on(ground.to_target, ground.to_target.stall)


def kafka_away(ground: Ground) -> AbstractContextManager[None]:
    """Nothing answers at the broker's address."""
    return _until_it_goes_on(ground.to_kafka, ground.to_kafka.refuse)


def kafka_silent(ground: Ground) -> AbstractContextManager[None]:
    """The broker's address accepts and is silent."""
    return _until_it_goes_on(ground.to_kafka, ground.to_kafka.stall)


# --- the target


@contextmanager
def table_locked(ground: Ground) -> Iterator[None]:
    """Somebody holds a table."""
    with admin(ground.url) as rival:
        rival.execute("SET lock_wait_timeout = 5")
        rival.execute("LOCK TABLES bank.ledger WRITE")
        yield


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


@contextmanager
def server_stopped(ground: Ground) -> Iterator[None]:
    """The target's process is stopped (SIGSTOP)."""
    with _stopped([ground.server.pid]):
        yield


def server_killed(ground: Ground) -> None:
    """The target's process is killed, and started again."""
    ground.server.kill()
    ground.server.restart()


def tidb_killed(ground: Ground) -> None:
    """The target's process is killed, and started again, when its connections have just ended.

    The embedded storage keeps locks in memory only (TiKV does not), so that what it has half committed would be lost.
    """
    with target_away(ground):
        time.sleep(SETTLED_SECONDS)
        server_killed(ground)


def read_only_by(variable: str) -> State:
    """The target is read-only."""

    @contextmanager
    def state(ground: Ground) -> Iterator[None]:
        with admin(ground.url) as session:
            session.execute(f"SET GLOBAL {variable} = ON")
            try:
                yield
            finally:
                session.execute(f"SET GLOBAL {variable} = OFF")

    return state


def failed_over(ground: Ground) -> None:
    """The replica, which has everything, becomes the primary, and the address leads to it; the old one follows it."""
    old, new = ground.server, ground.replica
    assert isinstance(old, MariaDB)
    assert new is not None
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
        ground.server, ground.replica = new, old
        ground.to_target.lead_to(new.port)
        ground.to_reader.lead_to(new.port)
        primary.execute("UNLOCK TABLES")
        follow(primary, new.port)


# --- Kafka


def broker_restarted(ground: Ground) -> None:
    """The broker is stopped and started again."""
    _start_broker_again(ground)


@contextmanager
def broker_down(ground: Ground) -> Iterator[None]:
    """The broker is killed, and there is none."""
    ground.kafka.kill()
    try:
        yield
    finally:
        _start_broker_again(ground)


def _start_broker_again(ground: Ground) -> None:
    """As often as it takes: on a busy machine a broker may take longer than it is given."""
    for _ in range(BROKER_STARTS - 1):
        with suppress(LocalError):
            return ground.kafka.restart()
    return ground.kafka.restart()


def partition_added(ground: Ground) -> None:
    """The topic gets one partition more, into which the upstream writes from then on; up to a dozen."""
    client = AdminClient(_of_broker(ground))
    count = len(client.list_topics(ground.topic, 30).topics[ground.topic].partitions) + 1
    if count <= MOST_PARTITIONS:
        client.create_partitions([NewPartitions(ground.topic, count)])[ground.topic].result(30)
        ground.feed.add_partition()


def partition_sent_again(ground: Ground) -> None:
    """Everything that a partition holds, up to some thousands of messages, is sent again, at new offsets."""
    _send_again(ground, ground.dice.randrange(4), MOST_REDELIVERED)


def topic_sent_again(ground: Ground) -> None:
    """The whole topic is sent again, at new offsets."""
    for partition in AdminClient(_of_broker(ground)).list_topics(ground.topic, 30).topics[ground.topic].partitions:
        _send_again(ground, partition)


def _of_broker(ground: Ground) -> dict[str, str | int | float | bool]:
    return {"bootstrap.servers": ground.kafka.bootstrap_servers, "log_level": 0}


def _send_again(ground: Ground, partition: int, most: int | None = None) -> None:
    producer = SurvivingProducer(ground.kafka.bootstrap_servers)
    for value, key in _messages(ground, partition, most):
        producer.produce(ground.topic, value, key, partition)
        producer.poll()
    assert producer.flush(300) == 0


def _messages(ground: Ground, partition: int, most: int | None) -> Iterator[tuple[bytes | None, bytes | None]]:
    """What a partition holds now, from its beginning."""
    options = {"group.id": "again", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**_of_broker(ground), **options})
    where, deadline = TopicPartition(ground.topic, partition, 0), time.monotonic() + RECOVERY_SECONDS
    try:
        _, high = consumer.get_watermark_offsets(where, timeout=30)
        consumer.assign([where])
        left = min(high, most or high)
        while left and time.monotonic() < deadline:
            found = consumer.consume(min(left, MOST_REDELIVERED), timeout=1)
            left -= len(found)
            yield from ((message.value(), message.key()) for message in found if message.error() is None)
    finally:
        consumer.close()


# --- the bridge


@contextmanager
def _stopped(pids: list[int]) -> Iterator[None]:
    for pid in pids:
        _send(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        for pid in pids:
            _send(pid, signal.SIGCONT)


WORKERS = "-m bridge.spark."
"""In the command line of Python workers and planners, and of what they are forked from."""


def worker_killed(ground: Ground) -> None:
    """A Python process of Spark's is killed, as by a system without memory."""
    _send(random.choice(_workers(ground)), signal.SIGKILL)


def workers_killed(ground: Ground) -> None:
    """All of them are killed."""
    for pid in _workers(ground):
        _send(pid, signal.SIGKILL)


def worker_stopped(ground: Ground) -> AbstractContextManager[None]:
    """The Python workers of Spark are stopped (SIGSTOP)."""
    return _stopped(_workers(ground))


def _workers(ground: Ground) -> list[int]:
    wait_for(lambda: bool(ground.children(WORKERS)), "the bridge has no Python workers", RECOVERY_SECONDS)
    return ground.children(WORKERS)


def jvm_stopped(ground: Ground) -> AbstractContextManager[None]:
    """Spark's JVM is stopped (SIGSTOP)."""
    return _stopped(ground.children("java"))


def jvm_killed(ground: Ground) -> None:
    """Spark's JVM is killed; the bridge ends, and is started again."""
    for pid in ground.children("java"):
        _send(pid, signal.SIGKILL)


@contextmanager
def bridge_stopped(ground: Ground) -> Iterator[None]:
    """The bridge and all its processes are stopped (SIGSTOP)."""
    process = ground.process
    assert process is not None
    process.signal_group(signal.SIGSTOP)
    try:
        yield
    finally:
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
    wait_for(lambda: not processes_of(process.pid), "processes of the bridge are left", 30)


def clock_moved(seconds: int) -> State:
    """The bridge's clock is so far from the machine's."""

    @contextmanager
    def state(ground: Ground) -> Iterator[None]:
        assert ground.clock is not None
        ground.clock.move(seconds)
        try:
            yield
        finally:
            ground.clock.move(0)

    return state


def disk_full(ground: Ground) -> AbstractContextManager[None]:
    """The bridge's temporary folder has no room."""
    assert ground.disk is not None
    return filled(ground.disk)


def _send(pid: int, number: int) -> None:
    with suppress(ProcessLookupError):
        os.kill(pid, number)
