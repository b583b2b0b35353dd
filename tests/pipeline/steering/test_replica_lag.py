"""A throttle by the lag of a replica, on two servers of which one replicates the other."""

from __future__ import annotations

import re
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from bridge.local import MariaDB
from bridge.mysql.connection.target import Target
from bridge.mysql.state.controls import ControlTable
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline import heartbeat as heartbeats
from bridge.pipeline.heartbeat import Heartbeat
from bridge.pipeline.steering import LoadWatch, Steering
from tests.pipeline.steering.test_steering import EVENTS, ctl
from tests.support.grounds import start_replicating
from tests.support.pipelines import admin, opened, sql
from tests.support.upstreams import in_one_partition
from tests.support.waiting import at_work, wait_for

pytestmark = pytest.mark.server

LIMIT = 1
ROWS = "SELECT COUNT(*) FROM m.t"


@pytest.fixture
def servers() -> Iterator[tuple[MariaDB, MariaDB]]:
    """A target and its replica."""
    with ExitStack() as stack:
        yield start_replicating(stack)


def test_a_replica_that_falls_behind_holds_back(
    servers: tuple[MariaDB, MariaDB], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is applied while it stands, and the status says which replica is how far behind; when it has caught up,
    everything is applied, there and here."""
    monkeypatch.setattr(heartbeats, "HEARTBEAT_SECONDS", 0.2)
    target, replica = (server.url for server in servers)
    server, table = Target(target), ProgressTable("bridge")
    steering = Steering(server, ControlTable("bridge"), LoadWatch(server, table, [Target(replica)]), dict)
    with opened(target, [("cdc", 0)], gate=steering.gate, rows_per_transaction=5) as pipeline:
        ctl(target, "throttle", f"replica_lag={LIMIT}")
        heart = Heartbeat(pipeline.ownership, pipeline.writer, print, 60)
        with heart, steering, admin(replica) as session:
            wait_for(lambda: steering.gate.waiting_for == "", "the gate is not open")
            session.execute("STOP SLAVE SQL_THREAD")
            wait_for(lambda: behind(steering.gate.busy) > LIMIT, "the replica does not lag")
            with at_work(lambda: pipeline.take(in_one_partition(EVENTS))):
                wait_for(lambda: behind(pipeline.applier.waiting_for()) > LIMIT + 1, "the applier does not wait")
                assert f"the replica {Target(replica).place} is " in pipeline.applier.waiting_for()
                assert sql(target, "SHOW DATABASES LIKE 'm'") == []
                session.execute("START SLAVE SQL_THREAD")
        assert sql(target, ROWS) == [(30,)]
        wait_for(lambda: sql(replica, "SHOW TABLES IN m LIKE 't'") and sql(replica, ROWS) == [(30,)], "it stays behind")


def behind(reason: str) -> int:
    """How many seconds a reason names; 0 for another reason."""
    found = re.search(rf" is (\d+) s behind, above {LIMIT}$", reason)
    return int(found[1]) if found else 0
