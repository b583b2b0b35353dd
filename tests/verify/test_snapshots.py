"""One moment for all sessions, on a target that moves."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import pytest
from pymysql.err import MySQLError

from bridge.config import VerifySection
from bridge.errors import StoppedError, UsageError
from bridge.filters.routes import Routes
from bridge.model import Advance
from bridge.mysql.connection.session import Session
from bridge.mysql.connection.target import Target
from bridge.mysql.server_errors import LOCK_CONFLICT, error_code
from bridge.mysql.server_load import parse_limits
from bridge.mysql.state.progress import ProgressTable
from bridge.verify import snapshots
from bridge.verify.snapshots import SnapshotReader, Throttle, begin_snapshot, open_source, open_target_snapshot
from bridge.verify.source import verification
from tests.support.verify_servers import Pair, execute, said

TRANSACTIONS_PER_SECOND = 200
LAG_SECONDS = 0.05
GOES_ON_SECONDS = 20.0


def as_tidb(source: Target, count: int) -> tuple[Session, ...]:
    """Opens sessions on a source that is taken for a TiDB."""
    sessions = open_source(source, count)
    for session in sessions:
        session.is_tidb = True
    return sessions


def goes_on(done: list[int], beyond: int) -> None:
    """Waits until the bridge has brought more transactions than so many."""
    deadline = time.monotonic() + GOES_ON_SECONDS
    while done[0] <= beyond:
        assert time.monotonic() < deadline, f"{done[0]} transactions, not more than {beyond}"
        time.sleep(0.005)


@contextmanager
def moving(pair: Pair) -> Iterator[list[int]]:
    """Transfers on the source, 200 a second, and a bridge that brings each to the target a little later."""
    table, target, source = ProgressTable("bridge"), Target(pair.target), Target(pair.source)
    pair.both("CREATE DATABASE app; USE app; CREATE TABLE app.a (id INT PRIMARY KEY, v INT);"
              "INSERT INTO app.a SELECT seq, 0 FROM seq_1_to_2000; CREATE TABLE app.k (v INT)")  # fmt: skip
    writer, upstream = target.connect(), source.connect()
    table.create(writer)
    table.begin(writer, 1)
    writer.execute("INSERT INTO _bridge.owner VALUES ('bridge', 0, 'h', 1, '', NOW(3), NOW(3) + INTERVAL 1 HOUR, '{}')")
    writer.commit()
    end, done, waits = threading.Event(), [0], [0.0]
    started = (int(time.time() * 1000)) << 18

    def script(number: int) -> list[str]:
        one, other = number % 2000 + 1, number * 7 % 2000 + 1
        return [f"UPDATE app.a SET v = v - 1 WHERE id = {one}", f"UPDATE app.a SET v = v + 1 WHERE id = {other}",
                "UPDATE app.a SET v = v + 1 WHERE id = 1",
                f"INSERT INTO app.k VALUES ({number})" if number % 50 == 0 else "DO 0"]  # fmt: skip

    def work() -> None:
        begun, ts = time.monotonic(), 1
        while not end.is_set():
            for statement in script(done[0]):
                upstream.execute(statement)
            upstream.commit()
            time.sleep(LAG_SECONDS if done[0] % 100 == 0 else 0.001)
            at = time.monotonic()
            writer.begin()
            assert table.advance(writer, 0, Advance(ts, started + done[0] + 1, {}))
            waits.append(time.monotonic() - at)
            for statement in script(done[0]):
                writer.execute(statement)
            writer.commit()
            ts = started + done[0] + 1
            done[0] += 1
            time.sleep(max(0.0, done[0] / TRANSACTIONS_PER_SECOND - (time.monotonic() - begun)))

    thread = threading.Thread(target=work)
    thread.start()
    try:
        goes_on(done, 0)
        yield done
        assert thread.is_alive(), "the bridge was refused the progress row"
        assert max(waits) < 1.0
    finally:
        end.set()
        thread.join(60)
        assert not thread.is_alive()
        writer.close()
        upstream.close()


def test_verify_while_transactions_flow(pair: Pair) -> None:
    """Equal, with and without a key; the bridge is held for a moment only, and goes on."""
    with moving(pair) as done:
        report = pair.verify("app.*", grace_seconds=20.0)
        assert said(report) == set()
        assert report.moment > 1
        assert report.held_seconds < 0.5
        goes_on(done, done[0])


def test_damage_is_found_while_transactions_flow(pair: Pair) -> None:
    """A row that the bridge does not touch stays wrong, however long it is looked at."""
    with moving(pair):
        pair.damage("INSERT INTO app.a VALUES (5000, 5)")
        assert said(pair.verify("app.*", grace_seconds=1.0)) == {"a 5000 extra"}


def test_all_sessions_see_one_moment(pair: Pair) -> None:
    """Transfers of a value between rows never show half, and later ones not at all."""
    query = "SELECT SUM(v), SUM(v * id), COUNT(*) FROM app.a"
    with moving(pair) as done:
        for _ in range(3):
            snapshot, before = open_target_snapshot(Target(pair.target), ProgressTable("bridge"), 4, Routes()), done[0]
            seen = set()
            try:
                for number, session in enumerate(snapshot.sessions, 1):
                    goes_on(done, before + 2 * number)
                    seen.add(session.rows(query)[0])
            finally:
                for session in snapshot.sessions:
                    session.close()
            assert len(seen) == 1


def test_the_bridge_cannot_move_between_the_snapshots(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A transaction of the bridge that comes at the worst instants, before each snapshot is opened, does not get the
    progress row; every snapshot shows the applied_ts that was read, and afterwards the row is free again."""
    table, target = ProgressTable("bridge"), Target(pair.target)
    writer = target.connect()
    table.create(writer)
    table.begin(writer, 1)
    writer.commit()
    writer.execute("SET innodb_lock_wait_timeout = 0")

    def advance() -> int:
        """Tries to commit one transaction; gives the server's refusal, 0 for none."""
        try:
            writer.begin()
            assert table.advance(writer, 0, Advance(1, 2, {}))
            writer.commit()
        except MySQLError as error:
            writer.rollback()
            return error_code(error)
        return 0

    refusals: list[int] = []
    begin = snapshots.begin_snapshot
    monkeypatch.setattr(
        snapshots, "begin_snapshot", lambda session: (refusals.append(advance()), begin(session))
    )  # fmt: skip
    snapshot = open_target_snapshot(target, table, 3, Routes(), beside=lambda _: refusals.append(advance()))
    try:
        assert set(refusals) <= LOCK_CONFLICT
        assert len(refusals) == 4
        query = "SELECT applied_ts FROM _bridge.progress WHERE name = 'bridge'"
        assert snapshot.progress is not None
        assert {session.value(query) for session in snapshot.sessions} == {snapshot.progress.applied_ts}
        assert advance() == 0
    finally:
        for session in (*snapshot.sessions, writer):
            session.close()


def test_tidb_is_read_just_below_the_applied_ts(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """By every session, while the progress row is held: what the upstream committed at the applied ts or later is not
    in the target, and not looked at.  The stand-in is a MariaDB, whose consistent snapshot takes the place of that one
    statement."""
    pair.both("CREATE DATABASE app; USE app; CREATE TABLE a (id INT PRIMARY KEY); INSERT INTO a VALUES (1)")
    table, writer = ProgressTable("bridge"), Target(pair.target).connect()
    table.create(writer)
    table.begin(writer, 500)
    writer.commit()
    writer.execute("SET innodb_lock_wait_timeout = 0")
    execute_statement, told, refused = Session.execute, list[str](), set[int]()

    def stand_in(session: Session, sql: str, args: Sequence[object] = ()) -> int:
        if "tidb_snapshot" not in sql:
            return execute_statement(session, sql, args)
        told.append(sql)
        with pytest.raises(MySQLError) as error:
            execute_statement(writer, "UPDATE _bridge.progress SET applied_ts = 501")
        refused.add(error_code(error.value))
        begin_snapshot(session)
        if len(told) == 5:
            execute(pair.source, "INSERT INTO app.a VALUES (2)")
        return 0

    monkeypatch.setattr(verification, "open_source", as_tidb)
    monkeypatch.setattr(Session, "execute", stand_in)
    try:
        report = pair.verify("app.*", grace_seconds=0.0)
    finally:
        writer.close()
    assert (said(report), report.moment) == (set(), 500)
    assert told == ["SET @@tidb_snapshot = '499'"] * 3
    assert refused <= LOCK_CONFLICT


def test_tidb_without_a_pipeline_is_refused(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing tells at which moment it should be read."""
    monkeypatch.setattr(verification, "open_source", as_tidb)
    with pytest.raises(UsageError, match="knows no pipeline 'bridge'"):
        pair.verify("app.*")


def test_who_loses_the_progress_row_is_told(pair: Pair, monkeypatch: pytest.MonkeyPatch) -> None:
    """A verify that stands still with the row in its hands does not keep the bridge waiting, and its snapshots, which
    may be of two moments then, are not used."""
    table, target = ProgressTable("bridge"), Target(pair.target)
    writer = target.connect()
    table.create(writer)
    table.begin(writer, 1)
    writer.commit()
    monkeypatch.setattr(snapshots, "_HOLDER_SECONDS", 1)

    def stand_still(_: object) -> None:
        assert table.advance(writer, 0, Advance(1, 2, {}))  # waits for the row
        writer.commit()

    with pytest.raises(MySQLError):
        open_target_snapshot(target, table, 1, Routes(), beside=stand_still)
    writer.close()


def test_a_schema_change_does_not_wait_for_the_whole_verification(pair: Pair) -> None:
    """Between two looks the snapshot holds no metadata lock; what it cannot show any more it refuses to show."""
    pair.both("CREATE DATABASE app; CREATE TABLE app.a (id INT PRIMARY KEY)")
    snapshot = open_target_snapshot(Target(pair.target), ProgressTable("bridge"), 1, Routes())
    try:
        reader = SnapshotReader(snapshot.sessions[0], is_snapshot=True, place="target")
        assert reader.rows("SELECT COUNT(*) FROM app.a") == [(0,)]
        execute(pair.target, "SET lock_wait_timeout = 2; ALTER TABLE app.a ADD COLUMN v INT, ALGORITHM = COPY")
        with pytest.raises(StoppedError, match=r"altered while it was verified.* --filter"):
            reader.rows("SELECT COUNT(*) FROM app.a")
    finally:
        snapshot.sessions[0].close()


def test_waits_while_the_server_is_busy(pair: Pair) -> None:
    """And says why; goes on when the status variable has come down."""
    session = Target(pair.target).connect()
    told: list[str] = []

    def tell(words: str) -> None:
        told.append(words)
        session.execute("SET GLOBAL max_connections = 151")

    try:
        Throttle({"Threads_running": 10_000}, {"target": session}, tell).wait()
        assert told == []
        busy = Throttle({"Threads_connected": 0}, {"target": session}, told.append)
        thread = threading.Thread(target=busy.wait, daemon=True)
        thread.start()
        thread.join(0.3)
        assert thread.is_alive()
        assert told[0].startswith("waits: Threads_connected of the target is ")
    finally:
        busy._limits = {}  # lets the thread end
        thread.join(60)
        session.close()


@pytest.mark.parametrize("rule", ["Threads_running", "Threads_running=x", "=3", "Threads_running>3"])
def test_a_rule_that_cannot_be_read_is_refused(rule: str) -> None:
    """With the form it should have."""
    with pytest.raises(UsageError, match="Threads_running=25"):
        parse_limits([rule], "--max-load")


def test_options_have_defaults() -> None:
    """`--max-load` may name several variables."""
    assert parse_limits(["Threads_running=25,Threads_connected=100"], "--max-load") == {
        "Threads_running": 25,
        "Threads_connected": 100,
    }
    assert VerifySection().chunk_seconds == 0.5
