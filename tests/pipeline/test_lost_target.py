"""The target goes away in the middle of the work, and comes back."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator

import pytest

from bridge.errors import TargetError
from bridge.events import Event
from bridge.local import MariaDB
from bridge.mysql.connection.session import Session
from bridge.mysql.server_errors import LostConnectionError
from tests.support.pipelines import admin, contents, journal, opened, run_all
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.waiting import at_work


def busy_upstream(transactions: int) -> list[Event]:
    """Rows of a table with a key and of one without, and now and then a schema change that cannot run twice."""
    events = [
        schema_change(10, "CREATE DATABASE m", table=""),
        schema_change(11, "CREATE TABLE t (id INT PRIMARY KEY, v INT)"),
        schema_change(12, "CREATE TABLE k (a INT)", table="k"),
    ]
    for ts in range(20, 20 + transactions):
        if ts % 10 == 0:
            events.append(schema_change(ts, f"ALTER TABLE t ADD COLUMN c{ts} INT"))
        events.append(row_change(ts, "t", ["id", "v"], ["id"], after=[ts % 7, ts]))
        events.append(row_change(ts, "k", ["a"], [], after=[ts % 3]))
        events.append(boundary(ts + 1))
    return events


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    """A server of this module's own, as its tests kill it."""
    with MariaDB() as server:
        yield server


def test_server_killed_and_restarted_in_mid_run(server: MariaDB) -> None:
    """A killed server loses what was not committed and nothing else; the writer waits for it and goes on by itself,
    through transactions and schema changes."""
    events = in_one_partition(busy_upstream(100))
    run_all(server.url, events, name="calm", batch=9)
    with admin(server.url) as session:
        expected = contents(session)
        session.execute("DROP DATABASE m")
    steps = 0
    go_on = threading.Event()

    def trace(_: str) -> None:
        nonlocal steps
        steps += 1
        go_on.set() if steps in {40, 83, 161, 300} else None

    killed = 0
    with at_work(lambda: run_all(server.url, events, name="hit", batch=9, trace=trace, retry_seconds=60)) as thread:
        while thread.is_alive():
            if go_on.wait(0.05):
                go_on.clear()
                server.kill()
                killed += 1
                time.sleep(0.5)  # the writer tries in vain
                server.restart()
    assert killed >= 3
    with admin(server.url) as session:
        assert contents(session) == expected
        assert {row[1] for row in journal(session) if row[0] in {"calm", "hit"}} == {120}


def test_unreachable_target_stops_the_bridge(server: MariaDB) -> None:
    """When retrying does not help within retry_seconds, the error says what the server said and what to do."""
    with opened(server.url, [("cdc", 0)], name="given up", retry_seconds=1) as pipeline:
        pipeline.take(in_one_partition([boundary(10)]))
        server.kill()
        try:
            with pytest.raises(TargetError, match="within 1 s") as raised:
                pipeline.take(in_one_partition(busy_upstream(1), start=1))
        finally:
            server.restart()
    assert "start the bridge again" in raised.value.fix


def test_a_question_that_is_answered_at_last_is_no_trouble(target: str) -> None:
    """The time of the setting is counted anew when something else fails later, and the status names no trouble."""
    with opened(target, [("cdc", 0)]) as pipeline, admin(target) as session:
        end = pipeline.writer.end
        session.execute(f"KILL {pipeline.writer.connections[0]}")
        assert pipeline.writer.changes_between(0, 1) == []
        assert end.retries == 1
        assert (end.waiting_for, end.away_seconds) == ("", 0)


def lost_reply(commit: Callable[[Session], None], takes_place: bool) -> Callable[[Session], None]:
    """A COMMIT whose answer never comes."""

    def cut(session: Session) -> None:
        if takes_place:
            commit(session)
        session.close()
        raise LostConnectionError(2013, "Lost connection to MySQL server during query")

    return cut


@pytest.mark.parametrize("takes_place", [True, False])
def test_cut_commit_is_neither_lost_nor_repeated(
    target: str, monkeypatch: pytest.MonkeyPatch, takes_place: bool
) -> None:
    """When the answer to COMMIT does not come, the progress row tells whether it took place; a row of a table without
    a key shows a repetition."""
    original = Session.commit
    cuts = 0

    def commit(session: Session) -> None:
        nonlocal cuts
        armed = session.value("SELECT COUNT(*) FROM m.k") == 1
        if armed and cuts == 0:
            cuts += 1
            lost_reply(original, takes_place)(session)
        original(session)

    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.k (a INT)")
        monkeypatch.setattr(Session, "commit", commit)
        pipeline = run_all(target, in_one_partition([row_change(10, "k", ["a"], [], after=[1]), boundary(11)]))
        assert session.rows("SELECT a FROM m.k") == [(1,)]
    assert cuts == 1
    assert pipeline.writer.end.retries == 1


def test_commit_in_flight_is_waited_for(target: str) -> None:
    """After a cut COMMIT the progress row is read with a lock, so a transaction that the server has not ended yet is
    waited for instead of being applied again beside it."""
    events = in_one_partition([row_change(10, "k", ["a"], [], after=[1]), boundary(11)])
    with admin(target) as session:
        session.execute("CREATE DATABASE m")
        session.execute("CREATE TABLE m.k (a INT)")
        with opened(target, [("cdc", 0)]) as pipeline:
            writer = pipeline.writer
            ghosts: list[tuple[Session, threading.Timer]] = []
            original = Session.commit

            def commit(self: Session) -> None:
                if not ghosts:
                    writer._session = None  # the client lost it, the server has not noticed
                    late = threading.Timer(1.0, original, [self])
                    ghosts.append((self, late))
                    late.start()
                    raise LostConnectionError(2013, "Lost connection to MySQL server during query")
                original(self)

            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(Session, "commit", commit)
                pipeline.take(events)
            assert session.rows("SELECT a FROM m.k") == [(1,)]
            ((ghost, late),) = ghosts
            late.join()
            ghost.close()
