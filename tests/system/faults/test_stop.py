"""A stop comes to its end within 30 s, whatever the bridge waits for, and leaves nothing behind."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from bridge.local import Kafka
from bridge.mysql.connection.session import Session
from tests.support import proxy as wire
from tests.support.bridges import PARTITIONS, applied_ts, running
from tests.support.command import Process
from tests.support.feeds import Feed
from tests.support.grounds import processes_of
from tests.support.pipelines import admin, sql
from tests.support.proxy import Fault, Proxy, port_of
from tests.support.waiting import wait_for

SECONDS = 30.0


@contextmanager
def _locked(target: str, table: str) -> Iterator[Session]:
    with admin(target) as rival:
        rival.execute(f"LOCK TABLES bank.{table} WRITE")
        yield rival


class Scene:
    """A bridge at work behind proxies on both sides, and the means to have it wait."""

    def __init__(self, stack: ExitStack, target: str, to_target: Proxy, to_kafka: Proxy, feed: Feed) -> None:
        self.stack, self.target, self.to_target, self.to_kafka, self.feed = stack, target, to_target, to_kafka, feed

    def lock_tables(self) -> None:
        """Somebody else holds a table."""
        self.stack.enter_context(_locked(self.target, "ledger"))

    def lose_target(self) -> None:
        """Nothing answers at the target's address."""
        self.to_target.refuse()

    def stall_target(self) -> None:
        """The target's address accepts and never answers."""
        self.to_target.stall()

    def stall_commit(self) -> None:
        """One COMMIT has no answer, and the network says nothing of it."""
        fault = self.to_target.arm(Fault("commit", wire.commit, wire.stall_before))
        assert fault.happened.wait(60)

    def lose_kafka(self) -> None:
        """Nothing answers at the broker's address."""
        self.to_kafka.refuse()

    def stall_kafka(self) -> None:
        """The broker's address accepts and never answers."""
        self.to_kafka.stall()

    def run_long(self) -> None:
        """A schema change runs for long."""
        self.stack.enter_context(_locked(self.target, "checking"))
        self.feed.schedule(self.feed.bank.add_column)


WAITS = {
    "LOCK TABLES": Scene.lock_tables,
    **{
        name: pytest.param(wait, marks=pytest.mark.soak)
        for name, wait in {
            "a target that is away": Scene.lose_target,
            "a target that stalls": Scene.stall_target,
            "a COMMIT without an answer": Scene.stall_commit,
            "a broker that is away": Scene.lose_kafka,
            "a broker that stalls": Scene.stall_kafka,
            "a schema change": Scene.run_long,
        }.items()
    },
}


@contextmanager
def wired_kafka() -> Iterator[tuple[Kafka, Proxy]]:
    """A broker that everybody reaches by the proxy."""
    with Proxy() as proxy, Kafka(properties={"advertised.listeners": f"PLAINTEXT://127.0.0.1:{proxy.port}"}) as kafka:
        proxy.server = kafka.port
        yield kafka, proxy


def assert_nothing_is_left(process: Process, folder: Path) -> None:
    """No process of its session, no checkpoint, nothing of Spark's."""
    wait_for(lambda: not processes_of(process.pid), "processes of its session are left", 10)
    assert [path.name for path in folder.iterdir() if not path.name.endswith(".log")] == []


@pytest.fixture(scope="module")
def own_broker() -> Iterator[tuple[Kafka, Proxy]]:
    """A broker of this module's own."""
    with wired_kafka() as found:
        yield found


@pytest.fixture
def broker(request: pytest.FixtureRequest, wait: Callable[[Scene], None]) -> Iterator[tuple[Kafka, Proxy]]:
    """One behind a proxy where that fails; otherwise everybody's, without one to its advertised address."""
    if wait in {Scene.lose_kafka, Scene.stall_kafka}:
        yield request.getfixturevalue("own_broker")
        return
    kafka: Kafka = request.getfixturevalue("kafka")
    with Proxy(kafka.port) as proxy:
        yield kafka, proxy


@pytest.mark.system
@pytest.mark.timeout(240)
@pytest.mark.parametrize("wait", WAITS.values(), ids=WAITS)
def test_a_stop_comes_to_its_end(
    target: str, broker: tuple[Kafka, Proxy], tmp_path: Path, wait: Callable[[Scene], None]
) -> None:
    """Within 30 s, with exit code 0, without a traceback and without orphans; what was in hand is rolled back."""
    kafka, to_kafka = broker
    name = f"stop-{time.monotonic_ns()}"
    kafka.create_topic(name, PARTITIONS)
    with ExitStack() as stack:
        to_target = stack.enter_context(Proxy(port_of(target), wire.mysql_packets))
        feed = stack.enter_context(Feed(kafka.bootstrap_servers, name, copies=False))
        feed.open_bank()
        feed.start()
        url = f"mysql://root@127.0.0.1:{to_target.port}/"
        bootstrap = f"127.0.0.1:{to_kafka.port}"
        folder = tmp_path / "bridge"
        with running(folder, bootstrap, name, url, "--set", "stream.trigger_ms=100") as process:
            process.wait_for(lambda: _has_rows(target), "a first transaction")
            wait(Scene(stack, target, to_target, to_kafka, feed))
            process.wait_for(lambda: _stands_still(target), "the wait")
            began = time.monotonic()
            process.signal(signal.SIGTERM)
            assert process.wait(60) == 0, process.end_of_log
            assert time.monotonic() - began < SECONDS
            print(f"{wait.__name__} ended after {time.monotonic() - began:.1f} s")
            to_kafka.go_on()
            to_target.go_on()  # a server behind a wire that stalls does not learn that the bridge has ended
            assert "Traceback" not in process.log, process.log
            assert_nothing_is_left(process, folder)
        open_ones = "SELECT COUNT(*) FROM information_schema.innodb_trx"
        wait_for(lambda: sql(target, open_ones) == [(0,)], "a transaction is left open", 10)


def _has_rows(target: str) -> bool:
    there = "SELECT COUNT(*) FROM information_schema.tables WHERE table_schema = 'bank' AND table_name = 'ledger'"
    return sql(target, there) == [(1,)] and sql(target, "SELECT COUNT(*) > 0 FROM bank.ledger") == [(1,)]


def _stands_still(target: str) -> bool:
    before = applied_ts(target)
    time.sleep(1.5)
    return applied_ts(target) == before
