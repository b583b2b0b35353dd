"""A real cluster of Galera as target: two nodes, MariaDB 11.4 and 10.11."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final, Self

import pymysql
import pytest

from bridge.cache import cached
from bridge.local import MariaDB
from bridge.local.mariadb import OLD_VERSION, VERSION
from bridge.local.server import HOST, free_port
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import find_limits
from bridge.mysql.server_errors import UnavailableError
from tests.pipeline import test_crash_points as crash_points
from tests.pipeline import test_lost_target as lost_target
from tests.pipeline.test_read_only_target import Name, make_tables, rows, shown
from tests.support.command import bridge
from tests.support.pipelines import admin, drop_all, opened, run_all
from tests.support.scenarios import SCENARIOS
from tests.support.sweeps import state
from tests.support.upstreams import boundary, in_one_partition, schema_change
from tests.support.victims import Victims
from tests.support.waiting import at_work, wait_for

PACKAGE: Final = "galera-4"
_FETCH_SECONDS: Final = 300
_SECONDS: Final = 60.0
_POSITION: Final = "# GALERA saved state\nversion: 2.1\nuuid: {uuid}\nseqno: {number}\nsafe_to_bootstrap: 0\n"


def provider() -> Path:
    """The library; skips where the package cannot be had."""
    for program in ("apt-get", "dpkg-deb"):
        if shutil.which(program) is None:
            pytest.skip(f"Galera comes from Debian's package {PACKAGE}: there is no {program}")
    return next(cached(PACKAGE, _fetch).rglob("libgalera_smm.so"))


def _fetch(folder: Path) -> None:
    _run(folder, "apt-get", "download", PACKAGE)
    (package,) = folder.glob("*.deb")
    _run(folder, "dpkg-deb", "-x", package.name, ".")
    package.unlink()


def _run(folder: Path, *command: str) -> None:
    ended = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=_FETCH_SECONDS, check=False)
    if ended.returncode:
        pytest.skip(f"{' '.join(command)} fails: {ended.stderr.strip()[-200:]}")


class GaleraNode(MariaDB):
    """A node on 127.0.0.1 of a cluster that it begins, or that it joins.

    others: nodes that run and have what a fresh server has: no data is transferred to this one.
    """

    def __init__(self, *others: GaleraNode, version: str = VERSION) -> None:
        super().__init__(version=version)
        self._others = others
        self._port, self._transfer_port = 0, 0

    @property
    def place(self) -> str:
        """Where the other nodes find it."""
        return f"{HOST}:{self._port}"

    def position(self) -> str:
        """How far its data is, as the file of a node that stopped in order says it."""
        state = self.state()
        return _POSITION.format(uuid=state["wsrep_local_state_uuid"], number=state["wsrep_last_committed"])

    def _answers(self) -> bool:
        """A node that has not joined yet refuses every query but such."""
        try:
            return self.state()["wsrep_ready"] == "ON"
        except pymysql.Error:
            return False

    def state(self) -> dict[str, str]:
        """What it says of itself and its cluster, as it also does when it does no work."""
        return dict(self.run("SHOW STATUS LIKE 'wsrep_%'"))

    def run(self, statement: str) -> list[tuple[str, str]]:
        """Runs a statement, with as few others as can be."""
        with (
            pymysql.connect(host=HOST, port=self.port, user="root", connect_timeout=5) as connection,
            connection.cursor() as cursor,
        ):
            cursor.execute(statement)
            return list(cursor.fetchall())

    def _prepare(self, folder: Path) -> None:
        super()._prepare(folder)
        self._port = free_port(self.port)
        self._transfer_port = free_port(self._port)
        for node in self._others[:1]:
            (folder / "data" / "grastate.dat").write_text(node.position())

    def _command(self, folder: Path) -> list[str]:
        settings = {
            "gmcast.listen_addr": f"tcp://{self.place}",
            "ist.recv_addr": f"{HOST}:{self._transfer_port}",
            "gcache.size": "16M",
            "pc.weight": "1" if self._others else "2",  # so that a node that is cut off has no majority
        }
        return [
            *super()._command(folder),
            "--wsrep-on=ON",
            f"--wsrep-provider={provider()}",
            f"--wsrep-provider-options={';'.join(f'{name}={value}' for name, value in settings.items())}",
            f"--wsrep-cluster-address=gcomm://{','.join(node.place for node in self._others)}",
            f"--wsrep-node-address={HOST}",
            "--loose-plugin-wsrep-provider=OFF",  # with that plugin of 11.4 the library's options cannot be set later
            "--binlog-format=ROW",
            "--innodb-autoinc-lock-mode=2",
        ]


class Cluster:
    """Two nodes.  The second one can be cut off from the first, which then goes on alone."""

    def __init__(self, version: str = VERSION) -> None:
        self.first = GaleraNode(version=version)
        self.second = GaleraNode(self.first, version=version)

    def __enter__(self) -> Self:
        self.first.start()
        try:
            self.second.start()
        except BaseException:
            self.first.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.second.stop(0)
        self.first.stop(0)

    def cut_off(self) -> None:
        """Cuts the second node off; returns when it knows."""
        self._isolate(1)
        self._wait_for("OFF")

    def join_again(self) -> None:
        """Ends that."""
        self._isolate(0)
        self._wait_for("ON")

    def _isolate(self, isolate: int) -> None:
        self.second.run(f"SET GLOBAL wsrep_provider_options = 'gmcast.isolate={isolate}'")

    def _wait_for(self, ready: str) -> None:
        complaint = f"wsrep_ready does not become {ready}"
        wait_for(lambda: self.second.state()["wsrep_ready"] == ready, complaint, _SECONDS)


pytestmark = [pytest.mark.soak, pytest.mark.timeout(900)]


@pytest.fixture(scope="module", params=[VERSION, OLD_VERSION])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """Two nodes."""
    with Cluster(version=request.param) as cluster:
        yield cluster


@pytest.fixture
def session(cluster: Cluster) -> Iterator[Session]:
    """A session of the test's own on the second node, with empty tables; it sees what the first one has committed."""
    with admin(cluster.second.url) as session:
        session.execute("SET SESSION wsrep_sync_wait = 1")
        drop_all(session)
        make_tables(session)
        yield session
        drop_all(session)


def test_check_names_it(cluster: Cluster) -> None:
    """What it means for owners; and that rows are not loaded there."""
    ended = bridge("check", "--target", cluster.second.url)
    (reach,) = [line for line in ended.out.splitlines() if "Galera" in line]
    assert reach.startswith("WARN")
    assert "the target is a node of Galera: a lock and a KILL reach one node only" in reach
    assert "wsrep_on is ON" in ended.out


def test_a_balancer_over_two_nodes_is_fatal(cluster: Cluster, session: Session) -> None:
    """A lock that is taken on one node is free on the other."""
    with admin(cluster.first.url) as first:
        limits = list(find_limits(first, session))
    assert [limit.is_fatal for limit in limits] == [True, False]


def test_a_node_that_rejects_queries_is_waited_for(cluster: Cluster, session: Session) -> None:
    """By name, in the server's words; rows, schema changes and heartbeats go on when it takes them again."""
    with opened(cluster.second.url, [("cdc", 0)]) as pipeline:
        pipeline.take(in_one_partition(rows(10)))
        session.execute("SET GLOBAL wsrep_reject_queries = ALL")
        more = [*rows(20), schema_change(30, "CREATE TABLE m.u (id INT)", table="u"), boundary(31)]
        try:
            with at_work(lambda: pipeline.take(in_one_partition(more, start=3))):
                wait_for(lambda: pipeline.writer.end.retries >= 2, "it does not notice")
                assert "does no work, as it says 1047 (WSREP has not yet" in pipeline.writer.end.waiting_for
                with pytest.raises(UnavailableError):
                    pipeline.beat()
                session.execute("SET GLOBAL wsrep_reject_queries = NONE")
        finally:
            session.execute("SET GLOBAL wsrep_reject_queries = NONE")
        assert pipeline.writer.end.waiting_for == ""
        pipeline.beat()
    assert shown(session) == [(10,), (10,), (20,), (20,)]
    assert session.rows("SELECT COUNT(*) FROM m.u") == [(0,)]


@pytest.mark.parametrize("step", ["begun", "before commit"])
def test_a_node_that_is_cut_off_in_mid_transaction(cluster: Cluster, session: Session, step: str) -> None:
    """It is waited for; when it is back, the rows are there once, on both nodes."""
    with opened(cluster.second.url, [("cdc", 0)]) as pipeline:
        pipeline.take(in_one_partition(rows(10)))

        def cut_off(here: str) -> None:
            if here == step:
                pipeline.writer._trace = lambda _: None
                cluster.cut_off()

        pipeline.writer._trace = cut_off
        try:
            with at_work(lambda: pipeline.take(in_one_partition(rows(20), start=3))):
                wait_for(lambda: pipeline.writer.end.retries >= 2, "it does not notice")
                assert "does no work, as it says 1047" in pipeline.writer.end.waiting_for
                cluster.join_again()
        finally:
            cluster.join_again()
    assert shown(session) == [(10,), (10,), (20,), (20,)]
    with admin(cluster.first.url) as first:
        first.execute("SET SESSION wsrep_sync_wait = 1")
        assert shown(first) == [(10,), (10,), (20,), (20,)]


@pytest.mark.parametrize("step", ["statement", "before commit"])
def test_a_transaction_that_another_node_has_overtaken(cluster: Cluster, session: Session, step: str) -> None:
    """The other node's rows come first, which costs this one its transaction (1213): it is run again."""
    with opened(cluster.second.url, [("cdc", 0)]) as pipeline, admin(cluster.first.url) as first:
        pipeline.take(in_one_partition(rows(10)))

        def overtake(here: str) -> None:
            if here == step:
                pipeline.writer._trace = lambda _: None
                first.execute("INSERT INTO m.t VALUES (20)")
                first.execute("DELETE FROM m.t WHERE id = 20")

        pipeline.writer._trace = overtake
        pipeline.take(in_one_partition(rows(20), start=3))
        assert pipeline.writer.end.retries >= 1
    assert shown(session) == [(10,), (10,), (20,), (20,)]


@contextmanager
def lagging(node: Session) -> Iterator[Callable[[], None]]:
    """The node applies nothing of what it receives, until it is told to go on."""
    node.execute("SET GLOBAL wsrep_desync = ON")
    node.execute("FLUSH TABLES WITH READ LOCK")
    try:
        yield lambda: node.rows("UNLOCK TABLES") and None
    finally:
        node.execute("UNLOCK TABLES")
        node.execute("SET GLOBAL wsrep_desync = OFF")


def is_waiting(node: Session) -> bool:
    """Whether somebody on the node waits to see what it has received."""
    return bool(
        node.rows(
            "SELECT 1 FROM information_schema.processlist WHERE command = 'Query' AND id <> %s", [node.connection_id]
        )
    )


def test_a_node_that_does_not_catch_up_is_named(cluster: Cluster, session: Session) -> None:
    """When it lags for longer than it lets a query wait."""
    with admin(cluster.first.url) as first, admin(cluster.second.url) as second, lagging(second):
        cluster.second.run("SET GLOBAL wsrep_provider_options = 'repl.causal_read_timeout=PT1S'")
        first.execute("INSERT INTO m.t VALUES (1)")
        try:
            with pytest.raises(UnavailableError, match="not applied yet what its cluster has committed"):
                Target(cluster.second.url).connect()
        finally:
            cluster.second.run("SET GLOBAL wsrep_provider_options = 'repl.causal_read_timeout=PT30S'")
    assert session.rows("SELECT id FROM m.t") == [(1,)]


def test_a_node_that_lags_is_waited_for(cluster: Cluster, session: Session, monkeypatch: pytest.MonkeyPatch) -> None:
    """The bridge is led to another node, which has received the last transaction and not applied it yet: what it shows
    is waited for, not taken for what is committed."""
    monkeypatch.setattr("tests.support.pipelines.Target", Name)
    with opened(cluster.first.url, [("cdc", 0)]) as pipeline, admin(cluster.second.url) as second:
        pipeline.take(in_one_partition(rows(10)))
        wait_for(lambda: len(shown(session)) == 2, "the first rows")
        assert isinstance(pipeline.target, Name)
        with lagging(second) as go_on:
            pipeline.take(in_one_partition(rows(20), start=3))
            pipeline.target.leads_to = Target(cluster.second.url)
            with admin(cluster.first.url) as first:
                first.execute(f"KILL {pipeline.writer.session().connection_id}")
            with at_work(lambda: pipeline.take(in_one_partition(rows(30), start=6))):
                wait_for(lambda: pipeline.writer.end.retries >= 1, "it does not notice")
                wait_for(lambda: is_waiting(second), "it does not wait")
                go_on()
    assert shown(session) == [(10,), (10,), (20,), (20,), (30,), (30,)]


@pytest.mark.parametrize("scenario", sorted(SCENARIOS))
def test_crash_at_every_step(cluster: Cluster, victims: Victims, scenario: str) -> None:
    """Ends equal, as on a single server."""
    crash_points.test_crash_at_every_step_around_schema_changes(cluster.second.url, victims, scenario)


def test_the_other_node_has_the_same(cluster: Cluster, session: Session) -> None:
    """Rows, tables, journal and progress, after many transactions and schema changes."""
    session.execute("DROP DATABASE m")
    run_all(cluster.second.url, in_one_partition(lost_target.busy_upstream(60)), batch=9)
    with admin(cluster.first.url) as first:
        first.execute("SET SESSION wsrep_sync_wait = 1")
        assert state(first) == state(session)
