"""A target that becomes read-only, is full, or is another server all of a sudden."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from bridge.errors import BridgeError, TargetError
from bridge.events import RowChange
from bridge.local import MariaDB
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.probe import condition
from bridge.mysql.server_errors import NoRoomError, ReadOnlyError, UnavailableError
from bridge.mysql.state.ownership import Ownership, TargetWentBack
from bridge.mysql.state.progress import ProgressTable
from bridge.pipeline.pipeline import expected_errors
from tests.support.command import bridge
from tests.support.pipelines import Pipeline, admin, opened
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.waiting import at_work, wait_for

USERS = {"may write on it": "ALL PRIVILEGES", "may not": "SELECT, INSERT, UPDATE, DELETE, CREATE, ALTER, DROP, INDEX"}


@pytest.fixture(scope="module")
def server() -> Iterator[MariaDB]:
    """A server of this module's own, whose global variables its tests set."""
    with MariaDB() as server:
        yield server


@pytest.fixture
def session(server: MariaDB) -> Iterator[Session]:
    """A session of the test's own, on a server with an empty table of rows with a key and one of rows without."""
    with admin(server.url) as session:
        make_tables(session)
        yield session
        session.execute("SET GLOBAL read_only = 0")
        drop_tables(session)


def make_tables(session: Session) -> None:
    drop_tables(session)  # which a test that failed may have left
    session.execute("CREATE DATABASE m")
    session.execute("CREATE TABLE m.t (id INT PRIMARY KEY)")
    session.execute("CREATE TABLE m.k (a INT)")


def drop_tables(session: Session) -> None:
    session.execute("DROP DATABASE IF EXISTS m")
    session.execute("DROP DATABASE IF EXISTS _bridge")


@pytest.fixture(params=USERS)
def url(server: MariaDB, session: Session, request: pytest.FixtureRequest) -> Iterator[str]:
    """The server for a user with and one without the privilege to write on a read-only server."""
    session.execute("CREATE USER bridge@'%'")
    session.execute(f"GRANT {USERS[request.param]} ON *.* TO bridge@'%'")
    yield server.url.replace("root@", "bridge@")
    session.execute("DROP USER bridge@'%'")


def rows(ts: int) -> list[RowChange]:
    """One transaction: a row of each table."""
    return [
        row_change(ts, "t", ["id"], ["id"], after=[ts]),
        row_change(ts, "k", ["a"], [], after=[ts]),
        boundary(ts + 1),
    ]


def shown(session: Session) -> list[tuple[int]]:
    return session.rows("SELECT id FROM m.t UNION ALL SELECT a FROM m.k ORDER BY 1")


def test_a_read_only_target_is_waited_for(session: Session, url: str) -> None:
    """Nothing is written there, whatever the user may, neither rows nor a heartbeat nor a schema change; the reason
    says since when, and the work goes on when the server takes writes again."""
    with opened(url, [("cdc", 0)]) as pipeline:
        pipeline.take(in_one_partition(rows(10)))
        session.execute("SET GLOBAL read_only = 1")
        before = session.rows("SELECT * FROM _bridge.progress, _bridge.owner")
        more = [*rows(20), schema_change(30, "CREATE TABLE m.u (id INT)", table="u"), boundary(31)]
        with at_work(lambda: pipeline.take(in_one_partition(more, start=3))):
            wait_for(lambda: pipeline.writer.end.retries >= 2, "it does not notice")
            assert "is read-only for " in pipeline.writer.end.waiting_for
            with pytest.raises(ReadOnlyError):
                pipeline.beat()
            assert shown(session) == [(10,), (10,)]
            assert session.rows("SELECT * FROM _bridge.progress, _bridge.owner") == before
            session.execute("SET GLOBAL read_only = 0")
        assert shown(session) == [(10,), (10,), (20,), (20,)]
        assert session.rows("SELECT COUNT(*) FROM m.u") == [(0,)]
        assert pipeline.writer.end.waiting_for == ""


def test_a_schema_change_waits_for_a_server_that_takes_writes(server: MariaDB, session: Session, url: str) -> None:
    """It is not run on a server that is read-only, where the user may."""
    with opened(url, [("cdc", 0)]) as pipeline:
        pipeline.take(in_one_partition([boundary(11)]))
        advanced = pipeline.writer._trace

        def demote(step: str) -> None:
            advanced(step)
            if step == "committed":
                with admin(server.url) as another:
                    another.execute("SET GLOBAL read_only = 1")

        pipeline.writer._trace = demote
        change = schema_change(20, "CREATE TABLE m.u (id INT)", table="u")
        with at_work(lambda: pipeline.take(in_one_partition([change, boundary(21)], start=1))):
            wait_for(lambda: pipeline.writer.end.retries >= 2, "it does not notice")
            assert session.rows("SHOW TABLES FROM m LIKE 'u'") == []
            session.execute("SET GLOBAL read_only = 0")
        assert session.rows("SHOW TABLES FROM m LIKE 'u'") == [("u",)]


@pytest.mark.server
@pytest.mark.parametrize("writers", [0, 2])
def test_a_commit_on_a_server_that_was_just_demoted(server: MariaDB, session: Session, url: str, writers: int) -> None:
    """Its outcome is looked up like any other: the rows are there once."""
    with opened(url, [("cdc", 0)], writers=writers) as pipeline:
        pipeline.take(in_one_partition(rows(10)))

        def demote(step: str) -> None:
            if step == "before commit":
                pipeline.writer._trace = lambda _: None
                with admin(server.url) as another:  # each writer has a thread of its own
                    another.execute("SET GLOBAL read_only = 1")

        pipeline.writer._trace = demote
        with at_work(lambda: pipeline.take(in_one_partition(rows(20), start=3))):
            committed = [(10,), (10,), (20,), (20,)]
            wait_for(lambda: pipeline.writer.end.retries or shown(session) == committed, "it does nothing")
            session.execute("SET GLOBAL read_only = 0")
        assert shown(session) == [(10,), (10,), (20,), (20,)]


def test_no_bridge_begins_on_a_read_only_server(session: Session, url: str) -> None:
    """Not even the epoch is raised there."""
    with opened(url, [("cdc", 0)]):
        pass
    session.execute("SET GLOBAL read_only = 1")
    with pytest.raises(ReadOnlyError), opened(url, [("cdc", 0)]):
        pass
    session.execute("SET GLOBAL read_only = 0")
    assert session.rows("SELECT epoch FROM _bridge.progress") == [(1,)]


@contextmanager
def no_place(session: Session, url: str, places: int) -> Iterator[None]:
    """A server that takes no further connection of that user, until the block ends."""
    counted = "SHOW GLOBAL STATUS LIKE 'Threads_connected'"
    listed = "SELECT COUNT(*) FROM information_schema.processlist WHERE command <> 'Daemon'"
    wait_for(lambda: int(session.rows(counted)[0][1]) == session.rows(listed)[0][0], "a connection is still ending")
    session.execute(f"SET GLOBAL max_connections = {places}")
    crowd: list[Session] = []
    try:
        with suppress(UnavailableError):
            while len(crowd) < 2 * places:
                crowd.append(Target(url).connect())
        yield
    finally:
        for one in crowd:
            one.close()
        session.execute("SET GLOBAL max_connections = DEFAULT")


def test_too_many_connections(session: Session, server: MariaDB) -> None:
    """Are waited for, with the reason."""
    session.execute("CREATE USER few@'%'")
    session.execute("GRANT SELECT, INSERT, UPDATE, DELETE, CREATE ON *.* TO few@'%'")
    url = server.url.replace("root@", "few@")
    with opened(url, [("cdc", 0)]) as pipeline:
        pipeline.take(in_one_partition(rows(10)))
        killed = pipeline.writer.session().connection_id
        session.execute(f"KILL {killed}")
        alive = f"SELECT 1 FROM information_schema.processlist WHERE id = {killed}"
        wait_for(lambda: not session.rows(alive), "the server still knows the killed connection")
        with ExitStack() as crowd:
            crowd.enter_context(no_place(session, url, 10))
            with at_work(lambda: pipeline.take(in_one_partition(rows(20), start=3))):
                wait_for(lambda: pipeline.writer.end.retries >= 2, "it does not notice")
                assert "has too many connections for " in pipeline.writer.end.waiting_for
                crowd.close()
        assert shown(session) == [(10,), (10,), (20,), (20,)]
    session.execute("DROP USER few@'%'")


# --- failover


class Name(Target):
    """A name that leads to one server, and later to another."""

    leads_to: Target | None = None

    def connect(self, *, autocommit: bool = False, timeout_seconds: float | None = None) -> Session:
        if self.leads_to is not None:
            return self.leads_to.connect(autocommit=autocommit, timeout_seconds=timeout_seconds)
        return super().connect(autocommit=autocommit, timeout_seconds=timeout_seconds)


@contextmanager
def failing_over(
    server: MariaDB, heir: str, monkeypatch: pytest.MonkeyPatch, *, writers: int = 0
) -> Iterator[tuple[Pipeline, Session]]:
    """A pipeline that has written one transaction, and a session on the other server, which has it too."""
    monkeypatch.setattr("tests.support.pipelines.Target", Name)
    with opened(server.url, [("cdc", 0)], writers=writers) as pipeline, admin(heir) as there:
        pipeline.take(in_one_partition(rows(10)))
        make_tables(there)
        ProgressTable("bridge").create(there)
        with admin(server.url) as here:
            copy(here, there)
        yield pipeline, there


COPIED = ("m.t", "m.k", "_bridge.progress", "_bridge.owner")


def copy(here: Session, there: Session, tables: Iterable[str] = COPIED) -> None:
    """Replication."""
    for table in tables:
        there.execute(f"DELETE FROM {table}")
        for row in here.rows(f"SELECT * FROM {table}"):
            there.execute(f"INSERT INTO {table} VALUES ({','.join(['%s'] * len(row))})", row)


def demote(session: Session, pipeline: Pipeline, heir: str) -> None:
    session.execute("SET GLOBAL read_only = 1")
    assert isinstance(pipeline.target, Name)
    pipeline.target.leads_to = Target(heir)


def test_a_failover_is_followed(
    server: MariaDB, session: Session, old_target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The bridge connects anew by name, and goes on at the server that the name leads to, in place of the demoted one,
    on which this user might still write."""
    with failing_over(server, old_target, monkeypatch) as (pipeline, there):
        demote(session, pipeline, old_target)
        pipeline.take(in_one_partition(rows(20), start=3))
        assert shown(session) == [(10,), (10,)]
        assert shown(there) == [(10,), (10,), (20,), (20,)]
        pipeline.beat()
        assert there.rows("SELECT connections FROM _bridge.owner")[0][0].startswith(
            str(pipeline.ownership.control.connection_id)
        )


def test_several_connections_follow_a_failover(
    server: MariaDB, session: Session, old_target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When only the address moves, the server before it still takes writes: none of the connections stays there, also
    when only those were cut that say that a step begins."""
    with failing_over(server, old_target, monkeypatch, writers=2) as (pipeline, there):
        mark, name = ProgressTable.mark, pipeline.target
        assert isinstance(name, Name)

        def moving(table: ProgressTable, writing: Session, *of: Any) -> int | None:
            if name.leads_to is None:
                name.leads_to = Target(old_target)
                for cut in (writing, pipeline.ownership.control):
                    session.execute(f"KILL {cut.connection_id}")
            return mark(table, writing, *of)

        monkeypatch.setattr(ProgressTable, "mark", moving)
        for ts in (20, 30):
            pipeline.take(in_one_partition(rows(ts), start=ts))
        assert shown(session) == [(10,), (10,)]
        assert shown(there) == [(10,), (10,), (20,), (20,), (30,), (30,)]


def test_a_server_that_lagged_is_not_written_past(
    server: MariaDB, session: Session, old_target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What the new primary lacks is read again: progress there says what it has.  Neither rows nor schema changes are
    written to it before."""
    with failing_over(server, old_target, monkeypatch) as (pipeline, there):
        pipeline.take(in_one_partition(rows(20), start=3))
        demote(session, pipeline, old_target)
        more = [schema_change(30, "ALTER TABLE m.t ADD COLUMN c INT"), *rows(40)]
        with pytest.raises(TargetWentBack, match="is at commit ts 11, and was at commit ts 21"):
            pipeline.take(in_one_partition(more, start=6))
        assert shown(there) == [(10,), (10,)]
        assert pipeline.writer.progress().applied_ts == 11


def test_a_failover_while_the_bridge_starts() -> None:
    """To a server that lagged: it ends with what to do, where later it would read again."""
    with (
        pytest.raises(TargetError, match="lacks what was committed, as after a failover"),
        expected_errors(Target("mysql://root@127.0.0.1:1/")),
    ):
        raise TargetWentBack("the target is at commit ts 1, and was at commit ts 2")


def test_a_server_that_lacks_a_schema_change_is_not_written_past(
    server: MariaDB, session: Session, old_target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lagged by what came between progress and its schema change has the same commit ts, and the change still
    to run: it runs there before anything else is written."""
    done = ProgressTable.set_pending

    def lagging(*of: Any) -> bool:
        with admin(server.url) as here, admin(old_target) as there:
            copy(here, there, ["_bridge.progress"])
        return done(*of)

    with failing_over(server, old_target, monkeypatch) as (pipeline, there):
        monkeypatch.setattr(ProgressTable, "set_pending", lagging)
        pipeline.take(in_one_partition([schema_change(30, "TRUNCATE m.t"), boundary(31)], start=3))
        assert shown(session) == [(10,)]
        assert shown(there) == [(10,), (10,)]
        demote(session, pipeline, old_target)
        with pytest.raises(TargetWentBack, match="is at commit ts 31, with schema changes still to run"):
            pipeline.take(in_one_partition(rows(40), start=5))
        pipeline.applier.finish_pending(pipeline.writer.progress().pending)
        assert shown(there) == [(10,)]


def test_a_server_that_does_not_know_this_bridge(
    server: MariaDB, session: Session, old_target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that lagged so far that it lacks the epoch does not say that another bridge has taken over."""
    with failing_over(server, old_target, monkeypatch) as (pipeline, there):
        there.execute("UPDATE _bridge.progress SET epoch = 0")
        demote(session, pipeline, old_target)
        with pytest.raises(BridgeError, match="does not know that this bridge has begun"):
            pipeline.take(in_one_partition(rows(20), start=3))


@pytest.mark.parametrize(
    ("flags", "expected"),
    [
        ((), "TRUE"),
        (("read_only",), "CAST(@@GLOBAL.read_only AS CHAR) IN ('0', 'OFF')"),
        (
            ("tidb_super_read_only", "tidb_restricted_read_only"),
            "tidb_restricted_read_only AS CHAR) IN ('0', 'OFF') AND",
        ),
    ],
)
def test_the_condition(flags: tuple[str, ...], expected: str) -> None:
    """It names what the server has."""
    assert expected in condition(flags)


@pytest.mark.server
@pytest.mark.parametrize("fixture", ["target", "old_target", "mysql_target", "old_mysql_target"])
def test_every_server_has_the_condition(fixture: str, request: pytest.FixtureRequest) -> None:
    """A pipeline begins on it, which it does not on one that is read-only."""
    url = request.getfixturevalue(fixture)
    with admin(url) as session:
        for flag in ("super_read_only", "read_only"):
            if not session.rows(f"SHOW GLOBAL VARIABLES LIKE '{flag}'"):
                continue
            session.execute(f"SET GLOBAL {flag} = 1")
            ownership = Ownership(Target(url), ProgressTable("bridge"))
            try:
                with pytest.raises(ReadOnlyError):
                    ownership.acquire(0, take_over=False)
            finally:
                session.execute(f"SET GLOBAL {flag} = 0")
                session.execute("SET GLOBAL read_only = 0")
                ownership.control.close()
    with opened(url, [("cdc", 0)]):
        pass


def test_commands_say_that_the_target_is_read_only(session: Session, url: str) -> None:
    """It answers, so "does not answer" would lead to the network."""
    with admin(url) as own:
        ProgressTable("bridge").create(own)
        ProgressTable("bridge").begin(own, 0)
    session.execute("SET GLOBAL read_only = ON")
    for arguments in (("reset", "--yes"), ("ctl", "pause")):
        ended = bridge(*arguments, "--target", url)
        assert ended.code == 3
        assert "the target is read-only: 1290" in ended.last_line


FULL = ("--innodb-file-per-table=OFF", "--innodb-data-file-path=ibdata1:12M:autoextend:max:24M")
FILL = "INSERT INTO m.filler SELECT NULL, REPEAT('x', 200) FROM m.seq_1_to_1000"


@pytest.mark.server
@pytest.mark.parametrize("writers", [0, 2])
def test_a_full_target_is_waited_for(writers: int) -> None:
    """Its rows are not at fault: nothing goes to the quarantine, and the work goes on when there is room."""
    with MariaDB(options=FULL) as server, admin(server.url) as session:
        make_tables(session)
        session.execute("CREATE TABLE m.wide (id INT PRIMARY KEY, v VARCHAR(2000))")
        session.execute("CREATE TABLE m.filler (id INT AUTO_INCREMENT PRIMARY KEY, v VARCHAR(300))")
        with opened(server.url, [("cdc", 0)], quarantine=True, writers=writers, rows_per_transaction=100) as pipeline:
            with suppress(NoRoomError):
                while True:
                    session.execute(FILL)
            wide = [row_change(10, "wide", ["id", "v"], ["id"], after=[at, "y" * 2000]) for at in range(1000)]
            with at_work(lambda: pipeline.take(in_one_partition([*wide, boundary(11)]))):
                wait_for(lambda: "has no room" in pipeline.writer.end.waiting_for, "it does not notice")
                session.execute("DROP TABLE m.filler")
            assert session.rows("SELECT COUNT(*) FROM m.wide") == [(1000,)]
            assert session.rows("SELECT COUNT(*) FROM _bridge.quarantine") == [(0,)]
