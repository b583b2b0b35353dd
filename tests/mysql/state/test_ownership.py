"""One owner: who may write, who may take over, and what the one who lost can still do."""

from __future__ import annotations

import os
import signal
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress

import pytest

from bridge.ends import Abandoned, End, Ends
from bridge.errors import OwnedError
from bridge.model import Advance, SchemaChange
from bridge.mysql.connection.session import Session
from bridge.mysql.schema_changes.ddl_runner import pipeline_tag
from bridge.mysql.server_errors import LostConnectionError
from bridge.mysql.state.schema import pipeline_lock
from bridge.pipeline import heartbeat as heartbeats
from bridge.pipeline.heartbeat import Heartbeat, StatusReporter
from tests.support.pipelines import Pipeline, admin, contents, journal, opened, run_all, session_after
from tests.support.upstreams import boundary, in_one_partition, row_change, schema_change
from tests.support.victims import Victims

SECONDS = 90.0
"""For anything that a busy machine may take long for."""
ALTER = SchemaChange(11, "m", "t", "ALTER TABLE t ADD COLUMN c INT", "cdc/0/1")
EVENTS = in_one_partition(
    [
        row_change(10, "t", ["id"], ["id"], after=[1]),
        schema_change(ALTER.commit_ts, ALTER.text),
        row_change(12, "t", ["id", "c"], ["id"], after=[2, 2]),
        boundary(13),
    ]
)


session = session_after("CREATE DATABASE m", "CREATE TABLE m.t (id INT PRIMARY KEY)")


@pytest.fixture(autouse=True)
def _impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bridge.mysql.state.ownership._PATIENCE_SECONDS", 1)


@contextmanager
def owner(url: str, **options: object) -> Iterator[Pipeline]:
    with opened(url, [("cdc", 0)], **options) as pipeline:  # type: ignore[arg-type]
        yield pipeline


def ends_of(pipeline: Pipeline) -> Ends:
    return Ends(pipeline.writer.end, End("source", "nowhere", retry_seconds=1))


def test_a_live_owner_keeps_others_out(target: str) -> None:
    """A second bridge of one name ends with exit code 5, saying who owns the pipeline; another name is free."""
    with owner(target):
        with pytest.raises(OwnedError) as raised, owner(target):
            pass
        with owner(target, name="another"):
            pass
    assert raised.value.exit_code == 5
    assert f"process {os.getpid()} on " in str(raised.value)
    assert "--take-over" in raised.value.fix
    with owner(target):
        pass


def test_a_dead_owner_frees_the_pipeline_at_once(target: str) -> None:
    """The lock lives on a connection: when it ends without a word, the next bridge need not wait for a heartbeat."""
    with owner(target) as dead:
        dead.ownership.control.close()
        began = time.monotonic()
        with owner(target):
            assert time.monotonic() - began < 2


def test_a_stale_heartbeat_frees_the_pipeline(target: str, session: Session) -> None:
    """An owner that holds the lock and has not beaten for 30 s may be taken over without a flag."""
    with owner(target) as silent:
        session.execute("UPDATE _bridge.owner SET heartbeat_at = NOW(3) - INTERVAL 20 SECOND")
        with pytest.raises(OwnedError), owner(target):
            pass
        session.execute("UPDATE _bridge.owner SET heartbeat_at = NOW(3) - INTERVAL 32 SECOND")
        with owner(target) as heir:
            assert heir.ownership.epoch == silent.ownership.epoch + 1
            with pytest.raises(OwnedError):
                silent.take(EVENTS)


def test_a_beat_keeps_the_pipeline(target: str, session: Session) -> None:
    """The heartbeat is written, with the connections in use, and not by one who has lost the pipeline."""
    with owner(target) as first:
        session.execute("UPDATE _bridge.owner SET heartbeat_at = NOW(3) - INTERVAL 32 SECOND")
        first.writer.session()
        first.beat()
        age, connections = session.rows(
            "SELECT TIMESTAMPDIFF(SECOND, heartbeat_at, NOW(3)), connections FROM _bridge.owner"
        )[0]
        assert age <= 1
        assert connections == ",".join(map(str, first.writer.connections))
        with owner(target, take_over=True) as second:
            with pytest.raises(OwnedError):
                first.beat()
            ((connections,),) = session.rows("SELECT connections FROM _bridge.owner")
            assert connections == str(second.ownership.control.connection_id)


def test_who_was_taken_over_ends_although_it_has_nothing_to_write(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By its heartbeat, with exit code 5: an owner that is paused, or waits, would stay for as long as that lasts."""
    monkeypatch.setattr(heartbeats, "HEARTBEAT_SECONDS", 0.01)
    with owner(target) as first:
        heartbeat = Heartbeat(first.ownership, first.writer, print, 60)
        with heartbeat, owner(target, take_over=True):
            heartbeat._thread.join(10)
            with pytest.raises(OwnedError) as raised:
                heartbeat.raise_failure()
    assert raised.value.exit_code == 5


@pytest.mark.parametrize("step", ["look", "tell", "beat"])
def test_whatever_fails_beside_it_the_heart_beats_on(
    target: str, session: Session, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Without a heartbeat a bridge that lives and writes is taken over after 30 s."""
    monkeypatch.setattr(heartbeats, "HEARTBEAT_SECONDS", 0.01)
    failed = threading.Event()

    def fail(*_: object) -> None:
        failed.set()
        raise RuntimeError(step)

    with owner(target) as pipeline:
        told = fail if step == "tell" else print
        heartbeat = Heartbeat(pipeline.ownership, pipeline.writer, told, 0.01)
        if step == "tell":
            heartbeat.report_on(StatusReporter(pipeline.applier, pipeline.writer, ends_of(pipeline), 0).status)
        elif step == "look":
            heartbeat.report_on(fail)
        beat = pipeline.ownership.beat
        if step == "beat":
            monkeypatch.setattr(pipeline.ownership, "beat", lambda *some: beat(*some) if failed.is_set() else fail())
        with heartbeat:
            assert failed.wait(10)
            session.execute("UPDATE _bridge.owner SET heartbeat_at = NOW(3) - INTERVAL 32 SECOND")
            deadline = time.monotonic() + 10
            while session.value("SELECT TIMESTAMPDIFF(SECOND, heartbeat_at, NOW(3)) FROM _bridge.owner") > 10:
                assert time.monotonic() < deadline, "there is no heartbeat any more"


def test_what_ends_the_heartbeat_is_raised_in_the_thread_that_watches(target: str) -> None:
    """A pipeline without a heartbeat is taken over while it writes: it ends with its heartbeat."""

    ends = iter([SystemExit(1)])

    def die() -> None:
        for error in ends:
            raise error

    with owner(target) as pipeline:
        heartbeat = Heartbeat(pipeline.ownership, pipeline.writer, print, 0.01)
        heartbeat.report_on(die)
        heartbeat.raise_failure()
        with heartbeat:
            heartbeat._thread.join(10)
        with pytest.raises(SystemExit):
            heartbeat.raise_failure()


def test_a_stranger_is_not_killed(target: str, session: Session) -> None:
    """The id of a recorded connection may be another client's by now, as when the server was started anew."""
    with owner(target) as first, admin(target) as stranger:
        mine = first.writer.session().connection_id
        recorded = f"{mine},{stranger.connection_id}"
        session.execute("UPDATE _bridge.owner SET connections = %s", (recorded,))
        with owner(target, take_over=True):
            assert stranger.value("SELECT 1") == 1
            assert session.rows("SELECT id FROM information_schema.processlist WHERE id = %s", (mine,)) == []


@pytest.mark.usefixtures("session")
def test_an_id_that_is_not_the_server_s_is_not_killed(target: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Behind a proxy the client knows its connections by other ids; the server's might be anybody's."""
    monkeypatch.setattr("bridge.mysql.state.ownership._KILL_SECONDS", 1)
    killed: list[int] = []
    monkeypatch.setattr("bridge.mysql.state.ownership._kill", lambda _, connection: killed.append(connection))
    with admin(target) as stranger:
        lock = pipeline_lock("_bridge", "bridge")
        stranger.value("SELECT GET_LOCK(%s, 0)", (lock,))
        stranger.value("SELECT GET_LOCK(%s, 0)", (f"{lock}:{stranger.connection_id + 1_000_000}",))
        with pytest.raises(OwnedError, match="none was killed"), owner(target, take_over=True):
            pass
    assert killed == []


def test_take_over_fences_the_loser(target: str, session: Session) -> None:
    """After a take-over the first owner's next transaction and its next schema change raise OwnedError and change
    nothing."""
    with owner(target) as first, owner(target, take_over=True):
        before = contents(session), journal(session)
        with pytest.raises(OwnedError):
            first.writer.apply(Advance(0, 11, {}, (ALTER,)))
        with pytest.raises(OwnedError):
            first.writer.run_next((ALTER,))
        with pytest.raises(OwnedError):
            first.take(EVENTS)
        assert (contents(session), journal(session)) == before
    run_all(target, EVENTS)
    assert session.rows("SELECT * FROM m.t ORDER BY id") == [(1, None), (2, 2)]


def test_the_epoch_fences_a_session_that_nobody_killed(target: str, session: Session) -> None:
    """A loser whose writing session was not found by the take-over cannot commit either: the compare-and-set on the
    progress row does not match."""
    with owner(target) as first:
        survivor = first.writer.session()
        session.execute("UPDATE _bridge.owner SET connections = ''")
        survivor.value("SELECT RELEASE_ALL_LOCKS()")
        with owner(target, take_over=True):
            before = contents(session), journal(session)
            with pytest.raises(OwnedError):
                first.writer.apply(Advance(0, 11, {}, ()))
            assert first.writer.end.retries == 0, "its session was killed after all"
            assert (contents(session), journal(session)) == before
        survivor.close()


def test_an_owner_that_came_and_went_fences_too(target: str, session: Session) -> None:
    """While this bridge had no connection another one took the pipeline and left: the lock is free again, but the
    epoch says that what this one knows is old."""
    with owner(target) as first:
        first.ownership.control.close()
        with owner(target) as second:
            second.take(EVENTS.slice(0, 1))
        before = contents(session), journal(session)
        with pytest.raises(OwnedError):
            first.writer.run_next((ALTER,))
        with pytest.raises(OwnedError):
            first.take(EVENTS)
        assert (contents(session), journal(session)) == before


def test_a_session_that_only_the_server_holds_is_given_up(target: str, session: Session) -> None:
    """A network may cut the control session without the server noticing, which keeps the lock: a new control session
    ends the old one instead of taking itself for another bridge."""
    with owner(target) as first:
        ghost = first.ownership.control
        first.ownership.control = first.target.connect(autocommit=True)
        first.ownership.control.close()
        first.ownership.control.connection_id = ghost.connection_id
        first.take(EVENTS)
        first.applier.finish()
        assert session.rows("SELECT * FROM m.t ORDER BY id") == [(1, None), (2, 2)]
        ghost.close()


@pytest.mark.parametrize(
    "step",
    ["begun", "advanced", "statement", "before commit", "committed", "ddl intent", "ddl executed", "ddl recorded"],
)
def test_a_stopped_process_that_wakes_can_do_nothing(
    target: str, session: Session, victims: Victims, step: str
) -> None:
    """A process stopped (SIGSTOP) inside a transaction or a schema change is taken over at once; when it wakes it can
    neither commit nor run a schema change, and ends with exit code 5."""
    kept = victims.keep(EVENTS)
    pid = victims.stop_at(target, kept, step)
    try:
        began = time.monotonic()
        run_all(target, EVENTS, take_over=True)
        assert time.monotonic() - began < 10
        expected = contents(session), journal(session)
    finally:
        os.kill(pid, signal.SIGCONT)
        code = victims.exit_code()
    assert code == 5
    assert (contents(session), journal(session)) == expected
    assert session.rows("SELECT * FROM m.t ORDER BY id") == [(1, None), (2, 2)]
    assert [change[1:] for change in journal(session)[:1]] == [(ALTER.text, "done")]


def is_altering(session: Session) -> bool:
    return bool(
        session.rows("SELECT id FROM information_schema.processlist WHERE info LIKE '/* bridge % ALTER TABLE t ADD%'")
    )


def becomes_altering(session: Session) -> None:
    deadline = time.monotonic() + SECONDS
    while not is_altering(session):
        assert time.monotonic() < deadline


@pytest.mark.parametrize("take_over", [True, False])
def test_a_statement_that_outlives_its_process_runs_once(
    target: str, session: Session, victims: Victims, take_over: bool
) -> None:
    """A schema change still runs on the server when its process has died: another bridge stays out meanwhile, or waits
    for it with --take-over; it is not sent a second time."""
    slow = in_one_partition(
        [schema_change(11, "ALTER TABLE t ADD COLUMN c INT, ADD INDEX (c), ALGORITHM = COPY"), boundary(12)]
    )
    session.execute("USE m")
    session.execute("INSERT INTO t SELECT seq FROM seq_1_to_400000")
    pid = victims.stop_at(target, victims.keep(slow), "ddl intent")
    os.kill(pid, signal.SIGCONT)
    becomes_altering(session)
    os.kill(pid, signal.SIGKILL)
    assert is_altering(session)
    assert victims.exit_code() == -signal.SIGKILL
    deadline = time.monotonic() + SECONDS
    while time.monotonic() < deadline:
        with suppress(OwnedError):
            run_all(target, slow, take_over=take_over)
            break
    assert session.rows("SELECT COUNT(*), COUNT(DISTINCT id), COUNT(c) FROM m.t") == [(400_000, 400_000, 0)]
    ((_, _, state), (_, applied_ts, pending)) = journal(session)
    assert (state, applied_ts, pending) == ("done", 12, "[]")
    ((outcome,),) = session.rows("SELECT outcome FROM _bridge.schema_changes")
    assert outcome == "found on the target after an interruption"


def test_a_statement_that_outlives_its_connection_is_not_sent_again(target: str, session: Session) -> None:
    """The connection of a long schema change breaks: the same process finds it on the server, waits for it, and goes on
    behind it."""
    slow = in_one_partition([schema_change(11, "ALTER TABLE t ADD COLUMN c INT, ADD INDEX (c)"), boundary(12)])
    session.execute("USE m")
    session.execute("INSERT INTO t SELECT seq FROM seq_1_to_400000")
    counter = "SHOW GLOBAL STATUS LIKE 'Com_alter_table'"
    before = int(session.rows(counter)[0][1])
    with owner(target) as pipeline:
        worker = threading.Thread(target=pipeline.take, args=(slow,))
        worker.start()
        becomes_altering(session)
        pipeline.ownership.control._raw._sock.shutdown(socket.SHUT_RDWR)
        worker.join(SECONDS)
        assert not worker.is_alive()
    assert int(session.rows(counter)[0][1]) - before == 1
    assert session.rows("SELECT state, outcome FROM _bridge.schema_changes") == [
        ("done", "found on the target after an interruption")
    ]


def test_a_session_that_ends_while_it_is_looked_for_is_no_other_bridge(
    target: str, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The old control session holds the lock for as long as one waits for it, and is gone when one looks who it is."""
    with owner(target) as pipeline:
        ownership = pipeline.ownership
        take, is_late = ownership._try_lock, [True]

        def take_late(seconds: int) -> bool:
            while is_late and session.value("SELECT IS_USED_LOCK(%s)", (ownership.lock,)) is not None:
                time.sleep(0.01)
            return not is_late.pop() if is_late else take(seconds)

        monkeypatch.setattr(ownership, "_try_lock", take_late)
        ownership.reconnect()
        assert session.value("SELECT IS_USED_LOCK(%s)", (ownership.lock,)) == ownership.control.connection_id


def test_a_stop_breaks_off_what_waits_for_a_lock(target: str, session: Session) -> None:
    """The server rolls the transaction back at once, and who comes next need not wait for it."""
    session.execute("LOCK TABLES m.t WRITE")
    failures: list[BaseException] = []
    with owner(target) as stopped:
        stopped.beat()

        def apply() -> None:
            try:
                stopped.take(EVENTS)
            except Abandoned as abandoned:
                failures.append(abandoned)

        thread = threading.Thread(target=apply)
        thread.start()
        with admin(target) as other:
            waiting = "SELECT COUNT(*) FROM information_schema.processlist WHERE state LIKE 'Waiting for table%'"
            while other.value(waiting) == 0:
                assert thread.is_alive()
            stopped.writer.break_off()
            thread.join(10)
            assert len(failures) == 1
            assert other.value(waiting) == 0
        with owner(target):
            pass
        session.execute("UNLOCK TABLES")


def test_nothing_is_begun_over_a_session_that_was_opened_during_a_stop(
    target: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody has cut it, as it was not there yet: what it waited for would hold up the stop."""
    with owner(target) as stopped:
        writer, connect = stopped.writer, stopped.writer._target.connect
        writer.close()
        monkeypatch.setattr(type(stopped.ownership), "_end_all", lambda *_: None)

        def late(**options: bool) -> Session:
            found = connect(**options)
            writer.break_off()
            return found

        monkeypatch.setattr(writer._target, "connect", late)
        with pytest.raises(Abandoned):
            writer.session()


def test_a_stop_leaves_a_schema_change_running_which_the_next_one_waits_for(target: str) -> None:
    """Whoever comes next is not told that the pipeline is owned: the last owner has said that it ended."""
    with owner(target) as stopped:
        tagged = f"{pipeline_tag('bridge')} 7 */ SELECT SLEEP(1.5)"

        def run() -> None:
            with pytest.raises(LostConnectionError):
                stopped.ownership.control.value(tagged)

        thread = threading.Thread(target=run)
        thread.start()
        with admin(target) as other:
            while not other.value("SELECT COUNT(*) FROM information_schema.processlist WHERE info LIKE '/* bridge%'"):
                assert thread.is_alive()
        began = time.monotonic()
        stopped.writer.break_off()
        thread.join(10)
        with owner(target):
            assert time.monotonic() - began > 1
