"""Which faults there are, and which of them can happen on a ground."""

from __future__ import annotations

from bridge.local import MariaDB
from tests.support import faults as acts
from tests.support import proxy as wire
from tests.support.clock import HOUR
from tests.support.faults import LONG_SECONDS, Act, Fault, for_a_while, lasting
from tests.support.grounds import Ground

WIRE: dict[str, Act] = {
    "COMMIT cut before the server": acts.at_commit(wire.cut_before),
    "COMMIT cut before its answer": acts.at_commit(wire.cut_after),
    "COMMIT comes late": acts.at_commit(wire.late(0.5)),
    "COMMIT kept back": acts.at_commit(wire.keep_at_server),
    "COMMIT without an answer": acts.at_commit(wire.stall_after),
    "statement cut": acts.in_statement,
    "target cut": acts.target_cut,
    "target away": for_a_while(acts.target_away),
    "target stalls": for_a_while(acts.target_silent, LONG_SECONDS),
    "deadlocks": acts.deadlocks,
}
MARIADB: dict[str, Act] = {
    "table locked": for_a_while(acts.table_locked),
    "MariaDB stopped": for_a_while(acts.server_stopped),
    "MariaDB killed": acts.server_killed,
    "read-only": for_a_while(acts.read_only_by("read_only")),
    "failover": acts.failed_over,
}
TIDB: dict[str, Act] = {
    "TiDB stopped": for_a_while(acts.server_stopped),
    "TiDB killed": acts.tidb_killed,
    "read-only": for_a_while(acts.read_only_by("tidb_super_read_only")),
}
KAFKA: dict[str, Act] = {
    "Kafka cut": acts.kafka_cut,
    "Kafka away": for_a_while(acts.kafka_away),
    "Kafka stalls": for_a_while(acts.kafka_silent, LONG_SECONDS),
    "broker restarted": acts.broker_restarted,
    "partition added": acts.partition_added,
    "messages sent again": acts.partition_sent_again,
}
BRIDGE: dict[str, Act] = {
    "worker killed": acts.worker_killed,
    "workers killed": acts.workers_killed,
    "workers stopped": for_a_while(acts.worker_stopped, LONG_SECONDS),
    "JVM stopped": for_a_while(acts.jvm_stopped),
    "JVM killed": acts.jvm_killed,
    "bridge stopped": for_a_while(acts.bridge_stopped),
    "bridge killed": acts.bridge_killed,
    "bridge alone killed": acts.bridge_alone_killed,
}
CLOCK: dict[str, Act] = {
    "clock an hour ahead": for_a_while(acts.clock_moved(HOUR), LONG_SECONDS),
    "clock an hour behind": for_a_while(acts.clock_moved(-HOUR), LONG_SECONDS),
}
DISK: dict[str, Act] = {"disk full": for_a_while(acts.disk_full, LONG_SECONDS)}
ONCE = [
    lasting("bridge stopped for 60 s", "bridge", acts.bridge_stopped, 60),
    lasting("broker down for 5 minutes", "Kafka", acts.broker_down, 300),
    Fault("whole topic sent again", "Kafka", acts.topic_sent_again, 0),
]
ONCE_ON_MARIADB = [
    lasting("MariaDB stopped for 60 s", "target", acts.server_stopped, 60),
    lasting("read-only for 60 s", "target", acts.read_only_by("read_only"), 60),
    lasting("table locked for 20 s", "target", acts.table_locked, 20),
]
ONCE_ON_TIDB = [
    lasting("TiDB stopped for 60 s", "target", acts.server_stopped, 60),
    lasting("read-only for 60 s", "target", acts.read_only_by("tidb_super_read_only"), 60),
]


def faults_of(ground: Ground) -> list[Fault]:
    """What can happen there, those that come once in a night too."""
    is_mariadb = isinstance(ground.server, MariaDB)
    parts = {
        "target": {**WIRE, **(MARIADB if is_mariadb else TIDB)},
        "Kafka": KAFKA,
        "bridge": {**BRIDGE, **(CLOCK if ground.clock else {}), **(DISK if ground.disk else {})},
    }
    many = [Fault(name, part, act) for part, acts_of in parts.items() for name, act in acts_of.items()]
    return [*many, *ONCE, *(ONCE_ON_MARIADB if is_mariadb else ONCE_ON_TIDB)]


def left_out(ground: Ground) -> str:
    """What cannot happen on this machine, and why."""
    reasons = [] if ground.clock else ["a moved clock (no C compiler)"]
    reasons += [] if ground.disk else ["a full disk (mounting is not allowed)"]
    return ", ".join(reasons) or "nothing"
