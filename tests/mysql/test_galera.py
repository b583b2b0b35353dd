"""A real cluster of Galera as target: two nodes, MariaDB 11.4 and 10.11."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from bridge.local.mariadb import OLD_VERSION, VERSION
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import find_limits
from bridge.mysql.server_errors import UnavailableError
from tests.pipeline import test_crash_points as crash_points
from tests.pipeline import test_lost_target as lost_target
from tests.pipeline.test_read_only_target import Name, at_work, make_tables, rows, shown
from tests.support.command import bridge
from tests.support.galera import Cluster
from tests.support.pipelines import admin, drop_all, opened, run_all
from tests.support.scenarios import SCENARIOS
from tests.support.sweeps import state
from tests.support.upstreams import boundary, in_one_partition, schema_change
from tests.support.victims import Victims
from tests.support.waiting import wait_for

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


@pytest.mark.parametrize("scenario", sorted(SCENARIOS.keys() - {"exchange partition"}))  # 10.11 lacks a clause of it
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
